"""README.md and docs/ tell the truth: each command in a console block is run in fixtures/ and its output compared.

A line `…` stands for any lines, a `…` at a line's end for the rest of that line.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, contextmanager, redirect_stdout
from pathlib import Path

import pytest

from tests.conftest import FIXTURES, ROOT, run_klog, writable_copy
from tests.test_layers import FLOOR

SERVING = ("docs/serve.md",)
PORT = "29092"
"""The port of `klog serve` on the pages; here it is another, which is free."""


WRITTEN = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md"))
)
"""Every page of text that people read."""
FROM_CORPORA = {
    "docs/audit.md": {"b1": "misrouted/hand-1.tar.xz", "b2": "misrouted/hand-2.tar.xz"},
    "docs/remote.md": {
        **{
            name: f"tiered/{name}/before.tar.xz"
            for name in ("house", "damaged", "orphans", "unclean", "aiven-encrypted", "lost-cluster")
        },
        "fresh": "tiered/lost-cluster/fresh.tar.xz",
    },
}
"""Pages whose commands are run over images of the corpora, and how these are named there."""
PAGES = [
    page
    for page in WRITTEN
    if page not in FROM_CORPORA and "\n```console\n" in (ROOT / page).read_text(encoding="utf-8")
]
"""Those with commands that are run in fixtures/."""
DECISIONS = [page for page in WRITTEN if re.fullmatch(r"docs/decisions/\d{3}-.*\.md", page)]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def blocks(page: str, kind: str) -> Iterator[str]:
    """Yield the fenced blocks of *kind* in *page*."""
    text = (ROOT / page).read_text(encoding="utf-8")
    yield from re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def shown(pages: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield page, command and expected output of each command that *pages* show."""
    for page in pages:
        for block in blocks(page, "console"):
            for part in block.split("$ ")[1:]:
                command, _, expected = part.partition("\n")
                yield page, command, expected


def commands(pages: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return those that end by themselves."""
    return [one for one in shown(pages) if not one[1].endswith(" &")]


def servings() -> list[tuple[str, str, str]]:
    """Return those that serve until they are ended."""
    return [one for one in shown(SERVING) if one[1].endswith(" &")]


def pattern(expected: str) -> str:
    """Return the regular expression for *expected*."""
    lines = expected.splitlines()
    return "".join(r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + r"\n" for line in lines)


def text_of(page: str) -> str:
    """Return *page* without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: str) -> set[str]:
    """Return the anchors that GitHub makes of the headings of *page*."""
    headings = re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", WRITTEN)
def test_every_link_leads_somewhere(page: str) -> None:
    """To a file of this repository, and to a heading in it where the link names one."""
    broken = []
    for link in LINK.findall(text_of(page)):
        if link.startswith(("https://", "http://")):
            continue
        file, _, anchor = link.partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(page), file)) if file else page
        if not (ROOT / target).exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_every_page_of_docs_is_linked_from_the_readme() -> None:
    """A page that nothing leads to is not read."""
    linked = set(LINK.findall((ROOT / "README.md").read_text(encoding="utf-8")))
    pages = [page for page in WRITTEN if page.startswith("docs/") and page not in DECISIONS]
    assert [page for page in pages if page not in linked] == []


