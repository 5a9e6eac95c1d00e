#!/bin/sh
# records_test.sh COMMITTED MADE REPORT…: the step that compares the records (records.sh) says which
# differ: a changed number, a record that is missing, one of an image that is no longer built.
set -eu
committed=$1
made=$2
shift 2
here=$(dirname "$0")
first=$(sed -n 's/^\([a-z0-9-]* sm_90\) .*/\1/p' "$committed" | head -n 1)
[ -n "$first" ] || { echo "no record for sm_90 in $committed"; exit 1; }
reports="$*"
check() {
    what=$1
    sign=$2
    script=$3
    # shellcheck disable=SC2086 # one word a report
    set -- $reports
    sed "$script" "$committed" >"$made.altered"
    if "$here/records.sh" "$made.altered" "$made.test" "$@" >"$made.said" 2>&1; then
        echo "$what: taken for the same"
        exit 1
    fi
    grep -q "^$sign$first" "$made.said" || { echo "$what: not shown:"; cat "$made.said"; exit 1; }
    grep -q "images.records differ" "$made.said" || { echo "$what: no word of what to do"; exit 1; }
}
check "a register more" - "s/^$first registers=/&1/"
check "a register more" + "s/^$first registers=/&1/"
check "a missing record" + "/^$first /d"
check "an image that is not built" - "s/^$first .*/&\n$first registers=1 threads=1 shared=0 local=0/"
echo "three kinds of difference are shown"
