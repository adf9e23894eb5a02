"""A dump of files that a running broker removes meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from klog.commands.dump.dump_files import dump_lines, dump_parquet, dump_text
from klog.commands.dump.dump_request import JSON_LINES, PARQUET, TEXT, DumpRequest, DumpTarget, expand
from klog.log.records import RecordFilter

from tests.commands.dump.sinks import Kept
from tests.data_dir.test_log_dir import held
from tests.oracles.plain.encode import batch
from tests.oracles.plain.shapes import some_records

FORMS: dict[str, Callable[[Iterator[DumpTarget], Kept, Path], int]] = {
    TEXT: lambda targets, kept, _: dump_text(targets, DumpRequest(output=TEXT), kept),
    JSON_LINES: lambda targets, kept, _: dump_lines(targets, DumpRequest(output=JSON_LINES), kept),
    PARQUET: lambda targets, kept, file: _parquet(targets, kept, file),
}


def _parquet(targets: Iterator[DumpTarget], kept: Kept, file: Path) -> int:
    with file.open("wb") as to:
        return dump_parquet(targets, DumpRequest(output=PARQUET), kept, to.fileno())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_running", [True, False])
def test_a_segment_that_goes_after_it_was_listed(tmp_path: Path, form: str, is_running: bool) -> None:
    """Retention does so all the time; without a running broker, it has to be reported."""
    folder = tmp_path / "data/orders-0"
    folder.mkdir(parents=True)
    (folder.parent / "meta.properties").write_bytes(b"version=1\nnode.id=1\ncluster.id=abc\n")
    (folder.parent / ".lock").touch()
    for base in (0, 3, 6):
        (folder / f"{base:020}.log").write_bytes(batch(some_records(base)))
    kept = Kept()
    with ExitStack() as stack:
        if is_running:
            stack.enter_context(held(folder.parent / ".lock"))
        targets = iter(list(expand([str(folder)], (), (), False, RecordFilter())))
        (folder / f"{0:020}.log").unlink()
        code = FORMS[form](targets, kept, tmp_path / "file")
    (said,) = kept.reports
    assert f"{0:020}.log" in said
    assert ("the running broker has removed it" in said) == is_running
    assert (code == 0) == is_running
