"""A copy has a leader's batches byte for byte, whatever the pieces in which they come."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from klog.append.log_state import AppendSettings
from klog.metadata.topic_config import TopicConfig
from klog.write.options import topic_settings

from tests.conftest import Ran
from tests.copy_dir.feeding import copy_of, logs_of, open_copy
from tests.write.sources import EQUAL, SOURCE, differences, topic

pytestmark = [pytest.mark.corpora, pytest.mark.usefixtures("state_home")]
Klog = Callable[..., Ran]
ALL = (*EQUAL, "gzip", "snappy", "lz4", "zstd", "stamp")


def settings_of(word: str) -> AppendSettings:
    known = [f"{name}={value}" for name, value in topic(word).settings.items() if not name.startswith("min.")]
    return AppendSettings.of(TopicConfig(None, topic_settings(known)), topic(word).name)


@pytest.mark.parametrize("word", ALL)
def test_files_are_those_of_the_leader(word: str, image: Callable[[str], Path], klog: Klog, tmp_path: Path) -> None:
    """Also indexes, snapshots and epochs, where nothing was decoded on the way."""
    copy = tmp_path / "copy"
    for source in topic(word).directories(image(SOURCE) / "data"):
        ours = copy_of(source, copy, settings_of(word))
        (ours / "partition.metadata").write_bytes((source / "partition.metadata").read_bytes())
        assert differences(ours, source) == []
    verified = klog("verify", copy, "--deep")
    assert verified.exit_code == 0, verified.stdout


def test_a_second_opening_writes_nothing(image: Callable[[str], Path], tmp_path: Path) -> None:
    """Else each hourly run would touch every file, and backups of the copy would take all of it."""
    source = topic("tx").directories(image(SOURCE) / "data")[0]
    copy_of(source, tmp_path / "copy", settings_of("tx"))

    def found() -> dict[str, tuple[int, bytes]]:
        paths = (path for path in (tmp_path / "copy").rglob("*") if path.is_file())
        return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}

    before = found()
    with open_copy(tmp_path / "copy", source.name, settings_of("tx")) as (_, copied):
        assert copied.end == 163
    assert found() == before
    assert sum(map(len, logs_of(tmp_path / "copy" / source.name))) == sum(map(len, logs_of(source)))
