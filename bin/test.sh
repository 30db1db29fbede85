#!/usr/bin/env bash
# Runs every test: those in the crates, those of the log once more under memcheck, then the black-box cases against real Kafkas, standard clients and the tarn program.
#   bin/test.sh [FILTER]        FILTER: only tests whose name contains it; `clients`: clients in Java, C, Python, JavaScript and Go beside a real Kafka
#   bin/test.sh storm [--long]  only the storm: 50,000 broken requests, or 5 million; STORM_SEED=N makes a run again
#   bin/test.sh memcheck        only the storage tests under valgrind's memcheck
# Under memcheck all storage tests run, with TARN_MEMCHECK=1: those that repeat a step do it less often (`sized` in crates/log/src/tests.rs).
# TARN_TEST_NOFILE=1024 gives every node of the black-box cases that limit of open files.
# Installs what is missing when it may (root and a known package manager), else says in one sentence what to install. Nothing is skipped in
# silence: what could not run is counted and named at the end; with CI=true that is a failure unless the machine lacks the device for it.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ "${1:-}" = storm ]; then
  # The ceilings are for the program that users run.
  cargo build --release -q -p tarn-cli || exit 1
  export TARN_BIN=${TARN_BIN:-${CARGO_TARGET_DIR:-$PWD/target}/release/tarn}
  [ "${2:-}" != --long ] || export STORM_REQUESTS=${STORM_REQUESTS:-5000000}
  exec cargo test -q -p tarn-tests --test storm -- --nocapture --test-threads=1
fi

filter=${1:-}
not_run=$(mktemp)
trap 'kill $(jobs -p) 2>/dev/null; rm -f "$not_run" "$not_run.memcheck"' EXIT
export TARN_NOT_RUN=$not_run
failed=()

# ---- what the tests need ----

java_major() { java -version 2>&1 | sed -n 's/.* version "\([0-9]*\)\(\.\([0-9]*\)\)\{0,1\}.*/\1/p' | head -1; }
jdk_is_there() { command -v javac >/dev/null && [ "$(java_major)" -ge 17 ] 2>/dev/null; }

missing() { # the things that are missing, one a line
  jdk_is_there || echo jdk
  command -v mvn >/dev/null || echo maven
  command -v cc >/dev/null || echo cc
  command -v make >/dev/null || echo make
  command -v valgrind >/dev/null || echo valgrind
  python3 -c 'import venv, ensurepip' 2>/dev/null || echo python
  command -v npm >/dev/null || echo node
  command -v go >/dev/null || echo go
}

packages() { # package manager, thing: names of its packages
  case $1:$2 in
    apt-get:jdk) echo "$(apt-cache show openjdk-21-jdk-headless >/dev/null 2>&1 && echo openjdk-21-jdk-headless || echo openjdk-17-jdk-headless)" ;;
    dnf:jdk|zypper:jdk) echo java-21-openjdk-devel ;;
    apk:jdk) echo openjdk21-jdk ;;
    pacman:jdk) echo jdk21-openjdk ;;
    apt-get:cc) echo gcc g++ libc6-dev ;;
    apk:cc) echo gcc g++ musl-dev ;;
    *:cc) echo gcc gcc-c++ ;;
    apt-get:python) echo python3 python3-venv ;;
    *:python) echo python3 ;;
    *:node) echo nodejs npm ;;
    apt-get:go) echo golang-go ;;
    dnf:go) echo golang ;;
    *) echo "$2" ;;
  esac
}

install_missing() {
  local manager thing list=()
  for manager in apt-get dnf zypper apk pacman; do command -v $manager >/dev/null && break; manager=; done
  if [ -z "$manager" ] || [ "$(id -u)" != 0 ]; then return 1; fi
  [ $manager != apt-get ] || apt-get update -qq
  for thing in $(missing); do list+=($(packages $manager $thing)); done
  echo "installing ${list[*]}"
  case $manager in
    apt-get) DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${list[@]}" >/dev/null ;;
    dnf|zypper) $manager install -y -q "${list[@]}" ;;
    apk) apk add --no-progress -q "${list[@]}" ;;
    pacman) pacman -S --noconfirm --needed "${list[@]}" >/dev/null ;;
  esac
}

