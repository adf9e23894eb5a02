"""The law: each acknowledged record that a disk had is served, unless the cluster's rules or klog explain it."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field

from tests.proof.contents import Found
from tests.proof.ledger import Content, Fate, Ledger, Place, Sent, Topic, superseded
from tests.proof.reading import Served
from tests.proof.words import Comparison, Named, Prediction, Words

BATCH_BYTES = 75
"""More than a record alone in its batch takes beside its key and value."""
NONE = Sent(-1, None, None, -1, -1)
UNREAD = {"offline", "leaderless", "unreached", "refuses"}


@dataclass
class Verdict:
    """The findings of a round: sentences, each with its kind first."""

    problems: list[str] = field(default_factory=list)

    def add(self, kind: str, where: object, words: str) -> None:
        self.problems.append(f"{kind}: {where}: {words}")


def _some(offsets: set[int]) -> str:
    ordered = sorted(offsets)
    return f"{len(ordered)} records, offsets {', '.join(map(str, ordered[:6]))}{' …' if len(ordered) > 6 else ''}"


def lawful(topic: Topic, place: Place, contents: Found, ledger: Ledger) -> dict[int, str]:
    """Return the offsets that may be missing after two passes by the cluster's own rules, and the rule.

    A cleaner verifies no checksum: a record in a damaged batch lets it remove older ones like any other.
    """
    sent, records = ledger.sent[place], contents.records
    found = dict.fromkeys((one for one in records if one < ledger.trimmed.get(place, 0)), "DeleteRecords")
    found |= {offset: "aborted" for offset in records if offset in sent and sent[offset].fate is Fate.ABORTED}
    if topic.is_compacted:
        later = {offset: (one.key, one.value) for offset, one in sent.items()} if contents.is_damaged else {}
        found |= dict.fromkeys(superseded(later | records, sent) & records.keys(), "compaction")
    return found | _retention(topic, records, sent)


def _retention(topic: Topic, records: dict[int, Content], sent: dict[int, Sent]) -> dict[int, str]:
    age_ms, size = topic.retention
    found, behind, now = dict[int, str](), 0, time.time() * 1000
    for offset in sorted(records, reverse=True):
        old = offset not in sent or sent[offset].timestamp_ms < now - age_ms
        if (age_ms >= 0 and old) or 0 <= size <= behind:
            found[offset] = "retention"
        behind += BATCH_BYTES + sum(len(part or b"") for part in records[offset])
    return found


def judge_change(
    before: dict[Place, Found], after: dict[Place, Found], words: Words, ledger: Ledger, verdict: Verdict
) -> None:
    """A command that takes records off the disks has to name them."""
    for place, found in before.items():
        topic = ledger.topics[place[0]]
        # A partition that comes back to its topic may get another topic id.
        names = [other for other in after if (ledger.topics[other[0]].name, other[1]) == (topic.name, place[1])]
        left = [after[other].records for other in {place, *names} & after.keys()]
        gone = found.records.keys() - {offset for records in left for offset in records}
        # No record was sent with such an offset: the command has repaired a flipped base offset.
        there = {content for records in left for content in records.values()}
        gone = {offset for offset in gone if offset in ledger.sent[place] or found.records[offset] not in there}
        if topic.is_compacted:
            gone -= superseded(found.records, ledger.sent[place])
            gone -= {offset for offset in gone if (one := ledger.sent[place].get(offset)) and one.fate is Fate.ABORTED}
        gone -= _retention(topic, found.records, ledger.sent[place]).keys()  # a copy without them is as good
        gone -= set(range(ledger.trimmed.get(place, 0)))  # DeleteRecords took them, wherever their bytes still are
        unnamed = {offset for offset in gone if not words.names((topic.name, place[1]), offset)}
        if unnamed and not topic.is_deleted:
            verdict.add("removed", f"{topic.name}-{place[1]}", f"{_some(unnamed)}, which the command does not name")


@dataclass
class Evidence:
    """The announcements before the start, and the records read after it.

    *restored*: what the command put there.  *left*: the content of the disks after the start.  *unindexed*: partitions
    whose transaction indexes were harmed; below a clean-shutdown marker only `klog verify` reads logs, and a broker
    without the entry of an aborted transaction takes it for a committed one.
    """

    words: Words
    predictions: dict[int, Prediction]
    comparison: Comparison | None
    served: dict[Named, Served]
    restored: set[Named]
    left: dict[Place, Found] = field(default_factory=dict)
    unindexed: frozenset[Named] = frozenset()

    def mentions(self, word: str) -> bool:
        """Return whether the command, or doctor, has reported anything."""
        return word in self.words.said or any(word in note for one in self.predictions.values() for note in one.notes)

    def warns_producers(self, name: Named) -> bool:
        """Return whether klog has reported that records of new producers of a partition may not be served."""
        return self.mentions("producer id") or any(one.reasons.get(name) for one in self.predictions.values())


def judge_start(after: dict[Place, Found], ledger: Ledger, evidence: Evidence, verdict: Verdict) -> None:
    """Check that the records on the disks before the start are served after it."""
    told = defaultdict[Named, int](int)
    for prediction in evidence.predictions.values():
        for name, count in prediction.lost.items():
            told[name] += count
    for place, found in after.items():
        topic = ledger.topics[place[0]]
        if topic.is_deleted:
            continue
        name = topic.name, place[1]
        served = evidence.served.get(name, Served(-1))
        missing = {
            offset
            for offset, content in found.records.items()
            if served.uncommitted.get(offset) != content
            and (offset in ledger.sent[place] or name in evidence.restored)
            and _is_content(ledger.sent[place], offset, content)
        }
        if told[name] and not missing and len(topic.replicas[place[1]]) == 1 and len(evidence.predictions) == 1:
            verdict.add("alarm", "-".join(map(str, name)), f"doctor names {told[name]} lost records; all are served")
        rules = lawful(topic, place, found, ledger)
        if topic.is_compacted and name in evidence.unindexed:
            rules |= dict.fromkeys(superseded(found.records, {}), "an aborted record taken for a committed one")
        unlawful = missing - rules.keys() - _unread_as_before(place, found, served, evidence)
        if name in evidence.words.ended:
            unlawful = {one for one in unlawful if ledger.sent[place].get(one, NONE).fate is not Fate.OPEN}
        _judge_retention(name, {one for one in missing if rules.get(one) == "retention"}, evidence, verdict)
        unnamed = {offset for offset in unlawful if not evidence.words.names(name, offset)}
        if unnamed and not _is_named(name, unnamed, told[name], served, evidence):
            where = f"{topic.name}-{place[1]} (leader {served.leader}, log {served.log_start} to {served.log_end})"
            verdict.add("lost", where, f"{_some(unnamed)} were on the disks; doctor names {told[name]} {served.error}")


def _unread_as_before(place: Place, found: Found, served: Served, evidence: Evidence) -> set[int]:
    """Return the records behind damage in their segment that are still there: they were unreadable before, too."""
    left = evidence.left.get(place, Found()).records
    return {offset for offset in found.behind_damage if offset in left and served.log_start <= offset < served.log_end}


def _is_content(sent: dict[int, Sent], offset: int, content: Content) -> bool:
    """Return whether that is the acknowledged record there; klog's own records are in no ledger."""
    return offset not in sent or (sent[offset].key, sent[offset].value) == content


