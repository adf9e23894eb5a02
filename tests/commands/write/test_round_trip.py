"""Records that were dumped and are written again are the same records, and in a broker's own files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands.write.sources import EQUAL, SOURCE, differences, lines, topic
from tests.conftest import Ran

pytestmark = pytest.mark.corpora
Klog = Callable[..., Ran]
CODECS = ("gzip", "snappy", "lz4", "zstd")


def dumped(klog: Klog, paths: list[Path], form: str, folder: Path) -> Path:
    """Dump logs into a file."""
    file = folder / f"records.{form}"
    done = klog("dump", *paths, "--output", form, "--to", file)
    assert done.exit_code == 0, done.stderr
    return file


def written(klog: Klog, *arguments: str | Path) -> Ran:
    done = klog("write", *arguments)
    assert done.exit_code == 0, done.stderr
    return done


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize("word", EQUAL)
def test_records_become_the_files_of_the_broker(
    word: str, form: str, klog: Klog, image: Callable[[str], Path], tmp_path: Path
) -> None:
    """Logs, offset, time and transaction indexes byte by byte; snapshots as maps; epochs."""
    found = topic(word)
    sources = found.directories(image(SOURCE) / "data")
    file = dumped(klog, sources, form, tmp_path)
    written(klog, file, "--to", tmp_path / "out", "--keep-offsets", "--batches", "keep", *found.options)
    for source in sources:
        assert differences(tmp_path / "out" / source.name, source) == []


def content(found: list[dict[str, Any]], *, offsets: bool) -> list[dict[str, Any]]:
    """Leave out what another batch decides; *offsets*: those stay."""
    without = {"position", "timestamp_type", *(() if offsets else ("offset",))}
    return [{name: value for name, value in one.items() if name not in without} for one in found]


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize("word", ["tx", "idem", "stamp", "compact", "zstd", "java"])
def test_records_survive_any_form(
    word: str, form: str, klog: Klog, image: Callable[[str], Path], tmp_path: Path
) -> None:
    """With their offsets, times, keys, headers, producers, markers and leader epochs."""
    found = topic(word)
    sources = found.directories(image(SOURCE) / "data")
    file = dumped(klog, sources, form, tmp_path)
    written(klog, file, "--to", tmp_path / "out", "--keep-offsets", "--partitions", str(found.count))
    ours = found.directories(tmp_path / "out")
    before, after = lines(klog, sources), lines(klog, ours)
    assert content(after, offsets=True) == content(before, offsets=True)
    assert [one["timestamp"] for one in after] == [one["timestamp"] for one in before]
    committed = [
        [one["value"] for one in lines(klog, paths, "--isolation", "read_committed") if "value" in one]
        for paths in (sources, ours)
    ]
    assert committed[0] == committed[1]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", ["300", "16384", "1MiB"])
def test_every_codec_gives_the_records_back(
    codec: str, size: str, klog: Klog, image: Callable[[str], Path], tmp_path: Path
) -> None:
    """In batches of any size; nothing to find fault with."""
    sources = topic("bytes").directories(image(SOURCE) / "data")
    file = dumped(klog, sources, "jsonl", tmp_path)
    written(klog, file, "--to", tmp_path / "out", "--codec", codec, "--batch-size", size)
    ours = topic("bytes").directories(tmp_path / "out")
    assert content(lines(klog, ours), offsets=True) == content(lines(klog, sources), offsets=True)
    batches = lines(klog, ours, "--batches")
    assert {one["codec"] for one in batches} == {codec}
    assert klog("verify", "--deep", tmp_path / "out").exit_code == 0


def test_batches_of_a_log_are_taken_as_they_are(klog: Klog, image: Callable[[str], Path], tmp_path: Path) -> None:
    """All topics at once, compressed ones too, with their settings: the broker's own files."""
    for word in ("gzip", "lz4", "zstd", "snappy", "stamp", "tx"):
        found = topic(word)
        sources = found.directories(image(SOURCE) / "data")
        written(klog, *sources, "--to", tmp_path / word, "--keep-offsets", *found.options)
        for source in sources:
            assert differences(tmp_path / word / source.name, source) == []


# the batches of the input


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_neighbouring_segments_of_one_batch_come_back_as_two(form: str, klog: Klog, tmp_path: Path) -> None:
    """All batches are at position 0; their base offset distinguishes them, on request."""
    (tmp_path / "in.jsonl").write_text('{"topic":"t","key":"k","value":"v","timestamp":5}\n' * 3)
    small = ("--set", "segment.bytes=70")
    written(klog, tmp_path / "in.jsonl", "--to", tmp_path / "data", "--batch-size", "70", *small)
    source = tmp_path / "data/t-0"
    assert len(list(source.glob("*.log"))) == 3
    keep = ("--keep-offsets", "--batches", "keep")
    for option, batches in (((), 1), (("--batch-offsets",), 3)):
        file, to = tmp_path / f"records{batches}.{form}", tmp_path / f"out{batches}"
        assert klog("dump", source, "--output", form, *option, "--to", file).exit_code == 0
        written(klog, file, "--to", to, *keep)
        assert len(lines(klog, [to / "t-0"], "--batches")) == batches
    written(klog, file, "--to", tmp_path / "same", *keep, *small)
    assert differences(tmp_path / "same/t-0", source) == []


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_batches_of_a_compacted_log_keep_their_offsets(
    form: str, klog: Klog, image: Callable[[str], Path], tmp_path: Path
) -> None:
    """Their first record may be deleted, and with it the base offset, unless that is dumped too."""
    source = image(SOURCE) / "data/order.compact-0"
    file = tmp_path / f"records.{form}"
    assert klog("dump", source, "--output", form, "--batch-offsets", "--to", file).exit_code == 0
    written(klog, file, "--to", tmp_path / "out", "--keep-offsets", "--batches", "keep")
    filled = [one["base_offset"] for one in lines(klog, [source], "--batches") if one["records"]]
    assert [one["base_offset"] for one in lines(klog, [tmp_path / "out" / source.name], "--batches")] == filled
    firsts = {one["position"]: one["offset"] for one in reversed(lines(klog, [source]))}
    assert {*filled} - {*firsts.values()}, "in some batches the first record is gone"
