#!/usr/bin/env bash
# Builds tarn and shows a mirror at work: an embedded source and destination with sample topics and a live producer, until Ctrl-C.
#   bin/quickstart.sh [--once] [--source HOST:PORT [--topic REGEX]]
# --once prints the table once the lag is 0 and exits. --source mirrors from your own Kafka instead.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v cargo >/dev/null || { echo "quickstart needs Rust: install it with rustup and run this again" >&2; exit 1; }
# Without a C compiler nothing links; the message of the linker does not say what to install.
command -v cc >/dev/null || { echo "quickstart needs a C compiler (package gcc or clang)" >&2; exit 1; }
cargo build --release -p tarn-cli
exec "${CARGO_TARGET_DIR:-target}/release/tarn" demo "$@"
