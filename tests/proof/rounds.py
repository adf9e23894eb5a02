"""Rounds: each has a seed, and the seed alone decides about its shape, its harm and its command."""

from __future__ import annotations

import dataclasses
import random
import re
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.proof import afterwards, commands, harm
from tests.proof.contents import Found, directories, on_disk
from tests.proof.history import History, Shape, live
from tests.proof.judge import Evidence, Verdict, judge_change, judge_start, judge_transactions
from tests.proof.ledger import Ledger, Place
from tests.proof.nodes import Host, Nodes
from tests.proof.reading import read
from tests.proof.words import CODES, Klog, Named, Prediction, Words, compare, predict
from tests.support.counts import count

ROUNDS_OF_A_HISTORY = 40
SHAPES = (Shape(1, 2), Shape(1, 1), Shape(3, 1), Shape(1, 2), Shape(2, 2))
INDEX_HARM = re.compile(
    r"(?:^(.+)-(\d+) has lost (?:indexes|segment|its segments))|(?:in (.+)-(\d+)/\d+\.(?:txn)?index)"
)
"""Aborted records that a broker takes for committed: their entry is lost, or a wrong offset index ends its search."""
PORTS = 20
"""How many ports a cluster takes; the next round takes others."""
BLOCKS = 4


@dataclass
class Outcome:
    """A round, for its line."""

    seed: int
    about: str
    harms: list[str] = field(default_factory=list)
    command: str = ""
    code: int = 0
    problems: list[str] = field(default_factory=list)
    seconds: float = 0
    runs: list[str] = field(default_factory=list)

    def line(self) -> str:
        """Return the line."""
        state = "holds" if not self.problems else "FALLS"
        harms = "; ".join(self.harms[:4]) + (f"; {len(self.harms) - 4} more" if len(self.harms) > 4 else "")
        return (
            f"seed {self.seed}  {self.about}  {self.command} -> {self.code}  [{harms}]  {state}  {self.seconds:.1f} s"
        )


class Proof:
    """Plays rounds below *folder*.  *command*: the klog under test."""

    def __init__(
        self, folder: Path, version: str, port: int, command: Iterable[str], environment: dict[str, str]
    ) -> None:
        self.folder, self.port, self.host = folder, port, Host(version)
        self.command, self.environment = list(command), environment
        self.histories: dict[tuple[Shape, int], History] = {}
        self._played = 0
        self._old: list[Path] = []

    def close(self) -> None:
        self.host.close()

    def _klog(self, home: Path) -> Klog:
        home.mkdir(parents=True, exist_ok=True)
        return Klog(self.command, home, self.environment)

    def history(self, seed: int) -> History:
        """Return the history that a round's seed belongs to; many rounds share one."""
        number = seed // ROUNDS_OF_A_HISTORY
        shape = SHAPES[number % len(SHAPES)]
        if (shape, number) not in self.histories:
            for old in self.histories.values():
                shutil.rmtree(old.folder, ignore_errors=True)
            self.histories.clear()
            folder = self.folder / f"history-{number}"
            shutil.rmtree(folder, ignore_errors=True)
            port = self.port + PORTS * BLOCKS
            self.histories[shape, number] = live(self.host, self._klog(folder), shape, folder, port, number)
        return self.histories[shape, number]

    def play(self, seed: int) -> Outcome:
        """Play the round of a seed."""
        began = time.monotonic()
        history = self.history(seed)
        self._played += 1
        folder = self.folder / f"round-{seed}"
        shutil.rmtree(folder, ignore_errors=True)
        port = self.port + PORTS * (self._played % BLOCKS)
        found = _Round(self.host, history, self._klog(folder), folder / "nodes", port, seed).play()
        found.seconds = time.monotonic() - began
        if not found.problems:
            count("rounds of the proof")
            self._old.append(folder)
        while len(self._old) > BLOCKS - 1:  # those before are being stopped
            shutil.rmtree(self._old.pop(0), ignore_errors=True)
        return found


