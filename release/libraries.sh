# Sourced by one_file.sh: CPython and the C libraries, static, each in a directory of its own that is named after all that
# it is made of.  Eleven minutes of one core the first time.
# shellcheck shell=bash source=environment.sh

jobs=$(nproc)

# Print the directory of a library, which is built if it is not there.  It appears whole or not at all.
library() {
    local name=$1 under="" place
    case $name in
        cpython) under="$(library zlib) $(library openssl) $([[ $arch == x86_64 ]] || host_python)" ;;
        protobuf) under=$(library cpython) ;;
    esac
    place=$cache/libraries/$name-$arch-$( { grep -E "^($name|ziglang) " "$release/inputs.txt"
        declare -f "build_$name" write_compilers; echo "$under"; } | sha256sum | cut -c1-16)
    if [[ ! -d $place ]]; then
        say "building $name"
        local work=$cache/work/$name-$arch
        unpack "$name" "$work"
        rm -rf "$place.new"
        mkdir -p "$place.new/lib" "$place.new/include"
        (cd "$work" && set -e && "build_$name" "$place.new") >"$work.log" 2>&1 &
        if ! wait $!; then # a condition around the build itself would have `set -e` ignored in it
            tail -n 30 "$work.log" >&2
            say "$name: the build failed, see $work.log"
            return 1
        fi
        mv "$place.new" "$place"
    fi
    echo "$place"
}

build_zlib() {
    CC=klog-cc AR=klog-ar RANLIB=klog-ranlib CFLAGS=-O3 ./configure --static
    make -j"$jobs" libz.a
    cp libz.a "$1/lib/"
    cp zlib.h zconf.h "$1/include/"
}

build_snappy() {
    sed -e 's/\${HAVE_SYS_UIO_H_01}/1/; s/\${PROJECT_VERSION_\(MAJOR\|MINOR\|PATCH\)}/0/' snappy-stubs-public.h.in \
        >snappy-stubs-public.h
    local name
    for name in snappy snappy-c snappy-sinksource snappy-stubs-internal; do
        klog-c++ -O3 -DNDEBUG -fno-exceptions -fno-rtti -DHAVE_SYS_MMAN_H=1 -DHAVE_UNISTD_H=1 -DHAVE_BUILTIN_CTZ=1 \
            -DHAVE_BUILTIN_EXPECT=1 -DHAVE_BUILTIN_PREFETCH=1 -DHAVE_ATTRIBUTE_ALWAYS_INLINE=1 -I. -c "$name.cc"
    done
    klog-ar rcs "$1/lib/libsnappy.a" snappy*.o
    cp snappy-c.h "$1/include/"
}

build_isal() {
    cd src/isal/isa-l
    make -j"$jobs" -f Makefile.unx units="crc igzip" CC=klog-cc AR=klog-ar host_cpu="$arch" isa-l.h bin/isa-l.a
    cp bin/isa-l.a "$1/lib/"
    cp -r include "$1/include/isa-l"
    cp isa-l.h "$1/include/"
}

# The compiled part of the Python package, without the decoder that its setup.py leaves out as well.
build_protobuf() {
    local python
    python=$(library cpython)
    # the archive holds one object of a name: several sources have the same
    find google python upb utf8_range -name '*.c' ! -name '*decode_fast*' | LC_ALL=C sort |
        xargs -P "$jobs" -I{} sh -c 'klog-cc -O3 -w -DNDEBUG -fvisibility=hidden -I. -Iutf8_range -I"$1" -c \
            -o "$(echo "$2" | tr / -).o" "$2"' - "$python/include/python" {}
    klog-ar rcs "$1/lib/libprotobuf.a" ./*.o
}

# What a client of TLS needs: no programs, no modules to load, none of the protocols that a browser has beside.
build_openssl() {
    CC=klog-cc AR=klog-ar RANLIB=klog-ranlib ./Configure "linux-$arch" no-shared no-tests no-docs no-apps \
        no-dso no-module no-async no-legacy no-quic no-cmp no-cms no-ts no-srp no-comp no-afalgeng no-uplink \
        --prefix=/klog --openssldir=/etc/ssl --libdir=lib
    make -j"$jobs" build_generated
    make -j"$jobs" libcrypto.a libssl.a
    cp libcrypto.a libssl.a "$1/lib/"
    cp -r include/openssl "$1/include/"
}

# Print the directory of the Python that runs here, and makes what the other one contains.
host_python() (
    [[ $arch == x86_64 ]] || KLOG_ARCH=x86_64 source "$release/environment.sh"
    write_compilers
    library cpython
)

# All extension modules are inside.  Those stay out that need a library that is not here; klog uses none of them.
# MI_NO_GETENV: or the allocator would obey variables.  What follows --build is what configure can only learn by running a
# program, and --with-build-python is for what `make` runs.
build_cpython() {
    local zlib openssl host name cross=()
    zlib=$(library zlib)
    openssl=$(library openssl)
    for name in _ctypes readline _tkinter _sqlite3 _curses _curses_panel _gdbm _dbm _uuid _bz2 _lzma nis; do
        export "py_cv_module_$name=n/a"
    done
    if [[ $arch != x86_64 ]]; then
        host=$(host_python)
        printf '#!/bin/sh\nPYTHONHOME=%s exec %s/python "$@"\n' "$host" "$host" >build-python
        chmod +x build-python
        cross=(--host="$target" --build=x86_64-linux-gnu --with-build-python="$PWD/build-python" --with-computed-gotos
            ac_cv_file__dev_ptmx=no ac_cv_file__dev_ptc=no ac_cv_buggy_getaddrinfo=no ac_cv_working_tzset=yes
            ac_cv_aligned_required=no)
    fi
    MODULE_BUILDTYPE=static PKG_CONFIG=false ZLIB_CFLAGS="-I$zlib/include" ZLIB_LIBS="-L$zlib/lib -lz" \
        CFLAGS_NODIST=-DMI_NO_GETENV CC=klog-cc CXX=klog-c++ AR=klog-ar RANLIB=klog-ranlib LDFLAGS=-static \
        LINKFORSHARED=" " ac_cv_working_openssl_ssl=yes ac_cv_working_openssl_hashlib=yes ./configure --prefix=/klog \
        --disable-shared --disable-test-modules --without-ensurepip --with-openssl="$openssl" \
        --with-ssl-default-suites=openssl "${cross[@]}"
    make -j"$jobs" "libpython$python_version.a" python
    cp "libpython$python_version.a" Modules/_decimal/libmpdec/libmpdec.a Modules/_hacl/libHacl_Hash_SHA2.a \
        Modules/expat/libexpat.a "$1/lib/"
    cp python "$1/"
    cp -r Include "$1/include/python"
    cp pyconfig.h "$1/include/python/"
    cp -r Lib "$1/lib/python$python_version"
}
