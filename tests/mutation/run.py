"""Makes mutants of klog's packages and counts how many the tests kill: `make mutants`.

    python -m tests.mutation --package plan --sample 100 --seed 3

A first run of the tests finds which of them run which lines; then each mutant meets the tests that can see it, quick
ones first, until one fails.  A mutant whose tests take far too long is killed, too.  Tests that need a broker, Spark,
strace or the large corpora are left out: the score is the same on every machine.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from tests.mutation.judge import (
    KILLED,
    OUTLIVED,
    QUICK_SECONDS,
    ROOT,
    TIMED_OUT,
    Case,
    Judge,
    Seen,
    Verdict,
    first_failure,
)
from tests.mutation.mutants import Mutant, mutants_of, place_of
from tests.mutation.same import SAME

CORE = ROOT / "core"
FOLDER = ROOT / "build/mutation"
_CLI = "tests/cli/test_{}_command.py"
TESTS = {
    "verify": ("tests/partition/verify", _CLI.format("verify"), "tests/jobs/test_verify.py", "tests/test_laws.py"),
    "recover": (
        "tests/commands/recover",
        _CLI.format("recover"),
        "tests/test_laws.py",
        "tests/commands/adopt/test_adopt.py",
    ),
    "repair": (
        "tests/commands/recover",
        _CLI.format("recover"),
        "tests/test_laws.py",
        "tests/commands/adopt/test_adopt.py",
    ),
    "plan": (
        "tests/change/plan",
        *map(_CLI.format, ("apply", "undo", "truncate", "recover")),
        "tests/partition/test_truncate.py",
        "tests/commands/write/test_stopped_log_dir.py",
    ),
    "compact": (
        "tests/commands/compact",
        _CLI.format("compact"),
        "tests/commands/space",
    ),
}
"""The tests, by package, that are to kill its mutants."""
PACKAGES = tuple(TESTS)
FOLDERS = {
    "verify": CORE / "klog/partition/verify",
    "recover": CORE / "klog/commands/recover",
    "repair": CORE / "klog/partition/repair",
    "plan": CORE / "klog/change/plan",
    "compact": CORE / "klog/commands/compact",
}
LEFT_OUT = ("kafka", "spark", "corpora", "strace", "browser", "long", "release")


def see(target: Path, packages: Sequence[str]) -> None:
    """Run the packages' tests once unchanged; write the lines that they run."""
    print("which tests run which lines", flush=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    folders = ":".join(str(FOLDERS[package]) for package in packages)
    environment = os.environ | {"KLOG_MUTATION_SEEN": str(target), "KLOG_MUTATION_PACKAGES": folders}
    environment.pop("KLOG_COUNTS", None)
    options = ["-q", "-n", "0", "-p", "tests.mutation.seen", "-p", "no:cacheprovider"]
    markers = " and ".join(f"not {marker}" for marker in LEFT_OUT)
    command = [sys.executable, "-m", "pytest", *options, "-m", markers]
    command += dict.fromkeys(test for package in packages for test in TESTS[package])
    subprocess.run(command, cwd=ROOT, env=environment, check=True)


def sample(package: str, size: int, seed: int) -> list[Mutant]:
    """Return mutants of a package, always the same; all of them where *size* is 0."""
    made = []
    for path in sorted(FOLDERS[package].glob("*.py")):
        source = path.read_text()
        mutants = mutants_of(str(path.relative_to(CORE)), source)
        made += [mutant for mutant in mutants if place_of(source, mutant) not in SAME]
    return made if not size else Random(seed).sample(made, min(size, len(made)))


def _verdicts(cases: Sequence[Case], jobs: int) -> Iterator[Verdict]:
    with multiprocessing.get_context("fork").Pool(jobs, _prepare) as pool:
        yield from pool.imap_unordered(_judged, cases)


_judge: Judge


def _prepare() -> None:
    global _judge
    _judge = Judge(FOLDER / str(os.getpid()))


def _judged(case: Case) -> Verdict:
    return _judge.judge(case)


def score(package: str, options: argparse.Namespace, seen: Seen) -> Counter[str]:
    """Judge mutants of a package and print those that live."""
    cases = [
        Case(mutant, seen.tests(mutant, TESTS[package]))
        for mutant in sample(package, options.sample, options.seed)
        if options.only in f"{mutant.file}:{mutant.line}"
    ]
    outcomes: Counter[str] = Counter()
    for verdict in _verdicts([*_unchanged(cases), *cases], options.jobs):
        if verdict.mutant.now == verdict.mutant.was:
            assert verdict.outcome == OUTLIVED, f"tests fail without a mistake: {verdict.said}"
            continue
        outcomes[verdict.outcome] += 1
        if verdict.outcome != KILLED or options.verbose:
            print(_shown(verdict), flush=True)
    return outcomes


def _unchanged(cases: Sequence[Case]) -> Iterator[Case]:
    """Yield a case that no test may kill: otherwise all would be killed by an unrelated failure."""
    for case in cases:
        if quick := {test: seconds for test, seconds in case.tests.items() if seconds < QUICK_SECONDS}:
            yield Case(case.mutant._replace(now=case.mutant.was), quick)
            return


def _shown(verdict: Verdict) -> str:
    mutant = verdict.mutant
    text = f"{verdict.outcome}: core/{mutant.file}:{mutant.line}: {mutant.kind}\n  - {mutant.was}\n  + {mutant.now}"
    return f"{text}\n  {first_failure(verdict.said)}" if verdict.outcome == KILLED else text


def main() -> None:
    """Score the packages; leave the counts where `make tested` looks for them."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__.partition("\n")[0])
    parser.add_argument("--package", action="append", choices=PACKAGES, help="only this one (default: all)")
    parser.add_argument("--sample", type=int, default=40, help="mutants of each package; 0: all (default: 40)")
    parser.add_argument("--seed", type=int, default=1, help="another sample")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--only", default="", help="only mutants whose FILE:LINE contains this")
    parser.add_argument("--seen", type=Path, help="what an earlier run has found out about the tests, if it is there")
    parser.add_argument("--verbose", action="store_true", help="show killed mutants and what killed them, too")
    options = parser.parse_args()
    target = options.seen or FOLDER / "seen.json"
    if options.seen is None or not target.exists():
        see(target, options.package or PACKAGES)
    seen = Seen(json.loads(target.read_text()), CORE)
    counts: Counter[str] = Counter()
    for package in options.package or PACKAGES:
        began = time.monotonic()
        outcomes = score(package, options, seen)
        killed, made = outcomes[KILLED] + outcomes[TIMED_OUT], sum(outcomes.values())
        print(f"{package}: {killed} of {made} mutants killed, {time.monotonic() - began:.0f} s, {dict(outcomes)}")
        counts.update({f"mutants made: {package}": made, f"mutants killed: {package}": killed})
    if folder := os.environ.get("KLOG_COUNTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"mutants-{'-'.join(options.package or PACKAGES)}.json").write_text(json.dumps(counts))
