"""The output of `klog timeline`, as text, JSON or CSV."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from klog.base.errors import ExitCode, KlogError, counted
from klog.commands.timeline.timeline import Timeline
from klog.commands.timeline.timeline_event import METADATA_KINDS, REMOTE_KINDS, EventFilter, TimelineEvent
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.selection import PartitionQuery
from klog.formats.java_integers import LONG_MAX

from klog_cli import output
from klog_cli.display import time_text
from klog_cli.style import bad, faint, good, strong, warning
from klog_cli.views.nothing_found import nothing_found, where

_TIME_COLUMNS = 26
_BAD, _DOUBTFUL = ("damage",), ("broker-fenced", "silence", "txn-abort", "txn-fenced", "txn-open", "copy-failed")
_GOOD = ("broker-unfenced", "txn-commit")
_MARKS = {**dict.fromkeys(_BAD, bad), **dict.fromkeys(_DOUBTFUL, warning), **dict.fromkeys(_GOOD, good)}
_WIDEST = max(map(len, ("broker-unregistered", "partition-changed")))


def timeline(paths: Sequence[str], wanted: EventFilter, limit: int | None, form: str, jobs: int) -> int:
    """Print the events and return the exit code.  Raises UsageError, UnreadableError, KlogError."""
    selections = PartitionQuery(paths).selections()
    log_dirs = len(selections)
    try:
        with Timeline(selections, wanted, Disk(), limit, jobs) as found:
            with output.Results() as results:
                found.read(results)
            told = _print(found.events(), form, several=log_dirs > 1)
    except output.OutputError:
        raise
    except OSError as error:
        raise KlogError(f"no room for temporary files: {error.strerror}; TMPDIR says where they go") from error
    for sentence in found.problems:
        output.error(sentence)
    code = ExitCode.CLEAN if told else nothing_found(f"no {_words(wanted)} {where(paths)}")
    if set(wanted.kinds) == {"damage"}:  # a check: 4 is for what it finds
        code = ExitCode.CLEAN
    if found.damaged:
        from klog.partition.tiered.mounts import tier_words

        command = "klog remote verify" if tier_words() else "klog verify"
        output.note(f"{counted(found.damaged, 'damaged place')}: {command} explains them")
    return ExitCode.PROBLEMS_LEFT if found.damaged or found.problems else code


def _words(wanted: EventFilter) -> str:
    """Return the conditions: `event of kind damage, of topic orders since …`."""
    parts = [f"of kind {' or '.join(sorted(wanted.kinds))}"] if wanted.kinds else []
    parts += [f"of topic {' or '.join(wanted.topics)}"] if wanted.topics else []
    parts += [f"of group {' or '.join(wanted.groups)}"] if wanted.groups else []
    names = [str(one) if isinstance(one, int) else f"{one[0]}-{one[1]}" for one in wanted.numbers]
    parts += [f"of partition {' or '.join(names)}"] if names else []
    parts += [f"since {time_text(wanted.start)}"] if wanted.start > -LONG_MAX else []
    parts += [f"before {time_text(wanted.end)}"] if wanted.end < LONG_MAX else []
    return " ".join(["event", *parts])


def _print(events: Iterable[TimelineEvent], form: str, *, several: bool) -> int:
    """Print *events*, and return how many they are.  *several*: they are of more than one log dir."""
    count = 0

    def counted_events() -> Iterator[TimelineEvent]:
        nonlocal count
        for count, event in enumerate(events, 1):  # noqa: B007
            yield event

    if form == "json":
        output.emit_json_rows("events", map(event_json, counted_events()))
    elif form == "jsonl":
        output.emit_jsonl(map(event_json, counted_events()))
    elif form == "csv":
        output.emit_csv_rows(map(event_json, counted_events()), TimelineEvent._fields)
    else:
        output.lines((_line(event, several) for event in counted_events()), hang=_TIME_COLUMNS)
    return count


def event_json(event: TimelineEvent) -> dict[str, object]:
    """Return an event as the members of a JSON object."""
    return {name: value for name, value in event._asdict().items() if value is not None}


def _line(event: TimelineEvent, several: bool) -> str:
    subject = _where(event)
    kind = _MARKS.get(event.kind, str)(event.kind) + " " * (_WIDEST - len(event.kind))
    parts = [output.time_text(event.time), faint(event.clock) + " " * (8 - len(event.clock)), kind]
    tail = f"  [{faint(event.log_dir or '')}]" if several and event.kind in ("damage", "log-start", "compacted") else ""
    return f"{' '.join(parts)} {strong(subject) if subject else ''}{' ' * (24 - len(subject))} {event.message}{tail}"


def _where(event: TimelineEvent) -> str:
    """Return the subject of an event, and its offset if that is one of its partition's log."""
    whose = event.group if event.group is not None else event.transactional_id
    if whose is not None:
        return whose
    if event.topic is not None and event.partition is not None:
        of_its_log = event.kind not in (*METADATA_KINDS, *REMOTE_KINDS) and event.offset is not None
        return f"{event.topic}-{event.partition}" + (f"@{event.offset}" if of_its_log else "")
    return event.topic if event.topic is not None else "" if event.node is None else f"node {event.node}"
