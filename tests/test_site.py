"""The site that `make docs` builds: strictly, from pages and declarations; no page asks another host for anything."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path

import pytest
from klog_cli.command_catalog import Command, read

from tests.conftest import ROOT
from tests.support.browser import open_page
from tools.make_pictures import CHOSEN, DIMMED

PAGE_CHECKS = Path(__file__).parent / "support/page_checks.js"
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "object": "data"}
"""Elements that a browser fetches something for, and the attribute with its place."""
LOADING_LINKS = {"stylesheet", "icon", "preload", "preconnect", "dns-prefetch", "prefetch", "modulepreload", "manifest"}
IN_CSS = re.compile(r"""url\(\s*["']?([^"')]+)|@import\s+["']([^"']+)""")
ELSEWHERE = re.compile(r"(?:https?:)?//")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, built once."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


class Resources(HTMLParser):
    """Everything that a page makes a browser load."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        of = {name: value or "" for name, value in attrs}
        if tag == "link" and LOADING_LINKS & set(of.get("rel", "").split()):
            self.found.append(of["href"])
        elif tag in LOADED:
            self.found.append(of.get(LOADED[tag], ""))
        self.found += _in_css(of.get("style", ""))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "style":
            self.found += _in_css(data)


def _in_css(text: str) -> list[str]:
    return [first or second for first, second in IN_CSS.findall(text)]


def loaded(site: Path) -> Iterator[tuple[str, str]]:
    """Yield each file of *site* with each place from which it loads something."""
    for path in sorted(site.rglob("*")):
        name = path.relative_to(site).as_posix()
        if path.suffix == ".html":
            yield from ((name, place) for place in Resources(path).found)
        elif path.suffix in (".css", ".svg"):
            yield from ((name, place) for place in _in_css(path.read_text(encoding="utf-8")))


def _file(site: Path, page: str, place: str) -> Path:
    """Return the file that *page* means by *place*; the page of a 404 is shown anywhere, so it names the root."""
    return site / place.removeprefix("/") if place.startswith("/") else site / os.path.dirname(page) / place


def test_every_page_has_its_place(site: Path) -> None:
    """A page that is written is a page that is read: those of docs/, and the front page from the README."""
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "bench/README.md"]
    made = [site / page.relative_to(ROOT).with_suffix(".html") for page in pages]
    made = [page.with_name("index.html") if page.stem == "README" else page for page in made]
    elsewhere = {site / "index.html": site / "readme.html", site / "docs/questions.html": site / "index.html"}
    assert [page for page in made if not elsewhere.get(page, page).exists()] == []


def test_the_site_begins_with_the_questions(site: Path) -> None:
    """Somebody in trouble has a question; the README is one of the other pages, and every page leads back."""
    assert '<td data-label="The question">The broker will not start</td>' in (site / "index.html").read_text()
    assert "make demo" in (site / "readme.html").read_text()
    for page in site.glob("docs/**/*.html"):
        home = re.search(r'<a href="([^"]+)"[^>]*class="md-header__button md-logo"', page.read_text())
        assert home, page
        assert _file(site, page.relative_to(site).as_posix(), home[1]).resolve() == site / "index.html"


def test_no_escape_for_a_table_is_visible(site: Path) -> None:
    """In code, Markdown shows the mark that keeps `|` from ending a cell."""
    cells = {
        page.name: re.findall(r"<t[dh][^>]*>.*?\\\|.*?</t[dh]>", page.read_text(encoding="utf-8"))
        for page in site.rglob("*.html")
    }
    assert len(cells) > 30
    assert {name: found for name, found in cells.items() if found} == {}


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    """Hosts of brokers have no way out, and the pages an operator reads at night are private."""
    places = list(loaded(site))
    assert {name.rpartition(".")[2] for name, _ in places} >= {"html"}
    assert [one for one in places if ELSEWHERE.match(one[1])] == []
    files = {(name, place.partition("#")[0].partition("?")[0]) for name, place in places if place[:5] != "data:"}
    assert [one for one in files if not _file(site, *one).exists()] == []


@pytest.mark.parametrize("element", ['<script src="https://a.example/a.js">', '<link rel="stylesheet" href="//a/b">'])
def test_a_resource_from_elsewhere_is_seen(element: str, tmp_path: Path) -> None:
    """Were it not, the test above could not fail."""
    (tmp_path / "page.html").write_text(f"{element}</script><style>p {{background: url(https://b.example/b)}}</style>")
    assert len([place for _, place in loaded(tmp_path) if ELSEWHERE.match(place)]) == 2


@contextmanager
def served(site: Path) -> Iterator[str]:
    """Serve the folder as any web server does, and give its URL."""
    handler = functools.partial(Silent, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


class Silent(SimpleHTTPRequestHandler):
    """Serves files without a word."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
        pass


SEARCH = "document.querySelector('.md-search__input').focus(); document.execCommand('insertText', false, 'torn-tail')"
FOUND = "document.querySelectorAll('.md-search-result__item').length"


@pytest.mark.browser
def test_a_browser_asks_no_other_host_and_finds_what_is_searched(site: Path, tmp_path: Path) -> None:
    """Scripts may load what no attribute shows, and the search needs one that runs."""
    with served(site) as url, open_page(tmp_path) as page:
        for name in ("index.html", "docs/doctor.html", "docs/reference/commands.html", "readme.html"):
            page.open(url + name)
            assert page.evaluate("document.querySelector('h1').innerText") != ""
        page.evaluate(SEARCH)
        end = time.monotonic() + 60
        while not (found := page.evaluate(FOUND)) and time.monotonic() < end:
            time.sleep(0.05)
        assert found > 0
        assert page.messages == []
        assert [one for one in page.requests if not one.startswith((url, "data:", "blob:"))] == []


SCREENS = {
    "phone": {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True},
    "desk": {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False},
}
WITHOUT_SEARCH = "Worker = class extends EventTarget { postMessage() {} }"
"""Each page builds the index of the search, in a worker: a quarter of its time."""
WITHOUT_TRANSITIONS = "document.head.insertAdjacentHTML('beforeend', '<style>* {transition: none !important}</style>')"


@pytest.mark.browser
@pytest.mark.slow
def test_every_page_can_be_read(site: Path, tmp_path: Path) -> None:
    """Small and large, light and dark: nothing is cut or scrolls sideways, and each text contrasts with the page.

    WCAG AA: 4.5.  A page is loaded once: that takes most of the time.
    """
    checks, found = PAGE_CHECKS.read_text(encoding="utf-8"), []
    names = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    assert len(names) > 100
    with served(site) as url, open_page(tmp_path) as page:
        page.call("Page.addScriptToEvaluateOnNewDocument", source=WITHOUT_SEARCH)
        for name in names:
            page.open(url + name)
            page.evaluate(WITHOUT_TRANSITIONS)
            for screen, scheme in product(SCREENS, ("default", "slate")):
                page.call("Emulation.setDeviceMetricsOverride", **SCREENS[screen])
                page.evaluate(f"document.body.dataset.mdColorScheme = '{scheme}'")
                found += [f"{name}, {screen}, {scheme}: {problem}" for problem in page.evaluate(checks)]
        assert found == []
        assert page.messages == []


BAD = """<!doctype html><div class="md-content">
<p style="color: #999">Pale</p><pre style="overflow: auto">{long}</pre><p>{long}</p></div>"""


@pytest.mark.browser
def test_text_that_cannot_be_read_is_seen(tmp_path: Path) -> None:
    """Were it not, the test above could not fail."""
    (tmp_path / "page.html").write_text(BAD.format(long="x" * 400))
    with open_page(tmp_path / "browser") as page:
        page.open(tmp_path / "page.html")
        found = "\n".join(page.evaluate(PAGE_CHECKS.read_text(encoding="utf-8")))
    assert "contrast 2.85" in found
    assert "wider than its box" in found
    assert "outside of the screen" in found
    assert "the page is wider than the screen" in found


@pytest.mark.browser
def test_the_dark_page_is_dark_with_its_pictures(site: Path, tmp_path: Path) -> None:
    """An operator is woken at night: the site is as dark as the system, and so are the pictures in its pages."""
    with served(site) as url, open_page(tmp_path) as page:
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        page.open(f"{url}docs/reference/pictures.html")
        assert page.evaluate("document.body.dataset.mdColorScheme") == "slate"
        ink = page.evaluate("getComputedStyle(document.querySelector('figure text')).fill")
        assert min(map(int, re.findall(r"\d+", ink)[:3])) > 128, "a picture's letters are as dark as the page"


SELECTED = """(() => {
  const code = document.querySelectorAll("pre > code")[1];
  getSelection().selectAllChildren(code);
  code.toggleAttribute("data-md-copying", true);
  return [getSelection().toString(), code.innerText];
})()"""


@pytest.mark.browser
def test_a_copy_of_code_is_the_code(site: Path, tmp_path: Path) -> None:
    """Each line is an element of its own, so that it wraps; a copy has no empty lines."""
    with served(site) as url, open_page(tmp_path) as page:
        page.open(f"{url}docs/reference/klog-verify.html")
        copies = page.evaluate(SELECTED)
    assert [copy[:41] for copy in copies] == ["$ klog verify /data\nclean: 23 partitions, "[:41]] * 2


def _command_of(klog: Command, words: list[str]) -> Command:
    found = klog
    for word in words:
        found = next((child for child in found.children if child.words[-1] == word), found)
    return found


def test_the_questions_name_commands_and_options_that_exist() -> None:
    """The first thing that somebody in trouble copies."""
    commands = re.findall(r"\| `klog ([^`]+)` \|", (ROOT / "docs/questions.md").read_text(encoding="utf-8"))
    assert len(commands) >= 30
    unknown, klog = [], read()
    for command in commands:
        words = command.split()
        found = _command_of(klog, words[:2])
        options = {name for option in found.options for name in option.names}
        if not found.words or found.children or not {word for word in words if word.startswith("--")} <= options:
            unknown.append(command)
    assert unknown == []


def test_pictures_are_of_what_klog_said(site: Path) -> None:
    """A lookup ends in one batch; what the cleaner left is what its log has; three copies fork where they differ."""
    page = (site / "docs/reference/pictures.html").read_text(encoding="utf-8")
    lookup, compaction, replicas = re.findall(r"<figure .*?</figure>", page, re.DOTALL)
    assert "one of 5 segments" in lookup
    assert lookup.count(CHOSEN) == 3
    assert (compaction.count("<title>offset "), compaction.count(DIMMED)) == (220 + 114, 220 - 114)
    assert "alike up to offset 31" in replicas
    assert re.findall(r"if it leads, (\d+) lost", replicas) == ["26", "36", "44"]
    shown = {path.stem: path.read_text(encoding="utf-8") for path in (site / "docs/pictures").glob("*.svg")}
    for name, said in (("verify", "bad-crc"), ("recover", "torn-tail"), ("replicas", "diverged"), ("describe", "idem")):
        assert said in shown[f"terminal-{name}"]


def test_the_reference_has_every_command_and_every_option(site: Path) -> None:
    """Each command has a page, with its options under the headings that its help has."""
    for command in read().walk():
        if command.words and not command.children:
            page = (site / "docs/reference" / f"klog-{'-'.join(command.words)}.html").read_text(encoding="utf-8")
            names = [name for option in command.options for name in option.names]
            assert [name for name in names if f"<code>{name}</code>" not in page] == []
            headings = re.findall(r'<h[23] id="([^"]+)"', page)
            assert {"usage", "options", "every-command", "examples", "exit-codes"} <= set(headings)
            assert '<td data-label="Code">16</td>' in page
            assert not re.search(r"<td[^>]*>[^<]*repeatable[^<]*repeatable", page, re.IGNORECASE)
    select = page_part(site, "klog-replicas-plan", "select", "of-this-command")
    assert "--topic-id" in select
    assert "--choose" not in select


def page_part(site: Path, name: str, first: str, end: str) -> str:
    """Return a page of the reference between two headings."""
    page = (site / f"docs/reference/{name}.html").read_text(encoding="utf-8")
    return page.partition(f'<h3 id="{first}"')[2].partition(f'<h3 id="{end}"')[0]


def test_examples_of_the_reference_have_been_run(site: Path) -> None:
    """They show what a reader gets; of a command that needs a cluster or Spark they show the line alone."""
    shown = {
        path.stem: re.sub(r"<[^>]*>", "", path.read_text(encoding="utf-8"))
        for path in (site / "docs/reference").glob("klog-*.html")
    }
    assert "$ klog verify /data\nclean: 23 partitions, 48 segments, 578.3 KiB, 1235 batches" in shown["klog-verify"]
    assert re.search(r"\$ klog undo latest\nwould undo \S+ with \d+ changes?", shown["klog-undo"])
    assert "diverged" in shown["klog-replicas-diff"]
    assert {name for name, text in shown.items() if os.sep + "tmp" in text.partition("Exit codes")[0]} == set()


def test_the_comparison_has_the_figures_of_the_last_benchmark() -> None:
    """Each line has its row there, beside the same program, and names a job of the benchmark."""
    from bench.__main__ import JOBS

    results = max((ROOT / "bench/results").glob("*.md"))
    page = (ROOT / "docs/comparison.md").read_text()
    assert results.name in page
    rows = [row.split(" | ") for row in results.read_text().splitlines()]
    lines = re.findall(r'^\| (.+?) \| (.+?) \| ([\d.]+ ×).* \| `make bench ARGS="--only (.+)"` \|$', page, re.MULTILINE)
    assert len(lines) > 5
    for what, beside, figure, job in lines:
        assert job in JOBS
        found = [row for row in rows if row[0] == f"| {what}" and beside.split(",")[0] in row[1]]
        assert figure in {row[2] for row in found}, what
