#!/usr/bin/env bash
# Installs one of the clients that the cases run beside a real Kafka, into a cache that every run shares, and prints the command that runs it, a word
# a line. The command takes an address and a prefix for names.
#   install.sh java-VERSION|librdkafka-1.9|librdkafka|kafka-python-2|kafka-python-3|aiokafka|kafkajs|platformatic|sarama-1.26|sarama|kafka-go|franz-go
# Exit code 3: a language is missing; standard error says which. Not here: installing languages (bin/test.sh), the jars of Kafka (bin/fetch-kafka.sh).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${TARN_CLIENTS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tarn/clients}
client=$1

lacks() { echo "$client needs $1" >&2; exit 3; }

# A client is installed anew when its files here change. Two runs at once wait for each other.
digest=$(cd "$here" && find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -c1-16)

installed() { # key, function: runs the function once in the folder of the key
  folder=$cache/$1-$digest
  mkdir -p "$folder"
  exec 9>"$folder/.lock"
  flock 9
  [ -e "$folder/complete" ] || { (cd "$folder" && $2) >&2; touch "$folder/complete"; }
  exec 9>&-
}

java_client() {
  local version=${client#java-} libs
  command -v javac >/dev/null || lacks "a JDK"
  libs=${TARN_KAFKA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tarn/kafka}/$version/libs
  [ -e "$libs/../complete" ] || "$here/../../bin/fetch-kafka.sh" "$version" >&2
  compile() { javac --release 11 -nowarn -Xlint:none -cp "$libs/*" -d . "$here/java/Client.java"; }
  installed "$client" compile
  printf '%s\n' java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xmx128m -cp "$folder:$libs/*" Client
}

python_client() { # program, package…
  local program=$1; shift
  command -v python3 >/dev/null && python3 -c 'import venv, ensurepip' 2>/dev/null || lacks "Python 3 with venv"
  packages=("$@")
  venv() { python3 -m venv . && bin/pip install -q --disable-pip-version-check "${packages[@]}"; }
  installed "$client" venv
  printf '%s\n' "$folder/bin/python" "$here/python/$program"
}

node_client() { # program
  command -v node >/dev/null && command -v npm >/dev/null || lacks "Node.js with npm"
  # The packages bring the Node.js that they need.
  packages() { cp "$here"/node/* . && npm install --silent --no-audit --no-fund; }
  installed node packages
  printf '%s\n' "$folder/node_modules/node/bin/node" "$folder/$1"
}

go_client() { # folder, build option…
  local module=$1; shift
  command -v go >/dev/null || lacks "Go 1.24 or newer"
  (cd "$here/go/$module" && GOTOOLCHAIN=local go list -m >/dev/null 2>&1) || lacks "Go 1.24 or newer"
  command -v cc >/dev/null || lacks "a C compiler"
  options=("$@")
  build() { local out=$PWD/client; cd "$here/go/$module" && go build "${options[@]}" -o "$out" .; }
  installed "$client" build
  printf '%s\n' "$folder/client"
}

codecs=(python-snappy==0.7.3 lz4==4.4.5 zstandard==0.25.0)
case $client in
  java-*) java_client ;;
  librdkafka) python_client confluent.py confluent-kafka==2.16.1 ;;
  kafka-python-2) python_client kafka_python.py kafka-python==2.0.2 "${codecs[@]}" ;;
  kafka-python-3) python_client kafka_python.py kafka-python==3.0.12 "${codecs[@]}" ;;
  aiokafka) python_client aio_kafka.py aiokafka==0.14.0 cramjam==2.14.0 ;;
  kafkajs) node_client kafkajs.js ;;
  platformatic) node_client platformatic.mjs ;;
  sarama) go_client sarama ;;
  sarama-1.26) go_client sarama -modfile=old.mod ;;
  librdkafka-1.9|kafka-go|franz-go) go_client "$client" ;;
  *) echo "install.sh: no client $client" >&2; exit 2 ;;
esac
