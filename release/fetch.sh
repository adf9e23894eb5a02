#!/usr/bin/env bash
# Brings all of inputs.txt into the cache, and takes nothing whose digest is another.  What is there is not asked for again.
set -euo pipefail
source "$(dirname "$0")/environment.sh"

missing() {
    local name version place digest file
    while read -r name version _ place digest; do
        file=$downloads/$(basename "${place#*:}")
        if [[ $name != \#* && $place == "$1":* ]] && ! echo "$digest  $file" | sha256sum --check --status 2>/dev/null; then
            echo "$name $version ${place#*:} $digest"
        fi
    done < <(grep -v '^#' "$release/inputs.txt")
}

# The pool lies where this machine's own apt finds Debian's packages.  KLOG_DEBIAN names others, that are asked in their
# order: a mirror near by, and an archive that keeps what Debian's pool has dropped.
fetch_debian() {
    local pools name version path digest
    read -ra pools <<<"${KLOG_DEBIAN:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' \
        'Origin: Debian' 'Component: main' | grep -v security | head -n 1)}"
    ((${#pools[@]})) || { say "apt knows no mirror of Debian: set KLOG_DEBIAN to one"; return 1; }
    while read -r name version path digest; do
        from_pools "$name $version" "$path" "$digest" "${pools[@]}" || return 1
    done
}

from_pools() {
    local what=$1 path=$2 digest=$3 pool
    for pool in "${@:4}"; do
        say "fetching $what"
        if /usr/lib/apt/apt-helper -o APT::Sandbox::User=root download-file "${pool%/}/$path" \
            "$downloads/$(basename "$path")" "SHA256:$digest" >&2; then
            return
        fi
    done
    say "no pool has $what as inputs.txt names it: $path; KLOG_DEBIAN may name one more, an archive that keeps all"
    return 1
}

fetch_pypi() {
    local list name version path digest
    list=$(mktemp)
    while read -r name version path digest; do
        say "fetching $name $version"
        echo "$name==$version --hash=sha256:$digest" >>"$list"
    done
    "$clone/.venv/bin/python" -m pip download --quiet --no-deps --require-hashes --dest "$downloads" --requirement "$list" >&2
    rm -f "$list"
}

mkdir -p "$downloads"
for kind in debian pypi; do
    wanted=$(missing "$kind")
    [[ -z $wanted ]] || "fetch_$kind" <<<"$wanted"
done
left=$(missing debian; missing pypi)
[[ -z $left ]] || { say "not what inputs.txt names: $left"; exit 1; }
