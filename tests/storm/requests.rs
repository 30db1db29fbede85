//! Requests to a broker.

use std::time::{Duration, Instant};

use tarn_tests::raw::{self, RawClient};
use tarn_tests::tarn::Tarn;
use tarn_wire::apis::APIS;
use tarn_wire::{Message, Writer};

use crate::ceilings::{ANSWER_BYTES_MAX, Bystander, GROWTH_MAX, create_topic};
use crate::mutate::mutate;
use crate::sample::{Gen, Sample, Visitor, sample, visit_requests};

/// Names that are there, so that requests are about something.
const NAMES: &[&str] = &[
    "storm",
    "storm-2",
    "__consumer_offsets",
    "range",
    "consumer",
    "1",
];
/// Requests before memory is looked at: caches, pools and internal topics are filled then.
const WARM_UP: u64 = 3_000;
/// How many requests go out between two looks at the broker.
const LOOK_EVERY: u64 = 500;
/// Bytes of key, version and correlation id.
const FIXED_BYTES: usize = 8;
const CORRELATION_ID: i32 = 77;
/// Correlation id of the request that follows each one: its answer says that the broker is done
/// with it.
const MARK: i32 = i32::MIN + 1;
const PRODUCE: i16 = 0;
/// Longest wait for the mark.
const STALL_MAX: Duration = Duration::from_secs(30);

/// An API and version, and how a request of it is made.
struct Kind {
    name: &'static str,
    key: i16,
    version: i16,
    frame: fn(&mut Gen, i16, i16) -> Option<Vec<u8>>,
}

/// Gathers what a listener announces.
struct Kinds<'a> {
    announced: &'a std::collections::BTreeMap<i16, (i16, i16)>,
    kinds: Vec<Kind>,
}

impl Visitor for Kinds<'_> {
    fn message<M: Message + Sample>(&mut self) {
        let name = M::NAME.trim_end_matches("Request");
        let Some(api) = APIS.iter().find(|api| api.name == name) else {
            return;
        };
        let Some(&(min, max)) = self.announced.get(&api.key.0) else {
            return;
        };
        for version in min.max(M::VERSIONS.min)..=max.min(M::VERSIONS.max) {
            self.kinds.push(Kind {
                name: M::NAME,
                key: api.key.0,
                version,
                frame: frame::<M>,
            });
        }
    }
}

/// A valid request without its length.
fn frame<M: Message + Sample>(g: &mut Gen, key: i16, version: i16) -> Option<Vec<u8>> {
    let message: M = sample(g, version);
    let mut w = Writer::new();
    w.i16(key);
    w.i16(version);
    w.i32(CORRELATION_ID);
    w.nullable_str(false, Some(b"storm")).ok()?;
    if version >= M::FLEXIBLE_FROM {
        w.uvarint(0);
    }
    message.encode(&mut w, version).ok()?;
    Some(w.finish().to_bytes()?.to_vec())
}

