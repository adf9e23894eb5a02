#!/usr/bin/env bash
# What klog needs of the machine, outside its virtual environment.
#
#     tools/machine.sh build       a C compiler, Python 3.11 or newer with its headers and venv
#     tools/machine.sh kafka       a JDK of 17 or newer and Maven, for real Kafka in tests and benchmarks
#     tools/machine.sh browser     Chromium, for the pages of `klog report` in tests
#     tools/machine.sh strace      strace, by which system calls fail in tests
#     tools/machine.sh fuse        libfuse, for a file system of the tests' own that loses what was not synced
#     tools/machine.sh release     what the one file is built with: nasm, xz, perl, apt's helper to fetch sources
#     tools/machine.sh packages    what `make release` needs besides: dpkg-deb, rpmbuild; lintian, ruby, qemu and buildah for its tests
#     tools/machine.sh make        make itself
#     tools/machine.sh python      prints the Python to use
#
# What is missing is installed through apt where that is possible (root on Debian or Ubuntu).  Elsewhere the one line to
# run is printed, exit 1.
set -euo pipefail

find_python() {
    local name
    for name in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14}; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            # A shim (pyenv) may point elsewhere tomorrow: the interpreter itself is named.
            "$name" -c 'import sys; print(sys.executable)'
            return
        fi
    done
    return 1
}

lacking_build() {
    command -v cc >/dev/null || command -v gcc >/dev/null || command -v clang >/dev/null || echo gcc libc6-dev
    local python
    if ! python=$(find_python); then
        echo python3 python3-dev python3-venv
        return
    fi
    local version
    version=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
    "$python" -c 'import venv, ensurepip' 2>/dev/null || echo "$version-venv"
    "$python" -c 'import os, sysconfig; open(os.path.join(sysconfig.get_path("include"), "Python.h"))' 2>/dev/null ||
        echo "$version-dev"
}

lacking_kafka() {
    command -v mvn >/dev/null || echo maven
    # A runtime alone will not do: tests run a Java source file, which takes the compiler's module.
    local major
    major=$(java -XshowSettings:properties -version 2>&1 | sed -n 's/^ *java.specification.version = //p') || major=
    if [[ ! $major =~ ^[0-9]+$ ]] || ((major < 17)) || ! java --list-modules | grep -q '^jdk.compiler@'; then
        jdk_package
    fi
}

jdk_package() {
    if ! command -v apt-cache >/dev/null || apt-cache show openjdk-17-jdk-headless >/dev/null 2>&1; then
        echo openjdk-17-jdk-headless
    else
        echo default-jdk-headless
    fi
}

lacking_browser() {
    command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null ||
        echo chromium
}

lacking_strace() {
    command -v strace >/dev/null || echo strace
}

lacking_fuse() {
    command -v pkg-config >/dev/null || echo pkg-config
    pkg-config --exists fuse3 2>/dev/null || echo libfuse3-dev
    command -v fusermount3 >/dev/null || echo fuse3
}

lacking_release() {
    command -v nasm >/dev/null || echo nasm
    command -v xz >/dev/null || echo xz-utils
    command -v perl >/dev/null || echo perl
    [[ -x /usr/lib/apt/apt-helper ]] || echo apt
    lacking_make
}

lacking_packages() {
    command -v dpkg-deb >/dev/null || echo dpkg
    command -v rpmbuild >/dev/null || echo rpm
    command -v lintian >/dev/null || echo lintian # the tests
    command -v ruby >/dev/null || echo ruby       # the test of the formula
    [[ -x /usr/bin/qemu-aarch64-static ]] || echo qemu-user-static # the tests of the file for aarch64
    command -v buildah >/dev/null || echo buildah # the test of the image
}

lacking_make() {
    command -v make >/dev/null || echo make
}

install() {
    local what=$1 packages line
    packages=$("lacking_$what" | xargs)
    [[ -n $packages ]] || return 0
    if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
        echo "machine: installing $packages" >&2
        apt-get update -q >&2
        packages=$("lacking_$what" | xargs) # only now is it known which JDK there is
        # shellcheck disable=SC2086  # a list of words
        DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends $packages >&2 </dev/null
        packages=$("lacking_$what" | xargs)
        [[ -n $packages ]] || return 0
        echo "machine: installed, but still not found: $packages" >&2
        return 1
    fi
    line="apt-get install -y $packages"
    [[ $(id -u) == 0 ]] || line="sudo $line"
    command -v apt-get >/dev/null || line="install what Debian calls: $packages"
    echo "machine: this is missing; please run:  $line" >&2
    return 1
}

case ${1:-} in
    python) find_python || { echo "machine: no Python of 3.11 or newer (set PYTHON=...)" >&2; exit 1; } ;;
    build | kafka | browser | strace | fuse | release | packages | make) install "$1" ;;
    *) echo "usage: tools/machine.sh build|kafka|browser|strace|fuse|release|packages|make|python" >&2; exit 16 ;;
esac
