#!/bin/sh
# model_gpu.sh PARITY_MODEL FOLDER [LOGS]: everything that is to be known of the language model's images
# on a GPU, in some minutes: loaded and as recorded, right, the same bits in 30 runs under load and
# whatever rows are beside a row, times, and clean under compute-sanitizer. Every step has its time and
# says PASS or FAIL; exits 1 after any failure.
set -u
program=$1
folder=$2
logs=${3:-.}
failed=0

step() { # step SECONDS NAME COMMAND…
    seconds=$1
    name=$2
    shift 2
    began=$(date +%s)
    if timeout "$seconds" "$@"; then
        echo "PASS $name ($(($(date +%s) - began)) s)"
    else
        echo "FAIL $name: exit $? ($(($(date +%s) - began)) s)"
        failed=1
    fi
}

sanitize() { # sanitize TOOL WORDS…
    tool=$1
    shift
    step "${SANITIZER_SECONDS:-60}" "compute-sanitizer $tool $1" compute-sanitizer --tool "$tool" \
        --report-api-errors no --target-processes all --error-exitcode 1 \
        --log-file "$logs/model_$tool.log" "$program" "$folder" "$@"
    grep -E 'rror|azard|SUMMARY| at ' "$logs/model_$tool.log" | head -n 30
}

step 60 "images are as recorded" "$program" "$folder" list
step "${CHECK_SECONDS:-200}" check "$program" "$folder" check 30
step "${WHOLE_SECONDS:-100}" whole "$program" "$folder" whole 30
step 100 "attention on sm_90a" "$program" "$folder" hopper 30
step 60 rows "$program" "$folder" rows
step 60 edges "$program" "$folder" edges 3
for sequences in 16 64; do
    echo "== $sequences sequences"
    step 60 "times at $sequences" "$program" "$folder" time "$sequences"
done
for tool in ${SANITIZERS:-memcheck racecheck initcheck synccheck}; do
    sanitize "$tool" small
    sanitize "$tool" hopper 1
done
exit $failed
