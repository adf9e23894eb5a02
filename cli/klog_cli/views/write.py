"""The output of `klog write`: the records that it has written, or would write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from klog.base.errors import ExitCode, UsageError, counted
from klog.change.plan.session import PlanOptions
from klog.commands.write.record_writer import PartitionWriter
from klog.commands.write.write import WriteInput, WriteResult, write_new, write_stopped
from klog.commands.write.write_destination import WriteOptions
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.whole_directory import is_new

from klog_cli import output, style
from klog_cli.command_line import next_step
from klog_cli.views.topic_settings import settings_text

_SETTINGS = ("segment.bytes", "segment.ms", "index.interval.bytes", "compression.type")


class WriteArguments(NamedTuple):
    """The command line apart from options of records: the input, the target, and the source of its topics."""

    inputs: Sequence[WriteInput]
    to: str
    metadata: str | None


def write(asked: WriteArguments, options: WriteOptions, plan_options: PlanOptions, form: str) -> int:
    """Write, or plan to, and return the exit code.  Raises KlogError, OSError."""
    if any(one.format == "parquet" for one in asked.inputs):
        from klog.log.arrow import make_pyarrow_small

        make_pyarrow_small()
    is_there = not is_new(asked.to)
    if not is_there:
        unfit = {"--apply": plan_options.apply, "--save-plan": plan_options.plan_file, "--metadata": asked.metadata}
        given = [name for name, value in {**unfit, "--backup": plan_options.backup}.items() if value]
        if given:
            raise UsageError(f"{given[0]}: {asked.to} is a new log dir, which is written at once")
    with output.Results() as results:
        if is_there:
            reporter = output.TerminalReporter()
            done = write_stopped(asked.inputs, asked.to, options, asked.metadata, plan_options, reporter, results)
        else:
            done = write_new(asked.inputs, asked.to, options, results, Disk())
    if form == "json":
        output.emit_json(_json(done))
    else:
        output.lines(_lines(done, options, asked.to))
    for one in done.open_transactions:
        output.note(
            f"{one.topic}-{one.partition}: a transaction of producer {one.producer_id} is open: read_committed readers"
            f" stop at {one.first_offset} (--end-transactions abort)"
        )
    for note in done.notes:
        output.note(note)
    if form == "text" and done.plan is not None and done.plan.plan is not None:
        output.lines(next_step(done.plan, plan_options))
    return ExitCode.PROBLEMS_LEFT if done.skipped else 0


def _written(done: WriteResult) -> list[PartitionWriter]:
    return [one for one in done.writers if one.appender.batches]


def _json(done: WriteResult) -> dict[str, object]:
    writers = _written(done)
    members: dict[str, object] = {
        "records": sum(one.appender.records for one in writers),
        "bytes": sum(one.appender.bytes for one in writers),
        "partitions": [
            {
                "topic": one.place.name,
                "partition": one.number,
                "topic_id": one.place.topic_id,
                "records": one.appender.records,
                "batches": one.appender.batches,
                "bytes": one.appender.bytes,
                "segments": len(one.appender.segments),
                "first_offset": one.appender.first_offset,
                "log_end_offset": one.appender.end,
                "leader_epoch": one.appender.log.epochs.latest,
            }
            for one in writers
        ],
        "open_transactions": [one._asdict() for one in done.open_transactions],
        "skipped": done.skipped,
        "notes": list(done.notes),
    }
    if done.plan is not None:
        made = done.plan.plan
        members["retention"] = [one.json() for one in done.due]
        members["applied"] = done.plan.is_applied
        members["id"] = None if made is None else made.id
        members["backup"] = None if made is None else made.backups[0]
    return members


def _lines(done: WriteResult, options: WriteOptions, to: str) -> Iterator[str]:
    writers = _written(done)
    yield _verdict(done, writers, to)
    width = max((len(one.name) for one in writers), default=0)
    for one in writers:
        made = one.appender
        records, segments = counted(made.records, "record"), counted(len(made.segments), "segment")
        offsets, size = output.range_text(made.first_offset or 0, made.end - 1), output.human_size(made.bytes)
        yield f"{style.strong(f'{one.name:{width}}')}  {records}, offsets {offsets}, {segments}, {size}"
    for name in sorted({one.place.name for one in writers}):
        mine = [one for one in writers if one.place.name == name]
        place = mine[0].place
        settings = {setting: place.config.value(name, setting) for setting in _SETTINGS}
        yield f"{name}: {settings_text(settings)}"
        yield f"{name}: {_epochs(mine, options)}"


def _verdict(done: WriteResult, writers: Sequence[PartitionWriter], to: str) -> str:
    """Return how much is written, or would be, and how many records are not."""
    skipped = f"; {style.bad(counted(done.skipped, 'record') + ' skipped')}" if done.skipped else ""
    if not writers:
        return f"nothing to write{skipped}"
    is_done = done.plan is None or done.plan.is_applied
    records = counted(sum(one.appender.records for one in writers), "record")
    size = output.human_size(sum(one.appender.bytes for one in writers))
    partitions = counted(len(writers), "partition")
    verb = style.good("wrote") if is_done else "would write"
    return f"{verb} {style.strong(records)} ({size}) into {partitions} of {style.faint(to)}{skipped}"


def _epochs(writers: Sequence[PartitionWriter], options: WriteOptions) -> str:
    epochs = sorted({one.appender.log.epochs.latest for one in writers})
    known = ", ".join(map(str, epochs))
    if options.leader_epoch is None and writers[0].place.epochs:
        return f"leader epoch {known}, that of the partition"
    return f"leader epoch {known}, {'that of the records' if (options.leader_epoch or -1) < 0 else 'as given'}"
