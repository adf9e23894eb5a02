#!/usr/bin/env bash
# Runs every test that this machine can run and says, last and loudly, what it could not.  Arguments go to pytest.
#
# With CI=true whatever did not run is a failure, skipped tests included.  Two exceptions: the large corpora that may lie
# beside the project, because no machine can fetch them; tests over fixtures/ stand in for them.  And memory cgroups, which
# a container may not make: the kernel of another machine does the same.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
python=.venv/bin/python
missed=()
wanted=
# Else each of the hundreds of klog processes would compile all of klog first.
unset PYTHONDONTWRITEBYTECODE

if ! tools/machine.sh kafka; then
    missed+=("the tests against real Kafka, and on Spark: they need a JDK of 17 or newer, and Maven (see above)")
    wanted="not kafka and not spark"
fi
if ! tools/machine.sh browser; then
    missed+=("the tests of pages in a browser: they need Chromium (see above)")
    wanted+="${wanted:+ and }not browser"
fi
if ! tools/machine.sh strace; then
    missed+=("the tests of system calls that fail: they need strace (see above)")
    wanted+="${wanted:+ and }not strace"
fi
if ! tools/machine.sh fuse || [[ ! -w /dev/fuse ]]; then
    missed+=("the tests on a file system of their own: they need libfuse 3 (see above) and /dev/fuse, as root")
    wanted+="${wanted:+ and }not fuse"
fi
if [[ -z ${KLOG_CORPORA:-} && ! -e ../shared/corpora/manifest.json ]]; then
    no_corpora="the tests over the large corpora: they are not beside this folder (KLOG_CORPORA names another place)"
    wanted+="${wanted:+ and }not corpora"
fi

# More workers than cores: tests that start brokers wait half of their time.  A worker, its JVMs and its brokers need
# 3 GiB.  For single files none: starting workers would take longer.
workers=$(($(nproc) + 2))
gibibytes=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo 2>/dev/null)
if ((gibibytes > 0 && workers > gibibytes / 3)); then
    workers=$((gibibytes / 3 > 0 ? gibibytes / 3 : 1))
fi
for argument in "$@"; do
    [[ ! -f ${argument%%::*} ]] || workers=0
done

# Each worker imports all tests.  In a fresh clone each would compile all of them, side by side: a minute of CPU.
compiled=build/tests-compiled
if ((workers > 1)); then
    mkdir -p build
    ours=$(mktemp -p build)
    [[ -e $compiled ]] || touch -d @0 "$compiled"
    find tests -name 'test_*.py' -newer "$compiled" -print0 |
        xargs -0r -P "$(nproc)" -n 70 "$python" -m pytest --quiet --collect-only -n 0 >/dev/null 2>&1
    mv "$ours" "$compiled"
fi

cached() { # a list in pytest's cache
    "$python" -c 'import json, sys; print(*json.load(open(sys.argv[1])), sep="\n", end="")' ".pytest_cache/v/$1" 2>/dev/null
}

report=$(mktemp)
trap 'rm -f "$report"' EXIT
"$python" -m pytest -n "$workers" --dist loadfile --no-loadscope-reorder --junitxml="$report" ${wanted:+-m "$wanted"} "$@"
status=$?

# The tests share the cores with each other's brokers: one that stalls there may fail a test that is right.  The gate
# runs a few such tests once more, alone, and names them; what fails alone has failed.  Others get no second run, except
# those that have no result because workers hung and were ended.
few=10
if [[ ${CI:-} == @(true|1) ]] && ((status == 1 || status == 3)); then
    mapfile -t unfinished < <(cached klog/unfinished)
    mapfile -t failed < <(cached cache/lastfailed)
    if ((${#failed[@]} + ${#unfinished[@]} > 0 && ${#failed[@]} + ${#unfinished[@]} <= few)); then
        echo "********  ONCE MORE, ALONE  what failed beside others, and needs a broker or Spark; what did not end"
        again=0
        ((${#unfinished[@]} == 0)) || "$python" -m pytest -n 0 "${unfinished[@]}" || again=1
        [[ -z $(cached cache/lastfailed) ]] || "$python" -m pytest -n 0 --last-failed -m "kafka or spark" || again=1
        [[ -z $(cached cache/lastfailed) ]] && ((again == 0)) && status=0
        ((${#unfinished[@]} == 0)) || printf '********  DID NOT END BESIDE OTHERS  %s\n' "${unfinished[@]}"
        ((${#failed[@]} == 0)) || printf '********  FAILED BESIDE OTHERS  %s\n' "${failed[@]}"
    fi
fi

while read -r reason; do
    case $reason in
        "no memory cgroup"*) no_cgroup="the tests in a memory cgroup: $reason" ;;
        *) missed+=("skipped: $reason") ;;
    esac
done < <("$python" - "$report" <<'PY'
import sys
from xml.etree import ElementTree

try:
    skips = ElementTree.parse(sys.argv[1]).iter("skipped")
    print(*sorted({skip.get("message", "") for skip in skips if skip.get("type") == "pytest.skip"}), sep="\n", end="")
except ElementTree.ParseError:
    print("all of it: pytest wrote no report", end="")
PY
)
for what in ${no_corpora:+"$no_corpora"} ${no_cgroup:+"$no_cgroup"} "${missed[@]}"; do
    printf '********  DID NOT RUN  %s\n' "$what"
done
if [[ ${CI:-} == @(true|1) ]] && ((${#missed[@]})); then
    echo "********  CI=true wants all of it"
    ((status)) || status=1
fi
exit "$status"
