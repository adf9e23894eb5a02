"""``python -m bench``: run the jobs, print the table.  See bench/README.md."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace

from bench import table
from bench.adopt import adopt
from bench.against import Pair, Version, built, compared
from bench.audit import audit
from bench.bombs import bombs
from bench.cold import cold
from bench.compact import compact
from bench.doctor import doctor
from bench.follow import follow
from bench.groups import groups
from bench.installed import HERE, NotInstalledError, child, find_klog, kafka_dump, peers_python
from bench.jobs import JOBS as OF_FILES
from bench.jobs import Bench, DisagreementError
from bench.keys import keys
from bench.marked import recover_marked
from bench.measure import CommandFailedError
from bench.metadata import metadata
from bench.one_file import one_file
from bench.recover import recover
from bench.remote import remote
from bench.replicas import replicas
from bench.schemas import schemas
from bench.serve import serve
from bench.space import report, space
from bench.spark import spark
from bench.timeline import timeline
from bench.write import write, write_and_produce

QUICK_SCALE = 8
OF_BROKERS = {
    "recover-marked": recover_marked,
    "serve": serve,
    "follow": follow,
    "spark": spark,
    "produce": write_and_produce,
}
"""Not among the quick ones: brokers start slowly whatever the size of their logs."""
JOBS = {
    **OF_FILES,
    "recover": recover,
    "compact": compact,
    "replicas": replicas,
    "remote": remote,
    "write": write,
    "keys": keys,
    "audit": audit,
    "schemas": schemas,
    "metadata": metadata,
    "space": space,
    "report": report,
    "doctor": doctor,
    "groups": groups,
    "timeline": timeline,
    "adopt": adopt,
    "bombs": bombs,
    "one-file": one_file,
    "cold": cold,
    **OF_BROKERS,
}
DAILY = {*OF_FILES, "recover", "compact", "remote", "serve", "follow", "spark"} - {"assign"}
"""Jobs that a user waits for each day: their targets gate.  Only the bounds of memory gate the others."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description="klog beside its peers; all in one run, medians.")
    jobs = ", ".join(JOBS)
    parser.add_argument(
        "--only", metavar="NAME", default="", help=f"only the job of this name, or those that have it in theirs: {jobs}"
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds of quick commands (7; with --quick 3)")
    parser.add_argument("--quick", action="store_true", help=f"corpora of 1/{QUICK_SCALE} of the size")
    data = os.path.join(HERE, "data")
    parser.add_argument("--data", metavar="DIR", default=data, help="where corpora and peers live (bench/data)")
    parser.add_argument("--save", action="store_true", help="also write bench/results/<date>-<cpu>.md")
    parser.add_argument("--against", metavar="COMMIT", help="also race another version of klog, row by row")
    parser.add_argument("--strict", action="store_true", help="exit 1 if a target that gates is missed")
    return parser.parse_args()


def corpora(data: str, python: str, scale: int) -> str:
    """Return the folder of the corpora of that *scale*, made the first time."""
    folder = os.path.join(data, f"corpora-{scale}")
    if not os.path.isdir(folder):
        unfinished = folder + ".making"
        shutil.rmtree(unfinished, ignore_errors=True)
        tell("making the corpora (once, about half a minute)")
        subprocess.run([python, child("generate.py"), unfinished, str(scale)], check=True)
        os.rename(unfinished, folder)
    return folder


def tell(what: str) -> None:
    """Print the progress on stderr; on a terminal one line is enough for all."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{what}")
    else:
        sys.stderr.write(f"{time.strftime('%H:%M:%S')} {what}\n")
    sys.stderr.flush()


def prepared(options: argparse.Namespace) -> Bench:
    """Return the bench with everything installed and made that the jobs need."""
    data = os.path.abspath(options.data)
    os.makedirs(data, exist_ok=True)
    klog = find_klog()
    tell("looking for the peers (installed once)")
    python = peers_python(data)
    kafka = kafka_dump(data)
    scale = QUICK_SCALE if options.quick else 1
    folder = corpora(data, python, scale)
    rounds = options.rounds or (3 if options.quick else 7)
    return Bench(folder, data, klog, python, kafka, scale, rounds, min(rounds, 3), tell)


def measured(name: str, bench: Bench) -> list[table.Row]:
    """Return the rows of one job; a failed measurement is a row too, and a miss."""
    rows: list[table.Row] = []
    try:
        rows.extend(JOBS[name](bench))
    except (CommandFailedError, DisagreementError) as error:
        rows.append(table.Row(name, f"not measured: {_short(error)}", None))
    return rows


def rows_of(name: str, bench: Bench, version: Version | None) -> list[table.Row]:
    """Return the rows of one job; beside another *version*, a second row for each compares the two."""
    if version is None:
        return measured(name, bench)
    scratch = os.path.join(bench.scratch, "other")
    os.makedirs(scratch, exist_ok=True)
    theirs = replace(bench, klog=version.klog, scratch=scratch)
    ours, others = Pair(bench, theirs, version.python).measured(lambda one: measured(name, one))
    if len(ours) != len(others):
        return [*ours, table.Row(name, f"not compared: {version.commit} has {len(others)} rows, not {len(ours)}", None)]
    return [row for pair in zip(ours, compared(ours, others, version.commit), strict=True) for row in pair]


def _short(error: Exception) -> str:
    """Return the error in one line: how it begins, and how it ends."""
    words = " ".join(str(error).split())
    return words if len(words) < 200 else f"{words[:60]} … {words[-120:]}"


def main() -> int:
    options = arguments()
    names = [options.only] if options.only in JOBS else [name for name in JOBS if options.only in name]
    names = [name for name in names if not (options.quick and name in OF_BROKERS)]
    if not names:
        sys.stderr.write(f"no job has {options.only!r} in its name; there are {', '.join(JOBS)}\n")
        return 2
    try:
        bench = prepared(options)
        version = built(options.against, bench.scratch, tell) if options.against else None
    except (NotInstalledError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    facts = table.facts(bench.peers)
    found = [(name, row) for name in names for row in rows_of(name, bench, version)]
    rows = [row for _, row in found]
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    facts.append(f"load at the end {os.getloadavg()[0]:.1f}; the number of runs behind a median stands in brackets")
    print("\n".join(facts), table.text(rows), sep="\n\n")
    if options.save:
        print("\nsaved as", table.save(os.path.join(HERE, "results"), table.markdown(rows, facts)))
    gating = [row for name, row in found if name in DAILY or row.job.startswith("memory") or row.value is None]
    return 1 if options.strict and not all(row.holds for row in gating) else 0


if __name__ == "__main__":
    sys.exit(main())
