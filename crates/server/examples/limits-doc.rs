//! Prints the page of limits: `cargo run -p xtask -- limits-doc` writes it to docs/limits.md.

fn main() {
    print!("{}", tarn_server::config::limits_page());
}
