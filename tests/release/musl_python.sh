#!/usr/bin/env bash
# Links $1/python, that loads musl and extension modules, from what `make release` has compiled for KLOG_ARCH, and lays
# its standard library beside it.  The one file's own Python is static: it cannot load a kernel.
set -euo pipefail
source "$(dirname "$0")/../../release/environment.sh"
# shellcheck source=release/libraries.sh
source "$release/libraries.sh"
objects=$clone/build/release-$arch
write_compilers
python=$(library cpython)
zlib=$(library zlib)
openssl=$(library openssl)
snappy=$(library snappy)
isal=$(library isal)
mkdir -p "$1/lib"

# Zig links musl dynamically beside another library only; musl takes this name for its own.
klog-cc -shared -nostdlib -Wl,-soname,"libc.musl-$arch.so.1" -o "$1/libc.so" -x c /dev/null
klog-c++ -rdynamic -s -w -o "$1/python" -I"$python/include/python" -x c "$(dirname "$0")/musl_python.c" -x none "$1/libc.so" \
    "$objects"/{lz4*,xxhash,zstd,igzip_lib,isal_zlib,isal_version,snappy}.o -Wl,--whole-archive "$python/lib/libpython$python_version.a" \
    -Wl,--no-whole-archive "$python"/lib/lib{mpdec,Hacl_Hash_SHA2,expat}.a "$isal/lib/isa-l.a" "$snappy/lib/libsnappy.a" \
    "$openssl/lib/libssl.a" "$openssl/lib/libcrypto.a" "$zlib/lib/libz.a" -lm
rm "$1/libc.so"
cp -r "$python/lib/python$python_version" "$1/lib/"
mkdir -p "$1/lib/python$python_version/lib-dynload" # Python looks for it, and warns
