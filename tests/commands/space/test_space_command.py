"""`klog space`: sums, rows, and disks that are odd."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from klog.commands.space.disk_usage import DiskUsage, SegmentUsage, SpaceSettings
from klog.commands.space.kept_reasons import Reason
from klog.commands.space.totals import Sum
from klog.data_dir.selection import PartitionQuery
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import FIXTURES, run_klog
from tests.support import damage

NOW = "2025-06-18T00:00:00Z"
LOG = "00000000000000000000.log"


def document(*arguments: object) -> Any:
    ran = run_klog("space", "--output", "json", "--now", NOW, *map(str, arguments))
    return json.loads(ran.stdout)


def on_disk(root: Path) -> tuple[int, int]:
    """Bytes of all files below *root*, and their size on the disk, according to the file system."""
    found = [Path(place) / name for place, folders, names in os.walk(root) for name in (*folders, *names)]
    facts = [path.lstat() for path in found if path.is_symlink() or not path.is_dir()]
    return sum(one.st_size for one in facts), sum(one.st_blocks * 512 for one in facts)


def summed(found: Any) -> tuple[int, int]:
    segments, other = found["segments"], found["other"]
    size = sum(one["bytes"] + one["index_bytes"] for one in segments) + sum(one["bytes"] for one in other)
    return size, sum(one["disk_bytes"] for one in (*segments, *other))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURES / "modern", tmp_path / "data", symlinks=True))


def sparse(path: Path, size: int = 10 << 20) -> None:
    """Preallocate an index, as a broker does."""
    with path.open("ab") as file:
        file.truncate(size)


def test_segments_and_the_rest_are_all_there_is(data: Path) -> None:
    """An operator who finds a gap between this and `du` believes neither."""
    sparse(data / "tx-0" / "00000000000000000646.timeindex")
    (data / "lost+found" / "deep").mkdir(parents=True)
    (data / "lost+found" / "deep" / "file").write_bytes(b"x" * 5000)
    (data / "tx-0" / "notes.txt").write_bytes(b"hello")
    (data / "tx-0" / "00000000000000000777.index").write_bytes(b"12345678")
    (data / "tx-0" / f"{LOG}.deleted").write_bytes(b"x" * 300)
    (data / "tx-0" / "5.log").write_bytes(b"x" * 70)
    (data / "tx-0" / "link").symlink_to("nowhere")
    (data / "elsewhere").symlink_to("/")
    (data / "tx-0" / "nested").mkdir()
    (data / "tx-0" / "nested" / "file").write_bytes(b"yy")
    found = document(data)
    assert (found["bytes"], found["disk_bytes"]) == on_disk(data) == summed(found)
    assert found["bytes"] > found["disk_bytes"], "a preallocated index is sparse"
    assert sum(one["bytes"] for one in found["log_dirs"]) == found["bytes"]
    segments = sum(one["bytes"] + one["index_bytes"] for one in found["segments"])
    assert sum(one["bytes"] for one in found["topics"]) == segments
    other = {one["file"].removeprefix(f"{data}/"): one for one in found["other"]}
    assert other["lost+found/"]["bytes"] == 5000
    assert other[f"tx-0/{LOG}.deleted"]["reason"] == "leftover"
    assert other["tx-0/00000000000000000777.index"]["reason"] == "leftover"
    assert other["tx-0/notes.txt"]["reason"] is None
    assert [one["bytes"] for one in found["segments"] if one["directory"] == "tx-0" and one["base_offset"] == 5] == [70]
    told = sum(found["reasons"].values())
    assert told == segments + sum(one["bytes"] for one in found["other"] if one["reason"])


def test_a_second_name_of_a_segment_counts_once(data: Path) -> None:
    """With more zeros than a broker writes it is the first in the directory; the broker's own name is the segment."""
    (data / "tx-0" / f"00000{LOG}").write_bytes(b"x" * 70)
    found = document(data / "tx-0")
    assert summed(found)[0] == on_disk(data / "tx-0")[0]
    assert [one["bytes"] for one in found["other"] if one["file"].endswith(f"/00000{LOG}")] == [70]
    (first, *_) = found["segments"]
    modified = (data / "tx-0" / LOG).stat().st_mtime_ns // 1_000_000
    assert first["last_timestamp"] not in (0, modified)
    os.truncate(data / "tx-0" / LOG, 0)
    assert document(data / "tx-0")["segments"][0]["last_timestamp"] is None


def test_the_log_start_is_that_of_the_checkpoint(data: Path) -> None:
    """Deleted records stay until a broker's next check."""
    bases = [one["base_offset"] for one in document(data / "tx-0")["segments"]]
    (data / "log-start-offset-checkpoint").write_text(f"0\n1\ntx 0 {bases[1]}\n")
    settings, query = SpaceSettings({"retention.ms": "-1"}, None, {}), PartitionQuery([str(data)], ["tx"])
    reasons = [one.reason for one in DiskUsage(query, settings, 0).segments()]
    assert reasons[0] is Reason.BELOW_LOG_START
    assert Reason.BELOW_LOG_START not in reasons[1:]


