"""`klog dump` against Kafka 4.3.1's tool on damaged files: cut at every length, flipped, overwritten, lengthened.

Thousands of small cases.  If Kafka's tool dies, klog must have printed exactly the same up to that point.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from tests.brokers import kafka
from tests.conftest import run_klog
from tests.oracles.dump_compare import Comparison, difference
from tests.support.mutate import Source, cuts, flips, overwritten, put, sources
from tests.support.samples import some_or_all

pytestmark = pytest.mark.kafka
SOURCES = {f"{source.label} {' '.join(source.flags)}".strip(): source for source in sources()}
# The survival of a bigger heap proves nothing about the file.
OUT_OF_MEMORY = "java.lang.OutOfMemoryError"


@pytest.fixture(scope="module")
def comparison() -> Iterator[Comparison]:
    with kafka.DumpTool() as tool:
        yield Comparison(tool, run_klog)


def compare(
    comparison: Comparison, source: Source, cases: Iterator[tuple[str, bytes]], folder: Path
) -> tuple[int, int, list[str]]:
    """Return how many cases there were, in how many Kafka's tool died, and the differences."""
    count, deaths, differences = 0, 0, []
    for what, content in cases:
        path = put(source, content, folder)
        ran = run_klog("dump", "--files", str(path), *source.flags)
        assert path.read_bytes() == content, f"klog dump changed {path}"
        said = comparison.tool.run("--files", str(path), *source.flags)
        count, deaths = count + 1, deaths + bool(said.died)
        found = difference(said, ran)
        if found and not (said.died.startswith(OUT_OF_MEMORY) and ran.exit_code == 4):
            differences.append(f"{source.label} {source.name} {' '.join(source.flags)}, {what}\n  {found}")
    return count, deaths, differences


def report(differences: list[str], count: int) -> str:
    return f"{len(differences)} of {count} cases differ:\n" + "\n".join(differences[:8])


@some_or_all
@pytest.mark.parametrize("name", SOURCES)
def test_a_file_cut_at_any_length(name: str, comparison: Comparison, tmp_path: Path, every: int) -> None:
    """A crash, a full disk or an interrupted copy leaves such files."""
    count, _, differences = compare(comparison, SOURCES[name], islice(cuts(SOURCES[name]), 0, None, every), tmp_path)
    assert count == len(SOURCES[name].content[::every]) > 0
    assert not differences, report(differences, count)


@some_or_all
@pytest.mark.parametrize("name", SOURCES)
def test_a_file_with_a_flipped_bit(name: str, comparison: Comparison, tmp_path: Path, every: int) -> None:
    """The tool prints and decodes a batch whose CRC does not match: so lengths and counts lie at every depth."""
    count, _, differences = compare(
        comparison, SOURCES[name], islice(flips(SOURCES[name], 150), 0, None, every), tmp_path
    )
    assert count > 150 // every
    assert not differences, report(differences, count)


@some_or_all
@pytest.mark.parametrize("name", SOURCES)
def test_a_file_overwritten_or_lengthened(name: str, comparison: Comparison, tmp_path: Path, every: int) -> None:
    """Zeros of lost blocks, ones of dying disks, another file's bytes."""
    count, _, differences = compare(
        comparison, SOURCES[name], islice(overwritten(SOURCES[name], 60), 0, None, every), tmp_path
    )
    assert count == len(range(0, 80, every))
    assert not differences, report(differences, count)


def test_damage_kills_kafkas_tool_often_enough(comparison: Comparison, tmp_path: Path) -> None:
    """Guards the cases themselves: if hardly one of them were deadly, they would prove nothing."""
    died = sum(compare_deaths(comparison, source, tmp_path) for source in SOURCES.values())
    assert died > 100


def compare_deaths(comparison: Comparison, source: Source, folder: Path) -> int:
    return sum(
        bool(comparison.tool.run("--files", str(put(source, content, folder)), *source.flags).died)
        for _, content in flips(source, 30, seed=1)
    )
