#!/usr/bin/env bash
# kafka-cluster-mirrors.sh: the mirror tool with this name's words; the program is tarn itself.
called_as=kafka-cluster-mirrors.sh
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/tarn"
