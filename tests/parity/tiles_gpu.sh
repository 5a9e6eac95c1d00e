#!/bin/sh
# tiles_gpu.sh PARITY_TILES FOLDER [LOG]: the language model's products on a Hopper GPU: every candidate
# against binary64 and cuBLAS (found below / or named by CUBLAS), each in a process of its own with a
# time limit, then the committed choices in bf16 and fp16 at 1, 16 and 64 sequences. About four
# minutes. Exits 1 after any failure. FOLDER: targets model_images and tiles_check.
set -u
program=$1
folder=$2
log=${3:-tiles_gpu.txt}
blas=${CUBLAS:-$(find / -name 'libcublas.so.1*' -not -path '/proc/*' -not -path '*/stubs/*' 2>/dev/null | head -n 1)}
export LD_LIBRARY_PATH="$(dirname "$blas"):${LD_LIBRARY_PATH:-}"
: >"$log"
failed=0

try() { # try MODE SEQUENCES CANDIDATES…
    if ! timeout -k 2 40 "$program" "$1" "$folder" "${blas:--}" "$2" $3 >>"$log" 2>&1; then
        echo "FAIL $*"
        failed=1
    fi
}

for tile in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22; do
    try run 16 "$tile"
done
try run 16 "9:16 9:5 8:6 13:8 13:3 21:4"
try run-fp16 1,16,64 chosen
try run 1,16,64 chosen
grep '^FAIL' "$log"
grep '^TIME' "$log" | tail -n 48
exit $failed
