"""The records that a repair keeps of a damaged log dir, seen by a decoder of its own, and those that it has to keep."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from tests.commands.recover.like_broker import IDENTITY, options_of, recover
from tests.conftest import Ran, run_klog
from tests.oracles.broker_load import Loader, differences
from tests.oracles.plain.decode import Batch, scan
from tests.support.damage import Case
from tests.support.power import tree

MOST_OFFSETS = 2**31 - 1
UNMENDABLE = {"offset-gap", "offsets-missing", "sequence-gap"}
"""Missing data of which there is no other copy."""
INSIDE = {"bad-record", "bad-compression"}
"""Only decompressing shows these: a batch is kept whole, with its checksum, as brokers and followers do."""
ODD = {"offsets-backwards", "odd-offset", "odd-epoch", "offset-overflow", "segments-overlap", "bad-counts"}
"""The reason for salvage to leave out a batch whose checksum matches: its header is impossible."""


class Intact(NamedTuple):
    """A batch whose checksum holds."""

    first: int
    last: int
    crc: int
    size: int


def intact(log: bytes, base: int) -> list[Intact]:
    """Return the batches of a segment whose checksums hold, in their order, behind damage as well."""
    found = scan(log, offsets=range(base, base + MOST_OFFSETS + 1))
    return [Intact(_first(one), one.last_offset, one.crc, one.size) for one in found if isinstance(one, Batch)]


def _first(batch: Batch) -> int:
    return batch.records[0].offset if batch.magic < 2 and batch.records else batch.base_offset


def batches_of(partition: Path, pattern: str = "*.log*") -> list[Intact]:
    """Return the intact batches of all logs of a partition, those of leftovers too unless *pattern* excludes them."""
    logs = sorted(partition.glob(pattern))
    return [one for log in logs for one in intact(log.read_bytes(), int(log.name.split(".")[0]))]


def has_leftovers(partition: Path) -> bool:
    """Whether an operation was interrupted: then not every log that is there is of the partition's log."""
    return any(path.suffix in (".swap", ".cleaned", ".deleted") for path in partition.iterdir())


def missing(before: Iterable[Intact], after: Iterable[Intact]) -> list[Intact]:
    """Return the batches that are no longer there; one whose offset was put right counts as there."""
    there, gone = Counter(after), []
    for one in before:
        if there[one]:
            there[one] -= 1
        else:
            gone.append(one)
    moved = Counter((one.crc, one.size) for one in there.elements())
    found = []
    for one in gone:
        if moved[one.crc, one.size]:
            moved[one.crc, one.size] -= 1
        else:
            found.append(one)
    return found


