"""The followed partitions, and the options for them, without a cluster."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, cast

import pytest
from klog.base.errors import UsageError
from klog.base.rate_limit import RateLimit
from klog.cluster.metadata.topic_config import parse_settings
from klog.commands.follow.client.client_requests import RefusedRequestError
from klog.commands.follow.client.cluster import ClusterTopics, LeaderOfPartition, TopicOfCluster, TopicSettings
from klog.commands.follow.fetch_session import FollowedPlace, TopicChanges, changes, unmatched_globs, wanted_partitions
from klog.commands.follow.follow_options import COPY_SETTINGS, FollowOptions
from klog.commands.follow.side_file import SideFile
from klog.formats.error_codes import ErrorCode
from klog_cli.commands.follow import _flush

from tests.conftest import run_klog

ID, OTHER = "PzrBv7lIQ9uTBvXnC8d4AA", "fXeC61JOQie3q2pvw8VSPQ"


def topic(name: str, count: int = 2, *, internal: bool = False, error: ErrorCode = ErrorCode.NONE) -> TopicOfCluster:
    leaders = tuple(LeaderOfPartition(number, 1, 0, ErrorCode.NONE) for number in range(count))
    return TopicOfCluster(name, ID, internal, error, leaders)


def wanted(*topics: TopicOfCluster, **options: object) -> list[str]:
    """Return the followed partitions of a cluster with these topics, and the refused ones, with reasons."""
    found = wanted_partitions(ClusterTopics(OTHER, {1: ("b", 9092)}, topics), FollowOptions(**options))  # type: ignore[arg-type]
    return [f"{place.topic}-{place.number}" for place in found.leaders] + list(found.refused.values())


def test_topics_are_chosen_by_globs_and_numbers() -> None:
    """All of them without; internal ones are asked for, or named."""
    cluster = topic("orders"), topic("orders.dlq", 1), topic("__consumer_offsets", 1, internal=True)
    assert wanted(*cluster) == ["orders-0", "orders-1", "orders.dlq-0"]
    assert wanted(*cluster, topics=("orders",)) == ["orders-0", "orders-1"]
    assert wanted(*cluster, topics=("*dlq", "__*")) == ["orders.dlq-0"]
    assert wanted(*cluster, topics=("__consumer_offsets",)) == ["__consumer_offsets-0"]
    assert wanted(*cluster, internal=True, numbers=(1,)) == ["orders-1"]
    assert wanted(*cluster, internal=True, topics=("__*",)) == ["__consumer_offsets-0"]


@pytest.mark.parametrize("name", ["../x", "..", ".", "", "a/b", "x" * 300, "a\0b", "ä"])
def test_names_that_no_topic_has_become_no_directories(name: str) -> None:
    """From any source: a directory outside of the copy could be written."""
    (said,) = wanted(topic(name))
    assert said.endswith("is no name of a topic")


def test_what_may_not_be_read_is_said() -> None:
    """The others are copied all the same."""
    denied = topic("secret", 0, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert wanted(topic("orders", 1), denied) == ["orders-0", "secret: not authorized (TOPIC_AUTHORIZATION_FAILED)"]


def test_a_glob_that_fits_nothing_is_told() -> None:
    """A wrong name must not look like a finished backup."""
    cluster = ClusterTopics(OTHER, {}, (topic("orders"),))
    assert unmatched_globs(cluster, FollowOptions(topics=("order?", "bills*", "bill"))) == ["bills*", "bill"]
    assert unmatched_globs(cluster, FollowOptions()) == []


def test_changes_are_what_is_new_renewed_and_gone() -> None:
    """A topic of the same name with another id was made anew."""
    before = [FollowedPlace("orders", ID, 0), FollowedPlace("bills", ID, 0), FollowedPlace("old", ID, 3)]
    now = [before[0], before[1]._replace(topic_id=OTHER), FollowedPlace("orders", ID, 1)]
    leader = LeaderOfPartition(0, 1, 0, ErrorCode.NONE)
    assert changes(before, dict.fromkeys(now, leader)) == TopicChanges([now[2]], {before[1]: now[1]}, [before[2]])


def test_a_rate_holds_for_all_who_share_it() -> None:
    """The bytes that one has received delay all of them."""
    limit = RateLimit(1_000_000)
    began = time.monotonic()
    limit.take(300_000)
    assert 0.49 < limit.take(200_000) - began < 0.6
    assert limit.taken == 500_000
    assert RateLimit(None).take(1 << 40) == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1s", (1000, None)), ("500ms", (500, None)), ("5m", (300_000, None)), ("250", (250, None)),
        ("5M", (None, 5 << 20)), ("64MiB", (None, 64 << 20)), ("100k", (None, 100 << 10)),
    ],
)  # fmt: skip
def test_flush_is_a_duration_or_a_size(text: str, expected: tuple[int | None, int | None]) -> None:
    """`m` are minutes, `M` is a size."""
    assert _flush(text) == expected


def test_settings_of_the_copy_are_those_that_roll_segments() -> None:
    """Small segments have precedence, as at a broker; other settings decide nothing."""
    found = parse_settings(["segment.bytes=1000000", "internal.segment.bytes=5000", "segment.ms=10"], COPY_SETTINGS)
    assert found == {"segment.bytes": "5000", "segment.ms": "10"}
    for wrong in ("retention.ms=1", "segment.bytes"):
        with pytest.raises(UsageError):
            parse_settings([wrong], COPY_SETTINGS)


@pytest.mark.parametrize(
    "words",
    [
        ("--until-caught-up", "--continuous"), ("--rate", "0"), ("--fetch-bytes", "0"), ("--flush", "soon"),
        ("--on-divergence", "shrug"), ("--set", "retention.ms=5"), ("--output", "csv"), ("--max-wait", "soon"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_wrong_options_touch_nothing(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Neither the network, which is not asked, nor the disk."""
    done = run_klog("follow", "127.0.0.1:1", "--to", tmp_path / "copy", *words)
    assert done.exit_code == 16, done.stderr
    assert not (tmp_path / "copy").exists()