command -v cargo >/dev/null || { echo "the tests need Rust: install it with rustup and run this again" >&2; exit 1; }
if [ -n "$(missing)" ]; then install_missing || true; fi
for thing in $(missing); do
  case $thing in
    cc|make) echo "the tests need a C compiler and make: install gcc and make, or run this as root" >&2; exit 1 ;;
    jdk|maven) echo "the black-box tests need a JDK of version 17 or newer and Maven: install them, or run this as root" >&2; black_box_reason="no $thing" ;;
    python|node|go) echo "the cases with clients of every language need Python 3 with venv, Node.js with npm, and Go 1.24: install $thing, or run this as root" >&2 ;;
    valgrind) echo "the regression gates and memcheck need valgrind: install it, or run this as root" >&2 ;;
  esac
done

# ---- the tests ----

run() { # title, command…
  local title=$1; shift
  echo "== $title"
  "$@" || failed+=("$title")
}

gates() { # instruction and allocation counts of the hot paths against the committed baseline
  "${CARGO_TARGET_DIR:-target}/release/tarn-gates"
  local code=$?
  [ $code != 3 ] || { echo "instruction counts of the regression gates: no valgrind" >> "$not_run"; code=0; }
  return $code
}

memcheck() { # arguments of cargo that choose the packages: the tests of the log under valgrind
  local tests options output background code=0
  # The two processes take about the same time; what is not named here runs in the second one.
  local first=(tests::cleaning tests::model tests::rot)
  cargo test -q "$@" --lib --no-run || return 1
  tests=$(cargo test "$@" --lib --no-run 2>&1 | sed -n 's/.*(\(.*tarn_log-.*\))$/\1/p')
  tests=$(realpath "$tests") || return 1
  # Without fair turns a thread that loops keeps the others of its test waiting for minutes.
  options=(-q --tool=memcheck --fair-sched=try --error-exitcode=1
    --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite)
  local -x TARN_MEMCHECK=1
  output=$not_run.memcheck
  (cd crates/log && exec valgrind "${options[@]}" "$tests" -q --test-threads=1 "${first[@]}") \
    > "$output" 2>&1 &
  background=$!
  (cd crates/log && exec valgrind "${options[@]}" "$tests" -q --test-threads=1 \
    "${first[@]/#/--skip=}") || code=1
  wait $background || code=1
  cat "$output"
  return $code
}

if [ "$filter" = memcheck ]; then
  command -v valgrind >/dev/null || exit 1
  memcheck -p tarn-log && echo "memcheck passed"
  exit $?
fi
run "tests in the crates" cargo test --workspace --exclude tarn-tests --no-fail-fast -q -- ${filter:+"$filter"}
if [ -z "$filter" ] && command -v valgrind >/dev/null; then
  run "storage tests under memcheck" memcheck --workspace --exclude tarn-tests
elif [ -z "$filter" ]; then
  echo "storage tests under memcheck: no valgrind" >> "$not_run"
fi
# One build for both, so that nothing is built twice. The counts hold for this profile only.
run "the program under test" cargo build --release -q -p tarn-cli -p tarn-gates
if [ -z "$filter" ] || [[ regression-gates == *"$filter"* ]]; then run "regression gates" gates; fi
if [ -z "${black_box_reason:-}" ] && ! bin/fetch-kafka.sh; then black_box_reason="the jars of Kafka could not be fetched"; fi
if [ -n "${black_box_reason:-}" ]; then
  cargo test -q -p tarn-tests --test blackbox -- --list 2>/dev/null | sed -n "s/: test$/: $black_box_reason/p" >> "$not_run"
else
  # The same packages as above, so that cargo builds nothing a second time.
  libs=${TARN_KAFKA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tarn/kafka}/4.3.1/libs
  TARN_KAFKA_LIBS=$libs run "our bytes against Kafka's own classes" \
    cargo test --workspace --exclude tarn-tests --test kafka_jar -q -- --ignored ${filter:+"$filter"}
  export TARN_BIN=${TARN_BIN:-${CARGO_TARGET_DIR:-$PWD/target}/release/tarn}
  run "black-box cases" cargo test -p tarn-tests --no-fail-fast -- --test-threads="${TARN_TEST_THREADS:-2}" ${filter:+"$filter"}
fi

# ---- the account ----

if [ -s "$not_run" ]; then
  echo "== could not run: $(sort -u "$not_run" | wc -l)"
  sort -u "$not_run"
  # A case says `device: …` when the machine lacks what it needs; anything else must not be missing in CI.
  if [ "${CI:-}" = true ] && grep -qv ': device: ' "$not_run"; then failed+=("cases that could not run"); fi
else
  echo "== could not run: 0"
fi
if [ ${#failed[@]} -gt 0 ]; then
  printf 'FAILED: %s\n' "${failed[@]}"
  exit 1
fi
echo "all tests passed"
