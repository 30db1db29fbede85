//! Owns the account of cases that could not run on this machine. `bin/test.sh` counts and prints
//! it, and fails in CI when the reason is not a missing device.

use std::io::Write;

/// Notes that the calling test did not run. `reason` begins with `device: ` when the machine lacks
/// what the case needs.
///
/// # Panics
/// When the account cannot be written: then the case must fail rather than look fine.
pub fn note(reason: &str) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    eprintln!("{name} did not run: {reason}");
    if let Some(path) = std::env::var_os("TARN_NOT_RUN") {
        let mut file = std::fs::File::options()
            .append(true)
            .create(true)
            .open(path)
            .expect("account of cases that did not run");
        writeln!(file, "{name}: {reason}").expect("account of cases that did not run");
    }
}