def test_a_cluster_that_cannot_be_reached_leaves_nothing(tmp_path: Path) -> None:
    """Given up after --timeout, and its new directory is deleted again."""
    done = run_klog("follow", "127.0.0.1:1", "--to", tmp_path / "copy", "--timeout", "200ms")
    assert done.exit_code == 8
    assert b"127.0.0.1:1: cannot connect" in done.stderr
    assert not (tmp_path / "copy").exists()


def test_settings_that_may_not_be_read_hide_no_others() -> None:
    """A request is refused as a whole; that is reported of the topic alone, once, and the rest roll as they should."""
    said: list[str] = []

    class Denying:
        """A cluster that hides one topic."""

        def settings(self, names: Collection[str]) -> dict[str, TopicSettings]:
            if "secret" in names:
                raise RefusedRequestError("settings of secret: TOPIC_AUTHORIZATION_FAILED", 29)
            own = {"segment.bytes": "1000000", "internal.segment.bytes": "9000"}
            return {name: TopicSettings(own, own) for name in names}

    class Listening:
        """A reporter that keeps all messages."""

        def note(self, message: str) -> None:
            said.append(message)

    file: Any = SideFile("b:1", cast(Any, None), cast(Any, Listening()), FollowOptions(config={"segment.ms": "77"}), {})
    found = ClusterTopics(OTHER, {}, (topic("orders"), topic("secret")))
    for _ in range(2):
        file.learn(Denying(), found, ["orders", "secret"])
    assert file.settings("orders").segment_bytes == 9000
    assert file.settings("secret").segment_bytes == 1 << 30
    assert file.settings("secret").segment_ms == 77
    assert said == ["settings of secret: TOPIC_AUTHORIZATION_FAILED: Kafka's defaults are used instead"]
