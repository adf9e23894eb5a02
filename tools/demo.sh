#!/usr/bin/env bash
# klog over data that real brokers wrote: what `make demo` shows.
set -uo pipefail
cd "$(dirname "$0")/../fixtures" || exit
PATH=$PWD/../.venv/bin:$PATH
failed=0

# show EXIT "what for" COMMAND...: say it, run it, and insist on the exit code.
show() {
    local want=$1 what=$2 got
    shift 2
    printf '\n# %s\n$ %s\n' "$what" "$*"
    "$@"
    got=$?
    ((got == 0)) || printf '(exit code %d)\n' "$got"
    ((got == want)) || { printf '** expected exit code %d\n' "$want" >&2; failed=1; }
}

echo "Log dirs that Kafka 4.3.1 and 2.8.2 wrote; no broker is running."
show 0 "What is on this disk?" klog describe modern
show 0 "One partition, segment by segment" klog describe modern/idempotent-0
show 0 "Three records from the middle, as data" klog dump --output jsonl --from-offset 60 --limit 3 modern/plain-1
show 0 "What Kafka's own dump tool would print" \
    klog dump --print-data-log --max-bytes 600 modern/dense-0/00000000000000000000.log
show 0 "Who committed what" \
    klog dump --offsets-decoder --skip-record-metadata --max-bytes 900 modern/__consumer_offsets-3/00000000000000000000.log
show 0 "Messages of 2015 (format 0, lz4)" klog dump --output jsonl --limit 2 legacy/v0-lz4-0
show 0 "Is this disk all right?" klog verify modern
show 4 "And this one?" klog verify crash/flip-middle
show 4 "A bit was flipped here: told in its place, and reading goes on" \
    klog dump --output jsonl --values none --from-offset 299 --limit 3 crash/flip-middle/torn-0

mkdir -p ../build
show 4 "All of it on one page, for the ticket" klog report modern crash/flip-middle --to ../build/report.html

printf '\nThe page is build/report.html.  klog is in .venv/bin/klog; README.md goes on from here.\n'
exit "$failed"
