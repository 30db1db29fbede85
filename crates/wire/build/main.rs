//! Build script: turns `schema/**/*.msg` into Rust.
//!
//! [`parse`] reads the files, [`model`] holds what they say, [`emit`] writes structs and codecs,
//! [`samples`] writes generators of values for the tests.

#![allow(clippy::unwrap_used, reason = "writing to a String cannot fail")]

mod emit;
mod model;
mod parse;
mod samples;

use std::path::Path;
use std::{env, fs};

fn main() {
    // A build script may panic: that is how it reports a broken schema.
    let root = env::var("CARGO_MANIFEST_DIR").expect("set by cargo");
    let out = env::var("OUT_DIR").expect("set by cargo");
    println!("cargo:rerun-if-changed=schema");
    println!("cargo:rerun-if-changed=build");
    let messages = parse::schema_dir(&Path::new(&root).join("schema"))
        .unwrap_or_else(|error| panic!("{error}"));
    fs::write(Path::new(&out).join("messages.rs"), emit::all(&messages))
        .expect("OUT_DIR is writable");
    fs::write(Path::new(&out).join("samples.rs"), samples::all(&messages))
        .expect("OUT_DIR is writable");
}
