"""The commands of a round: each is run over harmed disks, and applied where it plans."""

from __future__ import annotations

import json
import random
import shlex
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.proof.contents import directories
from tests.proof.history import HOUR_MS, History
from tests.proof.nodes import Nodes
from tests.proof.words import Klog, Words, predict

JSON = ("--output", "json")


@dataclass
class Scene:
    """The input of a command.  *disks*: those that it is given, maybe not all of them.

    *restored*: the records that it puts under a broker: retention takes none of them without a report.  *alone*: the
    only node that will start.  *problems*: its faults so far.
    """

    klog: Klog
    nodes: Nodes
    history: History
    chance: random.Random
    moment: str
    disks: list[Path]
    restored: set[tuple[str, int]] = field(default_factory=set)
    alone: int | None = None
    problems: list[str] = field(default_factory=list)

    def partition(self, *names: str) -> Path | None:
        """Return a directory of a topic that has one of these names, of any topic where none is given."""
        ledger = self.history.ledger
        found = {
            path.name: path
            for disk in self.disks
            for place, path in directories(disk, ledger)
            if not names or ledger.topics[place[0]].name in names
        }
        return found[self.chance.choice(sorted(found))] if found else None


Command = Callable[[Scene], Words]


def nothing(scene: Scene) -> Words:
    """Only predict."""
    return Words()


def recover(scene: Scene) -> Words:
    modes = ((), ("--like-broker",), ("--salvage",), ("--salvage",), ("--mark-clean",), ("--repair-bits",))
    return Words().take(scene.klog("recover", *scene.disks, *scene.chance.choice(modes), "--apply", *JSON))


def truncate(scene: Scene) -> Words:
    path = scene.partition()
    if path is None:
        return Words()
    offset = scene.chance.randrange(70)
    return Words().take(scene.klog("truncate", path, "--to-offset", offset, "--apply", *JSON))


def compact(scene: Scene) -> Words:
    more = scene.chance.choice(((), ("--all",), ("--all", "--like-broker")))
    return Words().take(scene.klog("compact", *scene.disks, *more, "--apply", *JSON))


def undo(scene: Scene) -> Words:
    """Apply a plan and undo it: each file has to be unchanged."""
    before = _files(scene.disks)
    words = scene.chance.choice((recover, truncate, compact))(scene)
    plan = words.runs[-1].result().get("id") if words.runs else None
    if not plan or words.code & 8:
        return words
    undone = scene.klog("undo", words.runs[-1].result()["backup"], "--apply", *JSON)
    if undone.code & ~1:
        scene.problems.append(f"undo exits {undone.code}: {undone.said[-300:]}")
    elif before != (after := _files(scene.disks)):
        changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        scene.problems.append(f"undo left changes: {sorted(changed)[:5]}")
    return Words([undone])


def _files(disks: list[Path]) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for disk in disks for path in disk.rglob("*") if path.is_file()}


def write(scene: Scene) -> Words:
    """Write records into a topic: lines, old or new, or the batches of an older copy."""
    name = scene.chance.choice(("plain", "short", "size", "idem"))
    path = scene.partition(name)
    if path is None:
        return Words()
    topic, _, number = path.name.partition(".")[0].rpartition("-")
    if topic in ("plain", "idem") and scene.chance.random() < 0.5:
        source: object = scene.history.disks("early") / path.relative_to(scene.nodes.folder)
        if not (scene.history.disks("early") / path.relative_to(scene.nodes.folder)).exists():
            return Words()
    else:
        source = scene.klog.home / "lines.jsonl"
        stamp = int(time.time() * 1000) - scene.chance.choice((0, 2 * HOUR_MS))
        rows = ({"key": f"w{at}", "value": "w" * 50, "partition": int(number), "timestamp": stamp} for at in range(40))
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    scene.restored.add((topic, int(number)))
    words = Words().take(scene.klog("write", source, "--to", path.parent, "--topic", topic, "--apply", *JSON))
    if not words.is_done:
        scene.restored.clear()
    return words


def adopt(scene: Scene) -> Words:
    """Add a directory that was set aside, or an older copy of a partition."""
    into = [word for disk in scene.disks for word in ("--to", disk)]
    if scene.moment == "reborn":
        for disk in scene.disks:
            scene.restored |= {
                (scene.history.ledger.topics[each[0]].name, each[1])
                for each, _ in directories(disk, scene.history.ledger)
            }
        return Words().take(scene.klog("adopt", *scene.disks, *into, "--apply", *JSON))
    path = scene.partition("plain", "idem", "txn", "gone", "kept")
    if path is None:
        return Words()
    if scene.chance.random() < 0.5:  # the partition itself, which was set aside
        aside = scene.klog.home / "aside" / path.name
        shutil.move(path, aside)
        words = Words().take(scene.klog("adopt", aside, *into, "--apply", *JSON))
        if not words.is_done:
            shutil.move(aside, path)
        return words
    source = scene.history.disks("early") / path.relative_to(scene.nodes.folder)
    if not source.exists():
        return Words()
    return Words().take(scene.klog("adopt", source, *into, "--replace", "--apply", *JSON))


def advice(scene: Scene) -> Words:
    """Run doctor's next step, as long as it is a command of klog."""
    words = Words()
    for _ in range(4):
        steps = predict(scene.klog, scene.disks).run.result().get("next", ())
        commands = [step["command"] for step in steps if step.get("command")]
        if not commands:
            break
        for command in commands:
            program, *given = shlex.split(command)
            if program == "klog" and given[:1] != ["doctor"]:
                words.take(scene.klog(*given, *([] if "--apply" in given else ["--apply"]), *JSON))
    return words


def replicas_plan(scene: Scene) -> Words:
    keep = scene.chance.choice(
        ((), (), ("--keep", "newest"), ("--keep", "longest"), ("--keep", "kafka"), ("--keep", 1))
    )
    repair = scene.chance.choice(((), ("--repair",)))
    words = Words().take(scene.klog("replicas", "plan", *scene.disks, *keep, *repair, "--apply", *JSON))
    scene.restored |= _copied(words)
    return words


def _copied(words: Words) -> set[tuple[str, int]]:
    """Return the partitions that a plan brings records to."""
    rows = (row for run in words.runs for row in run.result().get("copies", ()))
    return {(row["topic"], row["partition"]) for row in rows if any(one["records_added"] for one in row["targets"])}


def only_broker(scene: Scene) -> Words:
    node = scene.chance.choice(scene.nodes.numbers)
    keep = scene.chance.choice(("newest", "longest", "kafka"))
    more = scene.chance.choice(((), ("--repair",)))
    given = ("--only-broker", node, "--keep", keep, *more, "--voter", f"localhost:{scene.nodes.port + 10 + node}")
    words = Words().take(scene.klog("metadata", "plan", *scene.disks, *given, "--apply", *JSON))
    if words.is_done and words.runs[-1].result().get("applied"):
        scene.alone = node
        scene.restored |= _copied(words)
    return words


def voters(scene: Scene) -> Words:
    port = scene.nodes.port + 10
    given = ",".join(f"{node}@localhost:{port + node}" for node in scene.nodes.numbers)
    return Words().take(scene.klog("metadata", "plan", *scene.disks, "--voters", given, "--apply", *JSON))


OF_ONE: tuple[Command, ...] = (
    nothing,
    nothing,
    recover,
    recover,
    recover,
    truncate,
    compact,
    undo,
    write,
    write,
    adopt,
    advice,
)
OF_SEVERAL: tuple[Command, ...] = (
    *(nothing, nothing, recover, replicas_plan, replicas_plan, replicas_plan, only_broker, only_broker, voters, undo),
)
