#!/bin/bash
# The real unit under a real systemd as PID 1: READY after the self-test, STATUS, a job, `systemctl stop` with a published
# checkpoint, resume by itself, reload, the watchdog, who may use the socket. Needs root and a folder with a Debian that
# has systemd and the daemon's libraries, which it changes:
#
#   debootstrap --include=systemd,systemd-sysv,dbus,procps,libuv1,libprotobuf-c1,libjansson4,libyaml-0-2,libxxhash0,libmicrohttpd12,libzstd1,libssl3 bookworm ROOT
#   tests/e2e/systemd_unit.sh ROOT [BUILD]
#
# ROOT is $COPPELIUS_SYSTEMD_ROOT where it is not given, or build/systemd-root; ./check skips this by name where it is not
# root or there is no such folder. Exit status 77: skipped.
set -u
cd "$(dirname "$0")/../.." || exit 1
root=${1:-${COPPELIUS_SYSTEMD_ROOT:-build/systemd-root}}
build=${2:-${COPPELIUS_BIN:-build/release}}
[ "$(id -u)" -eq 0 ] || { echo "skipped: needs root"; exit 77; }
[ -x "$root/lib/systemd/systemd" ] || { echo "skipped: $root has no systemd: the head of tests/e2e/systemd_unit.sh has the debootstrap that makes it"; exit 77; }
unshare --pid --mount --uts --ipc --net --cgroup --fork true 2>/dev/null || { echo "skipped: no namespaces can be made here"; exit 77; }
root=$(realpath "$root")

install -D "$build/daemon/coppeliusd" "$root/usr/sbin/coppeliusd"
install -D "$build/ctl/coppeliusctl" "$root/usr/bin/coppeliusctl"
install -m 644 -D deploy/coppeliusd.service "$root/etc/systemd/system/coppeliusd.service"
install -m 644 -D deploy/coppelius.sysusers "$root/usr/lib/sysusers.d/coppelius.conf"
install -m 644 -D deploy/examples/hflights/hflights.csv "$root/opt/hflights/hflights.csv"
sed 's/steps: 300/steps: 200000/; s/every: 100/every: 20000/' deploy/examples/hflights/hflights.yaml >"$root/opt/hflights/long.yaml"
mkdir -p "$root/etc/coppelius" "$root/mnt"
cat >"$root/etc/coppelius/coppeliusd.yaml" <<'Y'
cluster: unit
name: a
listen: 127.0.0.1:7620
advertise: 127.0.0.1:7620
device: cpu
threads: 1
state_dir: /var/lib/coppelius
socket: /run/coppelius/coppeliusd.sock
http: {listen: 127.0.0.1:7621}
tls: off
peers:
  - {name: a, address: "127.0.0.1:7620"}
Y
rm -rf "$root/var/lib/coppelius"
chroot "$root" systemd-sysusers >/dev/null 2>&1
chroot "$root" systemctl enable coppeliusd.service >/dev/null 2>&1

# shellcheck disable=SC2016
boot='
mount --make-rprivate /; mount --bind "$1" "$1"
mount -t proc proc "$1/proc"; mount -t sysfs sysfs "$1/sys"; mount -t cgroup2 cgroup2 "$1/sys/fs/cgroup"
for folder in run tmp dev; do mount -t tmpfs tmpfs "$1/$folder"; done
for device in null zero full random urandom tty; do touch "$1/dev/$device"; mount --bind "/dev/$device" "$1/dev/$device"; done
ip link set lo up
export container=test
cd "$1" && pivot_root . mnt && umount -l /mnt && exec /lib/systemd/systemd --system --log-target=null --show-status=no'
unshare --pid --mount --uts --ipc --net --cgroup --fork bash -c "$boot" boot "$root" &
outer=$!
trap 'kill -9 "$(pgrep -P "$outer")" 2>/dev/null' EXIT
sleep 6
inside() { nsenter -t "$(pgrep -P "$outer")" -a /bin/bash -c "$1" 2>&1; }

passed=0 failed=0
claim() {
    if [ "$2" = yes ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $1"; fi
}
has() { case "$1" in *"$2"*) echo yes ;; *) echo "no" ;; esac; }
is() { [ "$1" = "$2" ] && echo yes; } # "inactive" has "active" in it

claim "active after READY" "$(is "$(inside 'systemctl is-active coppeliusd')" active)"
claim "a STATUS line" "$(has "$(inside 'systemctl show coppeliusd -p StatusText')" Leader)"
inside 'coppeliusctl submit /opt/hflights/long.yaml' >/dev/null
sleep 3
claim "STATUS tells the step" "$(has "$(inside 'systemctl show coppeliusd -p StatusText')" "running, step")"
begin=$(date +%s)
inside 'systemctl stop coppeliusd' >/dev/null
claim "stopped in 10 s" "$([ $(($(date +%s) - begin)) -le 10 ] && echo yes)"
claim "exit status 0" "$(is "$(inside 'systemctl show coppeliusd -p Result -p ExecMainStatus' | sort | tr '\n' ' ')" "ExecMainStatus=0 Result=success ")"
claim "a checkpoint was published" "$(has "$(cat "$root"/var/lib/coppelius/jobs/1-hflights/CURRENT)" epoch-00000001)"
inside 'systemctl start coppeliusd' >/dev/null
sleep 3
claim "the job goes on by itself" "$(has "$(inside 'coppeliusctl jobs')" running)"
inside 'systemctl reload coppeliusd' >/dev/null
claim "active after a reload" "$(is "$(inside 'systemctl is-active coppeliusd')" active)"
# shellcheck disable=SC2016
inside 'kill -STOP $(systemctl show coppeliusd -p MainPID --value)'
for _ in $(seq 45); do
    sleep 1
    [ "$(inside 'systemctl show coppeliusd -p NRestarts --value')" = 1 ] && break
done
claim "the watchdog restarts a frozen daemon" "$(is "$(inside 'systemctl show coppeliusd -p NRestarts --value')" 1)"
sleep 4
claim "and the job goes on" "$(has "$(inside 'coppeliusctl jobs')" running)"
claim "others may not use the socket" "$(has "$(inside 'su -s /bin/sh nobody -c "coppeliusctl jobs"')" "Permission denied")"
security=$(inside 'systemd-analyze security coppeliusd --no-pager' | tail -1)
echo "$security"
claim "2.0 or better of systemd-analyze security: $security" "$(echo "$security" | awk '/exposure level/ && match($0, /: [0-9.]+/) && substr($0, RSTART + 2) + 0 <= 2.0 { print "yes" }')"
echo "$passed claims hold, $failed do not"
[ "$failed" -eq 0 ]
