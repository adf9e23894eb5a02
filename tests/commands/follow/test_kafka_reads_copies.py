"""Kafka's own code on copies: its log manager loads them, its dump tool finds nothing wrong, and its logs are equal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from klog.partition.append.appender import AppendSettings

from tests.brokers import kafka
from tests.commands.follow.feeding import copy_of, logs_of
from tests.commands.write.sources import SOURCE
from tests.conftest import FIXTURES, writable_copy
from tests.oracles.broker_load import Loader

pytestmark = [pytest.mark.corpora, pytest.mark.kafka, pytest.mark.usefixtures("state_home")]
SEGMENTS = AppendSettings(segment_bytes=20_000, index_interval=512)
"""Other than the leader's: a copy may roll elsewhere."""


@pytest.fixture(scope="module")
def loader() -> Iterator[Loader]:
    with Loader() as one:
        yield one


def sources(image: Callable[[str], Path]) -> list[Path]:
    """Return partitions that brokers wrote: every codec, transactions, compacted topics, Kafka's own."""
    roots = [image(SOURCE) / "data", *sorted(path.parent for path in FIXTURES.rglob("modern*/**/meta.properties"))]
    found = {
        log.parent.name: log.parent
        for root in roots
        for log in sorted(root.glob("*/*.log"))
        if log.stat().st_size and not log.parent.name.startswith("__cluster_metadata")
    }
    return [found[name] for name in sorted(found)]


def test_brokers_and_their_tools_find_nothing_wrong(
    image: Callable[[str], Path], loader: Loader, dump_tool: kafka.DumpTool, tmp_path: Path
) -> None:
    """Fed in pieces of any size, in two runs, rolled at other places: the leader's bytes, and indexes that fit."""
    copy, random = tmp_path / "copy", Random(14)
    every = sources(image)
    assert len(every) > 10
    for source in every:
        copy_of(source, copy, SEGMENTS, lambda: random.choice((1, 1000, 30_000, 1 << 20)))
        assert b"".join(logs_of(copy / source.name)) == b"".join(logs_of(source)), source
    files = [str(path) for path in sorted(copy.glob("*/*")) if path.suffix in (".index", ".timeindex", ".log")]
    for flag in ("--index-sanity-check", "--verify-index-only"):
        indexes = [file for file in files if file.endswith("index") and Path(file).stat().st_size]
        said = dump_tool.run(flag, "--files", ",".join(indexes))
        assert said.exit_code == 0, said.stderr
        for complaint in (b"Mismatches", b"not found", b"out of order", b"Exception"):
            assert complaint not in said.stdout + said.stderr
    loaded = writable_copy(copy, tmp_path / "loaded")
    outcome = loader.load(loaded, {"log.index.interval.bytes": "512"})
    assert outcome.ok, outcome
    for source in every:
        assert logs_of(loaded / source.name) == logs_of(copy / source.name)
        for name in ("leader-epoch-checkpoint", "partition.metadata"):
            assert (loaded / source.name / name).read_bytes() == (copy / source.name / name).read_bytes()
        for path in (copy / source.name).glob("*index"):
            assert (loaded / source.name / path.name).read_bytes() == path.read_bytes(), path