class _Round:
    def __init__(self, host: Host, history: History, klog: Klog, folder: Path, port: int, seed: int) -> None:
        self.seed = seed
        self.chance = self._chance("round")
        self.history, self.klog = history, klog
        self.nodes = Nodes(host, folder, *history.shape, port=port)
        self.verdict = Verdict()
        self.harms: list[str] = []
        moments = ["clean", "clean", "killed", "killed", "early"]
        moments += ["reborn"] if history.shape.nodes == 1 else []
        self.moment = self.chance.choice(moments)
        aliases = {new: old for old, new in history.reborn.items()} if self.moment == "reborn" else {}
        self.ledger = self._ledger(aliases)
        self.is_control = self.chance.random() < 0.15
        self.outcome = Outcome(seed, f"{history.shape.nodes}x{history.shape.log_dirs} {self.moment}")

    def _chance(self, *about: object) -> random.Random:
        """Return the chance for one thing: the same one whatever else disks have, which is never quite the same."""
        return random.Random(f"{self.seed} {about}")

    def _ledger(self, aliases: dict[str, str]) -> Ledger:
        """Return the ledger as it was at the moment."""
        whole = self.history.ledger
        if self.moment != "early":
            return dataclasses.replace(whole, aliases=aliases)
        part = Ledger(trimmed={})
        for identity, topic in whole.topics.items():
            part.topics[identity] = dataclasses.replace(topic, is_deleted=False)
        again = {topic.name for topic in whole.topics.values() if topic.is_deleted}
        part.topics = {
            identity: topic
            for identity, topic in part.topics.items()
            if not (topic.name in again and not whole.topics[identity].is_deleted)
        }
        for place, sent in whole.sent.items():
            part.sent[place] |= {offset: one for offset, one in sent.items() if one.phase < 2}
        return part

    # harm

    def _harm(self) -> None:
        if self.is_control or self.moment == "reborn":
            return
        style = self.chance.choice(("partitions", "partitions", "log dirs", "metadata", "all"))
        for node in self.nodes.numbers:
            share = self.chance.choice((0.1, 0.3, 0.6)) / len(self.nodes.numbers)
            for at, disk in enumerate(self.nodes.disks(node)):
                early = self.history.disks("early") / disk.relative_to(self.nodes.folder)
                if style in ("partitions", "all"):
                    self._harm_partitions(disk, node, share)
                chance = self._chance(node, at)
                if style in ("log dirs", "all") and chance.random() < 0.7:
                    self._note(chance.choice(harm.OF_LOG_DIR)(disk, chance))
                if style == "log dirs" and chance.random() < 0.2:
                    self._note(harm.checkpoint_old(disk, chance, early))
                is_spared = node > 1 and self.chance.random() < 0.8  # a quorum needs most of its logs
                if style == "metadata" and (disk / harm.METADATA).exists() and not is_spared:
                    self._note(chance.choice(harm.OF_METADATA)(disk, chance, early))

    def _harm_partitions(self, disk: Path, node: int, share: float) -> None:
        for _, path in directories(disk, self.ledger):
            chance = self._chance(node, path.name)
            if chance.random() < share:
                self._note(chance.choice(harm.OF_PARTITION)(path, chance))

    def _note(self, words: str) -> None:
        if words:
            self.harms.append(words)

    # the round

    def _on_disks(self, disks: Iterable[Path]) -> dict[Place, Found]:
        found: dict[Place, Found] = {}
        for disk in disks:
            for place, one in on_disk(disk, self.ledger).items():
                found.setdefault(place, Found()).add(one)
        return found

    def play(self) -> Outcome:
        shutil.copytree(self.history.disks(self.moment), self.nodes.folder)
        self._harm()
        disks = self.nodes.all_disks
        is_partial = self.history.shape.log_dirs > 1 and self.moment == "clean" and self.chance.random() < 0.1
        given = [disk for disk in disks if not (is_partial and disk == disks[-1])]
        scene = commands.Scene(
            self.klog,
            self.nodes,
            dataclasses.replace(self.history, ledger=self.ledger),
            self._chance("command"),
            self.moment,
            given,
        )
        before = self._on_disks(disks)
        words = self._command()(scene)
        self.outcome.command = self._named(words)
        self.outcome.code = words.code
        self._settle(scene, words)
        after = self._on_disks(disks if scene.alone is None else self.nodes.disks(scene.alone))
        judge_change(before, after, words, self.ledger, self.verdict)
        self._start(scene, words, after)
        for run in self.klog.runs:
            if run.code not in CODES or "Traceback" in run.stderr or run.code < 0:
                self.verdict.add("crash", run.line, f"exit code {run.code}: {run.stderr[-400:]}")
        self.verdict.problems += [f"command: {one}" for one in scene.problems]
        self.outcome.harms, self.outcome.problems = self.harms, self.verdict.problems
        self.outcome.runs = [f"{run.line} -> {run.code}" for run in self.klog.runs]
        return self.outcome

    def _command(self) -> commands.Command:
        if self.moment == "reborn":
            return commands.adopt
        if self.moment == "early" and self.is_control:
            return commands.nothing
        return self.chance.choice(commands.OF_ONE if len(self.nodes.numbers) == 1 else commands.OF_SEVERAL)

    def _named(self, words: Words) -> str:
        line = " ; ".join(run.line for run in words.runs) or "klog doctor"
        return line.replace(f"{self.nodes.folder}/", "").replace(" --output json", "")[:300]

    def _settle(self, scene: commands.Scene, words: Words) -> None:
        """Do the operator's steps on the page of a command."""
        if scene.alone is not None:
            self.nodes.voters = (scene.alone,)
            self.nodes.more |= {
                "offsets.topic.replication.factor": "1",
                "transaction.state.log.replication.factor": "1",
            }
        if self.moment == "reborn":
            for one in (row for run in words.runs for row in run.result().get("adopted", ())):
                if "-stray" in one["source"]:
                    shutil.rmtree(one["source"], ignore_errors=True)

    def _start(self, scene: commands.Scene, words: Words, after: dict[Place, Found]) -> None:
        running = (scene.alone,) if scene.alone is not None else self.nodes.numbers
        predictions = {node: predict(self.klog, self.nodes.disks(node)) for node in running}
        several = [disk for node in running for disk in self.nodes.disks(node)]
        comparison = compare(self.klog, several) if len(running) > 1 else None
        if self.is_control:
            self._judge_control(words, predictions)
        able = tuple(node for node in running if predictions[node].starts)
        failed = self.nodes.start(*(able if len(running) > 1 and len(able) > len(running) // 2 else running))
        failed = failed or (self.nodes.pause() or self.nodes.ended())
        if failed:
            if all(one.starts for one in predictions.values()) and not self._may_lack_quorum():
                self.verdict.add("start", "doctor says that it starts", failed)
            return
        if len(running) == 1 and not able and "starts only if" not in predictions[running[0]].run.said:
            self.verdict.add(
                "start", "doctor says that it does not start, and it does", predictions[running[0]].run.said[:400]
            )
        try:
            self._read(scene, words, after, Evidence(words, predictions, comparison, {}, scene.restored))
        finally:
            self.nodes.leave()

    def _unindexed(self) -> frozenset[Named]:
        """Return the partitions whose transaction indexes were harmed."""
        found = (INDEX_HARM.search(one) for one in self.harms)
        return frozenset((match[1] or match[3], int(match[2] or match[4])) for match in found if match)

    def _may_lack_quorum(self) -> bool:
        return len(self.nodes.numbers) > 1 and any(harm.METADATA in one or "metadata log" in one for one in self.harms)

    def _judge_control(self, words: Words, predictions: dict[int, Prediction]) -> None:
        """Check that doctor reports no harm if there was none, unless a command has changed something."""
        if words.code or words.ranges or self.moment == "reborn":
            return
        for node, one in predictions.items():
            if one.run.code:
                self.verdict.add("control", f"doctor of node {node}", f"exit code {one.run.code}: {one.run.said[:900]}")

    def _read(self, scene: commands.Scene, words: Words, after: dict[Place, Found], evidence: Evidence) -> None:
        bootstrap = ",".join(f"localhost:{self.nodes.port + node}" for node in evidence.predictions)
        wanted: dict[Named, list[int]] = {}
        for place, found in after.items():
            topic = self.ledger.topics[place[0]]
            if not topic.is_deleted:
                wanted[topic.name, place[1]] = sorted(found.records)
        served = read(bootstrap, self.nodes.port, wanted)
        if served is None:  # no quorum: nothing is lost, and nothing is served
            if not self._may_lack_quorum():
                self.verdict.add("start", "no broker answers", "; ".join(self.harms))
            return
        evidence.served, evidence.unindexed = served, self._unindexed()
        evidence.left = self._on_disks(disk for node in evidence.predictions for disk in self.nodes.disks(node))
        judge_start(after, self.ledger, evidence, self.verdict)
        ended = afterwards.commit_open(self.nodes, self.ledger, after)
        sequel = afterwards.write(bootstrap, evidence.served)
        followed, copy = None, self.nodes.folder.parent / "copy"
        chance = self._chance("follow")
        if self.moment == "early" or chance.random() < 0.3:
            earlier = chance.choice((None, "copy-early", "copy-late", "copy-late"))
            followed = afterwards.follow(self.klog, bootstrap, copy, earlier and self.history.disks(earlier))
        for name, values in sequel.acknowledged.items():
            wanted[name] = wanted.get(name, []) + list(values.values())
        served = read(bootstrap, self.nodes.port, wanted) or {}
        if followed is not None:
            evidence.served = served
            afterwards.judge_copy(followed, self._on_disks([copy]), self.ledger, evidence, self.verdict)
        judge_transactions(self.ledger, served, ended, evidence, self.verdict)
        afterwards.judge(sequel, served, evidence, self.verdict)
