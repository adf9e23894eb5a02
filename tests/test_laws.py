"""Laws that hold of every partition, whatever is in it: commands held against each other, over generated logs."""

from __future__ import annotations

import json
import shlex
import shutil
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, assume, event, given
from hypothesis import strategies as st

from tests.commands.compact.compacting import NOW_MS
from tests.commands.compact.logs import Log, fresh, logs, old_logs
from tests.commands.serve.serving import Serving, Wire
from tests.conftest import Ran, run_klog
from tests.oracles.plain import mutate
from tests.oracles.plain.decode import Batch, scan
from tests.support.examples import examples
from tests.support.power import tree

pytestmark = pytest.mark.usefixtures("hasty")
few_or_many = pytest.mark.parametrize(
    "times", [pytest.param(1, id="few"), pytest.param(100, marks=pytest.mark.long, id="many")]
)
# A smallest case takes minutes to find.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
NOW = f"--now={NOW_MS}"
MODES = ((), ("--salvage",), ("--like-broker",))
LOGS = st.one_of(logs(), logs(), old_logs())

Line = dict[str, Any]


def hold(law: Callable[..., None], count: int, **drawn: st.SearchStrategy[Any]) -> None:
    """Hold a law against *count* examples."""
    examples(count, phases=PHASES)(given(**drawn)(law))()


def ran(*words: str | Path, codes: tuple[int, ...] = (0,)) -> Ran:
    done = run_klog(*words)
    assert done.exit_code in codes, (words, done.exit_code, done.stdout[-3000:], done.stderr[-3000:])
    return done


def said(*words: str | Path, codes: tuple[int, ...] = (0, 1, 4, 5)) -> Line:
    found: Line = json.loads(ran(*words, "--output=json", codes=codes).stdout)
    return found


def dumped(partition: Path, *options: str) -> list[Line]:
    """Return the lines of a partition, without what tells where in a file they are."""
    done = ran("dump", partition, "--output=jsonl", *options, codes=(0, 4))
    assert done.exit_code == 0 or (b"klog: no committed record" in done.stderr and not done.stdout)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return [{name: value for name, value in line.items() if name != "position"} for line in lines]


def state(data: Path) -> dict[str, bytes | None]:
    """Return the content of every file of a log dir."""
    return {name: content for name, (content, _) in tree(data).items() if name != ".lock"}


def left(done: Line) -> list[tuple[str, str]]:
    """Return what a recovery says it leaves: ids and files."""
    return [(one["id"], one["file"]) for one in done["left"]]


def damage(data: Path, seed: int) -> None:
    """Damage one or two files of the partition of a log dir, a log more often than others."""
    chance = Random(seed)
    files = sorted(path for path in (data / "t-0").iterdir() if path.suffix == ".log")
    for _ in range(chance.choice((1, 1, 2))):
        path = chance.choice(files)
        kind = chance.choice((".log", ".log", ".log", ".index", ".timeindex", ".txnindex", ".snapshot", "epochs"))
        if kind == "epochs":
            path = data / "t-0/leader-epoch-checkpoint"
            path.write_bytes(mutate.mutate(b"0\n1\n0 0\n", chance))
        elif kind == ".log":
            path.write_bytes(mutate.mutate(path.read_bytes(), chance, chance.choice((1, 1, 3))))
        else:
            path.with_suffix(kind).write_bytes(chance.randbytes(chance.choice((0, 7, 24, 60))))


@few_or_many
def test_recovering_twice_is_recovering_once(times: int, tmp_path: Path) -> None:
    """Whatever the damage and the mode."""

    def law(log: Log, seed: int, mode: tuple[str, ...]) -> None:
        data = fresh(tmp_path / "law", log.write)
        damage(data, seed)
        first = said("recover", data, *mode, NOW, "--apply")
        event(f"did something: {bool(first['actions'])}")
        once = state(data)
        again = said("recover", data, *mode, NOW, "--apply")
        assert again["actions"] == []
        assert again["lost"] == []
        # A broker's start that loses nothing does not look what else is wrong.
        if mode != ("--like-broker",):
            assert left(again) == left(first)
        assert state(data) == once

    hold(law, 30 * times, log=LOGS, seed=st.integers(0, 2**32), mode=st.sampled_from(MODES))


@few_or_many
def test_truncating_twice_is_truncating_at_the_lower_offset(times: int, tmp_path: Path) -> None:
    """In either order."""

    def law(log: Log, offsets: list[int]) -> None:
        data = fresh(tmp_path / "law", log.write)
        whole = shutil.copytree(data, tmp_path / "law/whole")
        for offset in offsets:
            ran("truncate", data / "t-0", f"--to-offset={offset}", NOW, "--apply")
        ran("truncate", whole / "t-0", f"--to-offset={min(offsets)}", NOW, "--apply")
        assert state(data) == state(whole)

    hold(law, 30 * times, log=LOGS, offsets=st.lists(st.integers(0, 60), min_size=2, max_size=2))


