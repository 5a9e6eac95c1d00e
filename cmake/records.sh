#!/bin/sh
# records.sh COMMITTED MADE REPORT…: makes the records of the device images (registers, threads,
# static shared bytes, local bytes, for each architecture) from what ptxas said when they were
# compiled, and compares the committed ones. Exit 1 with the differences; architectures that this
# build left out are not compared. To accept: copy MADE over COMMITTED and commit it.
set -eu
committed=$1
made=$2
shift 2
root=$(dirname "$0")/..
{
    echo "# Records of the device images, made by the target gpu_records; checked against the driver's"
    echo "# own numbers when an image is loaded. name architecture registers threads shared local"
    for report in "$@"; do
        # The threads are the kernel's own launch bounds, as written in its source.
        source=$root/gpu/kernels/$(basename "$report" .report).cu
        awk -v source="$source" -v headers="$root/gpu/kernels/*.h $root/gpu/kernels/*.cuh" '
            BEGIN {
                command = "cat " headers " " source
                while ((command | getline line) > 0) {
                    if (match(line, /^#define [A-Z_]+ +[0-9]+/)) {
                        split(line, word, / +/); value[word[2]] = word[3]
                    }
                }
                all = ""
                while ((getline line < source) > 0) { all = all " " line }
                gsub(/[ \\]+/, " ", all)
                while (match(all, /__launch_bounds__\([A-Z0-9_]+[^)]*\) ?[a-z_0-9#]+\(/)) {
                    piece = substr(all, RSTART, RLENGTH)
                    all = substr(all, RSTART + RLENGTH)
                    bounds = piece; sub(/__launch_bounds__\(/, "", bounds); sub(/[,)].*/, "", bounds)
                    name = piece; sub(/.*\) ?/, "", name); sub(/\(/, "", name)
                    if (bounds in value) { bounds = value[bounds] }
                    sub(/##ct$/, "", name)
                    threads[name] = bounds
                }
            }
            /Compiling entry function/ {
                split($0, part, "\047"); name = part[2]; arch = part[4]; stack = 0
            }
            /bytes stack frame/ { stack = $1 }
            /Used [0-9]+ registers/ {
                match($0, /Used [0-9]+/); registers = substr($0, RSTART + 5, RLENGTH - 5)
                shared = 0
                if (match($0, /[0-9]+ bytes smem/)) { shared = substr($0, RSTART, RLENGTH) + 0 }
                base = name; sub(/[0-9]+$/, "", base)
                count = (name in threads) ? threads[name] : threads[base]
                shown = name; gsub(/_/, "-", shown)
                sub(/a$/, "", arch)
                printf "%s %s registers=%d threads=%d shared=%d local=%d\n", shown, arch, registers, count, shared, stack
            }' "$report"
    done | sort
} >"$made"
[ -f "$committed" ] || { echo "no $committed: copy $made there"; exit 1; }
architectures=$(sed -n 's/^[a-z0-9-]* \(sm_[0-9]*\) .*/\1/p' "$made" | sort -u | tr '\n' ' ')
kept() {
    for a in $architectures; do grep " $a " "$1" || true; done | sort
}
kept "$committed" >"$made.committed"
kept "$made" >"$made.here"
if diff -u "$made.committed" "$made.here"; then
    echo "images.records: $(wc -l <"$made.here") records of $architectures are as committed"
else
    echo "images.records differ (- committed, + built): look at why, then copy $made over $committed"
    exit 1
fi
