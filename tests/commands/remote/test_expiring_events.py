"""Settings of `__remote_log_metadata` by which events are deleted before their segments: doctor and remote verify warn.

Kafka creates the topic with `retention.ms=-1`.  The deletion itself is in `test_lost_entries.py`, with a real broker.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Ran, run_klog
from tests.oracles.plain.encode import Record, batch
from tests.support import tiers
from tests.support.metadata_logs import config

RLMM, KIND = "__remote_log_metadata", "remote-events-expire"
TOPIC_RESOURCE = 2
END, EPOCH = 93, 1
"""The end of the metadata log of the fixture, and its leader epoch."""
WEEK, DAY = "604800000", "86400000"
ALTER = f"kafka-configs --bootstrap-server HOST:PORT --alter --entity-type topics --entity-name {RLMM} --add-config"


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, Path]:
    """The log dir and the tier of the fixture: topics `fine` and `short` with retention.ms=-1."""
    return tiers.unpack(tmp_path / "tiered")


def configure(data: Path, *settings: tuple[str, str, str | None]) -> None:
    """Append settings (topic, name, value) to the metadata log."""
    values = [config(TOPIC_RESOURCE, *one) for one in settings]
    records = [Record(END + i, 1, None, value) for i, value in enumerate(values)]
    with (data / f"__cluster_metadata-0/{0:020}.log").open("ab") as log:
        log.write(batch(records, leader_epoch=EPOCH))


def parsed(ran: Ran) -> Any:
    assert ran.exit_code in (0, 4), ran
    return json.loads(ran.stdout)


def noted(data: Path, *more: object) -> list[str]:
    """The messages of doctor."""
    found = parsed(run_klog("doctor", data, "-o", "json", *more))
    assert (found["starts"], found["loses"]) == (True, 0)
    return [one["message"] for one in found["notes"] if one["id"] == KIND]


def found(data: Path, tier: Path, *more: object) -> list[dict[str, Any]]:
    """The findings of remote verify."""
    every = parsed(run_klog("remote", "verify", data, "--remote", tier, "-o", "json", *more))["findings"]
    return [one for one in every if one["id"] == KIND]


SHORT = {
    "time": ([("retention.ms", WEEK)], f"retention.ms={WEEK}, the topic's", "retention.ms=-1"),
    "none-set": ([("retention.ms", None)], f"retention.ms={WEEK}, Kafka's default", "retention.ms=-1"),
    "size": ([("retention.bytes", "1048576")], "retention.bytes=1048576, the topic's", "retention.bytes=-1"),
    "compaction": ([("cleanup.policy", "compact")], "cleanup.policy=compact, the topic's", "cleanup.policy=delete"),
    "both": (
        [("cleanup.policy", "delete,compact"), ("retention.ms", DAY)],
        f"cleanup.policy=delete,compact, the topic's and retention.ms={DAY}, the topic's",
        "cleanup.policy=delete,retention.ms=-1",
    ),
}


@pytest.mark.parametrize("name", sorted(SHORT))
def test_a_limit_that_deletes_events_first(place: tuple[Path, Path], name: str) -> None:
    """The setting with its origin, and the command that ends it, before an event is lost; nothing is lost yet."""
    settings, told, cure = SHORT[name]
    configure(place[0], *((RLMM, *one) for one in settings))
    (note,) = noted(place[0])
    assert f"{RLMM}: brokers delete events" in note
    assert told in note
    assert note.endswith(f"to keep them: {ALTER} {cure}")
    (finding,) = found(*place)
    assert f"{RLMM}: {finding['message']}" == note
    assert (finding["severity"], finding["tier"], finding["file"]) == ("warning", "metadata", RLMM)
    text = run_klog("remote", "verify", place[0], "--remote", place[1]).stdout.decode()
    assert f"{KIND}: settings of `{RLMM}`" in text


LONG: dict[str, list[tuple[str, str, str | None]]] = {
    "as-created": [(RLMM, "retention.ms", "-1")],
    "longer-than-each-topic": [
        (RLMM, "retention.ms", WEEK),
        *((one, "retention.ms", DAY) for one in ("fine", "short")),
    ],
    "no-policy": [(RLMM, "cleanup.policy", ""), (RLMM, "retention.ms", DAY)],
    "no-limit-of-size": [(RLMM, "retention.bytes", "-1")],
    "nothing-in-remote-storage": [
        (RLMM, "retention.ms", DAY),
        *((one, "remote.storage.enable", None) for one in ("fine", "short")),
    ],
}


@pytest.mark.parametrize("name", sorted(LONG))
def test_limits_that_delete_no_event_of_a_segment(place: tuple[Path, Path], name: str) -> None:
    """No word where brokers delete nothing, or only events of segments that they have deleted before."""
    configure(place[0], *LONG[name])
    assert (noted(place[0]), found(*place)) == ([], [])


def test_only_topics_that_were_named_count(place: tuple[Path, Path]) -> None:
    """Events are kept for longer than the records of one topic, and not for longer than those of the other."""
    configure(place[0], (RLMM, "retention.ms", WEEK), ("fine", "retention.ms", DAY))
    assert [len(found(*place, "-t", topic)) for topic in ("fine", "short")] == [0, 1]
    assert len(noted(place[0])) == 1


def test_a_broker_without_remote_storage_deletes_them_too_but_reads_none(place: tuple[Path, Path]) -> None:
    """The note about remote storage that is off is the one that counts."""
    configure(place[0], (RLMM, "retention.ms", WEEK))
    file = place[0].parent / "server.properties"
    for line, notes in (("", 0), ("remote.log.storage.system.enable=true\n", 1)):
        file.write_text(f"process.roles=broker,controller\nnode.id=1\nlog.dirs={place[0]}\n{line}")
        ran = run_klog("doctor", place[0], "-o", "json", "--server-properties", file)
        assert [one["id"] for one in json.loads(ran.stdout)["notes"]].count(KIND) == notes
