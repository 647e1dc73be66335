#!/bin/sh
# Installs the system packages that pip cannot: kcat and fuse3, and a JDK 17, Maven, Node.js, npm,
# Go, Rust 1.85 and PostgreSQL when there are none.
# Only what is missing is asked for, so a machine that has everything needs no network and no root.
set -eu

missing=""
command -v kcat >/dev/null 2>&1 || missing="$missing kcat"
# the power-loss tests mount a file system of their own; fuse3 brings libfuse3 with it
command -v fusermount3 >/dev/null 2>&1 || missing="$missing fuse3"
command -v mvn >/dev/null 2>&1 || missing="$missing maven"
# the Node clients want Node.js 20.19 or newer; a distribution with an older one leaves them out by name
command -v node >/dev/null 2>&1 || missing="$missing nodejs"
command -v npm >/dev/null 2>&1 || missing="$missing npm"
command -v go >/dev/null 2>&1 || [ -x /usr/local/go/bin/go ] || missing="$missing golang-go"
rust_release=$(cargo --version 2>/dev/null | sed -n 's/^cargo 1\.\([0-9]*\)\..*/\1/p')
[ "${rust_release:-0}" -ge 85 ] || missing="$missing cargo"
# the tests run a server of their own with its programs, which Debian keeps off the PATH
initdb=$(command -v initdb || ls /usr/lib/postgresql/*/bin/initdb 2>/dev/null || true)
[ -n "$initdb" ] || missing="$missing postgresql"
java_release=$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
command -v javac >/dev/null 2>&1 && [ "${java_release:-0}" -ge 17 ] || missing="$missing openjdk-17-jdk-headless"

if [ -z "$missing" ]; then
    echo "system-deps: everything is here (kcat, fuse3, Maven, Java $java_release, Node.js, Go, Rust, PostgreSQL)"
    exit 0
fi
if ! command -v apt-get >/dev/null 2>&1; then
    echo "system-deps: missing:$missing. This machine has no apt-get; install them with its own package manager." >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "system-deps: missing:$missing. Run: sudo make system-deps" >&2
    exit 1
fi
case "$missing" in
*golang*) echo "system-deps: the Go clients want Go 1.26; 1.21 or newer fetches that by itself, an older package will not do" ;;
esac
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
case "$missing" in
*openjdk-17*) apt-cache show openjdk-17-jdk-headless >/dev/null 2>&1 ||
    missing=$(echo "$missing" | sed 's/openjdk-17-jdk-headless/default-jdk-headless/') ;;
esac
case "$missing" in
*cargo*) # an older Debian keeps a newer Rust under a name of its own
    ! apt-cache show cargo-web >/dev/null 2>&1 || missing=$(echo "$missing" | sed 's/cargo/cargo-web/') ;;
esac
case "$missing" in
*postgresql*) # Debian's package would make a database of its own and start it; a server's own setting is kept
    conf=/etc/postgresql-common/createcluster.conf
    mkdir -p "${conf%/*}"
    [ -e "$conf" ] || echo "create_main_cluster = false" >"$conf" ;;
esac
# shellcheck disable=SC2086  # one word per package
apt-get install -y -qq --no-install-recommends $missing