@pytest.mark.parametrize("page", DECISIONS)
def test_a_decision_has_alternatives_and_reasons_to_reconsider(page: str) -> None:
    """Without these, it is unknown whether a decision still holds."""
    parts = re.split(r"^## (.*)$", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert parts[1::2] == ["Decision", "Left out", "Reasons to reconsider"]
    assert all(part.strip() for part in parts[2::2])


def test_the_index_of_decisions_is_complete() -> None:
    """Each with its number and its title, in order."""
    titles = [(ROOT / page).read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ") for page in DECISIONS]
    rows = [f"| {page[15:18]} | [{title}]({page[15:]}) |" for page, title in zip(DECISIONS, titles, strict=True)]
    index = (ROOT / "docs/decisions/README.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in index if re.match(r"\| \d", line)] == rows
    assert [row[2:5] for row in rows] == [f"{number:03}" for number in range(1, len(rows) + 1)]


def test_contributing_shows_the_floors_and_what_is_on_them() -> None:
    """From the top down: that picture is where a newcomer looks for the place of a thing."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    floors = re.findall(r"^(\w+)/ {2,}(.*(?:\n {14}.*)*)$", text, re.MULTILINE)
    library = [name for name in FLOOR if (ROOT / "core" / "klog" / name).exists()]
    assert [name for name, _ in floors] == library[::-1]
    for name in ("cluster", "commands", "partition"):
        packages = [path.name for path in (ROOT / "core/klog" / name).iterdir() if any(path.glob("*.py"))]
        said = dict(floors)[name].replace(";", " ").split()
        assert set(packages) <= set(said), name


def test_the_modules_on_the_walks_exist() -> None:
    """A page that names modules which were renamed leads a newcomer astray."""
    named = set(re.findall(r"`(klog(?:_cli)?(?:\.\w+)+)`", (ROOT / "docs/walks.md").read_text(encoding="utf-8")))
    assert len(named) > 30
    places = [ROOT / ("cli" if name.startswith("klog_cli") else "core") / name.replace(".", "/") for name in named]
    assert [str(place) for place in places if not place.is_dir() and not place.with_suffix(".py").exists()] == []


@pytest.fixture
def path_with_klog(tmp_path: Path) -> str:
    """A PATH on which `klog` is this checkout's and `python` is the one that runs the tests."""
    (tmp_path / "bin").mkdir()
    source = os.pathsep.join(path for path in sys.path if path)
    for name, rest in (("klog", '-m klog_cli.app "$@"'), ("python", '"$@"')):
        script = tmp_path / "bin" / name
        script.write_text(f"#!/bin/sh\nPYTHONPATH={shlex.quote(source)} exec {shlex.quote(sys.executable)} {rest}\n")
        script.chmod(0o755)
    return f"{tmp_path / 'bin'}:{os.environ['PATH']}"


@pytest.mark.parametrize(("page", "command", "expected"), commands(PAGES))
def test_what_a_page_shows_is_what_comes_out(
    page: str, command: str, expected: str, path_with_klog: str, tmp_path: Path
) -> None:
    """Readers copy these lines; one that no longer holds costs them the trust in all others."""
    # Commands write under /tmp; each test has a place of its own, but a page's commands build on each other.
    (tmp_path.parent / "docs").mkdir(exist_ok=True)
    command, expected = (text.replace("/tmp/", f"{tmp_path.parent}/docs/") for text in (command, expected))
    compare(page, command, expected, path_with_klog, FIXTURES)


@pytest.mark.corpora
@pytest.mark.parametrize(("page", "command", "expected"), commands(list(FROM_CORPORA)))
def test_what_a_page_shows_of_the_corpora_is_what_comes_out(
    page: str, command: str, expected: str, path_with_klog: str, tmp_path: Path, image: Callable[[str], Path]
) -> None:
    """The same, in a directory with the disks that the page names."""
    for name, archive in FROM_CORPORA[page].items():
        (tmp_path / name).symlink_to(image(archive))
    compare(page, command, expected, path_with_klog, tmp_path)


def compare(page: str, command: str, expected: str, path: str, cwd: Path) -> None:
    """Run a command that *page* shows, and see it print what the page says."""
    if command.startswith("klog ") and not re.search(r"[^\w\s\"'/.,:=@%+-]", command):  # nothing for a shell
        with chdir(cwd):
            ran = run_klog(*shlex.split(command)[1:])
        said, errors = ran.stdout.decode(), ran.stderr.decode()
    else:
        environment = {**os.environ, "PATH": path}
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=cwd, env=environment)
        said, errors = done.stdout, done.stderr
    assert re.fullmatch(pattern(expected), said), f"{page}: {command}\n{said}{errors}"


def test_every_page_with_commands_is_among_them() -> None:
    """Else a page whose blocks are written in another way would show whatever it likes."""
    fenced = re.compile(r"^ *```(?:console|shell-session)\b", re.MULTILINE)
    found = {page for page in WRITTEN if fenced.search((ROOT / page).read_text(encoding="utf-8"))}
    assert found == {page for page, _, _ in (*shown(PAGES), *shown(list(FROM_CORPORA)))}
    assert {page for page, _, _ in servings()} == {page for page, command, _ in shown(PAGES) if command.endswith(" &")}


@contextmanager
def served(command: str, expected: str, path: str) -> Iterator[str]:
    """Run a command that a page shows with ` &`, see it say what the page says, and give the port it listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    given = ["bash", "-c", "exec " + command.removesuffix(" &").replace(PORT, port)]
    environment = {**os.environ, "PATH": path}
    with subprocess.Popen(given, stderr=subprocess.PIPE, text=True, cwd=FIXTURES, env=environment) as process:
        try:
            assert process.stderr is not None
            said = "".join(process.stderr.readline() for _ in expected.splitlines())
            assert re.fullmatch(pattern(expected.replace(PORT, port)), said), said
            yield port
        finally:
            process.terminate()


@pytest.mark.parametrize(("page", "command", "expected"), servings())
def test_the_reader_of_what_is_served_runs(
    page: str, command: str, expected: str, path_with_klog: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An operator copies two things: what serves, and what reads."""
    (example,) = (block for block in blocks(page, "python") if "KafkaConsumer" in block)
    with served(command, expected, path_with_klog) as port:
        exec(compile(example.replace(PORT, port), page, "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 274
    assert printed[42].startswith("42 1750000000420 b'librdkafka-8' b'{")


def test_the_library_example_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The first thing that a programmer tries."""
    (example,) = (block for block in blocks("docs/library.md", "python") if block.startswith("import klog\n"))
    monkeypatch.chdir(FIXTURES)
    exec(compile(example, "docs/library.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("0 1750000000200 b'librdkafka-3' b'{")
    assert printed[-1] == "zstd 0 274"
    assert len(printed) == 113 + 23


def demo(readme: str, path: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run tools/demo.sh in *folder*, beside a README."""
    for name in (".venv", "tools", "fixtures"):
        (folder / name).mkdir()
    (folder / ".venv/bin").symlink_to(path.partition(":")[0])
    shutil.copy(ROOT / "tools/demo.sh", folder / "tools")
    for name in ("modern", "crash"):
        writable_copy(FIXTURES / name, folder / "fixtures" / name)
    (folder / "README.md").write_text(readme, encoding="utf-8")
    return subprocess.run([folder / "tools/demo.sh"], capture_output=True, text=True, cwd=folder, check=False)


def test_the_demo_is_the_tour_of_the_readme(path_with_klog: str, tmp_path: Path) -> None:
    """`make demo` runs the five commands under their headings, over the same data."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    done = demo(readme, path_with_klog, tmp_path)
    assert (done.returncode, "not expected" in done.stderr) == (0, False), done.stderr
    headings = re.findall("^# (.+)$", done.stdout, re.MULTILINE)
    assert len(headings) == 5
    assert [heading for heading in headings if f"\n**{heading}** " not in readme] == []
    typed = [command.partition(" | ")[0].replace("/tmp/", "../build/demo/") for _, command, _ in shown(["README.md"])]
    ran = re.findall(r"^\$ (.+)$", done.stdout, re.MULTILINE)
    assert ran[:-1] == typed
    commands = [command.split()[1] for command in ran if command.startswith("klog ")]
    assert list(dict.fromkeys(commands)) == ["doctor", "verify", "recover", "records", "report"]
    assert (tmp_path / "build/demo/page.html").stat().st_size > 100_000


def test_the_demo_fails_if_a_command_does(path_with_klog: str, tmp_path: Path) -> None:
    """It does not show an error as if that were the tour."""
    done = demo("## Five commands\n$ klog verify /tmp/none | tail -1\n## Commands\n", path_with_klog, tmp_path)
    assert done.returncode == 1
    assert "** klog verify ../build/demo/none: not expected" in done.stderr


def test_the_examples_with_duckdb_and_pandas_run(path_with_klog: str, tmp_path: Path) -> None:
    """From the export to the new log dir, each step with the files of the one before."""
    page = "docs/duckdb.md"
    text = (ROOT / page).read_text(encoding="utf-8").replace("/tmp/", f"{tmp_path}/")
    found, names, printed = [], {}, ""
    for kind, block in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        found.append(kind)
        if kind == "console":
            command, _, expected = block.removeprefix("$ ").partition("\n")
            compare(page, command, expected, path_with_klog, FIXTURES)
        elif kind == "python":
            with redirect_stdout(io.StringIO()) as out:
                exec(compile(block, page, "exec"), names)
            printed = re.sub(" +$", "", out.getvalue(), flags=re.MULTILINE).rstrip("\n") + "\n"
        elif kind == "text":
            assert printed == block
        else:
            compare(page, block, "wrote 2 records …\nplain-1  2 records, …\n…\n", path_with_klog, FIXTURES)
    assert found == ["console", *["python", "text"] * 5, "python", "bash"]
    assert (tmp_path / "selected/plain-1").is_dir()


@pytest.mark.spark
def test_the_example_on_spark_runs(path_with_klog: str) -> None:
    """A user with a directory and a laptop tries this: only the answer is printed."""
    (example,) = (block for block in blocks("docs/spark.md", "python") if "createOrReplaceTempView" in block)
    command = ["python", "-c", example]
    plain = (name for name in os.environ if not name.startswith(("SPARK", "PYSPARK")) or name == "SPARK_SUBMIT_OPTS")
    environment = {name: os.environ[name] for name in plain} | {"PATH": path_with_klog}
    done = subprocess.run(command, capture_output=True, text=True, cwd=FIXTURES, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^\| +zstd\| +274\| +273\|$", done.stdout, re.MULTILINE)


def test_the_repair_from_python_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who copies it repairs real data: it has to lock, to keep the originals, and to take them back."""
    (example,) = (block for block in blocks("docs/library.md", "python") if "PlanSession" in block)
    data = writable_copy(FIXTURES / "crash/torn-in-batch", tmp_path / "data")
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "docs/library.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("torn 0 ")
    assert printed[1].endswith(f"changes, the originals are in {printed[1].rpartition(' ')[2]}")
    assert (Path(printed[1].rpartition(" ")[2]) / "plan.json").exists()
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before
