"""A copy's facts about its cluster: their readers, and the treatment of a damaged file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from klog.base.errors import DamagedError, KlogError
from klog.cluster.metadata.topic_config import SettingOrigin, TopicConfig
from klog.commands.follow.copy_dir import CopyDir
from klog.commands.serve.view import View
from klog.data_dir.log_dir import LogDir
from klog.formats.checkpoint import Malformed
from klog.formats.follow_file import (
    FOLLOW_FILE,
    FollowFile,
    FollowTopic,
    GroupOffset,
    read_follow_file,
    write_follow_file,
)

from tests.commands.follow.feeding import CLUSTER, TOPIC_ID, open_copy
from tests.commands.follow.test_changes import SMALL, run
from tests.commands.serve.readers import with_librdkafka
from tests.commands.serve.serving import Serving
from tests.conftest import Ran

pytestmark = pytest.mark.usefixtures("state_home")
Klog = Callable[..., Ran]
CONTENT = FollowFile(
    CLUSTER,
    "broker:9092",
    "2026-11-23T13:00:00Z",
    {"orders": FollowTopic(TOPIC_ID, 4, {"cleanup.policy": "compact", "index.interval.bytes": "100"})},
    {"billing": (GroupOffset("orders", 3, 15, 0, "seen"),)},
)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of a compacted topic: offsets 10 to 29 are missing."""
    with open_copy(tmp_path / "copy", "orders-3", SMALL) as (opened, copied):
        copied.append(run([0, 5, 30, 35]))
        copied.set_high_watermark(40)
        opened.write_follow_file(CONTENT)
    return tmp_path / "copy"


def test_it_reads_what_it_writes() -> None:
    """Every member, to the last one."""
    assert read_follow_file(write_follow_file(CONTENT)) == CONTENT


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text() | st.floats(), lambda one: st.lists(one)))
def test_values_of_any_kind_are_told_apart(value: object) -> None:
    """Any value of a member is refused or valid."""
    whole = json.loads(write_follow_file(CONTENT))
    for name in whole:
        found = read_follow_file(json.dumps({**whole, name: value}).encode())
        assert isinstance(found, (Malformed, FollowFile))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (lambda found: found.update(klog_follow=2), "klog_follow is 2, expected 1"),
        (lambda found: found.update(klog_follow=True), "klog_follow is true, expected 1"),
        (lambda found: found.pop("cluster_id"), "cluster_id is null, expected a text"),
        (lambda found: found["topics"].update({"../x": {}}), '"../x" is no name of a topic'),
        (lambda found: found["topics"]["orders"].update(topic_id="x"), 'topics.orders.topic_id is "x"'),
        (lambda found: found["topics"]["orders"].update(partitions=-1), "topics.orders.partitions is -1"),
        (lambda found: found["topics"]["orders"]["config"].update(a=1), 'topics.orders.config."a" is 1'),
        (lambda found: found["groups"].update(billing={}), 'groups."billing" is no list'),
        (lambda found: found["groups"]["billing"][0].update(offset=2**63), "offset is 9223372036854775808"),
        (lambda found: found["groups"].update({"\ud800": []}), "expected a text"),
    ],
)
def test_the_member_that_is_wrong_is_named(changed: Callable[[dict[str, object]], object], why: str) -> None:
    """Somebody who has edited the file looks there."""
    whole = json.loads(write_follow_file(CONTENT))
    changed(whole)
    found = read_follow_file(json.dumps(whole).encode())
    assert isinstance(found, Malformed)
    assert why in str(found)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000, b"1" * 100_000, b"[]", b"null"])
def test_what_is_no_json_is_refused(content: bytes) -> None:
    """The same holds for values nested deeper than Python's limit."""
    assert isinstance(read_follow_file(content), Malformed)


def test_settings_of_topics_come_from_it(copy: Path) -> None:
    """They count without a metadata log; an option has precedence."""
    config = TopicConfig(LogDir(str(copy)))
    assert config.value("orders", "cleanup.policy") == (("compact",), SettingOrigin.TOPIC, "cleanup.policy")
    assert config.value("orders", "index.interval.bytes").number == 100
    assert config.value("others", "index.interval.bytes").origin is SettingOrigin.DEFAULT
    assert TopicConfig(LogDir(str(copy)), {"cleanup.policy": "delete"}).value("orders", "cleanup.policy").words == (
        "delete",
    )


