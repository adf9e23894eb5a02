"""The answers of `klog space` about other codecs, the cleaner, frequent keys, and ways to free space."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from klog.commands.space.codec_and_key_samples import FrequentKeys, Recompression, estimate_codecs, find_frequent_keys
from klog.commands.space.disk_usage import ContentQuery, DiskUsage
from klog.commands.space.free_plan import CleanerGain, FreePlan, FreeStep, find_gains, plan_free
from klog.data_dir.partition import Partition

from klog_cli import output
from klog_cli.style import bad, command, faint, good, strong
from klog_cli.views.stats import key_json

_CODEC_COLUMNS = ("topic", "codec", "batches", "size", "between", "and", "read")
_KEY_COLUMNS = ("partition", "key", "records", "share", "off by", "read")


class Answers(NamedTuple):
    """The requested answers; the others are empty."""

    codecs: tuple[Recompression, ...]
    gains: tuple[CleanerGain, ...]
    keys: tuple[tuple[Partition, FrequentKeys], ...]
    plan: FreePlan | None

    @property
    def is_unmet(self) -> bool:
        """Whether there is a plan that does not free enough."""
        return self.plan is not None and self.plan.missing > 0

    def members(self) -> dict[str, object]:
        """Return them as the members of the JSON document."""
        plan = self.plan
        return {
            "codecs": [one._asdict() for one in self.codecs],
            "compaction": [_gain_row(one) for one in self.gains],
            "keys": [row for partition, found in self.keys for row in _key_rows(partition, found)],
            "plan": [] if plan is None else [_step_row(step) for step in plan.steps],
            "missing": None if plan is None else plan.missing,
        }

    def show(self) -> None:
        """Print a table for each of them."""
        if self.codecs:
            _table("With another codec:", _CODEC_COLUMNS, map(_codec_cells, self.codecs))
        if self.gains:
            columns = ("partition", "size", "then", "of it", "read")
            _table("If the cleaner worked now:", columns, map(_gain_cells, self.gains))
        if self.keys:
            rows = (cells for one in self.keys for cells in _key_cells(*one))
            _table("The most frequent keys:", _KEY_COLUMNS, rows)


def answer(usage: DiskUsage, asked: ContentQuery) -> Answers:
    """Read the logs as far as needed, and return the answers."""
    logs: dict[str | None, list[Partition]] = {}
    for log_dir in usage.log_dirs:
        for one in log_dir.partitions:
            if one.state_reason is None and any(segment.log_bytes for segment in one.found.segments):
                logs.setdefault(one.partition.topic, []).append(one.partition)
    keys: list[tuple[Partition, FrequentKeys]] = []
    codecs: list[Recompression] = []
    for topic, partitions in logs.items():
        for partition in partitions if asked.top_keys else ():
            found = find_frequent_keys(partition, asked.top_keys, asked.fraction)
            keys.append((partition, found))
            usage.note(*found.problems)
        if asked.codecs:
            result = estimate_codecs(topic, partitions, asked.codecs, asked.fraction)
            codecs += result.rows
            usage.note(*result.problems)
    gains = tuple(find_gains(usage, asked.fraction)) if asked.compaction else ()
    plan = None
    if asked.free is not None:
        # The cleaner's gain takes long to compute: it is requested only when nothing cheaper is enough.
        plan = plan_free(usage, asked.free, gains if asked.compaction else find_gains(usage, asked.fraction))
    return Answers(tuple(codecs), gains, tuple(keys), plan)


def _gain_row(one: CleanerGain) -> dict[str, object]:
    where = {"topic": one.partition.topic, "partition": one.partition.number, "log_dir": one.partition.log_dir}
    return {**where, "bytes": one.bytes_before, "bytes_after": one.bytes_after, "sampled": one.sampled}


def _key_rows(partition: Partition, found: FrequentKeys) -> Iterator[dict[str, object]]:
    for one in found.keys:
        where = {"topic": partition.topic, "partition": partition.number}
        cut = {"length": one.length} if one.length > len(one.start) else {}
        figures = {"records": one.records, "share": one.share, "error": one.error, "sampled": found.sampled}
        yield {**where, **key_json(one.start), **cut, **figures}


def _step_row(step: FreeStep) -> dict[str, object]:
    what = {"manual": step.manual} if step.command is None else {"command": step.command}
    return {**what, "frees": step.frees, "why": step.why}


def _table(title: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    output.emit_table(("", title), columns, rows)


def _codec_cells(one: Recompression) -> tuple[str, ...]:
    batches = "as they are" if one.batch_bytes is None else f"of {one.batch_bytes >> 10} KiB"
    sizes = map(output.human_size, (one.bytes, one.low, one.high, one.sampled_bytes))
    return one.topic or "?", one.codec, batches, *sizes


def _gain_cells(one: CleanerGain) -> tuple[str, ...]:
    part = one.bytes_after / one.bytes_before if one.bytes_before else 1.0
    sizes = output.human_size(one.bytes_before), output.human_size(one.bytes_after)
    return one.partition.directory, *sizes, f"{part:.1%}", f"{one.sampled:.1%}"


def _key_cells(partition: Partition, found: FrequentKeys) -> Iterator[tuple[str, ...]]:
    for one in found.keys:
        key = one.start.decode("utf-8", "backslashreplace") + ("…" if one.length > len(one.start) else "")
        off = f"{one.error:.2%}" if one.error else "exact"
        yield partition.directory, key, str(one.records), f"{one.share:.2%}", off, f"{found.sampled:.1%}"


def plan_lines(plan: FreePlan) -> Iterator[str]:
    """Yield the steps of a plan, each command on a line of its own, and whether they are enough."""
    yield f"To free {strong(output.human_size(plan.wanted))}:"
    for number, step in enumerate(plan.steps, start=1):
        yield f"{number:>3}  frees {output.human_size(step.frees)}: {step.why}"
        shell = step.preview or step.command
        yield f"       {step.manual or ''}" if shell is None else f"       {command(shell)}"
        in_files = "" if step.file_bytes is None else output.human_size(step.file_bytes)
        if in_files not in ("", output.human_size(step.frees)):
            yield faint(f"       {in_files} in files, which take {output.human_size(step.frees)} on the disk")
    if plan.missing:
        kept = "retention keeps all other data, or nothing removes it"
        yield bad(f"not enough: {output.human_size(plan.missing)} cannot be freed, because {kept}")
    else:
        yield good(f"enough: that frees {output.human_size(plan.freed)}")
