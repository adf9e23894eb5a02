"""Fixtures: the command line as a function and as a process, fixture data, the corpora, real Kafka.

Three kinds of tests need more than a clone: `corpora` (the full image collection, KLOG_CORPORA or ../shared/corpora),
`kafka` (Java 17 and Maven) and `spark` (Java 17).  They are skipped, loudly, if that is missing, and fail when CI=true:
a build that did not compare with Kafka must not look like one that did.
"""

from __future__ import annotations

import fcntl
import functools
import gc
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.brokers import kafka
from tests.support import counts, deadline, examples, memory, slowest, workers

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "fixtures"
CORPORA = Path(os.environ.get("KLOG_CORPORA", ROOT.parent / "shared" / "corpora"))
ON_CI = os.environ.get("CI", "").lower() in ("1", "true")
NO_CORPORA, NO_KAFKA, NO_SPARK, NO_CGROUP = "no corpora", "no real Kafka", "no Spark", "no memory cgroup"


# tests that cannot run here, with a note that they did not


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(counts)
    config.pluginmanager.register(deadline)
    config.pluginmanager.register(memory)
    config.pluginmanager.register(slowest)
    config.pluginmanager.register(slowest.ProcessorTime())
    config.pluginmanager.register(workers)
    examples.settings.load_profile(examples.DEFAULT)
    gc.disable()  # thousands of tests are collected, and none of them is garbage
    # A selection by another marker does not mean to run for hours.
    selected: str = config.option.markexpr
    for marker in ("long", "release"):
        if marker not in selected:
            expression = config.option.markexpr
            config.option.markexpr = f"({expression}) and not {marker}" if expression else f"not {marker}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Exempt the collected tests from garbage collection: each of a thousand collections would look through all of
    them."""
    gc.freeze()
    gc.enable()


def _lacking(item: pytest.Item) -> str:
    if item.get_closest_marker("corpora") and not (CORPORA / "manifest.json").exists():
        return f"{NO_CORPORA} in {CORPORA} (set KLOG_CORPORA)"
    if item.get_closest_marker("kafka") and kafka.missing():
        return f"{NO_KAFKA}: {kafka.missing()}"
    if item.get_closest_marker("spark") and shutil.which("java") is None:
        return f"{NO_SPARK}: java not found"
    return ""


def pytest_runtest_setup(item: pytest.Item) -> None:
    lacking = _lacking(item)
    if lacking and ON_CI:
        pytest.fail(f"CI=true, and {lacking}", pytrace=False)
    if lacking:
        pytest.skip(lacking)
    if item.get_closest_marker("spark"):
        from tests.spark import class_data

        class_data.map_classes()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = (report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.stats.get("skipped", ()))
    lacking = Counter(reason for reason in skipped if reason.startswith((NO_CORPORA, NO_KAFKA, NO_SPARK, NO_CGROUP)))
    for reason, count in lacking.items():
        terminalreporter.write_line(f"NOT RUN: {count} tests: {reason}", red=True, bold=True)


@pytest.fixture(scope="session", autouse=True)
def _notes_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Notes about plans, which klog leaves in the home of whoever repairs, go where tests leave things."""
    state = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(state))
        yield state


# the command line


@dataclass(frozen=True)
class Ran:
    """The result of one run of the command line."""

    stdout: bytes
    stderr: bytes
    exit_code: int

    @property
    def backup(self) -> str:
        """The backup that a change names."""
        return self.stdout.decode().rpartition("backup: ")[2].partition("\n")[0]


@contextmanager
def _captured() -> Iterator[dict[int, int]]:
    """Send descriptors 1 and 2, and sys.stdout and sys.stderr with them, to files; yields the files to read from."""
    sys.stdout.flush()
    sys.stderr.flush()
    before = sys.stdout, sys.stderr
    saved = {number: os.dup(number) for number in (1, 2)}
    files = {number: tempfile.TemporaryFile() for number in (1, 2)}  # noqa: SIM115
    try:
        for number in (1, 2):
            os.dup2(files[number].fileno(), number)
        sys.stdout, sys.stderr = (text_stream(number) for number in (1, 2))
        yield {number: file.fileno() for number, file in files.items()}
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(ValueError):  # the command closed it
                stream.flush()
        sys.stdout, sys.stderr = before
        for number in (1, 2):
            os.dup2(saved[number], number)
            os.close(saved[number])
            files[number].close()


def text_stream(number: int) -> io.TextIOWrapper:
    raw = open(number, "wb", closefd=False)  # noqa: SIM115
    return io.TextIOWrapper(raw, encoding="utf-8", errors="surrogateescape", write_through=number == 2)


def _read(number: int) -> bytes:
    return os.pread(number, os.fstat(number).st_size, 0)


