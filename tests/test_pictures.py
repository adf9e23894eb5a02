"""Pictures of terminals: what klog printed, in the colours that it chose."""

from __future__ import annotations

import re

import pytest
from rich.terminal_theme import TerminalTheme

from tests.conftest import ROOT
from tools import make_pictures, terminals


def test_the_picture_of_the_readme_is_what_klog_prints() -> None:
    """After a change of the output: `.venv/bin/python -m tools.make_pictures`."""
    path = ROOT / f"docs/pictures/{make_pictures.README_PICTURE}.svg"
    assert path.read_text(encoding="utf-8") == make_pictures.terminal(make_pictures.README_PICTURE)
    assert f"](docs/pictures/{path.name})" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert path.stat().st_size < 20_000


def test_klog_runs_on_a_terminal_of_the_width() -> None:
    """Colours, and lines that fit: neither is there in a pipe."""
    assert "\x1b[31mdamage" in terminals.in_terminal(["verify", "crash/flip-middle"], 100)
    for width in (60, 90):
        about = terminals.in_terminal(["verify", "--help"], width).partition("Arguments:")[0].splitlines()
        assert width - 20 < max(map(len, about)) <= width


def test_a_run_that_fails_makes_no_picture() -> None:
    with pytest.raises(RuntimeError, match="--no-such"):
        terminals.in_terminal(["verify", "--no-such"], 80)


def test_a_picture_has_the_colours_of_the_output_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number, a path and a time have a colour only if klog gave them one."""
    monkeypatch.setattr(terminals, "in_terminal", lambda words, width: "12:30 \x1b[31mbad\x1b[0m /data 42 'text' <b>\n")
    drawn = terminals.picture("name", ["verify"], 80)
    red, ink = (colour.hex for colour in (terminals.THEME.ansi_colors[1], terminals.THEME.foreground_color))
    assert set(re.findall(r"fill: (#\w+)", drawn)) == {red, ink}
    text = "".join(re.findall(r"<text [^>]*name-r[^>]*>([^<]*)</text>", drawn)).replace("&#160;", " ")
    assert text == "$ klog verify12:30 bad /data 42 &#x27;text&#x27; &lt;b&gt;"
    assert "http" not in drawn.replace('xmlns="http://www.w3.org/2000/svg"', "")


def luminance(colour: tuple[int, int, int]) -> float:
    """Return the relative luminance: https://www.w3.org/TR/WCAG22/#dfn-relative-luminance."""
    red, green, blue = (
        share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4
        for share in (channel / 255 for channel in colour)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_each_colour_of_a_terminal_can_be_read() -> None:
    theme: TerminalTheme = terminals.THEME
    back = luminance(theme.background_color)
    colours = [theme.foreground_color, *(theme.ansi_colors[number] for number in range(1, 16))]
    assert [colour for colour in colours if (luminance(colour) + 0.05) / (back + 0.05) < 4.5] == []
