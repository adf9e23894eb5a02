#!/usr/bin/env bash
# Builds the sdist and a wheel for each platform in dist/.  The kernel is compiled once for each, against the limited API
# in the headers of the one file's Python: the host's own Python and compiler leave nothing in it.
set -euo pipefail
source "$(dirname "$0")/environment.sh"
source "$release/libraries.sh"
"$release/fetch.sh"
umask 022

# What setuptools leaves and finds again in a tree would come with it: it works in a copy of what git knows.
build=$clone/build/wheels
tree=$build/tree
rm -rf "$build"
mkdir -p "$tree" "$clone/dist"
git -C "$clone" ls-files -z | tar --create --directory "$clone" --null --files-from - | tar --extract --directory "$tree"

setup() { (cd "$tree" && "$clone/.venv/bin/python" setup.py --quiet "$@" 2>"$build/setup.log") || { cat "$build/setup.log" >&2; exit 1; }; }

# setuptools says nothing of times and owners: the archive is packed again.
build_sdist() {
    local name
    setup sdist --formats=tar --dist-dir "$build/sdist"
    name=$(basename "$build"/sdist/*.tar .tar)
    tar --extract --file "$build/sdist/$name.tar" --directory "$build/sdist"
    tar --create --directory "$build/sdist" --sort=name --format=ustar --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        --mode=u=rwX,go=rX "$name" | gzip --no-name --best >"$clone/dist/$name.tar.gz"
}

# Print what Zig is to compile for: the oldest C library that a platform has.
zig_target() { echo "$2-linux-$([[ $1 == manylinux* ]] && echo gnu.2.17 || echo musl)"; }

# musl is named as Alpine and auditwheel name it; every musl takes itself for it.  The linker alone, for Zig would link
# its own memcpy, which is slower than any library's.
# -mevex512: without it Zig takes the wide registers from the functions that ask for AVX-512 themselves.
build_kernel() {
    local platform=$1 arch=$2 zig=$tools/ziglang/zig compile part
    compile=("$zig" cc -target "$(zig_target "$platform" "$arch")" -fPIC -O3 -DNDEBUG -g0 -fno-sanitize=undefined -fvisibility=hidden -w -include imports.h)
    [[ $arch != x86_64 ]] || compile+=(-mevex512)
    cd "$build/klog/kernel"
    rm -f ./*.so
    compile+=(-DPy_LIMITED_API=0x030B0000 -I"$headers")
    if [[ $platform != manylinux* ]]; then
        "$zig" cc -target "$(zig_target "$platform" "$arch")" -shared -nostdlib -g0 -Wl,-soname,"libc.musl-$arch.so.1" -o libc.so -x c /dev/null
    fi
    for part in _*.c; do
        part=${part%.c}
        if [[ $platform == manylinux* ]]; then
            "${compile[@]}" -shared -s -Wl,--build-id=none -o "$part.abi3.so" "$part.c"
        else
            "${compile[@]}" -c -o "$part.o" "$part.c"
            "$zig" ld.lld -shared -s --gc-sections --build-id=none -o "$part.abi3.so" "$part.o" libc.so
        fi
    done
    rm -f libc.so
}

build_wheel() {
    local platform=$1 arch=$2
    say "building the wheel for $platform on $arch"
    (build_kernel "$platform" "$arch")
    cp "$build"/klog/kernel/_*.abi3.so "$build/lib/klog/kernel/"
    DIST_EXTRA_CONFIG=$build/paths.cfg setup bdist_wheel --skip-build --dist-dir "$clone/dist" --bdist-dir "$build/$platform-$arch" \
        --py-limited-api cp311 --plat-name "${platform}_$arch"
}

[[ -x $tools/ziglang/zig ]] || unpack_wheel ziglang "$tools"
write_compilers
headers=$(library cpython)/include/python
rm -f "$clone"/dist/klog-*.whl "$clone/dist/klog-$(sed -n 's/^version = "\(.*\)"/\1/p' "$clone/pyproject.toml").tar.gz"
build_sdist

mkdir "$build/klog"
cp -r "$tree/core/klog/kernel" "$tree/core/klog/__init__.py" "$build/klog"
(cd "$build" && translate_kernel "$clone/.venv/bin/python")
setup build_py --build-lib "$build/lib"
printf '[build]\nbuild_lib = %s\n' "$build/lib" >"$build/paths.cfg"
for arch in x86_64 aarch64; do
    build_wheel manylinux_2_17 "$arch"
    build_wheel musllinux_1_2 "$arch"
done
