#!/bin/sh
# model_gpu.sh PARITY_MODEL FOLDER [LOGS]: everything that is to be known of the language model's images
# on a GPU, in some minutes: right, the same bits in 30 runs, clean under compute-sanitizer, and times.
# Exits 1 after the first kind of failure; the table of times comes last.
set -eu
program=$1
folder=$2
logs=${3:-.}
"$program" "$folder" check 30
"$program" "$folder" whole
for tool in memcheck racecheck initcheck synccheck; do
    if ! compute-sanitizer --tool "$tool" --error-exitcode 1 "$program" "$folder" small \
        >"$logs/model_$tool.log" 2>&1; then
        echo "FAILED compute-sanitizer $tool"
        tail -n 30 "$logs/model_$tool.log"
        exit 1
    fi
    echo "compute-sanitizer $tool: $(tail -n 1 "$logs/model_$tool.log")"
done
for sequences in 1 16 64; do
    echo "== $sequences sequences"
    "$program" "$folder" time "$sequences" | tee "$logs/model_time_$sequences.txt"
done
