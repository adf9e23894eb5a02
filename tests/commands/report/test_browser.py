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
from tests.support.insight import unpack

pytestmark = pytest.mark.browser
CHECKS = (Path(__file__).parent / "checks.js").read_text()


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


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of disks with groups, transactions, damage, and copies that differ."""
    folder = tmp_path_factory.mktemp("rich")
    (folder / "insight").mkdir()
    brokers = [FIXTURES / "replicas/split" / f"broker-{node}" for node in (1, 2, 3)]
    disks = unpack(folder / "insight"), FIXTURES / "crash/flip-middle", *brokers
    run_klog("report", *disks, "--to", folder / "report.html")
    return folder / "report.html"


def show(tab: Page, file: Path) -> None:
    """Open *file*, and expect no word about it and no request but that for the file itself."""
    tab.messages.clear()
    tab.requests.clear()
    tab.open(file)
    tab.evaluate(f"{CHECKS}; 0")
    assert tab.messages == []
    assert [one for one in tab.requests if not one.startswith("data:")] == [file.as_uri()]


def test_the_page_asks_for_nothing_and_its_script_runs(tab: Page, whole: Path) -> None:
    """The policy lets klog's own script run: headings have become buttons."""
    show(tab, whole)
    assert tab.evaluate("document.querySelectorAll('th button').length") > 10
    assert tab.evaluate("document.querySelectorAll('svg.strip').length") > 10
    headline = tab.evaluate("document.querySelector('#verdict .state').textContent")
    assert headline == "Not clean: Data, Next start of node 1, Transactions."


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
    ends = "[...table.tBodies[0].rows].filter(row => !row.hidden).map(row => +row.cells[4].dataset.n)"
    tab.evaluate("table.tHead.rows[0].cells[4].firstChild.click()")
    found = tab.evaluate(ends)
    assert found == sorted(found)
    assert len(found) > 10
    tab.evaluate("table.tHead.rows[0].cells[4].firstChild.click()")
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


@pytest.fixture(params=[(1280, "light"), (1280, "dark"), (800, "light"), (390, "light"), (390, "dark")])
def screen(tab: Page, request: pytest.FixtureRequest) -> Iterator[int]:
    """A screen of a width and a colour scheme; its width."""
    width, scheme = request.param
    tab.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 600)
    tab.call("Emulation.setEmulatedMedia", media="screen", features=[{"name": "prefers-color-scheme", "value": scheme}])
    yield width
    tab.call("Emulation.clearDeviceMetricsOverride")
    tab.call("Emulation.setEmulatedMedia", media="", features=[])


def test_nothing_is_clipped_and_nothing_scrolls_sideways(tab: Page, rich: Path, screen: int) -> None:
    """The last digit of the labels on the right was cut off, and on a phone tables and pictures had to be moved."""
    show(tab, rich)
    tab.evaluate("checks.unfold()")
    assert tab.evaluate("document.documentElement.scrollWidth") <= screen
    assert tab.evaluate("checks.overflows()") == []


def test_every_text_contrasts_with_its_ground(tab: Page, rich: Path, screen: int) -> None:
    """WCAG AA: 4.5, also for the labels in pictures."""
    show(tab, rich)
    tab.evaluate("checks.unfold()")
    count, faint = tab.evaluate("checks.contrasts()")
    assert count > 1000
    assert faint == []


def test_the_bar_of_contents_stays_and_names_what_to_look_at(tab: Page, rich: Path, screen: int) -> None:
    """From the middle of a long page the next section is a click away."""
    show(tab, rich)
    tab.evaluate("scrollTo(0, document.documentElement.scrollHeight / 2)")
    assert tab.evaluate("Math.round(document.querySelector('nav').getBoundingClientRect().top)") == 0
    assert tab.evaluate("document.querySelector('nav').getBoundingClientRect().height") < 120
    links = tab.evaluate("[...document.querySelectorAll('nav a')].map((one) => one.textContent)")
    assert "Transactions 1 open" in links
    assert "Findings 1" in links


def test_the_message_of_an_event_is_in_sight_on_a_phone(tab: Page, rich: Path, screen: int) -> None:
    """It is the column that matters, and was off the screen."""
    show(tab, rich)
    tab.evaluate("checks.unfold()")
    column = "[...document.querySelectorAll('#timeline th')].findIndex((one) => one.textContent.trim() === 'What')"
    assert tab.evaluate(column) == 1
    box = tab.evaluate(
        "(() => { const box = document.querySelector('#timeline tbody tr').cells[1].getBoundingClientRect();"
        "return [box.left, box.right] })()"
    )
    assert 0 <= box[0] < box[1] <= screen


def test_copies_have_different_headings(tab: Page, rich: Path) -> None:
    """The pictures of two copies were both called pairs-0."""
    show(tab, rich)
    headings = tab.evaluate("[...document.querySelectorAll('#partitions h3')].map((one) => one.textContent)")
    assert sum(one.startswith("pairs-0 ") for one in headings) == 2
    assert len(set(headings)) == len(headings)
    labels = tab.evaluate("[...document.querySelectorAll('svg.strip')].map((one) => one.ariaLabel)")
    assert len(set(labels)) == len(labels)


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
    scheme = [{"name": "prefers-color-scheme", "value": "dark"}]
    tab.call("Emulation.setEmulatedMedia", media="print", features=scheme)
    for hidden in ("button", "nav"):
        assert tab.evaluate(f"getComputedStyle(document.querySelector('{hidden}')).display") == "none"
    folded = "document.querySelector('details:not([open]) svg')"
    assert tab.evaluate(f"{folded}.getBoundingClientRect().height") > 10, "what is folded is on paper"
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.evaluate("getComputedStyle(document.querySelector('rect.s.gzip')).fill") == "rgb(183, 215, 176)"
    assert tab.evaluate("getComputedStyle(document.querySelector('.swatch')).printColorAdjust") == "exact"
    assert tab.evaluate("checks.contrasts()")[1] == []
    tab.call("Emulation.setEmulatedMedia", media="", features=[])
    assert base64.b64decode(tab.call("Page.printToPDF")["data"]).startswith(b"%PDF")
    assert tab.evaluate("document.querySelectorAll('details[open]').length") == 0, "printing leaves the page as it was"


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
