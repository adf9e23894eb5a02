#!/usr/bin/env bash
# Builds a .deb and an .rpm in dist/ around each one file: what they hold comes out of the archives that lie there.
set -euo pipefail
source "$(dirname "$0")/environment.sh"
umask 022

version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$clone/pyproject.toml")
build=$clone/build/packages

# Lay out what both have, but the completions of zsh, whose place is another on each.
lay_out() {
    local archive=$1 tree=$2 zsh=$3 from documents=$2/usr/share/doc/klog
    from=$build/$(basename "$archive" .tar.gz)
    tar --extract --file "$archive" --directory "$build"
    install -D -m 755 "$from/klog" "$tree/usr/bin/klog"
    mkdir -p "$tree/usr/share/man/man1" "$documents/licences"
    gzip --no-name --best <"$from/klog.1" >"$tree/usr/share/man/man1/klog.1.gz"
    install -D -m 644 "$from/completions/klog.bash" "$tree/usr/share/bash-completion/completions/klog"
    install -D -m 644 "$from/completions/_klog" "$tree/usr/share/zsh/$zsh/_klog"
    install -D -m 644 "$from/completions/klog.fish" "$tree/usr/share/fish/vendor_completions.d/klog.fish"
    install -m 644 "$from"/licences/* "$documents/licences/"
    gzip --no-name --best <"$clone/CHANGELOG.md" >"$documents/CHANGELOG.md.gz"
}

# As Debian's policy counts, whatever file system this is: files by their size, all else as a KiB.
installed_kib() {
    find "$1" -type f -printf '%s\n' -o -printf '1\n' | awk '{ kib += int(($1 + 1023) / 1024) } END { print kib }'
}

build_deb() {
    local archive=$1 arch=$2 tree=$build/deb-$2 name
    name=klog_${version}_$arch.deb
    lay_out "$archive" "$tree" vendor-completions
    install -m 644 "$release/packages/copyright" "$tree/usr/share/doc/klog/copyright"
    install -D -m 644 "$release/packages/lintian-overrides" "$tree/usr/share/lintian/overrides/klog"
    printf 'klog (%s) unstable; urgency=medium\n\n  * What has changed is in CHANGELOG.md.gz.\n\n -- %s  %s\n' "$version" "$maintainer" \
        "$(date --utc --rfc-email --date "@$SOURCE_DATE_EPOCH")" | gzip --no-name --best >"$tree/usr/share/doc/klog/changelog.gz"
    mkdir "$tree/DEBIAN"
    (cd "$tree" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"
    cat >"$tree/DEBIAN/control" <<EOF
Package: klog
Version: $version
Architecture: $arch
Maintainer: $maintainer
Installed-Size: $(installed_kib "$tree/usr")
Section: admin
Priority: optional
Description: read, check, repair and compact Kafka broker data directories
 klog reads what a Kafka broker has on its disks, with no broker running.
 It is one static program that needs no Python, no Java and no library of
 the host.
EOF
    find "$tree" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --build --root-owner-group -Zxz "$tree" "$clone/dist/$name" >/dev/null
    say "$name"
}

build_rpm() {
    local archive=$1 arch=$2 tree=$build/rpm-$2
    lay_out "$archive" "$tree" site-functions
    install -m 644 "$clone/LICENSE" "$tree/usr/share/doc/klog/LICENSE"
    find "$tree" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +
    rpmbuild -bb --quiet --target "$arch-linux" --define "_topdir $build/rpmbuild-$arch" --define "_rpmdir $build" \
        --define "klog_version $version" --define "klog_tree $tree" --define "klog_maintainer $maintainer" \
        "$release/packages/klog.spec" >"$build/rpm.log" 2>&1 || { cat "$build/rpm.log" >&2; return 1; }
    cp "$build/$arch/klog-$version-1.$arch.rpm" "$clone/dist/"
    say "klog-$version-1.$arch.rpm"
}

maintainer="The klog authors <klog@klog.invalid>"
rm -rf "$build"
mkdir -p "$build"
for archive in "$clone/dist/klog-$version-linux-"{x86_64,aarch64}.tar.gz; do
    [[ -e $archive ]] || continue
    arch=$(basename "${archive##*-}" .tar.gz)
    build_rpm "$archive" "$arch"
    build_deb "$archive" "$([[ $arch == x86_64 ]] && echo amd64 || echo arm64)"
done
