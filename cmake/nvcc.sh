#!/bin/sh
# nvcc.sh REPORT NVCC ARGUMENTS…: compiles, keeps what ptxas says of registers and memory, and shows
# the rest (warnings, errors).
report=$1
shift
if "$@" >"$report.all" 2>&1; then
    grep -v -e '^ptxas info' -e 'bytes stack frame' -e '^Remark' -e '^$' "$report.all" >&2
    mv "$report.all" "$report"
else
    cat "$report.all" >&2
    rm -f "$report.all"
    exit 1
fi
