#!/usr/bin/env bash
# klog over data that real brokers wrote: what `make demo` shows.
set -uo pipefail
cd "$(dirname "$0")/../fixtures"
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

echo "klog over fixtures/, which Kafka 4.3.1 and 2.8.2 wrote; no broker is running."
show 0 "What is on this disk?" klog describe modern
show 0 "One partition, segment by segment" klog describe modern/idempotent-0
show 0 "The newest three records, as data" klog dump --output jsonl --tail --limit 3 modern/plain-1
show 0 "What Kafka's own dump tool would print" klog dump --max-bytes 400 --print-data-log modern/tx-0/00000000000000000000.log
show 0 "Who committed what" klog dump --offsets-decoder --max-bytes 900 modern/__consumer_offsets-0/00000000000000000000.log
show 4 "A broker was killed and a bit flipped since; what is left?" klog dump --batches --output jsonl --limit 3 crash/flip-middle/torn-0

printf '\nklog is in .venv/bin/klog; README.md goes on from here.\n'
exit "$failed"
