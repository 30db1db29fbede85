//! The storm: valid requests of every announced API and version, made from the schemas, and the
//! same with every field broken, against a broker; broken answers of a source against its mirror.
//! Nothing falls over, memory and answers stay bounded, a bystander is served as before.
//!
//! `STORM_REQUESTS` (50,000) and `STORM_SEED` choose how long and which; the seed of a run is
//! printed and makes it again. `STORM_FIRST` (0) begins with that request, to send one again that a
//! long run named.

mod ceilings;
mod mutate;
mod requests;
#[path = "../../crates/wire/tests/sample/mod.rs"]
mod sample;
mod source;

/// Requests of a run.
fn count() -> u64 {
    number("STORM_REQUESTS").unwrap_or(50_000)
}

/// The first request of a run.
fn first() -> u64 {
    number("STORM_FIRST").unwrap_or(0)
}

/// Seed of a run: given, or new each day, so that CI sees more than one storm.
fn seed() -> u64 {
    let today = || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |now| now.as_secs() / 86_400)
    };
    let seed = number("STORM_SEED").unwrap_or_else(today);
    eprintln!("storm: STORM_SEED={seed}");
    seed
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number")),
    )
}
