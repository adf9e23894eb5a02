"""Batches appended one by one become the very files that a broker made of these batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from klog.base.errors import DamagedError
from klog.base.read_only import ReadOnlyFile
from klog.cluster.metadata.topic_config import TopicConfig, parse_settings
from klog.commands.write.new_log_dir import NewDirectory
from klog.commands.write.write_destination import WRITE_SETTINGS
from klog.data_dir.disk.directory_tree import GrowingFiles
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.partition import Partition
from klog.kernel import Window
from klog.log.segment import Segment
from klog.partition.append.appender import Appender, AppendSettings, LogState, empty_log
from klog.partition.append.log_resumption import load_producers, resume

from tests.commands.write.sources import EQUAL, SOURCE, differences, topic

pytestmark = pytest.mark.corpora
ALL = (*EQUAL, "gzip", "snappy", "lz4", "zstd", "stamp")


def windows(partition: Partition) -> Iterator[Window]:
    """Yield the batches of a log, checked."""
    window = Window()
    for files in partition.segments:
        path = partition.file(files.log)
        with ReadOnlyFile(path) as source:
            reader = Segment(path).reader(source)
            while reader.next(window):
                window.check(0, window.count)
                yield window


def settings_of(word: str) -> AppendSettings:
    known = [f"{name}={value}" for name, value in topic(word).settings.items() if not name.startswith("min.")]
    return AppendSettings.of(TopicConfig(None, parse_settings(known, WRITE_SETTINGS)), topic(word).name)


def append_all(log: LogState, target: Path, sources: Iterator[Window]) -> None:
    files = GrowingFiles(Disk())
    appender = Appender(log, NewDirectory(str(target), files, Disk()))
    for window in sources:
        appender.append(window, 0, window.count)
    appender.close()
    files.close_all()


@pytest.mark.parametrize("word", ALL)
def test_the_files_are_those_of_the_broker(word: str, image: Callable[[str], Path], tmp_path: Path) -> None:
    """Rolled by bytes, by time and by full indexes; transactions, idempotent producers, every codec."""
    for source in topic(word).directories(image(SOURCE) / "data"):
        ours = tmp_path / source.name
        append_all(empty_log(settings_of(word)), ours, windows(Partition(str(source))))
        (ours / "partition.metadata").touch()
        assert differences(ours, source) == []


class _Collected:
    """A target that keeps everything in memory."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def write(self, name: str, data: bytes | memoryview) -> None:
        self.files[name] = self.files.get(name, b"") + bytes(data)

    def put(self, name: str, content: bytes) -> None:
        self.files[name] = content

    def remove(self, name: str) -> None:
        self.files.pop(name, None)


def entries(times: bytes) -> list[bytes]:
    """Return the entries of a time index."""
    return [times[at : at + 12] for at in range(0, len(times), 12)]


@pytest.mark.parametrize("word", ["bytes", "tx", "idem", "full"])
@pytest.mark.parametrize("cut", [1, 7, 15])
@pytest.mark.parametrize("known", [0, 5, 1 << 40])
def test_a_log_is_continued_where_it_ends(
    word: str, cut: int, known: int, image: Callable[[str], Path], tmp_path: Path
) -> None:
    """Closed after any batch and opened again, it has the same result as in one go, for any part that is read.

    But for an entry of the time index: each close writes one, a broker's as well.
    """
    source = topic(word).directories(image(SOURCE) / "data")[0]
    begun = tmp_path / source.name
    left = cut
    files = GrowingFiles(Disk())
    first = Appender(empty_log(settings_of(word)), NewDirectory(str(begun), files, Disk()))
    target, second, settings = _Collected(), None, settings_of(word)
    before: dict[str, bytes] = {}
    for window in windows(Partition(str(source))):
        at = min(left, window.count)
        if at:
            first.append(window, 0, at)
            left -= at
        if at < window.count:
            if second is None:
                first.close()
                files.close_all()
                partition = Partition(str(begun))
                found = resume(partition, settings, Window(output=0), known)
                assert found.torn is None
                load_producers(partition, found.log, known)
                for name, size in found.sizes.items():
                    before[name] = (begun / name).read_bytes()[:size] + found.entries.get(name, b"")
                second = Appender(found.log, target)
            second.append(window, at, window.count)
    assert second is not None
    second.close()
    whole = {path.name: path.read_bytes() for path in begun.iterdir()}
    for name, data in target.files.items():
        whole[name] = whole.get(name, b"") + data if name.endswith(".log") else before.get(name, b"") + data
    for name in before:
        if name.endswith(".timeindex"):
            once = (source / name).read_bytes()
            made, whole[name] = entries(whole[name]), once
            assert made == sorted(made)
            assert {*entries(once)} <= {*made}
            assert len(made) - len(entries(once)) in (0, 1)
    for path in source.iterdir():
        if path.suffix in (".log", ".index", ".timeindex", ".txnindex") or path.name == "leader-epoch-checkpoint":
            assert whole[path.name] == path.read_bytes(), path.name


def test_what_cannot_follow_is_refused(image: Callable[[str], Path], tmp_path: Path) -> None:
    """Offsets that a log has already: nothing is written."""
    source = topic("bytes").directories(image(SOURCE) / "data")[0]
    target = _Collected()
    appender = Appender(empty_log(settings_of("bytes")), target)
    window = next(windows(Partition(str(source))))
    appender.append(window, 0, 3)
    before = dict(target.files)
    with pytest.raises(DamagedError, match="cannot follow: the log ends at"):
        appender.append(window, 2, 4)
    assert target.files == before


def test_a_gap_is_legal_and_names_the_first_segment(image: Callable[[str], Path]) -> None:
    """A follower's copy of a log that starts at 52: the segment is called 52, for there it starts."""
    source = topic("bytes").directories(image(SOURCE) / "data")[0]
    target = _Collected()
    appender = Appender(empty_log(settings_of("bytes")), target)
    for window in windows(Partition(str(source))):
        if window.batch(0).base_offset >= 52:
            appender.append(window, 0, window.count)
    appender.close()
    assert min(target.files) == "00000000000000000052.index"
    assert "00000000000000000052.snapshot" not in target.files
