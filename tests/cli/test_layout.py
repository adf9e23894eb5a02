"""Lines and tables on a narrow screen: nothing is broken inside a word, an id, a time, a size or a number."""

from __future__ import annotations

import pytest
from klog_cli.layout import table_lines, wrap_line
from klog_cli.style import bad, columns_of, command, faint, rendered, strong, without_marks

TIME = "2025-06-15 15:06:40.300Z"
ID = "20261126-190217-recover-974e"
COLUMNS = ("id", "when", "state", "changes", "notes")
ROWS = [
    (ID, TIME, bad("half done"), "4", "klog recover disk, not by hand"),
    (ID, TIME, "applied", "12", ""),
]


def shown(lines: list[str]) -> list[str]:
    """Return *lines* as a screen without colours has them."""
    return [rendered(line, colours=False) for line in lines]


def test_prose_is_broken_at_spaces_and_hangs() -> None:
    assert wrap_line("  aaa bbb ccc", 9) == ["  aaa bbb", "    ccc"]
    assert wrap_line("aaa  bbb ccc", 8, hang=5) == ["aaa  bbb", "  ccc"], "no hang of over half a screen"
    assert wrap_line("short", 60) == ["short"]


def test_a_numbered_step_hangs_under_its_text() -> None:
    assert wrap_line("  1. aaa bbb ccc", 14) == ["  1. aaa bbb", "     ccc"]
    assert wrap_line("  10. aaa bbb ccc", 15) == ["  10. aaa bbb", "      ccc"]


@pytest.mark.parametrize("width", range(30, 70))
def test_a_time_and_a_size_stay_in_one_piece(width: int) -> None:
    line = f"it was written at {TIME} and has 8.2 KiB, read at 1.9 GiB/s in 12 ms, which is 40 % of it"
    parts = wrap_line(line, width)
    assert all(columns_of(part) <= width for part in parts)
    for whole in (TIME, "8.2 KiB", "1.9 GiB/s", "12 ms", "40 %"):
        assert any(whole in part for part in parts)
    assert " ".join(part.strip() for part in parts) == line


def test_a_long_word_is_not_broken() -> None:
    path = "/data/" + "x" * 100
    assert wrap_line(f"see {path} for it", 60) == ["see", f"  {path}", "  for it"]


def test_a_wrapped_command_can_be_pasted() -> None:
    words = ["klog", "recover", "/data/kafka", "--apply", "--repair-bits", "--save-plan", "/tmp/a-plan.json"]
    parts = shown(wrap_line("  " + command(" ".join(words)), 40))
    assert len(parts) > 1
    assert all(part.endswith(" \\") for part in parts[:-1])
    assert "\n".join(parts).replace("\\\n", "").split() == words


def test_marks_become_colours_and_data_stays_without() -> None:
    line = f"{bad('lost')} {strong('t-0')} \x1b[31m"
    assert rendered(line, colours=True) == "\x1b[31mlost\x1b[0m \x1b[1mt-0\x1b[0m \\x1b[31m"
    assert rendered(faint(f"a {bad(str(1))} b"), colours=True) == "\x1b[2ma \x1b[31m1\x1b[0m\x1b[2m b\x1b[0m"
    assert rendered(line, colours=False) == "lost t-0 \\x1b[31m"
    assert without_marks(line) == "lost t-0 \x1b[31m"
    assert columns_of(faint("größe 日本")) == 10


def test_a_table_without_a_screen_is_one_line_a_row() -> None:
    head, *rows = shown(list(table_lines(COLUMNS, ROWS, None)))
    assert head == f"{'id':28}  {'when':24}  {'state':9}  changes  notes"
    assert rows[1] == f"{ID}  {TIME}  applied         12"


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_a_table_fits_and_keeps_every_cell_whole(width: int) -> None:
    lines = shown(list(table_lines(COLUMNS, ROWS, width)))
    assert all(len(line) <= width for line in lines)
    text = "\n".join(lines)
    assert text.count(ID) == text.count(TIME) == 2
    assert "half done" in text
    assert "not by hand" in " ".join(text.split())


def test_the_last_column_is_wrapped_below_itself() -> None:
    lines = shown(list(table_lines(("n", "why"), [("1", "a b c d e f g h i j k l m n o p q r s t")], 30)))
    assert lines == ["n  why", "1  a b c d e f g h i j k l m n", "   o p q r s t"]


def test_columns_that_do_not_fit_are_named_below_their_row() -> None:
    lines = shown(list(table_lines(("topic", "id", "size"), [("t" * 40, "i" * 22, "8.2 KiB")], 60)))
    assert lines == ["topic", "t" * 40, f"    id {'i' * 22}  size 8.2 KiB"]


def test_an_id_that_begins_with_a_digit_is_no_number() -> None:
    rows = [(ID, "1"), ("short", "100")]
    assert shown(list(table_lines(("id", "n"), rows, None)))[2] == f"{'short':28}  100"


def test_empty_columns_are_left_out_before_anything_is_stacked() -> None:
    rows = [("a" * 30, "", "b" * 20)]
    assert shown(list(table_lines(("first", "a rather long title", "last"), rows, 60)))[0] == f"{'first':30}  last"
    assert list(table_lines(("a", "b"), [], 60)) == [f"{strong('a')}  {strong('b')}"]
