"""The log of a tiered topic begins at the checkpoint's log start offset, not at the first local segment."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from klog.commands.describe import describe_log_dir
from klog.data_dir.log_dir import LogDir

from tests.conftest import Ran
from tests.support.metadata_logs import MetadataLog, config, topic
from tests.support.tiers import IMAGES, situation, unpack

Klog = Callable[..., Ran]
START = 40


def document(ran: Ran) -> Any:
    assert ran.exit_code == 0, ran.stderr
    return json.loads(ran.stdout)


def tiered(folder: Path, line: str = "", enabled: str = "true") -> Path:
    """A log dir whose only partition begins at offset 40 here; *line*: of its log start checkpoint."""
    metadata = MetadataLog(folder)
    metadata.add(topic("orders", 1), config(2, "orders", "remote.storage.enable", enabled))
    (folder / "orders-0").mkdir()
    (folder / "orders-0" / f"{START:020}.log").touch()
    lines = [line] if line else []
    (folder / "log-start-offset-checkpoint").write_text("".join(f"{one}\n" for one in ["0", len(lines), *lines]))
    return folder


@pytest.mark.parametrize(("line", "start"), [("orders 0 7", 7), ("orders 0 0", 0), ("orders 0 55", 55), ("", 0)])
def test_the_log_start_of_a_tiered_topic_is_the_checkpoints(klog: Klog, tmp_path: Path, line: str, start: int) -> None:
    """A broker takes 0 for a missing line."""
    data = tiered(tmp_path / "data", line)
    for path in (data, data / "orders-0"):
        found = document(klog("describe", path, "-o", "json"))
        row = found if path != data else next(row for row in found["partitions"] if row["topic"] == "orders")
        assert (row["log_start_offset"], row["local_log_start_offset"]) == (start, START)


@pytest.mark.parametrize("line", ["orders 0 7", ""])
def test_a_line_below_the_first_segment_counts_for_tiered_topics_alone(klog: Klog, tmp_path: Path, line: str) -> None:
    """Such a line is left over from a kill behind the last deletion."""
    found = document(klog("describe", tiered(tmp_path / "data", line, "false"), "-t", "orders", "-o", "json"))
    assert [row["log_start_offset"] for row in found["partitions"]] == [START]


def test_the_metadata_log_may_be_in_another_log_dir_of_the_broker(klog: Klog, tmp_path: Path) -> None:
    metadata, data = tiered(tmp_path / "a"), tiered(tmp_path / "b", "orders 0 7")
    (metadata / "orders-0").rename(metadata / "moved-0")
    for file in (data / "__cluster_metadata-0").iterdir():
        file.unlink()
    (data / "__cluster_metadata-0").rmdir()
    found = document(klog("describe", metadata, data, "-t", "orders", "-o", "json"))
    assert [row["log_start_offset"] for one in found for row in one["partitions"]] == [7]


def test_people_see_both_starts(klog: Klog, tmp_path: Path) -> None:
    data = tiered(tmp_path / "data", "orders 0 7")
    text = klog("describe", data).stdout.decode().splitlines()
    head, row = (next(line.split() for line in text if line.startswith(word)) for word in ("partition", "orders-0"))
    assert head[:7] == ["partition", "segs", "size", "log", "start", "local", "start"]
    assert row == ["orders-0", "1", "0", "B", "7", "40", "40", "unclean"]
    titles = klog("describe", data / "orders-0").stdout.decode().splitlines()
    assert "log start     7" in titles
    assert "local start   40" in titles


def test_the_topic_with_the_segments_is_read_on_request(tmp_path: Path) -> None:
    """It may have a million records, and a screen that is redrawn does not show them."""
    data, _ = unpack(tmp_path)
    for with_remote, known in ((True, [99, None, 83]), (False, [None, None, None])):
        rows = describe_log_dir(LogDir(str(data)), with_remote=with_remote).partitions
        found = {row.topic: row.remote_end_offset for row in rows}
        assert [found["fine"], found["__cluster_metadata"], found["short"]] == known


@pytest.mark.corpora
@pytest.mark.parametrize(("name", "moment"), IMAGES)
def test_starts_and_ends_are_those_that_clients_were_told(
    klog: Klog, image: Callable[[str], Path], name: str, moment: str
) -> None:
    """Real brokers answered ListOffsets for the earliest, the earliest local and the latest offset."""
    found = situation(image, name, moment)
    rows = document(klog("describe", found.leader, "-o", "json"))["partitions"]
    known = {f"{row['topic']}-{row['partition']}": row for row in rows}
    for partition, answers in found.clients.items():
        row, told = known[partition], answers["offsets"]
        assert (row["log_start_offset"], row["log_end_offset"]) == (told["earliest"], told["latest"])
        assert max(row["local_log_start_offset"], row["log_start_offset"]) == told["earliest_local"]
        if partition != "stopped-0" and row["remote_end_offset"] is not None:
            assert row["remote_end_offset"] == told["latest_tiered"]
        entries = [one for one in found.truth["segments"][moment] if one["topic_id"] == row["topic_id"]]
        mine = [one for one in entries if one["partition"] == row["partition"]]
        if row["remote_segments"] is not None:
            finished = [one["size"] for one in mine if one["state"] == "COPY_SEGMENT_FINISHED"]
            assert (row["remote_segments"], row["remote_bytes"]) == (len(mine), sum(finished))
    assert found.clients or moment == "before"


def test_with_remote_the_segments_of_both_tiers_are_listed(klog: Klog, tmp_path: Path) -> None:
    """As one log: 100 offsets are in remote storage, ten in the local log."""
    data, tier = unpack(tmp_path)
    found = document(klog("describe", data / "fine-0", "--remote", tier, "-o", "json"))
    segments = found["segment_list"]
    remote = [one for one in segments if "remote" in one["flags"]]
    assert len(remote) == len(segments) - 1 == 6
    assert sum(one["records"] for one in remote) == 100
    assert (found["log_start_offset"], found["local_log_start_offset"], found["log_end_offset"]) == (0, 100, 110)
    assert remote[0]["bytes"] == next(tier.rglob("fine-0-*/00000000000000000000-*.log")).stat().st_size
    rows = document(klog("describe", data, "--remote", tier, "-o", "json"))["partitions"]
    assert {row["topic"]: row["segments"] for row in rows}["fine"] == 7
    assert len(document(klog("describe", data / "fine-0", "-o", "json"))["segment_list"]) == 1
