#!/usr/bin/env bash
# Makes all of a release in dist/: the one file for each processor, its archive and bill of materials, the wheels and the sdist, the
# packages, and the sums of all.
set -euo pipefail
source "$(dirname "$0")/environment.sh"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$clone/pyproject.toml")

for processor in x86_64 aarch64; do
    KLOG_ARCH=$processor "$release/one_file.sh"
    KLOG_ARCH=$processor "$release/archive.sh"
    "$clone/.venv/bin/python" "$release/sbom.py" "$downloads" "$clone/dist/klog-$version-linux-$processor"
done
"$release/wheels.sh"
"$release/packages.sh"

cd "$clone/dist"
say "summing up"
find . -maxdepth 1 -type f -name "klog[-_]$version*" -printf '%f\n' | sort | xargs sha256sum >SHA256SUMS