def test_sums_have_the_oldest_time_and_the_first_date() -> None:
    """A segment that waits for an earlier one has no date of its own."""
    total = Sum()
    for timestamp, due, because in (
        (5, 50, None),
        (3, 30, "segment 0 is deleted later"),
        (7, 70, None),
        (None, None, None),
    ):
        total.take(SegmentUsage("t", 0, "d", "t-0", 0, 1, 2, 4096, timestamp, Reason.RETENTION_TIME, due, because))
    assert (total.oldest, total.due, total.segments, total.bytes, total.disk_bytes) == (3, 50, 4, 12, 4 * 4096)


def test_a_sparse_index_still_tells_the_youngest_record(data: Path) -> None:
    """Its last entry is in front of ten megabytes of zeros."""
    before = {one["base_offset"]: one["last_timestamp"] for one in document(data, "--topic", "tx")["segments"]}
    for path in (data / "tx-0").glob("*.timeindex"):
        sparse(path)
    after = {one["base_offset"]: one["last_timestamp"] for one in document(data, "--topic", "tx")["segments"]}
    assert before == after


def test_an_active_segment_is_as_young_as_its_log_where_no_broker_stopped(data: Path) -> None:
    """A running broker's index lags behind by up to index.interval.bytes."""
    before = document(data, "--topic", "plain")["segments"]
    for path in (data / "plain-1").glob("*.timeindex"):
        path.write_bytes(bytes(24))
    (data / ".kafka_cleanshutdown").unlink()
    assert document(data, "--topic", "plain")["segments"][0]["last_timestamp"] == before[0]["last_timestamp"]


