"""Compares the output of `klog dump` with that of Kafka's dump tool.

If Kafka's tool lives: the same stdout and the same stderr, byte for byte.  If it dies of an exception: the same stdout
up to there, and one line on stderr in place of the stack trace.  The exit code is 4 wherever something is wrong.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tests.brokers.kafka import Dumped, DumpTool
from tests.conftest import Ran
from tests.support import goldens
from tests.support.counts import count

INVALID_BATCH = re.compile(rb"^(?:baseO|o)ffset: .* isvalid: false$", re.M)
BYTES_LEFT = re.compile(rb"^Found \d+ invalid bytes at the end of ", re.M)
COMPLAINTS = re.compile(
    rb"^(?:Mismatches in :|Found timestamp mismatch in :|Found out of order timestamp in :"
    rb"|The following indexed offsets are not found in :|Snapshot is corrupt|Snapshot failed schema)",
    re.M,
)
REPORT_LINES = re.compile(
    rb"^(?:Mismatches in :|Found timestamp mismatch in :|Found out of order timestamp in :"
    rb"|The following indexed offsets are not found in :|Indexed offset: |  Index |  -?\d+ is followed by "
    rb"|Non-consecutive offsets in |Ignoring unknown file ).*\n",
    re.M,
)
IGNORED = re.compile(rb"^Ignoring unknown file (?:.*/)?(.+)$", re.M)
# Files that the tool ignores although a broker wrote them; any other file is not Kafka's at all, which klog's exit code
# reports.
KAFKAS_OWN = re.compile(
    rb"\.kafka_cleanshutdown|\.lock|(?:leader-epoch-checkpoint|partition\.metadata|quorum-state|meta\.properties"
    rb"|(?:recovery-point-offset|replication-offset|log-start-offset|cleaner-offset)-checkpoint)(?:\.tmp)?"
    rb"|\d{20}(?:-\d{10})?\.(?:log|index|timeindex|txnindex|snapshot|checkpoint)\.(?:deleted|swap|cleaned|tmp)"
)
INDEXES = (".index", ".timeindex")


def problems(said: Dumped) -> bool:
    """Whether Kafka's tool found anything wrong: then klog's exit code is 4 (the tool's own is 0 unless it dies)."""
    wrong = INVALID_BATCH.search(said.stdout) or BYTES_LEFT.search(said.stdout) or COMPLAINTS.search(said.stderr)
    return bool(said.died or wrong)


def difference(said: Dumped, ran: Ran) -> str:
    """Return how klog differs from Kafka's tool about one file, empty if it does not."""
    if said.stdout != ran.stdout:
        return "stdout: " + first_difference(said.stdout, ran.stdout)
    if not said.died and said.stderr != ran.stderr:
        return "stderr: " + first_difference(said.stderr, ran.stderr)
    if said.died:
        lines = REPORT_LINES.sub(b"", ran.stderr).splitlines()
        if len(lines) != 1 or not lines[0].strip() or b"Traceback" in lines[0]:
            return f"Kafka died of {said.died}; klog's stderr is not one line: {ran.stderr[:600]!r}"
    foreign = any(not KAFKAS_OWN.fullmatch(name) for name in IGNORED.findall(said.stderr))
    wanted = (4 if problems(said) else 0) + (8 if foreign else 0)
    return "" if ran.exit_code == wanted else f"exit {ran.exit_code}, wanted {wanted}; Kafka died: {said.died or 'no'}"


def first_difference(kafka: bytes, klog: bytes) -> str:
    """Return the first line in which two outputs differ, with the rest."""
    ours, theirs = klog.splitlines(keepends=True), kafka.splitlines(keepends=True)
    same = 0
    while same < min(len(ours), len(theirs)) and ours[same] == theirs[same]:
        same += 1
    shown = [(b"".join(lines[same : same + 2])[:700] if same < len(lines) else b"(end)") for lines in (theirs, ours)]
    return f"line {same + 1}\n    Kafka: {shown[0]!r}\n    klog:  {shown[1]!r}"


def siblings(path: Path) -> list[Path]:
    """Return the files that the dump tool opens for *path*, or may change: for an index also the log and its index."""
    if path.suffix not in INDEXES:
        return [path]
    stem = path.name.split(".")[0]
    return [path, path.with_name(f"{stem}.log"), path.with_name(f"{stem}.index")]


def state(paths: Iterable[Path]) -> dict[Path, bytes | None]:
    """Return each file's content, None for one that is not there."""
    return {path: path.read_bytes() if path.is_file() else None for path in paths}


def restore(before: dict[Path, bytes | None]) -> None:
    """Undo what Kafka's tool did to files: it creates indexes that are missing and trims ragged ones."""
    for path, content in before.items():
        if content is None:
            path.unlink(missing_ok=True)
        elif not path.is_file() or path.stat().st_size != len(content) or path.read_bytes() != content:
            path.write_bytes(content)


def both(
    tool: DumpTool, klog: Callable[..., Ran], files: list[Path], flags: tuple[str, ...], *, plain: bool = False
) -> tuple[Dumped, Ran]:
    """Ask klog, then Kafka, about the same *files*; klog must not have changed anything, Kafka's changes are undone."""
    before = state(path for file in files for path in siblings(file))
    names = [str(file) for file in files]
    ran = klog("dump", *names, *flags) if plain else klog("dump", "--files", ",".join(names), *flags)
    after = state(before)
    assert after == before, f"klog dump changed a file: {[str(p) for p in before if before[p] != after[p]]}"
    said = tool.run("--files", ",".join(names), *flags)
    restore(before)
    return said, ran


def flag_sets(path: Path) -> Iterator[tuple[str, ...]]:
    """Yield every set of flags to try on *path*: those of the goldens, and limits around the end of the first batch."""
    yield from goldens.flag_sets(str(path)).values()
    if path.suffix in (".log", ".checkpoint") and path.stat().st_size > 17:
        with open(path, "rb") as file:
            first = 12 + int.from_bytes(file.read(12)[8:], "big", signed=True)
        if 17 < first < path.stat().st_size:
            for limit in (first - 1, first, first + 1, path.stat().st_size):
                yield ("--deep-iteration", "--max-bytes", str(limit))


class Comparison:
    """Compares file after file and keeps count; repeated files, name and content, are skipped."""

    def __init__(self, tool: DumpTool, klog: Callable[..., Ran]) -> None:
        self.tool, self.klog = tool, klog
        self.seen: set[bytes] = set()
        self.runs = 0
        self.differences: list[str] = []

    def _is_new(self, path: Path, topic: str) -> bool:
        digest = hashlib.sha256(f"{topic}/{path.name}".encode())
        for sibling in siblings(path):
            content = sibling.read_bytes() if sibling.is_file() else None
            digest.update(b"-" if content is None else hashlib.sha256(content).digest())
        known = digest.digest() in self.seen
        self.seen.add(digest.digest())
        return not known

    def file(self, path: Path, flag_sets_of: Callable[[Path], Iterable[tuple[str, ...]]] = flag_sets) -> None:
        """Compare one file under every set of flags."""
        topic = os.path.basename(path.parent).rpartition("-")[0]
        if self._is_new(path, topic if topic in goldens.DECODERS else ""):
            for flags in flag_sets_of(path):
                self.once([path], flags)

    def once(self, files: list[Path], flags: tuple[str, ...]) -> None:
        """Compare one call.  With several files a tool that dies leaves the later ones out; klog continues with
        them."""
        said, ran = both(self.tool, self.klog, files, flags)
        self.runs += 1
        count("outputs of dump held against Kafka's tool")
        if said.died and len(files) > 1:
            same = ran.stdout.startswith(said.stdout) and ran.exit_code == 4
            found = "" if same else f"(Kafka died, exit {ran.exit_code}) " + first_difference(said.stdout, ran.stdout)
        else:
            found = difference(said, ran)
        if found:
            self.differences.append(f"{' '.join(map(str, files[:3]))} {' '.join(flags)}\n  {found}")

    def tree(self, root: Path) -> None:
        """Compare every file below *root*, alone and all files of a directory in one call."""
        for folder in sorted({path.parent for path in root.rglob("*") if path.is_file()}):
            files = sorted(path for path in folder.iterdir() if path.is_file())
            for path in files:
                self.file(path)
            if len(files) > 1:
                self.once(files, ("--deep-iteration",))

    def report(self, shown: int = 15) -> str:
        listed = "\n".join(self.differences[:shown])
        return f"{len(self.differences)} of {self.runs} runs differ:\n{listed}"
