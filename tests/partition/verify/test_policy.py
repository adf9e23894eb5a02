"""Missing offsets are damage, a warning or nothing, depending on the topic's cleanup.policy in the metadata log."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.cluster.metadata import metadata_loader as loader
from klog.cluster.metadata.metadata_image import BROKER_RESOURCE, TOPIC_RESOURCE
from klog.data_dir.log_dir import LogDir
from klog.partition.verify.verify import facts_around, log_dir_facts, verify_partition

from tests.conftest import FIXTURES, Ran
from tests.oracles.plain.encode import Record, batch
from tests.support.metadata_logs import MetadataLog, config, topic

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.fixture
def log(tmp_path: Path) -> MetadataLog:
    """A log dir in which the topic gappy lacks offset 1."""
    log = MetadataLog(tmp_path)
    log.add(topic("gappy", 1))
    folder = tmp_path / "gappy-0"
    folder.mkdir()
    content = batch([Record(0, 1, b"k", b"v")]) + batch([Record(2, 2, b"k", b"v")])
    (folder / "00000000000000000000.log").write_bytes(content)
    (folder / "00000000000000000000.index").touch()
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}\n")
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    return log


def gaps(log: MetadataLog) -> list[str]:
    """Return the findings about the missing offset, of the log dir and of the partition alone."""
    log_dir = LogDir(str(log.log_dir))
    partition = log_dir.partition("gappy-0")
    said = [
        [finding.id for finding in verify_partition(partition, around).findings if finding.offset == 1]
        for around in (log_dir_facts(log_dir), facts_around(partition))
    ]
    assert said[0] == said[1]
    return said[0]


def policy(text: str | None) -> bytes:
    return config(TOPIC_RESOURCE, "gappy", "cleanup.policy", text)


@pytest.mark.parametrize(
    ("text", "said"),
    [("delete", ["offsets-missing"]), ("compact", []), ("compact,delete", []), (None, ["offset-gap"])],
)
def test_a_gap_is_what_the_topics_policy_makes_it(log: MetadataLog, text: str | None, said: list[str]) -> None:
    log.add(policy(text))
    assert gaps(log) == said


def test_a_policy_that_all_brokers_were_given_counts(log: MetadataLog) -> None:
    log.add(config(BROKER_RESOURCE, "", "log.cleanup.policy", "delete"))
    assert gaps(log) == ["offsets-missing"]


def test_a_policy_that_nobody_has_set_is_not_known(log: MetadataLog) -> None:
    """The broker's own file may set compact: a healthy log must not be reported as damaged."""
    assert gaps(log) == ["offset-gap"]
    shutil.rmtree(log.path)
    assert gaps(log) == ["offset-gap"]


def test_a_topic_that_was_compacted_once_keeps_its_gaps(log: MetadataLog) -> None:
    """The cleaner's checkpoint remembers, also after the policy has become delete."""
    log.add(policy("delete"))
    (log.log_dir / "cleaner-offset-checkpoint").write_text("0\n1\ngappy 0 2\n")
    assert gaps(log) == []


def test_another_topic_of_the_same_name_says_nothing(log: MetadataLog) -> None:
    log.add(topic("gappy", 2), policy("delete"))
    assert gaps(log) == ["offset-gap"]


def test_a_metadata_log_with_holes_accuses_nobody(log: MetadataLog) -> None:
    """The change of the policy to compact may be in the hole."""
    log.add(policy("delete"))
    lost = log.log.stat().st_size
    log.add(policy("compact"))
    kept = log.log.stat().st_size
    log.add(config(TOPIC_RESOURCE, "other", "cleanup.policy", "compact"))
    content = log.log.read_bytes()
    log.log.write_bytes(content[:lost] + bytes(kept - lost) + content[kept:])
    assert gaps(log) == ["offset-gap"]


def test_the_metadata_log_itself_is_not_compacted(log: MetadataLog) -> None:
    log.add(policy("delete"))
    log.end += 1
    log.add(policy("compact"))
    partition = LogDir(str(log.log_dir)).partition("__cluster_metadata-0")
    assert "offsets-missing" in {finding.id for finding in verify_partition(partition).findings}


@pytest.mark.parametrize(("text", "is_said"), [("delete", True), ("compact", False)])
def test_where_epochs_begin_is_not_asked_of_a_compacted_topic(log: MetadataLog, text: str, is_said: bool) -> None:
    """The batches with which they began may be deleted."""
    log.add(policy(text))
    (log.log_dir / "gappy-0" / "leader-epoch-checkpoint").write_text("0\n1\n3 1\n")
    found = verify_partition(LogDir(str(log.log_dir)).partition("gappy-0")).findings
    assert ("epochs-disagree" in {finding.id for finding in found}) == is_said


def test_a_clean_log_dir_is_checked_without_reading_the_metadata_log(
    klog: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a finding, its meaning is not needed."""
    monkeypatch.setattr(loader, "read_metadata", None)
    ran = klog("verify", FIXTURES / "modern", "--output", "jsonl")
    assert (ran.exit_code, ran.stderr) == (0, b"")


def test_each_log_dir_has_its_metadata_read_once(
    klog: Callable[..., Ran], log: MetadataLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 4):
        shutil.copytree(log.log_dir / "gappy-0", log.log_dir / f"gappy-{number}")
    reads = []
    once = loader.read_metadata

    def counted(log_dir: LogDir) -> loader.ClusterMetadata | None:
        reads.append(log_dir.path)
        return once(log_dir)

    monkeypatch.setattr(loader, "read_metadata", counted)
    assert klog("verify", log.log_dir).exit_code == 4
    assert reads == [str(log.log_dir)]
    reads.clear()
    klog("verify", *sorted(log.log_dir.glob("gappy-*")))
    assert reads == [str(log.log_dir)]
