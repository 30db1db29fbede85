#!/usr/bin/env bash
# Fetches the jars of real Apache Kafka brokers, the oracle of the tests, with Maven into a cache that every run shares.
#   fetch-kafka.sh [VERSION…]      default: every version that the tests use; mirrormaker-VERSION fetches MirrorMaker 2
# Each version ends up in $TARN_KAFKA_CACHE/VERSION/libs (default ~/.cache/tarn/kafka) with a marker file `complete`.
# Not here: installing Java and Maven (bin/test.sh), starting a broker (tests/src/kafka.rs).
set -euo pipefail

cache=${TARN_KAFKA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tarn/kafka}
all=(4.3.1 3.9.1 4.4.0 2.8.2 2.1.1)
attempts_max=3

dependency() { # group artifact version
  printf '    <dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version></dependency>\n' "$1" "$2" "$3"
}

artifacts_of() { # version: the pom's dependencies
  case $1 in
    mirrormaker-*)
      dependency org.apache.kafka connect-mirror "${1#mirrormaker-}"
      dependency org.apache.kafka connect-runtime "${1#mirrormaker-}" ;;
    2.[0-4].*)
      # Its own ZooKeeper 3.4 cannot resolve addresses on a new JDK; 3.5.7 is the one that came with Kafka 2.4.1.
      dependency org.apache.kafka kafka_2.12 "$1"
      dependency org.apache.zookeeper zookeeper 3.5.7
      dependency org.apache.zookeeper zookeeper-jute 3.5.7 ;;
    2.*)
      dependency org.apache.kafka kafka_2.13 "$1" ;;
    *)
      dependency org.apache.kafka kafka_2.13 "$1"
      dependency org.apache.kafka kafka-tools "$1" ;;
  esac
}

pom_of() { # version
  cat <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tarn</groupId><artifactId>kafka-jars</artifactId><version>$1</version><packaging>pom</packaging>
  <dependencies>
$(artifacts_of "$1")
$(logging_of "$1")
  </dependencies>
</project>
POM
}

logging_of() { # version: 4.x logs through log4j 2, which needs a binding; older ones bring theirs
  case $1 in
    4.*|mirrormaker-4.*) dependency org.apache.logging.log4j log4j-slf4j-impl 2.25.4 ;;
    3.*) ;; # reload4j comes with kafka_2.13
    2.[0-4].*) ;; # log4j 1 comes with it
    2.*) dependency org.slf4j slf4j-reload4j 1.7.36 ;;
  esac
}

fetch() { # version
  local version=$1 home=$cache/$1 work attempt
  [ -e "$home/complete" ] && { echo "kafka $version: in the cache"; return 0; }
  work=$(mktemp -d "$cache/.fetch-$version.XXXXXX")
  pom_of "$version" > "$work/pom.xml"
  for attempt in $(seq "$attempts_max"); do
    if mvn -q -B -Dstyle.color=never -f "$work/pom.xml" dependency:copy-dependencies -DoutputDirectory="$work/libs"; then
      rm -f "$work"/libs/zookeeper-3.4.*.jar
      touch "$work/complete"
      # A folder without the marker is what an interrupted run left: swap it out. Whoever loses the race of two runs keeps the winner's.
      [ -e "$home/complete" ] || [ ! -e "$home" ] || mv -T "$home" "$work.stale"
      mv -T "$work" "$home" 2>/dev/null || rm -rf "$work"
      rm -rf "$work.stale"
      [ -e "$home/complete" ] || { echo "kafka $version: could not move the jars to $home" >&2; return 1; }
      echo "kafka $version: fetched $(find "$home/libs" -name '*.jar' | wc -l) jars"
      return 0
    fi
    echo "kafka $version: attempt $attempt of $attempts_max failed" >&2
  done
  rm -rf "$work"
  return 1
}

command -v mvn >/dev/null || { echo "fetch-kafka.sh needs Maven (mvn): install the package maven, or run bin/test.sh as root" >&2; exit 1; }
mkdir -p "$cache"
failed=()
for version in "${@:-${all[@]}}"; do fetch "$version" || failed+=("$version"); done
[ ${#failed[@]} -eq 0 ] || { echo "could not fetch the jars of kafka ${failed[*]}" >&2; exit 1; }
