#!/usr/bin/env bash
# Prints the folder with the jars of Netty 4.2, which the servers `netty`, `netty-jdk` and
# `netty-boringssl` of the comparison need. The first time it downloads them.
#
#   NETTY_JARS=$(benches/peers/netty.sh) cargo run --release --manifest-path benches/peers/Cargo.toml
#
# PyPI's source package of PySpark 4.2.1 contains the jars of Netty 4.2.13, with the library of its
# epoll transport and BoringSSL. pip downloads it (450 MB, once), checks its hash, and runs its
# setup.py. Only the jars of Netty are kept: 7 MB in the target directory. Needs pip and GNU tar.

set -euo pipefail

package=pyspark
version=4.2.1
hash=d79b7c8ee41e66a9202fe6f600ca90b931ca571ae9dbdf31c58d2672e5102da0

here=$(cd "$(dirname "$0")" && pwd)
folder=${CARGO_TARGET_DIR:-$here/../target}/netty-4.2.13
if [ ! -d "$folder" ]; then
    mkdir -p "$(dirname "$folder")"
    # Beside the folder, so that the jars appear in it all at once.
    work=$(mktemp -d "$folder.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    mkdir "$work/jars"
    echo "$package==$version --hash=sha256:$hash" >"$work/requirements"
    python3 -m pip download --no-deps --no-binary "$package" --require-hashes \
        --requirement "$work/requirements" --dest "$work" >&2
    # The comparison runs on Linux only.
    tar -xzf "$work/$package-$version.tar.gz" -C "$work/jars" --strip-components=3 \
        --wildcards --exclude='*osx*' --exclude='*windows*' "$package-$version/deps/jars/netty-*.jar"
    mv "$work/jars" "$folder"
fi
cd "$folder" && pwd