class Repaired:
    """A case of random damage after a repair in the default mode or by salvage, and the laws for it."""

    def __init__(self, case: Case, folder: Path, *mode: str) -> None:
        self._case, self._folder = case, folder
        self._is_salvage = "--salvage" in mode
        self._options = (*mode, *options_of(case.settings))
        self.before, self.ours = folder / "before", folder / "ours"
        case.make(self.before)
        shutil.copytree(self.before, self.ours)
        self._whole = tree(self.ours)
        _, self.said = recover(self.ours, *self._options, now_ms=case.now_ms)
        self._refused = {one["directory"] for one in self.said["partitions"] if one["reason"]}
        names = sorted(path.name for path in self.before.iterdir() if path.is_dir())
        self._partitions = [name for name in names if not _is_left_alone(name)]

    def wrong(self, loader: Loader) -> Iterator[str]:
        """Yield what does not hold."""
        yield from self._left()
        for one in self.said["lost"]:
            first, last = one["first_offset"], one["last_offset"]
            if last is not None and not (first is not None and first <= last):
                yield f"lost are offsets {first} to {last}"
        again = _json(run_klog("recover", self.ours, *self._options, f"--now={self._case.now_ms}", "--output=json"))
        yield from (f"a second run would {one['do']} {one['file']}" for one in again["actions"])
        for name in self._partitions:
            yield from (f"{name}: {line}" for line in self._lost(name))
        yield from self._loaded(loader)
        if self.said["actions"]:
            assert run_klog("undo", self.said["backup"], "--apply").exit_code == 0
        if tree(self.ours) != self._whole:
            yield "undo does not restore what was there"

    def _left(self) -> Iterator[str]:
        """The findings of verify are those that were announced; a staged file has its name by now."""
        found = _json(run_klog("verify", "--deep", self.ours, "--output=json"))["findings"]
        told = {(one["id"], one["file"].removesuffix(".swap")) for one in self.said["left"]}
        problems = {(one["id"], one["file"]) for one in found if one["severity"] != "note"}
        problems = {one for one in problems if one[0] not in UNMENDABLE | INSIDE and not _is_left_alone(one[1])}
        if problems != told:
            yield f"not said to be left: {sorted(problems - told)}; not left: {sorted(told - problems)}"

    def _lost(self, name: str) -> Iterator[str]:
        """Every intact batch is there; salvage may leave out repeated ones, or those with impossible headers."""
        before, after = batches_of(self.before / name), batches_of(self.ours / name)
        for one in missing(after, before):
            # Its format version, which is before the checksum, has been repaired.
            if not (self._is_salvage and any(_body(self.ours / name, one) in log for log in _logs(self.before / name))):
                yield f"{one} came from nowhere"
        if self._is_salvage and name not in self._refused:
            order = batches_of(self.ours / name, "*.log")
            yield from (f"{two} behind {one}" for one, two in pairwise(order) if two.first <= one.last)
        if has_leftovers(self.before / name):
            return
        cuts = list(self._cut_out(name)) if self._is_salvage else []
        told = [one["reason"] for one in self.said["lost"] if f"{one['topic']}-{one['partition']}" == name]
        for one in missing(before, after):
            of = [said for said, batches in cuts if one in batches]
            is_odd = any(said["reason"] in ODD and said["reason"] in told and not _fits(one, said) for said in of)
            if not (is_odd or (of and one in after)):
                yield f"{one} is lost"

    def _cut_out(self, name: str) -> Iterator[tuple[dict[str, Any], list[Intact]]]:
        """Yield the saved parts of a partition after salvage: the description, and the intact batches."""
        place = Path(self.said.get("backup") or self._folder) / "lost+found" / name
        for sidecar in sorted(place.glob("*.json")):
            yield json.loads(sidecar.read_bytes()), intact(sidecar.with_suffix("").read_bytes(), 0)

    def _loaded(self, loader: Loader) -> Iterator[str]:
        """Kafka completes an unclean start, and leaves every byte of the logs; except for announced leftovers."""
        ours, theirs = self._folder / "there", self._folder / "loaded"
        shutil.copytree(self.ours, theirs)
        left = {str(one["file"]).split("/")[0] for one in self.said["left"]} | self._refused
        for path in [path for path in theirs.iterdir() if path.is_dir()]:
            if path.name in left or path.name not in self._partitions:
                shutil.rmtree(path)
            elif not (path / IDENTITY).exists():
                (path / IDENTITY).write_text("version: 0\ntopic_id: " + "A" * 21 + "Q")
        shutil.copytree(theirs, ours)
        outcome = loader.load(theirs, self._case.settings, now_ms=self._case.now_ms)
        if not outcome.ok:
            yield f"Kafka does not come through: {outcome}"
            return
        for line in differences(ours, theirs):
            name = line.split(":")[0]
            # A partition that has lost all of its logs gets an empty one.
            is_new = not (ours / name).exists() and (theirs / name).stat().st_size == 0
            if name.endswith(".log") and not is_new:
                yield f"Kafka changes {line}"


def _is_left_alone(name: str) -> bool:
    """Whether a file or a partition is of one that was being deleted, or had been set aside."""
    return name.split("/")[0].endswith(("-delete", "-stray"))


def _logs(partition: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(partition.glob("*.log*"))]


def _body(partition: Path, one: Intact) -> bytes:
    """Return the bytes of a batch from its checksum on."""
    crc = one.crc.to_bytes(4, "big")
    return next(log[at : at + one.size - 17] for log in _logs(partition) if (at := log.find(crc)) >= 0)


def _fits(one: Intact, cut: dict[str, Any]) -> bool:
    """Whether a batch that was cut out has its place by its offsets, so that only its epoch or counts can be odd."""
    if cut["reason"] not in ("offsets-backwards", "odd-offset"):
        return False
    before, after = cut["last_offset_before"], cut["first_offset_after"]
    return (before is None or before < one.first) and (after is not None and one.last < after)


def _json(ran: Ran) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ran.stdout)
    return found
