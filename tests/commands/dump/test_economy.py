"""The cost of a dump: how often it opens a log, and how many bytes of it it reads."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from klog.base.read_only import ReadOnlyFile
from klog.commands.dump.dump_files import dump_lines, dump_parquet, dump_text
from klog.commands.dump.dump_request import CSV, JSON_LINES, PARQUET, TEXT, DumpRequest, LineStyle, LogStyle, expand
from klog.log.records import RecordFilter

from tests.commands.dump.sinks import Kept, bytes_read
from tests.conftest import FIXTURES

FORMS = {
    TEXT: DumpRequest(TEXT, log_style=LogStyle(deep=True, content=True)),
    JSON_LINES: DumpRequest(JSON_LINES),
    CSV: DumpRequest(CSV, line_style=LineStyle(csv=True)),
    PARQUET: DumpRequest(PARQUET),
}


@pytest.mark.parametrize("form", FORMS)
def test_read_committed_opens_each_log_once(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Aborted ranges are read once a partition, from small files: a partition of a terabyte is read once."""
    folder = FIXTURES / "modern" / "tx-0"
    logs = {path.name: path.stat().st_size for path in folder.glob("*.log")}
    assert len(logs) == 11
    opened: Counter[str] = Counter()
    opening = ReadOnlyFile.__init__

    def count(self: ReadOnlyFile, path: str) -> None:
        opened[os.path.basename(path)] += 1
        opening(self, path)

    monkeypatch.setattr(ReadOnlyFile, "__init__", count)
    read = bytes_read(monkeypatch)
    code, sink = 0, Kept()
    for committed in (False, True):
        opened.clear()
        read.clear()
        request = FORMS[form]._replace(committed=committed)
        targets = expand([str(folder)], (), (), False, RecordFilter())
        if form == PARQUET:
            with open(tmp_path / "out", "wb") as out:
                code |= dump_parquet(targets, request, sink, out.fileno())
        else:
            code |= (dump_text if form == TEXT else dump_lines)(targets, request, sink)
        # the last log is opened once more, for its end
        assert sum(opened[name] for name in logs) == len(logs) + committed, opened
        assert sum(read) <= sum(logs.values()) + committed * 20_000
    assert code == 0