@pytest.mark.parametrize("is_running", [True, False])
def test_a_segment_that_a_broker_deletes_meanwhile_is_no_problem(data: Path, is_running: bool) -> None:
    """It was there when the directory was listed; on the disk of a stopped broker its absence is named."""
    (data / ".lock").touch()
    code = "import fcntl,sys; f=open(sys.argv[1],'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
    words = [sys.executable, "-c", code if is_running else "print(flush=True); input()", str(data / ".lock")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"\n"
        usage = DiskUsage(PartitionQuery([str(data)], ["tx"]), SpaceSettings({}, None, {}), 0)
        for path in (data / "tx-0").glob(f"{0:020}.*"):
            path.unlink()
        assert len(list(usage.segments())) > 1
        assert bool(usage.problems) is not is_running
        holder.communicate(b"\n")


def test_directories_that_are_no_logs_in_use_have_their_reasons(data: Path) -> None:
    """A deleted or a stray partition takes space without a topic that anybody sees."""
    unique = "0f8fad5bd9cb469fa16570867728950e"
    for state in ("delete", "stray", "future"):
        shutil.copytree(data / "plain-1", data / f"plain-1.{unique}-{state}")
    found = document(data, "--topic", "plain", "--topic", "__cluster_metadata")
    reasons = {
        one["directory"].rpartition("-")[2]: one["reason"] for one in found["segments"] if unique in one["directory"]
    }
    assert reasons == {"delete": "deleting", "stray": "stray", "future": "future"}
    assert {one["reason"] for one in found["segments"] if one["topic"] == "__cluster_metadata"} == {"metadata"}
    assert {one["reason"] for one in found["other"] if f"{unique}-stray" in one["file"]} == {"stray"}


def test_the_broker_s_own_file_counts_below_the_topic_s(data: Path, tmp_path: Path) -> None:
    """A setting in server.properties alone is on no log dir."""
    config = tmp_path / "server.properties"
    config.write_text("log.retention.hours=1\nlog.retention.bytes=1000\n")
    before, after = document(data), document(data, "--server-properties", config)
    (topic,) = (one for one in after["topics"] if one["topic"] == "dense")
    expected = {"value": 3_600_000, "origin": "server.properties", "name": "log.retention.hours"}
    assert topic["settings"]["retention.ms"] == expected
    assert [one["reason"] for one in before["segments"]] != [one["reason"] for one in after["segments"]]
    assert run_klog("space", data, "--server-properties", tmp_path / "none").exit_code == 16


def test_tiered_topics_go_by_local_limits(data: Path) -> None:
    """The part that was copied elsewhere stays here for local.retention.ms, or, if that is -2, for retention.ms."""
    hour = 3_600_000
    for local, limit in ((str(hour), hour), ("-2", 5 * hour)):
        options = {"remote.storage.enable": "true", "retention.ms": str(5 * hour), "local.retention.ms": local}
        query = PartitionQuery([str(data)], ["dense"])
        closed, active = DiskUsage(query, SpaceSettings(options, None, {}), 1_750_000_000_980).segments()
        assert closed.last_timestamp is not None
        assert (closed.reason, closed.due) == (Reason.REMOTE, closed.last_timestamp + limit)
        assert active.reason is Reason.ACTIVE
        late = DiskUsage(query, SpaceSettings(options, None, {}), closed.last_timestamp + limit + 1)
        assert next(late.segments()).because == "due once it has been copied"


def test_every_form_says_the_same(data: Path) -> None:
    """A script reads JSON lines, an accountant CSV."""
    whole = document(data, "--sort", "bytes")
    sizes = [one["bytes"] + one["index_bytes"] for one in whole["segments"]]
    assert sizes == sorted(sizes, reverse=True)
    lines = run_klog("space", data, "--by", "segment", "--output", "jsonl", "--now", NOW, "--sort", "bytes").stdout
    assert [json.loads(line) for line in lines.splitlines()] == whole["segments"]
    for by, rows in (
        ("topic", len(whole["topics"])),
        ("log-dir", 1),
        ("reason", len(whole["reasons"])),
        ("partition", 23),
    ):
        text = run_klog("space", data, "--by", by, "--output", "csv", "--now", NOW).stdout.decode()
        found = list(csv.DictReader(io.StringIO(text)))
        assert len(found) == rows
        assert sum(int(one["bytes"]) for one in found) > 0


def test_text_is_a_tree(data: Path) -> None:
    """The largest first, each with the part that it has of the whole."""
    lines = run_klog("space", data, "--by", "segment", "--now", NOW).stdout.decode().splitlines()
    names = [line.split()[-1] if "…" in line else line for line in lines]
    assert "the disk of " in names[0]
    assert "can go at the next retention check" in names[0]
    assert "23 partitions, 48 segments" in names[1]
    tx = next(at for at, line in enumerate(lines) if "  tx-0 " in line)
    assert "00000000000000000534" in lines[tx + 1]
    assert "future-timestamp" in lines[tx + 1]
    assert len(run_klog("space", data, "--by", "reason").stdout.splitlines()) > 5


@pytest.mark.parametrize("log_dirs", [1, 2])
def test_shares_add_up_to_the_whole(data: Path, log_dirs: int) -> None:
    """A log dir is no row among its topics: it is a heading if there are several."""
    paths = [data, Path(shutil.copytree(data, data.with_name("second")))][:log_dirs]
    lines = run_klog("space", *paths, "--now", NOW).stdout.decode().splitlines()
    shares = [float(word[:-1]) for line in lines[log_dirs + 2 :] for word in line.split() if word.endswith("%")]
    assert sum(shares) == pytest.approx(100, abs=2)
    headings = [line.split() for line in lines if line.split()[2:3] in [[str(path)] for path in paths]]
    assert len(headings) == (0 if log_dirs == 1 else 2)


def test_a_date_that_has_passed_is_now(data: Path) -> None:
    """A date long ago, called the next one, had operators look for a broken clock."""
    early, late = (
        run_klog("space", data, "--topic", "dense", "--now", now).stdout.decode()
        for now in (NOW, "2025-07-18T00:00:00Z")
    )
    assert "2025-06-22 15:06:40.970Z" in early
    assert "2025-06-22" not in late
    assert " dense        now  retention-due" in late


def test_metrics_are_read_by_prometheus_own_parser(data: Path, tmp_path: Path) -> None:
    """Names on a disk may be anything, and a textfile that does not parse hides all metrics of a machine."""
    hostile = ['quote"s', "back\\slash", "new\nline", 'a{b="c"} 1', "\u2028", "\udcff\udcfe"]
    for name in hostile:
        shutil.copytree(data / "plain-1", data / f"{name}-0")
    target = tmp_path / "metrics.prom"
    assert run_klog("space", data, "--output", "prometheus", "--to", target).exit_code == 0
    text = target.read_bytes()
    printed = run_klog("space", data, "--output", "prometheus").stdout
    assert text.splitlines()[:-1] == printed.splitlines()[:-1], "but for what is free"
    families = {one.name: one for one in text_string_to_metric_families(text.decode())}
    assert list(families) == ["klog_bytes", "klog_segments", "klog_reclaimable_bytes", "klog_log_dir_free_bytes"]
    topics = {one.labels["topic"]: one.value for one in families["klog_bytes"].samples}
    assert topics.keys() >= {*hostile[:-1], "\\udcff\\udcfe"}
    assert {topics[name] for name in hostile[:-1]} == {topics["\\udcff\\udcfe"]}
    found = document(data)
    assert sum(topics.values()) == sum(one["bytes"] for one in found["topics"])
    assert sum(one.value for one in families["klog_segments"].samples) == len(found["segments"])
    reasons = {one.labels["reason"] for one in families["klog_reclaimable_bytes"].samples}
    assert reasons == {"retention-due", "below-log-start", "deleting", "stray", "leftover"}
    assert [path.name for path in tmp_path.iterdir() if "prom" in path.name] == ["metrics.prom"]
    assert run_klog("space", data, "--to", target).exit_code == 16


def test_verify_s_metrics_count_each_finding(data: Path, tmp_path: Path) -> None:
    """An alert on damage needs a series that is there, and 0, before anything is wrong."""
    log = data / "plain-1" / LOG
    content = bytearray(log.read_bytes())
    content[70] ^= 0xFF
    log.write_bytes(content)
    target = tmp_path / "verify.prom"
    assert run_klog("verify", data, "--output", "prometheus", "--to", target).exit_code == 4
    families = {one.name: one for one in text_string_to_metric_families(target.read_text())}
    counts = {one.labels["id"]: one.value for one in families["klog_findings"].samples}
    expected = json.loads(run_klog("verify", data, "--output", "json").stdout)
    assert counts["bad-crc"] == 1
    assert counts["torn-tail"] == 0
    assert sum(counts.values()) == len(expected["findings"])
    assert families["klog_verify_bytes"].samples[0].value == expected["bytes"]
    assert families["klog_verify_timestamp_seconds"].samples[0].value > 1.7e9


@pytest.mark.corpora
def test_a_record_from_the_future_is_found_on_a_real_disk(image: Callable[[str], Path], corpora: Path) -> None:
    """A broker with retention.ms of an hour had kept 70 old records behind one that is dated 40 days ahead."""
    truth = json.loads((corpora / "answers/insight.truth.json").read_text())
    found = document(
        image("answers/insight.tar.xz") / "data", "--now", truth["stopped"], "--top-keys", 3, "--sample", 1
    )
    stuck = [one for one in found["segments"] if one["topic"] == "stuck"]
    date = truth["stuck"]["future_timestamp"] + truth["stuck"]["retention_ms"]
    assert stuck[0]["base_offset"] == truth["stuck"]["future_offset"] == truth["ends"]["stuck-0"][0]
    assert [one["reason"] for one in stuck] == ["future-timestamp", *["behind"] * 4, "active"]
    assert {one["due"] for one in stuck} == {date}
    assert {one["because"] for one in stuck[1:-1]} == {f"segment {truth['stuck']['future_offset']}"}
    hot = sum(one["records"] for one in found["keys"] if one["topic"] == "skew" and one["key"] == "hot")
    assert hot == truth["skew_keys"]["hot"]


def test_hostile_disks_are_answered(data: Path) -> None:
    """The unreadable part is named in its place, and the rest is right."""
    for path in (data / "tx-0").glob("*.timeindex"):
        path.write_bytes(b"\xff" * 25)
    (data / "dense-0" / "00000000000000000000.index").write_bytes(b"\x7f" * 8001)
    (data / "dense-0" / LOG).write_bytes(os.urandom(5000))
    os.mkfifo(data / "dense-0" / "00000000000000009999.log")
    (data / "replication-offset-checkpoint").write_bytes(b"garbage")
    (data / ".kafka_cleanshutdown").unlink()
    found = document(data)
    assert (found["bytes"], found["disk_bytes"]) == on_disk(data) == summed(found)
    for segment in found["segments"]:
        assert segment["last_timestamp"] is None or isinstance(segment["last_timestamp"], int)


def test_damage_of_every_kind_leaves_the_sums_right(tmp_path: Path) -> None:
    """Each with all that reads content as well: an answer, and no traceback."""
    for number, case in enumerate(damage.cases(11, damage.sources(), 40)):
        folder = tmp_path / str(number)
        case.make(folder)
        ran = run_klog("space", folder, "--output", "json", "--sample", "1", "--top-keys", "2", "--codecs", "lz4")
        assert ran.exit_code in (0, 8), (case.name, ran.stderr)
        found = json.loads(ran.stdout)
        assert (found["bytes"], found["disk_bytes"]) == on_disk(folder) == summed(found), case.name
        assert ran.exit_code == (8 if found["problems"] else 0)
        shutil.rmtree(folder)


def test_what_is_no_directory_of_kafka_s_is_refused(tmp_path: Path) -> None:
    """A directory of another program is no usage error: it cannot be read as a log dir."""
    assert run_klog("space").exit_code == 16
    assert run_klog("space", tmp_path).exit_code == 8
    assert run_klog("space", FIXTURES / "modern" / "plain-1" / LOG).exit_code == 16
    assert run_klog("space", FIXTURES / "modern", "--by", "topics").exit_code == 16