@functools.cache
def klog_main() -> Callable[[], int]:
    """Return the command line's main, its commands built once: that is four fifths of a short run."""
    import typer
    from klog.log import arrow
    from klog_cli import app, command_tree

    command_tree.build = functools.cache(command_tree.build)
    # A command line ends soon and spares the collector; garbage of thousands of them would be gigabytes.
    command_tree._spare_the_collector = gc.enable
    typer.main.get_command = functools.cache(typer.main.get_command)
    arrow.make_pyarrow_small = lambda: None  # this process is not klog's alone: other tests need numpy
    return app.main


def run_klog(*arguments: str | os.PathLike[str]) -> Ran:
    """Run the command line inside this process: some milliseconds instead of a tenth of a second."""
    main = klog_main()
    given = sys.argv
    code: object = None
    with _captured() as files:
        sys.argv = ["klog", *map(os.fspath, arguments)]
        try:
            code = main()
        except SystemExit as left:
            code = left.code
        finally:
            sys.argv = given
            sys.stdout.flush()
            sys.stderr.flush()
        stdout, stderr = _read(files[1]), _read(files[2])
    assert code is None or isinstance(code, int), f"klog left with {code!r}"
    return Ran(stdout, stderr, code or 0)


def run_klog_process(*arguments: str | os.PathLike[str], cwd: Path | None = None, stdin: bytes = b"") -> Ran:
    """Run the command line as operators do: in a process of its own, into pipes."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", "klog_cli.app", *map(os.fspath, arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True, cwd=cwd, env=environment, check=False, timeout=300)
    return Ran(done.stdout, done.stderr, done.returncode)


@pytest.fixture
def klog() -> Callable[..., Ran]:
    return run_klog


@pytest.fixture
def klog_process() -> Callable[..., Ran]:
    return run_klog_process


@pytest.fixture
def state_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The place of this test's own notes about plans."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def other_file_system(path: Path) -> Path:
    """Return a directory on another file system than *path*'s: one is in memory, one is on a disk."""
    places = (Path(place) for place in ("/dev/shm", "/var/tmp", "/tmp", ROOT))
    here = path.stat().st_dev
    found = next((each for each in places if each.is_dir() and each.stat().st_dev != here), None)
    assert found, "this test needs two file systems"
    return found


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A directory on another file system than `tmp_path`, which every user may enter."""
    folder = Path(tempfile.mkdtemp(dir=other_file_system(tmp_path)))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch, state_home: Path) -> None:
    """Commands wait for no disk: the power stays on."""
    from klog.change.plan import session

    from tests.support.power import HastyDisk

    monkeypatch.setattr(session, "Disk", HastyDisk)


# data


@pytest.fixture(scope="session")
def corpora() -> Path:
    """The root of the corpora; for tests marked `corpora`."""
    return CORPORA


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """Yield a function that unpacks an archive of the corpora (`crash/v4.3.1-kill/before.tar.gz`), once a session.

    Modification times are the archive's.  The result is shared, between workers too: tests that change files copy it
    first, and a test that forgets it is found at the end.
    """
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "images"
    shared.mkdir(exist_ok=True)
    unpacked: dict[Path, dict[str, tuple[int, int]]] = {}

    def unpack(name: str) -> Path:
        target = shared / name.split(".tar")[0].replace("/", "-")
        with open(f"{target}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.exists():
                fresh = Path(tempfile.mkdtemp(dir=shared))
                extract(CORPORA / name, fresh)
                unpacked[target] = stat_files(fresh)
                fresh.rename(target)
        return target

    yield functools.cache(unpack)
    for target, before in unpacked.items():
        changed = dict(stat_files(target).items() ^ before.items())
        assert not changed, f"a test changed the shared {target.name}: {sorted(changed)[:10]}"


def stat_files(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and modification time in ns of each file below *folder*, by relative path."""
    found = {str(path.relative_to(folder)): path.lstat() for path in folder.rglob("*") if not path.is_dir()}
    return {name: (status.st_size, status.st_mtime_ns) for name, status in found.items()}


def extract(archive: Path, target: Path) -> None:
    """Unpack *archive* with its modification times."""
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(target, filter="data")
        else:
            tar.extractall(target)


def writable_copy(source: Path, target: Path) -> Path:
    """Copy a tree that may be read-only into one that tests may change; modification times of files carry over."""
    for folder, _, names in os.walk(source):
        inside = os.path.join(target, os.path.relpath(folder, source))
        os.makedirs(inside, exist_ok=True)
        for name in names:
            copy = shutil.copyfile(os.path.join(folder, name), os.path.join(inside, name))
            status = os.stat(os.path.join(folder, name))
            os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
            os.chmod(copy, 0o644)
    return target


@pytest.fixture(scope="session")
def dump_tool() -> Iterator[kafka.DumpTool]:
    """Kafka 4.3.1's dump tool in one JVM; for tests marked `kafka`."""
    with kafka.DumpTool() as tool:
        yield tool
