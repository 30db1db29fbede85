//! Writes generators of every message for the storm, from the same schemas as `tarn-wire` and with
//! its code.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "a part of another build script"
)]

#[path = "../crates/wire/build/emit.rs"]
mod emit;
#[path = "../crates/wire/build/model.rs"]
mod model;
#[path = "../crates/wire/build/parse.rs"]
mod parse;
#[path = "../crates/wire/build/samples.rs"]
mod samples;

use std::path::Path;
use std::{env, fs};

fn main() {
    // A build script may panic: that is how it reports a broken schema.
    let root = env::var("CARGO_MANIFEST_DIR").expect("set by cargo");
    let out = env::var("OUT_DIR").expect("set by cargo");
    println!("cargo:rerun-if-changed=../crates/wire/schema");
    println!("cargo:rerun-if-changed=../crates/wire/build");
    let messages = parse::schema_dir(&Path::new(&root).join("../crates/wire/schema"))
        .unwrap_or_else(|error| panic!("{error}"));
    fs::write(Path::new(&out).join("samples.rs"), samples::all(&messages))
        .expect("OUT_DIR is writable");
}
