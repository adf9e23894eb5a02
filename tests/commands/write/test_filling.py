"""Batches are filled to their size, closed by linger, and by nothing else: against a plain model of what fits."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.commands.write.sources import lines
from tests.conftest import run_klog

HEAD_BYTES = 61


class Sent(NamedTuple):
    """A record: the lengths of its key and its value, None for null, those of its headers, and its timestamp."""

    key: int | None
    value: int | None
    headers: tuple[tuple[int, int], ...]
    timestamp: int

    def json(self) -> str:
        """Return its line."""
        key, value = (None if length is None else "x" * length for length in (self.key, self.value))
        headers = [["n" * name, "h" * length] for name, length in self.headers]
        one = {"topic": "t", "key": key, "value": value, "headers": headers, "timestamp": self.timestamp}
        return json.dumps(one) + "\n"

    def size(self, offset_delta: int, timestamp_delta: int) -> int:
        """Return its bytes in a batch.  Kafka: DefaultRecord.sizeInBytes."""
        parts = [self.key, self.value, *(length for header in self.headers for length in header)]
        body = 1 + varint(timestamp_delta) + varint(offset_delta) + varint(len(self.headers))
        body += sum(varint(-1 if length is None else length) + (length or 0) for length in parts)
        return varint(body) + body


def varint(number: int) -> int:
    """Return the bytes that *number* takes, zigzag."""
    zigzag = number * 2 if number >= 0 else -number * 2 - 1
    return max(1, (zigzag.bit_length() + 6) // 7)


def filled(records: list[Sent], batch_size: int, linger: int | None) -> list[int]:
    """Return how many records each batch has."""
    counts: list[int] = []
    used = first = 0
    for one in records:
        delta = one.timestamp - first
        size = one.size(counts[-1] if counts else 0, delta)
        if not counts or used + size > batch_size or (linger is not None and abs(delta) > linger):
            counts.append(0)
            first, used, size = one.timestamp, HEAD_BYTES, one.size(0, 0)
        counts[-1] += 1
        used += size
    return counts


LENGTHS = st.none() | st.integers(0, 200) | st.sampled_from([0, 63, 64, 127, 128, 8191, 8192])
RECORDS = st.builds(
    Sent,
    key=LENGTHS,
    value=LENGTHS,
    headers=st.lists(st.tuples(st.integers(0, 70), st.integers(0, 70)), max_size=2).map(tuple),
    timestamp=st.integers(1000, 1200) | st.integers(0, 2**41),
)


@settings(max_examples=120, deadline=None)
@given(
    records=st.lists(RECORDS, min_size=1, max_size=60),
    batch_size=st.sampled_from([0, 61, 62, 70, 100, 300, 1000, 16384]),
    linger=st.none() | st.sampled_from([0, 1, 50, 10**6]),
    codec=st.sampled_from(["none", "none", "lz4"]),
)
def test_batches_are_those_of_the_model(
    records: list[Sent], batch_size: int, linger: int | None, codec: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Sizes before compression, header included; a record that is larger has a batch of its own."""
    folder = tmp_path_factory.mktemp("filled")
    (folder / "in.jsonl").write_text("".join(one.json() for one in records))
    words = ["--batch-size", str(batch_size), "--codec", codec, *([] if linger is None else ["--linger", str(linger)])]
    done = run_klog("write", folder / "in.jsonl", "--to", folder / "out", *words)
    assert done.exit_code == 0, done.stderr
    batches = lines(run_klog, [folder / "out/t-0"], "--batches")
    assert [one["records"] for one in batches] == filled(records, batch_size, linger)
    if codec == "none":
        assert all(one["size"] <= batch_size or one["records"] == 1 for one in batches)