@pytest.mark.parametrize("whole", [True, False])
def test_what_is_written_from_it_has_its_settings(whole: bool, copy: Path, klog: Klog, tmp_path: Path) -> None:
    """Into a new log dir, too: a topic that is restored is the same topic.  An option goes first."""
    entries = {}
    for words in ((), ("--set", "index.interval.bytes=1000000")):
        made = tmp_path / f"made-{len(words)}"
        done = klog("write", copy if whole else copy / "orders-3", "--to", made, "--keep-offsets", *words)
        assert done.exit_code == 0, done.stderr
        origin = b"1000000 (option)" if words else b"100 (topic)"
        assert b"index.interval.bytes " + origin in done.stdout
        entries[words] = sum(path.stat().st_size for path in (made / "orders-3").glob("*.index"))
    assert entries[()] > entries["--set", "index.interval.bytes=1000000"] == 0


def test_gaps_of_a_compacted_topic_are_no_findings(copy: Path, klog: Klog) -> None:
    """Gaps are the rule there, and follow has the topic's policy."""
    assert klog("verify", copy, "--deep").exit_code == 0
    (copy / FOLLOW_FILE).unlink()
    assert b"offset-gap" in klog("verify", copy, "--deep").stdout


def test_describe_tells_of_which_cluster_it_is_a_copy(copy: Path, klog: Klog) -> None:
    """A finder of the directory should see its content, and its age."""
    text = klog("describe", copy).stdout.decode()
    assert "from broker:9092, as of 2026-11-23T13:00:00Z; offsets of 1 group" in text
    assert "cleanup.policy=compact, index.interval.bytes=100" in text
    found = json.loads(klog("describe", copy, "--output", "json").stdout)
    assert found["copy"]["cluster_id"] == found["cluster_id"] == CLUSTER
    assert found["copy"]["topics"]["orders"]["config"]["cleanup.policy"] == "compact"


def test_consumers_of_a_served_copy_resume(copy: Path) -> None:
    """Groups have the offsets that they had committed in the cluster."""
    with View.open([str(copy)]) as view:
        assert view.groups == ("billing",)
        assert view.committed("billing") == {("orders", 3): (15, 0, "seen")}
        assert view.topics["orders"].configs["cleanup.policy"] == "compact"
        assert any("a copy as of 2026-11-23T13:00:00Z: 1 group" in note for note in view.notes)


def test_a_real_consumer_of_a_served_copy_goes_on_where_its_group_was(copy: Path) -> None:
    """Its group was at 15 of partition 3: what compaction has left behind that is handed out, once."""
    with Serving(copy) as serving:
        rows = with_librdkafka(serving.bootstrap, "orders", "read_committed", "billing")
        assert [row[1:3] for row in rows] == [(3, offset) for offset in range(30, 40)]
        assert with_librdkafka(serving.bootstrap, "orders", "read_committed", "billing") == []


def test_a_copy_has_as_many_partitions_as_the_topic(tmp_path: Path) -> None:
    """Otherwise a partitioner would send keys to other partitions of the restored topic, if only some were copied."""
    with open_copy(tmp_path / "copy", "orders-1", SMALL) as (opened, copied):
        copied.append(run([0]))
        opened.write_follow_file(CONTENT)
    with View.open([str(tmp_path / "copy")]) as view:
        assert view.topics["orders"].partitions == 4


def test_compaction_takes_the_policy_from_it(copy: Path, klog: Klog) -> None:
    """Without it every topic would have to be named with its policy."""
    ran = klog("compact", copy, "--output", "json")
    assert ran.exit_code in (0, 4), ran.stderr
    assert b"orders" in ran.stdout


def test_a_damaged_file_is_said_where_it_counts(copy: Path, klog: Klog) -> None:
    """The file, its fault, and the next step; commands that do not need it still work."""
    (copy / FOLLOW_FILE).write_bytes(b'{"klog_follow": 1}')
    verified = klog("verify", copy)
    assert verified.exit_code == 4
    assert b"follow-file-malformed" in verified.stdout
    assert b"klog-follow.json: cluster_id is null" in klog("describe", copy).stdout
    with View.open([str(copy)]) as view:
        assert any("klog-follow.json: cluster_id is null, expected a text; correct it" in note for note in view.notes)
    compacted = klog("compact", copy)
    assert compacted.exit_code == 4
    assert b"klog-follow.json: cluster_id is null, expected a text; correct it, or move it away" in compacted.stderr
    before = sorted(path.name for path in copy.iterdir())
    with pytest.raises(DamagedError, match=r"klog-follow\.json: cluster_id is null"), CopyDir(str(copy)):
        pass
    assert sorted(path.name for path in copy.iterdir()) == before


def test_a_copy_of_another_cluster_is_left_alone(copy: Path) -> None:
    """Two clusters in one copy would be neither."""
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    with CopyDir(str(copy)) as opened:
        assert opened.cluster_id == CLUSTER
        with pytest.raises(KlogError, match=f"a copy of cluster {CLUSTER}, and other:9092 is cluster OTHER") as error:
            opened.claim("OTHER", "other:9092")
        assert error.value.exit_code == 8
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before
