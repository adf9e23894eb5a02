"""Plays rounds from the command line: see the package."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from confluent_kafka import KafkaException

from tests.brokers.kafka import NEWEST, PORT
from tests.proof.rounds import Outcome, Proof
from tests.support import counts


def main() -> int:
    """Play the rounds that were asked for; return 1 if one of them falls."""
    ask = argparse.ArgumentParser(prog="python -m tests.proof")
    ask.add_argument("--seed", type=int, default=0, help="seed of the first round")
    ask.add_argument("--rounds", type=int, default=1)
    ask.add_argument("--seconds", type=float, default=1e9, help="begin no round after so many seconds")
    ask.add_argument("--folder", type=Path, help="where disks lie; what falls is left there")
    ask.add_argument("--summary", type=Path, help="a file that has the summary after each round")
    ask.add_argument("--version", default=NEWEST)
    ask.add_argument("--python-path", help="another checkout's core and cli, with a colon between them")
    given = ask.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="klog-proof-"))
    environment = {"PYTHONPATH": given.python_path or os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", "klog_cli.app"]
    proof = Proof(folder, given.version, PORT, command, environment)
    done: list[Outcome] = []
    end = time.monotonic() + given.seconds
    try:
        for seed in range(given.seed, given.seed + given.rounds):
            if time.monotonic() > end:
                break
            done.append(_played(proof, seed))
            _tell(done[-1])
            if given.summary:
                given.summary.write_text(summary(done))
    finally:
        proof.close()
    counts.pytest_sessionfinish()
    print(summary(done), end="")
    return int(any(one.problems for one in done))


def _played(proof: Proof, seed: int) -> Outcome:
    """Play a round; what keeps it from being played is its problem, and no end of the others."""
    try:
        return proof.play(seed)
    except (AssertionError, OSError, RuntimeError, KafkaException):
        proof.close()
        return Outcome(seed, "not played", problems=[f"harness: {traceback.format_exc()}"])


def _tell(outcome: Outcome) -> None:
    print(outcome.line(), flush=True)
    for problem in outcome.problems:
        print("    ", problem, flush=True)
    if outcome.problems:
        print("     harms:", "; ".join(outcome.harms), flush=True)
        print("     runs:", *outcome.runs, sep="\n         ", flush=True)


def summary(done: list[Outcome]) -> str:
    """Return how many rounds held, their commands, and the failed ones."""
    fallen = [one for one in done if one.problems]
    ran = Counter(one.command.split(" ; ")[0].removeprefix("klog ").split(" ")[0] for one in done)
    kinds = Counter(problem.partition(":")[0] for one in fallen for problem in one.problems)
    seconds = sum(one.seconds for one in done)
    lines = [
        f"{len(done)} rounds, {len(fallen)} of them fell, {seconds:.0f} s",
        f"commands: {', '.join(f'{name} {number}' for name, number in ran.most_common())}",
        f"problems: {', '.join(f'{name} {number}' for name, number in kinds.most_common()) or 'none'}",
    ]
    lines += [f"fell: {one.line()}" for one in fallen]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
