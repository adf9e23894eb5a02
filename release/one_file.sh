#!/usr/bin/env bash
# Builds dist/klog-VERSION-linux-ARCH: Python, klog, its kernel and all that it depends on, in one static program.
set -euo pipefail
source "$(dirname "$0")/environment.sh"
source "$release/libraries.sh"
"$release/fetch.sh"

version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$clone/pyproject.toml")
made=$clone/dist/klog-$version-linux-$arch
build=$clone/build/release-$arch
rm -rf "$build"
mkdir -p "$build/site" "$clone/dist"

[[ -x $tools/ziglang/zig ]] || unpack_wheel ziglang "$tools"
exec 8>"$cache/lock" # one builds at a time
flock 8
write_compilers
zlib=$(library zlib)
openssl=$(library openssl)
snappy=$(library snappy)
isal=$(library isal)
python=$(library cpython)
protobuf=$(library protobuf)
host=$(host_python)
flock --unlock 8

run_python() { PYTHONHOME=$host PYTHONPATH=${path:-} "$host/python" -s -S "$@"; }

say "compiling the kernel and the codecs"
for name in typer rich pygments markdown-it-py mdurl shellingham annotated-doc textual platformdirs typing-extensions \
    cython; do
    unpack_wheel "$name" "$build/$([[ $name == cython ]] && echo cython || echo site)"
done
for name in lz4 zstandard isal fastavro protobuf; do unpack "$name" "$build/$name"; done
cp -r "$build/lz4/lz4" "$build/zstandard/zstandard" "$build/site/"
cp -r "$build/isal/src/isal" "$build/site/isal"

# Only values are read, one by one: fastavro's files of values and the codecs of those (bz2, lzma) stay out.
mkdir -p "$build/site/fastavro"
cp -r "$build"/fastavro/fastavro/{const,_read_common,_schema_common,logical_readers,_logical_readers_py}.py \
    "$build/fastavro/fastavro/repository" "$build/site/fastavro/"
echo "from fastavro._read import schemaless_reader" >"$build/site/fastavro/__init__.py"
sed -i 's/^import \(bz2\|lzma\)$/\1 = None/; s/^ *import snappy$/        raise ImportError/' \
    "$build/fastavro/fastavro/_read.pyx"
cp -r "$build/protobuf/google" "$build/site/"
mkdir "$build/site/google/_upb"
: >"$build/site/google/_upb/__init__.py"
: >"$build/site/google/__init__.py" # its own looks for other packages of this name

cd "$build"
mkdir -p core/klog
cp -r "$clone/core/klog/kernel" "$clone/core/klog/__init__.py" core/klog
rm -f core/klog/kernel/*.so core/klog/kernel/*.c
(cd core && path=$build/cython translate_kernel run_python)
for name in _read _schema; do (cd fastavro && path=$build/cython translate run_python "fastavro/$name.pyx"); done

compile() {
    local object=$1
    shift
    klog-cc -O3 -w -DNDEBUG -fvisibility=hidden -I"$python/include/python" -c -o "$build/$object.o" "$@" &
    compilers+=($!)
}
finish() {
    local one
    for one in "${compilers[@]}"; do wait "$one"; done
    compilers=()
}
compilers=()
kernel=()
if [[ $arch == x86_64 ]]; then
    kernel=(-mevex512) # else Zig takes the wide registers from the functions that ask for AVX-512 themselves
    compile memory -fno-builtin "$release/memory.c"
fi
parts=()
for name in core/klog/kernel/_*.c; do
    name=$(basename "$name" .c)
    compile "kernel$name" "${kernel[@]}" -Icore/klog/kernel "core/klog/kernel/$name.c"
    parts+=("PART($name)")
done
compile zstd -Izstandard/zstd -Izstandard/c-ext -DZSTD_SINGLE_FILE -DZSTDLIB_VISIBLE= -DZDICTLIB_VISIBLE= \
    -DZSTDERRORLIB_VISIBLE= zstandard/c-ext/backend_c.c
for name in lz4 lz4hc lz4frame xxhash; do compile "$name" -Ilz4/lz4libs "lz4/lz4libs/$name.c"; done
compile lz4_version -Ilz4/lz4libs lz4/lz4/_version.c
compile lz4_block -Ilz4/lz4libs lz4/lz4/block/_block.c
compile lz4_frame -Ilz4/lz4libs lz4/lz4/frame/_frame.c
compile igzip_lib -I"$isal/include" isal/src/isal/igzip_libmodule.c
compile isal_zlib -I"$isal/include" isal/src/isal/isal_zlibmodule.c
compile isal_version -I"$isal/include" isal/src/isal/_isalmodule.c
compile snappy -I"$snappy/include" "$release/snappy.c"
for name in _read _schema; do compile "fastavro$name" "fastavro/fastavro/$name.c"; done
compile klog "-DKLOG_KERNEL(PART)=${parts[*]}" "$release/klog.c"
finish

say "freezing the modules"
run_python "$release/freeze.py" "$build/modules" "$clone/core" "$clone/cli" "$build/site" "$python/lib/python$python_version"
compile modules modules.c
finish

say "linking"
klog-c++ -static -s -Wl,--gc-sections -Wl,--build-id=none -o klog ./*.o "$python"/lib/lib{python$python_version,mpdec,Hacl_Hash_SHA2,expat}.a \
    "$isal/lib/isa-l.a" "$protobuf/lib/libprotobuf.a" "$snappy/lib/libsnappy.a" "$openssl/lib/libssl.a" "$openssl/lib/libcrypto.a" "$zlib/lib/libz.a" -lm
install -m 755 klog "$made"
say "$(stat -c %s "$made") bytes: ${made#"$clone"/}"
