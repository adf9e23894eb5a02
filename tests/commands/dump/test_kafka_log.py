"""The text of a log, for which the goldens are too small: several windows, files and workers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from klog.commands.dump.dump_files import dump_text
from klog.commands.dump.dump_request import DumpRequest, DumpTarget, LogInput, LogInputs, LogStyle
from klog.commands.dump.kafka_log import LogDump
from klog.commands.dump.reports import OffsetGaps
from klog.formats.internal_topics import cluster_metadata
from klog.kernel import Window
from klog.log.ordered_pipeline import run
from klog.log.records import RecordFilter, RecordLimit
from klog.partition.transactions.isolation import TxnBatch

from tests.commands.dump.sinks import TEXT, Kept, dump, dump_file
from tests.oracles.plain.encode import Record, batch, message, unsigned_varint
from tests.oracles.plain.shapes import MS, some_records


def test_offsets_that_go_back_from_one_stretch_to_the_next_are_a_gap() -> None:
    """Kafka's tool expects each offset to follow the one before it, and lists every exception."""
    gaps = OffsetGaps()
    for first, last in ((0, 9), (10, 19), (15, 17), (17, 20)):
        gaps.add(first, last, b"")
    assert list(gaps) == [(19, 15), (17, 17)]


def test_a_record_of_too_many_elements_is_named_and_the_next_one_is_decoded(tmp_path: Path) -> None:
    """Kafka's tool makes an object of each; klog reports that it does not."""
    path = tmp_path / f"{0:020}.log"
    tags = 600_000
    large = b"\1\2\0" + unsigned_varint(3) + b"t1" + b"\1" * 16 + unsigned_varint(tags) + b"\x64\0" * tags
    small = b"\1\2\0" + unsigned_varint(3) + b"t2" + b"\1" * 16 + b"\0"
    path.write_bytes(batch([Record(0, MS, None, large), Record(1, MS, None, small)], codec="zstd"))
    style = LogStyle(deep=True, content=True, decoder=cluster_metadata)
    code, kept = dump_file(path, DumpRequest(output=TEXT, log_style=style))
    assert code == 4
    assert kept.reports == [f"{path} @ 0 (offset 0): a record is left out: it has more than 524288 elements"]
    assert b" payload: Error at offset 0, skipping. it has more than 524288 elements\n" in bytes(kept.data)
    assert b'"data":{"name":"t2"' in bytes(kept.data)


def test_of_two_records_that_end_the_tool_the_first_one_does(tmp_path: Path) -> None:
    """A marker without a key, then a message whose value claims too much: the part behind the first was never read."""
    path = tmp_path / f"{0:020}.log"
    good = message(1, 1, b"key", b"value")
    liar = good[:33] + (1000).to_bytes(4, "big") + good[37:]
    path.write_bytes(batch([Record(0, MS, None, b"v")], control=True) + liar)
    code, kept = dump_file(path, DumpRequest(output=TEXT, log_style=LogStyle(deep=True, content=True)))
    assert code == 4
    (report,) = kept.reports
    assert report.startswith(f"{path} @ 0 (offset 0): java.lang.NullPointerException")
    assert b"offset: 1 " not in bytes(kept.data)


def test_workers_that_overtake_one_another_see_no_gaps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which offset follows which is a question of the log's order, not of who is done first."""
    path = tmp_path / f"{0:020}.log"
    noise = Random(1).randbytes(64 << 10)
    path.write_bytes(b"".join(batch([Record(i, MS, None, noise)]) for i in range(300)))
    leave_out = LogInput.leave_out

    def slowly(log: LogInput, window: Window) -> tuple[bool, Sequence[TxnBatch]]:
        time.sleep((window.position >> 18) * 7 % 5 / 500)
        return leave_out(log, window)

    monkeypatch.setattr(LogInput, "leave_out", slowly)
    request = DumpRequest(TEXT, LogStyle(deep=True))
    with LogInputs(request).open(DumpTarget(str(path)), like_kafka=True) as log:
        dumped = LogDump(log, request.log_style, RecordLimit(None))
        run(log.reader, dumped.work, Kept(), 4)
    assert not len(dumped.gaps)


def test_a_limit_on_batch_lines_counts_over_windows_and_files(tmp_path: Path) -> None:
    folder = tmp_path / "orders-3"
    folder.mkdir()
    for base in (0, 3000):
        data = b"".join(batch(some_records(base + i)) for i in range(0, 3000, 3))
        (folder / f"{base:020}.log").write_bytes(data)
    for limit in (1, 999, 1000, 1001, 1300, 2000, 5000):
        _, kept = dump([folder], DumpRequest(output=TEXT, wanted=RecordFilter(limit=limit)))
        assert bytes(kept.data).count(b"baseOffset: ") == min(limit, 2000)
        assert bytes(kept.data).count(b"Dumping ") == (1 if limit <= 1000 else 2)


def test_a_running_broker_excuses_a_torn_tail_and_nothing_else(tmp_path: Path) -> None:
    """A batch that it is writing right now is unfinished; a checksum that does not match was never right."""
    path = tmp_path / f"{0:020}.log"
    one, two = batch(some_records(0)), batch(some_records(3))
    bad = one[:-1] + bytes((one[-1] ^ 0xFF,))
    for content, code in ((one + two[:-1], 0), (bad + two, 4), (one, 0)):
        path.write_bytes(content)
        assert dump_text([DumpTarget(str(path), live=True)], DumpRequest(output=TEXT), Kept()) == code
    path.write_bytes(one + two[:-1])
    assert dump_file(path, DumpRequest(output=TEXT))[0] == 4
