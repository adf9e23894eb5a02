"""Nothing is lost that klog did not name: rounds with real brokers (see the package)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers.kafka import NEWEST, PORT
from tests.proof.__main__ import summary
from tests.proof.rounds import ROUNDS_OF_A_HISTORY, Proof

pytestmark = pytest.mark.kafka
HISTORIES = 13
SAMPLE = (45, 48, 53)


@pytest.fixture
def proof(tmp_path: Path) -> Iterator[Proof]:
    environment = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    made = Proof(tmp_path, NEWEST, PORT, [sys.executable, "-m", "klog_cli.app"], environment)
    yield made
    made.close()


def test_no_record_is_lost_unnamed_in_a_few_rounds(proof: Proof) -> None:
    done = [proof.play(seed) for seed in SAMPLE]
    assert not any(one.problems for one in done), summary(done)


@pytest.mark.long
@pytest.mark.parametrize("number", range(HISTORIES))
def test_no_record_is_lost_unnamed(proof: Proof, number: int) -> None:
    """Each history of a cluster is harmed in so many ways; `python -m tests.proof --seed N` plays one of them again."""
    first = number * ROUNDS_OF_A_HISTORY
    done = [proof.play(seed) for seed in range(first, first + ROUNDS_OF_A_HISTORY)]
    print(summary(done))
    assert not any(one.problems for one in done), summary(done)
