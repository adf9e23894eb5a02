"""A page about a disk with millions of names, or names of thousands of letters: a bound, and the omitted part."""

from __future__ import annotations

from pathlib import Path

import pytest
from klog_cli.views import report

from tests.commands.serve.coordinator_logs import write_batches
from tests.conftest import run_klog
from tests.support.bomb_dirs import META, commits


def log_dir(folder: Path, length: int, count: int) -> Path:
    data = folder / "data"
    write_batches(data / "__consumer_offsets-0", commits("zstd", length, count))
    (data / "meta.properties").write_text(META)
    return data


def test_texts_that_are_no_names_are_clipped(tmp_path: Path) -> None:
    """A log of a megabyte made a page of 152."""
    page = tmp_path / "page.html"
    run_klog("report", log_dir(tmp_path, 30_000, 400), "--to", page)
    assert page.stat().st_size < 4 << 20
    text = page.read_text()
    is_clipped = "t (30000 letters)" in text.replace("\\u2026", "").replace("…", "") and "t" * 1001 not in text
    assert is_clipped


def test_rows_that_are_left_out_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "_MOST_BYTES", 100_000)
    page = tmp_path / "page.html"
    ran = run_klog("report", log_dir(tmp_path, 5, 1000), "--to", page)
    assert ran.exit_code == 4
    assert "rows of &#39;klog groups&#39; are left out" in page.read_text().replace("'", "&#39;")


def test_a_page_of_what_is_usual_has_all_of_it(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    run_klog("report", log_dir(tmp_path, 249, 1000), "--to", page)
    assert "are left out" not in page.read_text()
    assert "t" * 249 in page.read_text()


def test_one_long_name_does_not_widen_the_rows_of_others(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Each of a million rows was padded to the longest name."""
    from klog_cli import output

    output.emit_table((), ("topic", "offset"), [("t" * 30_000, 1), *(("short", at) for at in range(100))])
    lines = capfdbinary.readouterr().out.splitlines()
    assert len(lines[1]) > 30_000
    assert max(map(len, lines[2:])) < 300
    output.emit_table((), ("topic", "offset"), [("t" * 249, 1), ("short", 2)])
    lines = capfdbinary.readouterr().out.splitlines()
    assert len({len(line) for line in lines[1:]}) == 1
