//! Tells the gates which compiler built them: instruction counts are comparable only under the same
//! one.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let target = std::env::var("TARGET").unwrap_or_default();
    let version = Command::new(rustc).arg("--version").output();
    let version = version.map_or_else(
        |_| "rustc unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    );
    println!("cargo:rustc-env=TARN_GATES_TOOLCHAIN={version} for {target}");
}
