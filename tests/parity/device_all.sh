#!/bin/bash
# device_all.sh PROGRAMS LOGS [SECONDS]: everything that is to be known of the regression's session on a GPU, in one run:
# golden digests, 30 repeats under load from a second process, 200 random cases (the largest 300,000 x 700), three
# sanitizers on 40 cases of at most 4 M elements, a daemon's life, real daemons. PROGRAMS: a folder that holds
# parity_gpu, parity_gpu_golden, daemon/coppeliusd and ctl/coppeliusctl. Each step is bounded by SECONDS (default 300).
# Prints PASS or FAIL a step, and exits 1 where one failed. Needs COPPELIUS_SHARED.
set -u
programs=$1
logs=$2
most=${3:-300}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$logs"
failed=0

# step NAME LOG SENTENCE COMMAND…: passes where the command's status is 0 and its log has the sentence.
step() {
    local name=$1 log=$logs/$2 sentence=$3 began status
    shift 3
    began=$(date +%s)
    timeout "$most" "$@" >"$log" 2>&1
    status=$?
    verdict "$name" "$log" "$sentence" $status $(($(date +%s) - began))
}

verdict() {
    local name=$1 log=$2 sentence=$3 status=$4 seconds=$5
    if [ "$status" = 0 ] && grep -q -e "$sentence" "$log"; then
        echo "PASS $name ($seconds s): $(grep -e "$sentence" "$log" | tail -n 1)"
    else
        echo "FAIL $name ($seconds s): exit $status"
        tail -n 15 "$log"
        failed=1
    fi
}

# What may run side by side does: the sanitizers and random cases are the load for the rest. Each has locks of its own.
declare -A pid
beside() { # NAME COMMAND…
    local name=$1
    shift
    COPPELIUS_RUN_DIR=$logs/run-$name timeout "$most" "$@" >"$logs/$name.log" 2>&1 &
    pid[$name]=$!
}
export COPPELIUS_BIN=$programs
began=$(date +%s)
for tool in memcheck racecheck initcheck; do
    beside $tool compute-sanitizer --tool $tool --error-exitcode 1 "$programs/parity_gpu" 40 1 4000000
done
beside random "$programs/parity_gpu" 190 1000 30000000
beside large "$programs/parity_gpu" 10 5000 210000000
beside life python3 "$here/device_life.py" names session boot hidden
beside daemons python3 "$here/device_daemons.py"
sleep 1
step "golden digests" golden.log " 0 differ" "$programs/parity_gpu_golden"
step "30 repeats under load, one digest" repeats.log " 0 differ" "$programs/parity_gpu_golden" naval 30
for name in life daemons random large memcheck initcheck racecheck; do
    sentence=" 0 differ"
    case $name in
    memcheck | initcheck) sentence="ERROR SUMMARY: 0 errors" ;;
    racecheck) sentence="RACECHECK SUMMARY: 0 hazards" ;;
    life | daemons) sentence=" 0 do not" ;;
    esac
    wait "${pid[$name]}"
    verdict "$name" "$logs/$name.log" "$sentence" $? $(($(date +%s) - began))
done
# Fills the card, so by itself.
step "larger than the card" life_large.log " 0 do not" python3 "$here/device_life.py" large
exit $failed