def latest(lines: list[Line]) -> dict[str, Line]:
    """Return what a consumer that builds a table has in the end: the last value of each key."""
    found: dict[str, Line] = {}
    for line in lines:
        key = next((f"{name} {line[name]}" for name in ("key", "key_base64") if line.get(name) is not None), None)
        if key is None or "control" in line:
            continue
        found.pop(key, None)
        if line.get("value", "") is not None:
            found[key] = line
    return found


@few_or_many
def test_a_dump_of_what_compact_leaves_has_the_latest_of_each_key(times: int, tmp_path: Path) -> None:
    """For whoever reads what is committed; and below where it had to stop each key stands once."""

    def law(log: Log) -> None:
        data = fresh(tmp_path / "law", log.write)
        committed = "--isolation=read_committed"
        before = latest(dumped(data / "t-0", committed))
        ran("compact", data, "--policy=compact", "--all", NOW, "--apply")
        assert latest(dumped(data / "t-0", committed)) == before
        checkpoint = data / "cleaner-offset-checkpoint"
        end = int(checkpoint.read_text().split()[-1]) if checkpoint.exists() else 0
        kept = [line for line in dumped(data / "t-0") if line["offset"] < end and "control" not in line]
        keys = [(line.get("key"), line.get("key_base64")) for line in kept]
        assert len(set(keys)) == len(keys)
        assert (None, None) not in keys

    hold(law, 30 * times, log=LOGS)


def writable(lines: list[Line]) -> Iterator[Line]:
    """Yield the lines that a leader appends: without markers that end no transaction."""
    began = set()
    for line in lines:
        if "control" not in line:
            began |= {line["producer_id"]} if line.get("transactional") else set()
            yield line
        elif line["producer_id"] in began:
            began.discard(line["producer_id"])
            yield line


@few_or_many
def test_what_is_dumped_and_written_is_dumped_again(times: int, tmp_path: Path) -> None:
    """The same records at the same offsets, of the same producers, with their markers."""

    def law(log: Log, codec: str, size: int) -> None:
        data = fresh(tmp_path / "law", log.write)
        lines = list(writable(dumped(data / "t-0")))
        file = data.parent / "records.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        to = data.parent / "to"
        ran("write", file, "--to", to, "--keep-offsets", f"--codec={codec}", f"--batch-size={size}", NOW)
        # Message sets have no epochs.
        assert dumped(to / "t-0") == [{**line, "leader_epoch": line.get("leader_epoch", 0)} for line in lines]

    codecs = st.sampled_from(("none", "gzip", "snappy", "lz4", "zstd"))
    hold(law, 30 * times, log=LOGS, codec=codecs, size=st.sampled_from((100, 1000, 16384)))


def content(line: Line, name: str) -> bytes | None:
    """Return the key or value of a line."""
    if f"{name}_base64" in line:
        return b64decode(line[f"{name}_base64"])
    return None if line.get(name) is None else bytes(line[name], "utf-8")


def handed_out(port: int, end: int) -> Iterator[tuple[object, ...]]:
    """Yield the records that a server hands out up to the offset *end*, markers too."""
    offset = 0
    with Wire(port) as wire:
        while offset < end:
            parts = list(scan(wire.fetch("t", offset)["records"]))
            assert parts
            for batch in parts:
                assert isinstance(batch, Batch)
                for one in batch.records:
                    texts = (None, None) if batch.control else (one.key, one.value)
                    yield (one.offset, one.timestamp, *texts)
                offset = batch.last_offset + 1


@few_or_many
def test_what_is_served_is_what_is_dumped(times: int, tmp_path: Path) -> None:
    """A server of its own serves each log, through a socket."""

    def law(log: Log) -> None:
        data = fresh(tmp_path / "law", log.write)
        lines = dumped(data / "t-0")
        with Serving(data) as serving:
            found = list(handed_out(serving.port, lines[-1]["offset"] + 1))
        dumped_rows = [(one["offset"], one["timestamp"], content(one, "key"), content(one, "value")) for one in lines]
        assert found == dumped_rows

    hold(law, 4 * times, log=LOGS)


@few_or_many
def test_verify_finds_nothing_that_its_fix_has_fixed(times: int, tmp_path: Path) -> None:
    """Or the fix has said that it leaves it."""

    def law(log: Log, seed: int, which: int) -> None:
        data = fresh(tmp_path / "law", log.write)
        damage(data, seed)
        found = said("verify", "--deep", data)["findings"]
        fixes = sorted({one["fix"] for one in found if "klog" in (one["fix"] or "").split()})
        assume(fixes)
        fix = fixes[which % len(fixes)]
        words = shlex.split(fix)
        done = said(*words[words.index("klog") + 1 :], NOW, "--apply")
        fixed = {(one["id"], one["file"]) for one in found if one["fix"] == fix}
        fixed -= set(left(done))
        event(f"fixed: {min(len(fixed), 3)}")
        after = said("verify", "--deep", data)["findings"]
        assert [one for one in after if (one["id"], one["file"]) in fixed] == []

    hold(law, 30 * times, log=LOGS, seed=st.integers(0, 2**32), which=st.integers(0, 9))
