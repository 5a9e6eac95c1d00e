#!/bin/bash
# The unit's exposure as systemd-analyze sees it, without a systemd that runs: 2.0 or better. systemd_unit.sh asks the same of
# the unit that runs, where there is a root folder for it. Exit status 77: skipped.
set -u
cd "$(dirname "$0")/../.." || exit 1
command -v systemd-analyze >/dev/null || { echo "skipped: systemd-analyze is not there"; exit 77; }
# Older ones know no --offline, or not all of the settings.
said=$(systemd-analyze security --no-pager --offline=yes --threshold=20 deploy/coppeliusd.service 2>&1)
status=$?
level=$(echo "$said" | grep -o 'exposure level.*')
[ -n "$level" ] || { echo "skipped: systemd-analyze $(systemd-analyze --version | head -1) does not judge a file: $(echo "$said" | tail -1)"; exit 77; }
echo "$level"
[ "$status" -eq 0 ] || { echo "FAILED: more than 2.0"; echo "$said" | grep -v '^✓'; exit 1; }
