#!/bin/bash
# device_model.sh PROGRAMS LOGS [PART…]: what a session on a Hopper GPU has to show of the language model's images and of
# the regression's small and sparse steps, in one run of nine minutes at the most. PROGRAMS: a build folder (or a copy of
# its programs, flat or as built): parity_model, parity_tiles (with tiles_check_*.fatbin beside it), bench_session,
# coppeliusd, coppeliusctl, all with the images inside. Each step is bounded in time, keeps its output in LOGS and prints PASS or FAIL; exits 1 after any FAIL.
#
#   right      every image and candidate against its oracle, one digest under load; while the sanitizers run beside it:
#   sanitize   memcheck, racecheck, initcheck, synccheck over every sm_90a candidate, by head
#   tiles      coppeliusctl bench images and bench tiles, through the daemon's program and the images inside it; the
#              table is given back to `--check-config` as tile_choices:, and used
#   speed      products beside cuBLAS; attention, elementwise and scatter beside PyTorch
#   small      10,000 x 64: the step's time with the clocks and what holds them back
#   sparse     CSC at 1 %, 1024 and 8192 columns, beside the bandwidth of a copy
#
# Without PART all of them, in this order; MOST: seconds of the whole (540). DRY=1 prints the commands only. Needs the
# GPU to itself.
set -u
[ $# -ge 2 ] || { sed -n '2,20s/^# \{0,1\}//p' "$0" >&2; exit 2; }
programs=$1
logs=$2
shift 2
parts=${*:-right sanitize tiles speed small sparse}
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
blas=${CUBLAS:-}
dry=${DRY:-}
failed=0
last=$(($(date +%s) + ${MOST:-540})) # nothing goes on behind this second
mkdir -p "$logs" || exit 2
export COPPELIUS_RUN_DIR=${COPPELIUS_RUN_DIR:-$logs/run}

for part in $parts; do
    case $part in
    right | sanitize | tiles | speed | small | sparse) ;;
    *) echo "no part '$part': right sanitize tiles speed small sparse" >&2; exit 2 ;;
    esac
done
wanted() { case " $parts " in *" $1 "*) return 0 ;; esac; return 1; }

# find_program NAME: where a build puts it, or in a flat folder.
find_program() {
    local at
    for at in "$programs/$1" "$programs/tests/parity/$1" "$programs/tests/bench/$1" "$programs/daemon/$1" "$programs/ctl/$1"; do
        [ -f "$at" ] && [ -x "$at" ] && { echo "$at"; return; }
    done
    echo "there is no program $1 in $programs" >&2
    echo "$programs/$1"
    return 1
}
missing=0
model=$(find_program parity_model) || missing=1
tiles=$(find_program parity_tiles) || missing=1
session=$(find_program bench_session) || missing=1
daemon=$(find_program coppeliusd) || missing=1
ctl=$(find_program coppeliusctl) || missing=1
[ "$missing" = 0 ] || [ -n "$dry" ] || exit 2
export COPPELIUSD=$daemon

bounded() { # SECONDS: and no longer than what is left of the whole
    local left=$((last - $(date +%s)))
    [ "$left" -gt 1 ] || left=1
    echo $(($1 < left ? $1 : left))
}
verdict() { # NAME LOG SENTENCE STATUS SECONDS: passes with status 0 and the sentence in the log
    if [ "$4" = 0 ] && grep -q -e "$3" "$2"; then
        echo "PASS $1 ($5 s): $(grep -e "$3" "$2" | tail -n 1)"
    else
        echo "FAIL $1 ($5 s): exit $4, log $2"
        grep -a -E 'FAIL|rror|azard|killed' "$2" | head -n 12
        tail -n 4 "$2"
        failed=1
    fi
}
step() { # NAME SECONDS SENTENCE COMMAND…: one after the other
    local name=$1 seconds=$2 sentence=$3 log=$logs/$1.log began status
    shift 3
    if [ -n "$dry" ]; then echo "timeout $seconds $*"; return; fi
    began=$(date +%s)
    timeout -k 5 "$(bounded "$seconds")" "$@" >"$log.out" 2>"$log.err"
    status=$?
    cat "$log.out" "$log.err" >"$log"
    verdict "$name" "$log" "$sentence" $status $(($(date +%s) - began))
}
declare -A pid
names=()
beside() { # NAME SECONDS COMMAND…: in the background, for together()
    local name=$1 seconds=$2
    shift 2
    if [ -n "$dry" ]; then echo "timeout $seconds $* &"; return; fi
    timeout -k 5 "$(bounded "$seconds")" "$@" >"$logs/$name.log" 2>&1 &
    pid[$name]=$!
    names+=("$name")
}
together() { # SENTENCE: waits for those that run beside, in the order of their start
    local name status
    for name in ${names[@]+"${names[@]}"}; do
        wait "${pid[$name]}"
        status=$?
        case $name in
        racecheck*) verdict "$name" "$logs/$name.log" "RACECHECK SUMMARY: 0 hazards" $status $(($(date +%s) - phase)) ;;
        *) verdict "$name" "$logs/$name.log" "ERROR SUMMARY: 0 errors" $status $(($(date +%s) - phase)) ;;
        esac
    done
    names=()
}
sanitizer() { # TOOL HEAD
    beside "$1-$2" 90 compute-sanitizer --tool "$1" --report-api-errors no --target-processes all \
        --error-exitcode 1 "$model" - candidates "$2"
}

