#!/bin/sh
# What the project needs on Debian 12 or later and Ubuntu 24.04. Prints nothing and does nothing when
# all is there; installs what is missing with apt-get (through sudo where not root).
#   packages.sh build    to build and run
#   packages.sh check    and to run every test
set -eu

build="gcc libc6-dev cmake ninja-build pkg-config libuv1-dev libprotobuf-c-dev protobuf-c-compiler
protobuf-compiler libssl-dev libsystemd-dev check libjansson-dev libyaml-dev zlib1g-dev libzstd-dev libxxhash-dev
libmicrohttpd-dev"
check="python3 python3-numpy python3-scipy python3-openssl python3-yaml clang clang-format iproute2 nftables procps
prometheus strace"

wanted=$build
[ "${1:-build}" = check ] && wanted="$build $check"

missing=""
for package in $wanted; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing="$missing $package"
done
# libFuzzer and the sanitizers of clang come in a package that carries clang's version.
if [ "${1:-build}" = check ] && ! ls /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a >/dev/null 2>&1; then
    missing="$missing @clang-rt"
fi
[ -n "$missing" ] || exit 0

run=""
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "these packages are missing and there is no sudo to install them:$missing" >&2; exit 1; }
    run=sudo
fi
echo "installing:$missing" >&2
log=$(mktemp)
install() {
    # A daemon that a package brings (Prometheus) is wanted as a program only, never started here.
    $run env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends \
        -o DPkg::Lock::Timeout=300 "$@" >"$log" 2>&1 || { tail -20 "$log" >&2; echo "apt-get could not install:$*" >&2; exit 1; }
}
$run apt-get update -qq >"$log" 2>&1 || { tail -5 "$log" >&2; echo "apt-get update failed; going on with the lists there are" >&2; }
plain=$(echo "$missing" | tr ' ' '\n' | grep -v '^@' | tr '\n' ' ')
# shellcheck disable=SC2086
set -- $plain
[ $# -eq 0 ] || install "$@"
case "$missing" in
*@clang-rt*)
    version=$(clang --version | sed -n '1s/.*version \([0-9]*\).*/\1/p')
    install "libclang-rt-$version-dev"
    ;;
esac
rm -f "$log"
