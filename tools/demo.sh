#!/usr/bin/env bash
# The five commands of the README, over data that real brokers wrote: what `make demo` shows.
set -uo pipefail
cd "$(dirname "$0")/../fixtures" || exit
PATH=$PWD/../.venv/bin:$PATH
place=../build/demo
failed=0

# show COMMAND: print it and run it; 1 and 4 say that something was repaired or is damaged.
show() {
    local got
    printf '$ %s\n' "$1"
    eval "$1" </dev/null
    got=$?
    ((got == 0)) || printf '(exit code %d)\n' "$got"
    [[ $got == [014] ]] || { printf '** %s: not expected\n' "$1" >&2; failed=1; }
}

rm -rf "$place" && mkdir -p "$place" || exit
echo "Log dirs that Kafka 4.3.1 wrote; no broker is running."

# The headings and the commands, whole: the README shows the beginning or the end of some outputs.
while IFS= read -r line <&3; do
    case $line in
    '**'*)
        line=${line#\*\*}
        printf '\n# %s\n' "${line%%\*\**}"
        ;;
    '$ '*)
        line=${line#\$ }
        line=${line%% | *}
        show "${line//\/tmp\//$place/}"
        ;;
    esac
done 3< <(sed -n '/^## Five commands/,/^## Commands/p' ../README.md)
show "klog report modern crash/flip-middle --to $place/page.html"

printf '\nThe page is build/demo/page.html. klog is in .venv/bin/klog; klog help lists its commands.\n'
exit "$failed"
