# Sourced by the other scripts: where things lie, and Zig's compilers under the names that builds ask for.
# shellcheck shell=bash disable=SC2034

release=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
clone=$(dirname "$release")
cache=${KLOG_RELEASE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/klog-release}
downloads=$cache/downloads
tools=$cache/tools
arch=${KLOG_ARCH:-x86_64} # what is built; aarch64 is built on x86_64 as well
target=$arch-linux-musl
python_version=3.13

export LC_ALL=C.UTF-8 TZ=UTC SOURCE_DATE_EPOCH=1577836800 PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0
export ZIG_GLOBAL_CACHE_DIR=$cache/zig ZIG_LOCAL_CACHE_DIR=$cache/zig
export PATH=$tools/bin-$arch:$PATH
unset CC CXX CFLAGS CXXFLAGS CPPFLAGS LDFLAGS PYTHONPATH PYTHONHOME MAKEFLAGS

say() { echo "release: $*" >&2; }

# Print one field of an input: its version, the place it comes from, its digest.
input() { awk -v name="$1" -v field="$2" '$1 == name { print $(field) }' "$release/inputs.txt"; }

# Print where an input was put.
downloaded() { echo "$downloads/$(basename "$(input "$1" 4 | cut -d: -f2-)")"; }

# Unpack an input into a new directory of this name, without the directory that the archive begins with.
unpack() {
    rm -rf "$2"
    mkdir -p "$2"
    tar --extract --file "$(downloaded "$1")" --directory "$2" --strip-components 1 --no-same-owner
}

# Unpack a wheel beside what is in a directory.
unpack_wheel() {
    "$clone/.venv/bin/python" -m zipfile --extract "$(downloaded "$1")" "$2"
    if [[ $1 == ziglang ]]; then chmod +x "$2/ziglang/zig"; fi
}

# Translate the parts of the kernel to C, in a directory that holds klog/kernel; the words are a Python that has Cython.
translate_kernel() {
    local part
    translate "$@" --generate-shared=klog/kernel/_memoryviews.c --module-name klog.kernel._memoryviews
    for part in klog/kernel/_*.pyx; do translate "$@" --shared=klog.kernel._memoryviews "$part"; done
}
translate() { "$1" -m cython -3 "${@:2}" >cython.log 2>&1 || { cat cython.log >&2; exit 1; }; }

# Write the compilers.  Their flags are in them, and not in CFLAGS, which Python and OpenSSL keep in what they build.  The
# prefix maps take the paths of this machine out; -target without a processor is the oldest of its kind, as every host has.
write_compilers() {
    local zig=$tools/ziglang/zig bin=$tools/bin-$arch common
    mkdir -p "$bin"
    common="-target $target -fno-sanitize=undefined -g0 -Wno-date-time -Wno-error=date-time"
    common+=" -ffile-prefix-map=$cache=/klog -ffile-prefix-map=$clone=/klog"
    printf '#!/bin/sh\nexec "%s" cc %s "$@"\n' "$zig" "$common" >"$bin/klog-cc"
    printf '#!/bin/sh\nexec "%s" c++ %s "$@"\n' "$zig" "$common" >"$bin/klog-c++"
    printf '#!/bin/sh\nexec "%s" ar "$@"\n' "$zig" >"$bin/klog-ar"
    printf '#!/bin/sh\nexec "%s" ranlib "$@"\n' "$zig" >"$bin/klog-ranlib"
    chmod +x "$bin"/klog-*
}
