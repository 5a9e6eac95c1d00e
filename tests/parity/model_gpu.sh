#!/bin/sh
# model_gpu.sh PARITY_MODEL FOLDER [LOGS]: everything that is to be known of the language model's images
# on a GPU, in some minutes: right, the same bits in 30 runs under load, times, and clean under
# compute-sanitizer. Every step has its time and says PASS or FAIL; exits 1 after any failure.
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

step "${CHECK_SECONDS:-200}" check "$program" "$folder" check 30
step "${WHOLE_SECONDS:-100}" whole "$program" "$folder" whole 30
for sequences in 16 64; do
    echo "== $sequences sequences"
    step 60 "times at $sequences" "$program" "$folder" time "$sequences"
done
for tool in ${SANITIZERS:-memcheck racecheck initcheck synccheck}; do
    step "${SANITIZER_SECONDS:-60}" "compute-sanitizer $tool" compute-sanitizer --tool "$tool" \
        --report-api-errors no \
        --error-exitcode 1 --log-file "$logs/model_$tool.log" "$program" "$folder" small
    grep -E 'rror|azard|SUMMARY| at ' "$logs/model_$tool.log" | head -n 30
done
exit $failed
