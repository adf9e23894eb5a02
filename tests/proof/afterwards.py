"""After a start: open transactions are committed, new producers of every kind write, and klog follows the cluster."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.brokers import clients
from tests.proof.contents import Found
from tests.proof.judge import Evidence, Verdict
from tests.proof.ledger import Content, Fate, Ledger, Place, superseded
from tests.proof.nodes import Nodes
from tests.proof.reading import Served, end_transaction
from tests.proof.words import Klog, Named, Run

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

TOPICS = ("plain", "idem", "txn", "kept")
IDEMPOTENT = 3
PATIENCE_S = 8
SILENCE = logging.getLogger("klog.proof")
SILENCE.addHandler(logging.NullHandler())
SILENCE.propagate = False


@dataclass
class Sequel:
    """The acknowledged records: value and offset of each, by partition.  *failed*: errors that a producer cannot
    correct."""

    acknowledged: dict[Named, dict[bytes, int]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)


def commit_open(nodes: Nodes, ledger: Ledger, disks: dict[Place, Found]) -> set[str]:
    """Commit the transactions that were open, as their producers would; return those that are committed."""
    found = {}
    for place, contents in disks.items():
        for offset, one in ledger.sent[place].items():
            if one.fate is Fate.OPEN and offset in contents.producers:
                found[one.transaction] = contents.producers[offset]
    running = nodes.voters
    return {name for name, who in found.items() if end_transaction(nodes.port, running, name, *who)}


def write(bootstrap: str, served: dict[Named, Served]) -> Sequel:
    """Let new producers write a record to each partition that has a leader."""
    from confluent_kafka import KafkaException

    sequel = Sequel()
    places = [name for name, one in served.items() if name[0] in TOPICS and one.leader >= 0 and not one.error]
    common = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "message.timeout.ms": PATIENCE_S * 1000}
    producers = [_made(common | {"enable.idempotence": number > 0}, sequel) for number in range(IDEMPOTENT + 1)]
    transactional = _made(common | {"transactional.id": f"new-{time.time_ns()}"}, sequel)
    for number, producer in enumerate(producers):
        _send(producer, f"new-{number}", places, sequel)
    part = Sequel()
    with suppress(SystemError, KafkaException):
        transactional.init_transactions(PATIENCE_S)
        transactional.begin_transaction()
        _send(transactional, "new-transaction", places, part)
        transactional.commit_transaction(PATIENCE_S)
        for name, values in part.acknowledged.items():
            sequel.acknowledged.setdefault(name, {}).update(values)
    sequel.failed += part.failed
    for number, producer in enumerate(producers):
        try:
            producer.flush(PATIENCE_S)
        except (SystemError, KafkaException):  # the client fails to raise a fatal error, as it means to
            sequel.failed.append(f"fatal: new-{number}")
    return sequel


def _made(config: dict[str, object], sequel: Sequel) -> Producer:
    from confluent_kafka import Producer

    def failed(error: KafkaError) -> None:
        if error.fatal():
            sequel.failed.append(f"fatal: {error.str()}")

    return Producer(config | clients.SILENT | {"error_cb": failed}, logger=SILENCE)


def _send(producer: Producer, who: str, places: list[Named], sequel: Sequel) -> None:
    def told(name: Named, value: bytes) -> Callable[[object, Message], None]:
        def delivered(error: object, message: Message) -> None:
            if error is None:
                sequel.acknowledged.setdefault(name, {})[value] = message.offset()
            else:
                sequel.failed.append(f"{name[0]}-{name[1]}: {error}")

        return delivered

    for name in places:
        value = f"{who} {name[0]} {name[1]} {time.time_ns()}".encode()
        producer.produce(name[0], value, value, partition=name[1], on_delivery=told(name, value))


def judge(sequel: Sequel, served: dict[Named, Served], evidence: Evidence, verdict: Verdict) -> None:
    """Check that the records acknowledged to new producers are served."""
    for name, values in sequel.acknowledged.items():
        there = {value for _, value in served.get(name, Served(-1)).uncommitted.values()}
        if (gone := values.keys() - there) and not evidence.warns_producers(name):
            verdict.add("dropped", f"{name[0]}-{name[1]}", f"acknowledged after the start, not served: {sorted(gone)}")
    ended = [one for one in sequel.failed if one.startswith("fatal")]
    if ended and not evidence.mentions("producer id"):
        verdict.add("dropped", "producers", "; ".join(ended[:3]))


def follow(klog: Klog, bootstrap: str, to: Path, earlier: Path | None) -> Run:
    """Follow the cluster into a new copy, or into one of before, which is left as it is."""
    if earlier is not None:
        shutil.copytree(earlier, to)
    return klog("follow", bootstrap, "--to", to, "--timeout", "5s", "--output", "json")


def judge_copy(run: Run, copy: dict[Place, Found], ledger: Ledger, evidence: Evidence, verdict: Verdict) -> None:
    """A copy that follow calls complete has the records that the cluster serves, and no others."""
    served = evidence.served
    if run.code & ~1:
        return
    by_name = {(ledger.topics[place[0]].name, place[1]): (place, found) for place, found in copy.items()}
    for name, one in served.items():
        if one.leader < 0 or one.error or name not in by_name:
            continue
        place, found = by_name[name]
        start = min(found.records, default=0)
        lacking = {offset for offset, content in one.uncommitted.items() if found.records.get(offset) != content}
        lacking -= {offset for offset in lacking if offset < start}  # a copy does not fetch the part below its start
        more = {offset for offset in found.records if offset >= one.log_start} - one.uncommitted.keys()
        more -= {offset for offset in more if (it := ledger.sent[place].get(offset)) and it.fate is Fate.ABORTED}
        if ledger.topics[place[0]].is_compacted:
            is_damaged = evidence.left.get(place, Found()).is_damaged  # a leader's may be where a copy's is not
            more = set() if is_damaged else _alive_only(found, more, one)
            sent = ledger.sent[place]  # a copy may have what the cluster's disks have lost
            more &= superseded({offset: (it.key, it.value) for offset, it in sent.items()} | found.records, sent)
            lacking &= _latest(one.uncommitted)
        else:
            more = {
                offset for offset in more if offset >= one.log_end
            }  # a leader's may be damaged where a copy's is not
        if lacking or more:
            verdict.add(
                "copy",
                f"{name[0]}-{name[1]}",
                f"exit code {run.code}; lacks {sorted(lacking)[:6]}, has {sorted(more)[:6]}",
            )


def _latest(records: dict[int, Content]) -> set[int]:
    latest = {key: offset for offset, (key, _) in sorted(records.items())}
    return {offset for offset in latest.values() if records[offset][1] is not None}


def _alive_only(found: Found, more: set[int], served: Served) -> set[int]:
    """Return the records of keys that are alive in a compacted copy, and not on the cluster."""
    keys = {served.uncommitted[offset][0] for offset in _latest(served.uncommitted)}
    return {offset for offset in _latest(found.records) & more if found.records[offset][0] not in keys}
