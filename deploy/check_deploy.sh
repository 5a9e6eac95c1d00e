#!/bin/bash
# Each file of deploy/ held against the tool that will read it. Arguments: the source and the build folder.
# A tool that is not here is named and its part skipped; 77 where all of them were.
set -u
source_dir=$1
build_dir=$2
failed=0
ran=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

check() { # check NAME TOOL COMMAND…
    local name=$1 tool=$2
    shift 2
    if ! command -v "$tool" >/dev/null; then
        echo "skipped: $name (no $tool here)"
        return
    fi
    ran=$((ran + 1))
    if "$@" >"$scratch/out" 2>&1; then
        echo "passed: $name"
    else
        echo "failed: $name"
        sed 's/^/    /' "$scratch/out"
        failed=$((failed + 1))
    fi
}

cd "$source_dir/deploy" || exit 1
# As it is installed, but for the program's path.
sed "s|/usr/sbin/coppeliusd|$build_dir/daemon/coppeliusd|; s|/etc/coppelius|$source_dir/deploy|" \
    coppeliusd.service >"$scratch/coppeliusd.service"
unit_verifies() {
    systemd-analyze verify --recursive-errors=no "$scratch/coppeliusd.service"
}
unit_is_confined() { # exposure of 2.0 at the most; 10 is the worst
    systemd-analyze security --offline=yes --threshold=20 "$scratch/coppeliusd.service"
}
sysusers_reads() {
    mkdir -p "$scratch/root/etc" && systemd-sysusers --root="$scratch/root" "$PWD/coppelius.sysusers" &&
        grep -q '^coppelius:' "$scratch/root/etc/passwd"
}
check "the unit verifies" systemd-analyze unit_verifies
check "the unit is confined" systemd-analyze unit_is_confined
check "the user is made" systemd-sysusers sysusers_reads
check "the example configuration is good" "$build_dir/daemon/coppeliusd" \
    "$build_dir/daemon/coppeliusd" --check-config --config coppeliusd.yaml
check "the alert rules are good" promtool promtool check rules coppelius.rules.yml
check "the alerts fire when they should" promtool promtool test rules coppelius.test.yml
check "the scrape configuration is good" promtool promtool check config prometheus.yml
[ "$ran" -gt 0 ] || exit 77
exit $((failed > 0))
