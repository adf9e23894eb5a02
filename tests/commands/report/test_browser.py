"""The page in a real browser: it loads nothing, prints nothing to the console, and works."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from klog.commands.report.report_page import page

from tests.commands.report.test_page import HOSTILE, made
from tests.conftest import FIXTURES, run_klog
from tests.support.browser import Page, open_page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A tab of a browser."""
    with open_page(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of fixtures, one of them damaged."""
    target = tmp_path_factory.mktemp("report") / "report.html"
    done = run_klog("report", FIXTURES / "modern", FIXTURES / "crash/flip-middle", "--to", target)
    assert done.exit_code == 4, done
    return target


def show(tab: Page, file: Path) -> None:
    """Open *file*, and expect no word about it and no request but that for the file itself."""
    tab.messages.clear()
    tab.requests.clear()
    tab.open(file)
    assert tab.messages == []
    assert [one for one in tab.requests if not one.startswith("data:")] == [file.as_uri()]


def test_the_page_asks_for_nothing_and_its_script_runs(tab: Page, whole: Path) -> None:
    """The policy lets klog's own script run: headings have become buttons."""
    show(tab, whole)
    assert tab.evaluate("document.querySelectorAll('th button').length") > 10
    assert tab.evaluate("document.querySelectorAll('svg.strip').length") > 10
    assert tab.evaluate("document.querySelector('#verdict .state').textContent").startswith(
        "Damaged in 1 place, 0 warnings"
    )


def test_five_thousand_partitions_open_at_once(tab: Page, tmp_path: Path) -> None:
    """Parts outside of the screen are not laid out: seconds of the browser's own processor time otherwise."""
    report = made("topic")
    file = tmp_path / "large.html"
    file.write_bytes(b"".join(page(report._replace(strips=[report.strips[0]] * 5000))))
    tab.call("Performance.enable")
    show(tab, file)
    metrics = {one["name"]: one["value"] for one in tab.call("Performance.getMetrics")["metrics"]}
    before = metrics["ProcessTime"]
    show(tab, file)
    metrics = {one["name"]: one["value"] for one in tab.call("Performance.getMetrics")["metrics"]}
    assert metrics["ProcessTime"] - before <= 2
    assert tab.evaluate("document.querySelectorAll('#partitions tbody tr').length") == 5000
    assert tab.evaluate("getComputedStyle(document.querySelector('.wide')).contentVisibility") == "auto"


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_does_anything(tab: Page, tmp_path: Path, name: str) -> None:
    """A script elsewhere is a text here."""
    file = tmp_path / "hostile.html"
    file.write_bytes(b"".join(page(made(name))))
    show(tab, file)
    assert tab.evaluate("document.querySelectorAll('img, iframe, object, embed, link, form, base').length") == 0
    assert tab.evaluate("document.scripts.length") == 2


def test_tables_sort_and_filter(tab: Page, whole: Path) -> None:
    """Numbers sort as numbers, and a filter needs all of its words."""
    show(tab, whole)
    tab.evaluate("window.table = document.querySelector('#partitions table')")
    ends = "[...table.tBodies[0].rows].filter(row => !row.hidden).map(row => +row.cells[3].dataset.n)"
    tab.evaluate("table.tHead.rows[0].cells[3].firstChild.click()")
    found = tab.evaluate(ends)
    assert found == sorted(found)
    assert len(found) > 10
    tab.evaluate("table.tHead.rows[0].cells[3].firstChild.click()")
    assert tab.evaluate(ends) == sorted(found, reverse=True)
    tab.evaluate(
        "input = document.querySelector('#partitions input'); input.value = 'tx modern';"
        "input.dispatchEvent(new Event('input'))"
    )
    names = tab.evaluate("[...table.tBodies[0].rows].filter(row => !row.hidden).map(row => row.cells[0].textContent)")
    assert names
    assert all("tx" in name for name in names)


def test_pictures_grow(tab: Page, whole: Path) -> None:
    """A segment among thousands is seen at a larger scale; the page itself does not scroll sideways."""
    show(tab, whole)
    width = "document.querySelector('figure.zoom svg').getBoundingClientRect().width"
    before = tab.evaluate(width)
    tab.evaluate("document.querySelector('figure.zoom figcaption button').click()")
    assert tab.evaluate(width) == pytest.approx(2 * before, rel=0.01)
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])
def test_it_reads_well_on_every_screen(tab: Page, whole: Path, width: int, scheme: str) -> None:
    """Nothing overflows, and the text contrasts with the paper (WCAG AA: 4.5)."""
    tab.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 600)
    tab.call("Emulation.setEmulatedMedia", media="screen", features=[{"name": "prefers-color-scheme", "value": scheme}])
    show(tab, whole)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    for selector in ("body", ".faint", "a", ".state", "svg text"):
        assert contrast(tab, selector) >= 4.5, selector
    tab.call("Emulation.clearDeviceMetricsOverride")
    tab.call("Emulation.setEmulatedMedia", media="", features=[])


def contrast(tab: Page, selector: str) -> float:
    """Return the contrast of the first *selector*'s text with its background."""
    text, paper = tab.evaluate(
        f"(() => {{ let one = document.querySelector({selector!r}); const style = getComputedStyle(one);"
        "const ink = one.tagName === 'text' ? style.fill : style.color; let behind = 'rgba(0, 0, 0, 0)';"
        "for (; one && /, 0\\)$/.test(behind); one = one.parentElement) behind = getComputedStyle(one).backgroundColor;"
        "return [ink, behind] })()"
    )
    lighter, darker = sorted((luminance(text), luminance(paper)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    """Return the relative luminance of `rgb(…)`.  WCAG 2: relative luminance."""
    parts = [int(one) / 255 for one in colour.partition("(")[2].rstrip(")").split(",")[:3]]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_without_script_it_is_whole(tab: Page, whole: Path) -> None:
    """Tables and pictures are in the file; the script adds only handles."""
    tab.call("Emulation.setScriptExecutionDisabled", value=True)
    show(tab, whole)
    tab.call("Emulation.setScriptExecutionDisabled", value=False)
    assert tab.evaluate("document.querySelectorAll('th button').length") == 0
    assert tab.evaluate("document.querySelectorAll('svg.strip').length") > 10
    assert tab.evaluate("document.querySelectorAll('#partitions tbody tr').length") > 20


def test_it_prints(tab: Page, whole: Path) -> None:
    """On paper there are no buttons, and all of it is there."""
    show(tab, whole)
    tab.call("Emulation.setEmulatedMedia", media="print", features=[])
    assert tab.evaluate("getComputedStyle(document.querySelector('button')).display") == "none"
    tab.call("Emulation.setEmulatedMedia", media="", features=[])
    assert base64.b64decode(tab.call("Page.printToPDF")["data"]).startswith(b"%PDF")


def test_by_keyboard(tab: Page, whole: Path) -> None:
    """Each handle can be reached and has a name for a screen reader."""
    show(tab, whole)
    assert tab.evaluate("[...document.querySelectorAll('button, a, input')].every(one => one.tabIndex >= 0)")
    unnamed = (
        "[...document.querySelectorAll('button')].filter(one => !(one.textContent || one.ariaLabel).trim()).length"
    )
    assert tab.evaluate(unnamed) == 0
    assert tab.evaluate("[...document.querySelectorAll('input')].every(one => one.labels.length === 1)")
    assert tab.evaluate("[...document.querySelectorAll('svg')].every(one => one.getAttribute('aria-label'))")
