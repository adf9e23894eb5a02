#!/usr/bin/env bash
# Packs dist/klog-VERSION-linux-ARCH.tar.gz: the one file, its manual page, completions and licences.  The same bytes
# come of the same files, on any day and by any user.
set -euo pipefail
source "$(dirname "$0")/environment.sh"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$clone/pyproject.toml")
name=klog-$version-linux-$arch
work=$clone/build/archive-$arch
rm -rf "$work"
mkdir -p "$work/$name/completions" "$work/$name/licences"

# The text of each licence is in the archive that its part came in.
licences() {
    local input file licence
    for input in $(awk '!/^#/ && $1 != "ziglang" && $1 != "cython" { print $1 }' "$release/inputs.txt"); do
        file=$(downloaded "$input")
        licence=$work/$name/licences/$input.txt
        "$clone/.venv/bin/python" "$release/licence.py" "$file" >"$licence"
    done
    cp "$tools/ziglang/lib/libc/musl/COPYRIGHT" "$work/$name/licences/musl.txt"
    cp "$tools/ziglang/lib/libcxx/LICENSE.TXT" "$work/$name/licences/libcxx.txt"
}

install -m 755 "$clone/dist/$name" "$work/$name/klog"
install -m 644 "$clone/LICENSE" "$clone/README.md" "$clone/docs/klog.1" "$work/$name/"
install -m 644 "$clone/completions/klog.bash" "$clone/completions/_klog" "$clone/completions/klog.fish" \
    "$work/$name/completions/"
licences
tar --create --directory "$work" --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
    --mtime="@$SOURCE_DATE_EPOCH" "$name" | gzip -9n >"$clone/dist/$name.tar.gz"
say "dist/$name.tar.gz"