# -- right and sanitize: at most 170 s; four sanitizers are the load that the repetitions run under
phase=$(date +%s)
if wanted sanitize; then
    for tool in memcheck racecheck initcheck synccheck; do
        sanitizer $tool 128
    done
fi
if wanted right; then
    step list 40 "^listed" "$model" - list
    step check 90 " 0 failures" "$model" - check "${REPEATS:-30}"
    step hopper 120 " 0 failures" "$model" - hopper "${REPEATS:-30}"
fi
together
if wanted sanitize; then
    for tool in memcheck racecheck initcheck synccheck; do
        sanitizer $tool 64
    done
fi
if wanted right; then
    step whole 60 " 0 failures" "$model" - whole "${REPEATS:-30}"
    step rows 40 " 0 failures" "$model" - rows
    step edges 60 " 0 failures" "$model" - edges 3
fi
together

# -- tiles: at most 200 s
if wanted tiles; then
    step images 40 '"images"' "$ctl" bench images --json
    step tiles 160 "^sm_90 64 tiled-cc-m12288" "$ctl" bench tiles
    if [ -z "$dry" ]; then
        grep '^sm_' "$logs/tiles.log.out" >"$logs/tiles.choices"
        printf 'name: a\nlisten: 127.0.0.1:7620\ntls: off\nstate_dir: %s\ntile_choices: %s\n' "$logs/state" "$logs/tiles.choices" >"$logs/node.yaml"
    fi
    step choices 10 "" "$daemon" --check-config --config "$logs/node.yaml"
    step chosen 60 "^TIME" "$tiles" run - "${blas:--}" 16 "chosen=$logs/tiles.choices"
fi

# -- speed: at most 150 s
if wanted speed; then
    if [ -z "$blas" ]; then
        blas=$(find / -name 'libcublas.so.1*' -not -path '/proc/*' -not -path '*/stubs/*' 2>/dev/null | head -n 1)
    fi
    [ -z "$blas" ] || LD_LIBRARY_PATH=$(dirname "$blas"):${LD_LIBRARY_PATH:-}
    export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
    step products 70 "^TIME 64" "$tiles" run - "${blas:--}" 1,16,64 chosen
    step beside-pytorch 80 "^attention-forward" "$python" "$here/../bench/bench_model.py" "$model" - 16 64
    [ -n "$dry" ] || grep -h -E '^TIME|^attention|^embedding|of copy' "$logs/products.log" "$logs/beside-pytorch.log"
fi

# -- small: at most 40 s. The same step three times, the clocks read all the while: cold, at once behind it, and behind
# five seconds of rest; a graph's worth of steps is short, so a GPU that was idle may not have raised its clock yet.
clocks() { # NAME COMMAND…: the command with what nvidia-smi says beside it
    local name=$1 reader
    shift
    if [ -n "$dry" ]; then echo "nvidia-smi … & $*"; return; fi
    nvidia-smi --query-gpu=clocks.sm,clocks.mem,clocks_event_reasons.active,temperature.gpu,power.draw,pstate \
        --format=csv,noheader,nounits -lms 100 >"$logs/$name.clocks" 2>&1 &
    reader=$!
    step "$name" 15 " step " "$@"
    kill "$reader" 2>/dev/null
    wait "$reader" 2>/dev/null
    awk -F', ' 'NR == 1 || $1 < low { low = $1 } $1 > high { high = $1 } { sm[NR] = $1; why[$3] = 1; memory = $2; heat = $4; state[$6] = 1 }
        END { reasons = ""; for (r in why) reasons = reasons " " r; states = ""; for (s in state) states = states " " s
              printf "     clocks: SM %s to %s MHz (last %s), memory %s MHz, %s C, held back by%s, states%s, %d readings\n", low, high, sm[NR], memory, heat, reasons, states, NR }' \
        "$logs/$name.clocks"
}
if wanted small; then
    clocks small-cold "$session" auto 10000 64 1 4000
    clocks small-warm "$session" auto 10000 64 1 40000
    [ -n "$dry" ] || sleep 5
    clocks small-rested "$session" auto 10000 64 1 4000
    clocks small-long "$session" auto 10000 64 1 100000
fi

# -- sparse: at most 60 s
if wanted sparse; then
    step sparse-pytorch 60 "1048576 x 1024 density 0.01" "$python" "$here/../bench/bench_gpu.py" "$session" sparse
    [ -n "$dry" ] || grep -E 'copy|density' "$logs/sparse-pytorch.log"
    clocks sparse-1024 "$session" auto 1048576 1024 0.01 400
fi
exit $failed
