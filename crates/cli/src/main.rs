//! The `tarn` program. Everything is in the library, so that it can be tested.

fn main() -> std::process::ExitCode {
    tarn_cli::main(std::env::args_os().collect())
}