def _is_named(name: Named, unnamed: set[int], told: int, served: Served, evidence: Evidence) -> bool:
    if told >= len(unnamed):
        return True
    if any(one.fates.get(name, set()) & UNREAD for one in evidence.predictions.values()):
        return True
    if len(evidence.predictions) > 1 and any(one.doubts(name) for one in evidence.predictions.values()):
        return True
    comparison = evidence.comparison
    return comparison is not None and all(comparison.names(name, served.leader, offset) for offset in unnamed)


def _judge_retention(name: Named, missing: set[int], evidence: Evidence, verdict: Verdict) -> None:
    """Check that the restored records that retention removes at once are announced."""
    if missing and name in evidence.restored and not evidence.mentions("retention"):
        verdict.add(
            "retention", "-".join(map(str, name)), f"{_some(missing)} were restored, and deleted at once, unsaid"
        )


def judge_transactions(
    ledger: Ledger, served: dict[Named, Served], ended: set[str], evidence: Evidence, verdict: Verdict
) -> None:
    """An aborted record is never committed; the last committed one is."""
    for topic, number, sent in ledger.places():
        found = served.get((topic.name, number))
        if found is None or found.leader < 0:
            continue
        for offset, one in sent.items():
            content = one.key, one.value
            is_known = (topic.name, number) not in evidence.unindexed
            if is_known and one.fate is Fate.ABORTED and found.committed.get(offset) == content:
                verdict.add(
                    "aborted", f"{topic.name}-{number}", f"offset {offset} was aborted and is read as committed"
                )
            is_there = found.uncommitted.get(offset) == content
            if one.fate is Fate.OPEN and one.transaction in ended and is_there and offset not in found.committed:
                verdict.add("hidden", f"{topic.name}-{number}", f"offset {offset} was committed after the start")
