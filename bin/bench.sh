#!/usr/bin/env bash
# Measures what a mirror costs on this machine, beside MirrorMaker 2: bin/bench.sh [GIGABYTES]  (default 4; the disk needs four times that)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin/fetch-kafka.sh 4.3.1 mirrormaker-4.3.1
cargo build --release -q -p tarn-cli
cargo build --release -q -p tarn-tests --bin bench
# Heap of the real Kafkas; being set, it also means the JVM's own choice of compiler and collector.
export TARN_KAFKA_HEAP_MB=${TARN_KAFKA_HEAP_MB:-1024}
exec "${CARGO_TARGET_DIR:-target}/release/bench" "$@"