fn kinds(port: u16) -> Vec<Kind> {
    let announced = raw::api_versions(port).expect("versions");
    let mut found = Kinds {
        announced: &announced,
        kinds: Vec::new(),
    };
    visit_requests(&mut found);
    let covered: std::collections::BTreeSet<i16> = found.kinds.iter().map(|k| k.key).collect();
    let missing: Vec<&i16> = announced
        .keys()
        .filter(|key| !covered.contains(key))
        .collect();
    assert!(
        missing.is_empty(),
        "announced without a schema: {missing:?}"
    );
    found.kinds
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Sends a frame and the mark behind it. True when the mark was answered, false when the connection
/// was closed.
fn survives(client: &mut RawClient, frame: &[u8]) -> Result<bool, String> {
    let mark = [
        &18_i16.to_be_bytes()[..],
        &0_i16.to_be_bytes(),
        &MARK.to_be_bytes(),
        &(-1_i16).to_be_bytes(),
    ]
    .concat();
    let mut bytes = Vec::with_capacity(frame.len() + 32);
    for part in [frame, &mark] {
        bytes.extend((part.len() as i32).to_be_bytes());
        bytes.extend(part);
    }
    if client.send_bytes(&bytes).is_err() {
        return Ok(false);
    }
    let started = Instant::now();
    loop {
        match client.read_frame() {
            Ok(answer) if answer.len() > ANSWER_BYTES_MAX => {
                return Err(format!("an answer of {} bytes", answer.len()));
            }
            Ok(answer) if answer.starts_with(&MARK.to_be_bytes()) => return Ok(true),
            Ok(_) => {}
            Err(_) if started.elapsed() >= STALL_MAX => return Err("no answer".to_owned()),
            Err(_) => return Ok(false),
        }
    }
}

#[test]
fn a_broker_stands_in_the_storm() {
    let (seed, count) = (crate::seed(), crate::count());
    let mut tarn = Tarn::start_with(&[
        ("fetch.wait.max.ms", "20"),
        ("produce.wait.max.ms", "500"),
        ("group.max.rebalance.timeout.ms", "1000"),
    ]);
    let ports = tarn.ports();
    let kinds: Vec<(u16, Vec<Kind>)> = ports.iter().map(|port| (*port, kinds(*port))).collect();
    create_topic(ports[0], "storm", 3);
    let bystander = Bystander::start(ports[0]);
    let mut clients: Vec<RawClient> = ports
        .iter()
        .map(|port| RawClient::connect(*port).expect("the broker"))
        .collect();
    let (mut before, mut closed) = (0, 0_u64);
    let started = Instant::now();
    for at in crate::first()..count {
        let mut g = Gen::with_names(seed.wrapping_mul(1 << 32).wrapping_add(at), NAMES);
        // One in eight goes to the controller's port.
        let side = usize::from(g.below(8) == 0);
        let (port, kinds) = &kinds[side];
        let kind = &kinds[g.below(kinds.len() as u64) as usize];
        let Some(mut frame) = (kind.frame)(&mut g, kind.key, kind.version) else {
            continue;
        };
        let valid = g.below(4) == 0;
        if !valid {
            let from = if g.below(10) == 0 { 0 } else { FIXED_BYTES };
            mutate(&mut g, &mut frame, from);
        }
        let what = || {
            format!(
                "request {at} of seed {seed}: {} v{}",
                kind.name, kind.version
            )
        };
        let stands = survives(&mut clients[side], &frame)
            .unwrap_or_else(|e| panic!("{}: {e}; its bytes: {}", what(), hex(&frame)));
        if !stands {
            // A refused Produce that wants no answer can be told by closing only.
            assert!(
                !valid || kind.key == PRODUCE,
                "{} closed its connection",
                what()
            );
            closed += 1;
            tarn.process()
                .check_running()
                .unwrap_or_else(|e| panic!("{}: {e:#}", what()));
            clients[side] =
                RawClient::connect(*port).unwrap_or_else(|e| panic!("{}: {e:#}", what()));
        }
        if at == WARM_UP.min(count / 10) {
            before = tarn.process().resident_bytes();
        }
        if at % LOOK_EVERY == LOOK_EVERY - 1 {
            create_topic(ports[0], "storm", 3);
            let grown = tarn.process().resident_bytes().saturating_sub(before);
            assert!(
                before == 0 || grown <= GROWTH_MAX,
                "{}: {} MiB more",
                what(),
                grown >> 20
            );
        }
    }
    let grown = tarn.process().resident_bytes().saturating_sub(before);
    eprintln!(
        "storm: {count} requests of {} kinds in {:?}, {closed} closed, {} KiB more memory",
        kinds.iter().map(|(_, kinds)| kinds.len()).sum::<usize>(),
        started.elapsed(),
        grown >> 10
    );
    bystander.judge();
    tarn.check_healthy();
}
