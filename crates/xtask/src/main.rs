//! Tasks of the repository: `cargo run -p xtask -- TASK`.
//!
//! Owns no product code. Each task is a module; this file only picks one.

mod import_schemas;
mod limits_doc;
mod mirror_protocol_doc;
mod protocol_doc;
mod tidy;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

const USAGE: &str = "\
usage: cargo run -p xtask -- TASK
  import-schemas --jar FILE [--jar FILE …]   read Kafka's schemas into crates/wire/schema/kafka
  limits-doc                                 write docs/limits.md
  protocol-doc                               write docs/protocol.md, and the blocks of docs/mirror-protocol.md
  tidy                                       check the rules of the repository (also a test)";

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["import-schemas", ..] => import_schemas::run(&args[1..]),
        ["limits-doc"] => limits_doc::run(),
        ["protocol-doc"] => protocol_doc::run().and_then(|()| mirror_protocol_doc::run()),
        ["tidy"] => tidy::run(),
        _ => bail!(USAGE),
    }
}

/// The top folder of the repository.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
