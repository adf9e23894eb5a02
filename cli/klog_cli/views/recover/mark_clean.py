"""The notes of `klog recover --mark-clean`: the marked log dirs, the others, the meaning of a marker."""

from __future__ import annotations

from collections.abc import Iterator

from klog.commands.recover.mark_clean import NOBODYS_EPOCH, MarkCleanRefusal, MarkCleanResult

_NOTHING_CLAIMED = (
    "the marker claims nothing about lost records: in elections this broker counts as one that has recovered its logs"
    " itself, so a controller of 4.1 or later takes it out of the in-sync replicas until it has caught up"
)
_ALL_CLAIMED = (
    "the marker claims, on your word, that no record was lost since this broker ran: elections count it as cleanly"
    " stopped; after a power cut, or with a volume that moved, that would cost committed records"
)
_OF_ZOOKEEPER = "the marker is empty, as brokers with ZooKeeper write it; elections ignore it"


def lines(marking: MarkCleanResult, *, is_applied: bool) -> Iterator[str]:
    """Yield a line for each log dir."""
    for path in marking.marked:
        yield f"{path}: {'is' if is_applied else 'will be'} marked as cleanly stopped"
    for path in marking.marked_before:
        yield f"{path}: is marked as cleanly stopped already, and is not looked at ('klog verify' does)"
    for refusal in marking.refusals:
        yield f"{refusal.log_dir}: nothing is changed, and it is not marked: {refusal.why}"


def notes(marking: MarkCleanResult, *, from_recovery_point: bool) -> Iterator[str]:
    """Yield the meaning of the markers, and the next step for log dirs without one."""
    kraft = [one.is_kraft for one in marking.log_dirs if one.path in marking.marked]
    if any(kraft):
        yield _NOTHING_CLAIMED if marking.epoch == NOBODYS_EPOCH else _ALL_CLAIMED
    if not all(kraft):
        yield _OF_ZOOKEEPER
    if marking.marked and from_recovery_point:
        yield "what lies below the recovery points was not looked at, as a broker would not"
    for first in dict.fromkeys(refusal.first for refusal in marking.refusals):
        if first is not None:
            yield f"first: {first}"


def json(marking: MarkCleanResult) -> dict[str, object]:
    """Return the members that JSON has besides."""
    return {
        "marked": marking.marked,
        "marked_before": marking.marked_before,
        "broker_epoch": marking.epoch if marking.marked else None,
        "refused": [_refusal_json(refusal) for refusal in marking.refusals],
    }


def _refusal_json(refusal: MarkCleanRefusal) -> dict[str, object]:
    return {"log_dir": refusal.log_dir, "reason": refusal.why, "first": refusal.first}
