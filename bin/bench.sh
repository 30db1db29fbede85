#!/usr/bin/env bash
# Measures Tarn beside a real Kafka and beside MirrorMaker 2 and builds docs/performance.md from the figures.
#   bin/bench.sh SCENARIO|ROW…|all [--against kafka,mm2|none] [--rounds N] [--json FILE] [--force] [--again] [--profile] [--scale F]
#   bin/bench.sh list              what there is;  bin/bench.sh page: only builds the page;  bin/bench.sh settings: tries the rivals' settings;
#   bin/bench.sh --help            every option
# Run it on a machine that does nothing else. Needs Rust, a C compiler, a JDK of version 17 or newer and Maven; as root it can raise the limit of
# open files that rows with thousands of partitions want. What is measured and how: docs/performance.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

command -v cargo >/dev/null || { echo "bench.sh: Rust is missing: install it with rustup" >&2; exit 1; }
[ $# -gt 0 ] || set -- --help
target=${CARGO_TARGET_DIR:-$PWD/target}
cargo build --release -q -p tarn-bench
case " $* " in
  *" list "* | *" page "* | *" --help "* | *" -h "*) ;;
  *)
    [ -n "${TARN_BIN:-}" ] || cargo build --release -q -p tarn-cli
    # The harness says in a sentence what is missing when a scenario that is asked for needs it.
    if command -v java >/dev/null; then bin/fetch-kafka.sh 4.3.1 mirrormaker-4.3.1 >&2 || true; fi
    case " $* " in
      *" wan "* | *" X8 "* | *" all "*)
        # The long line is made with `ip`.
        if ! command -v ip >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
          apt-get install -y -q iproute2 >&2 || true
        fi ;;
    esac ;;
esac
export TARN_BIN=${TARN_BIN:-$target/release/tarn}

# A fault in a mapped file reads ahead as much as the block device is set to. Where that is megabytes, each of Kafka's thousands of mapped, empty
# indexes fills the memory with zeros, and rows with many partitions measure that. So the run has what Linux sets by itself, and the old value
# comes back at the end; the page shows the value of each run.
readahead=/sys/class/bdi/$(stat -c '%Hd:%Ld' "${TMPDIR:-/tmp}" 2>/dev/null)/read_ahead_kb
readahead_before=$(cat "$readahead" 2>/dev/null || true)
if [ "${readahead_before:-0}" -gt 128 ] && echo 128 2>/dev/null > "$readahead"; then
  trap 'echo "$readahead_before" > "$readahead"' EXIT
  trap 'exit 130' INT TERM
elif [ "${readahead_before:-0}" -gt 128 ]; then
  echo "bench: the disk reads $readahead_before KiB ahead, and this could not be set to 128: rows with thousands of partitions show that" >&2
fi

# Loopback has no congestion; where BBR is the default it paces loopback with timers all the same, 0.2 processor seconds for each GB sent, on both
# sides alike. So everything runs in a network namespace of its own with reno. The long line (X8) makes namespaces of its own in it.
if [ "$(id -u)" = 0 ] && command -v ip >/dev/null && unshare --net true 2>/dev/null; then
  unshare --net -- bash -c 'ip link set lo up && echo reno > /proc/sys/net/ipv4/tcp_congestion_control && exec "$@"' bench "$target/release/tarn-bench" "$@"
else
  echo "bench: no network namespace of its own (needs root, ip and unshare): loopback keeps the congestion control of this machine" >&2
  "$target/release/tarn-bench" "$@"
fi
