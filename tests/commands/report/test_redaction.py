"""A report to give away: no string of the disk."""

from __future__ import annotations

import json

from klog.commands.report.redaction import Redaction

SECRET = "s3cret"


def test_no_text_of_the_disk_is_left() -> None:
    """Whatever member it is in: a value that is not known to be harmless is left out."""
    row = {
        "id": "bad-crc",
        "topic": SECRET,
        "partition": 3,
        "group": SECRET,
        "state": "Stable",
        "message": SECRET,
        "unknown": SECRET,
        "log_dir": f"/data/{SECRET}",
        "reasons": {"active": 5},
        "members": [{"client_id": SECRET, "host": SECRET, "member_id": SECRET, "partitions": [[SECRET, 0]]}],
        "offsets": [{"topic": SECRET, "offset": 5, "metadata": SECRET}],
        "metadata": {SECRET: 1},
    }
    redacted = Redaction().row(row)
    assert SECRET not in json.dumps(redacted)
    assert redacted["id"] == "bad-crc"
    assert redacted["reasons"] == {"active": 5}
    assert redacted["members"] == [{"member_id": "member-1", "partitions": [["topic-1", 0]]}]
    assert redacted["offsets"] == [{"topic": "topic-1", "offset": 5}]


def test_a_name_is_always_the_same_word() -> None:
    """Otherwise a topic could not be followed through the report."""
    redaction = Redaction()
    assert [redaction.name("topic", name) for name in ("a", "b", "a")] == ["topic-1", "topic-2", "topic-1"]
    assert redaction.name("group", "a") == "group-1"
    assert redaction.name("topic", "__consumer_offsets") == "__consumer_offsets"
