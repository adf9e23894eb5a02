#!/usr/bin/env bash
# Prints the Homebrew formula of the release in dist/.  $1: the address of the repository that publishes it.
set -euo pipefail
source "$(dirname "$0")/environment.sh"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$clone/pyproject.toml")

sum() { sha256sum "$clone/dist/klog-$version-linux-$1.tar.gz" | cut -d' ' -f1; }

x86_64=$(sum x86_64)
aarch64=$(sum aarch64)
sed -e "s|@HOMEPAGE@|${1:?the address of the repository}|g" -e "s|@VERSION@|$version|g" -e "s|@SHA256_x86_64@|$x86_64|" \
    -e "s|@SHA256_aarch64@|$aarch64|" "$release/klog.rb.in"
