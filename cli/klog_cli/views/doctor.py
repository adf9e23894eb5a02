"""`klog doctor`: the course of a broker's next start, as text or JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from klog.base.errors import ExitCode, UsageError, counted
from klog.base.progress import Sink
from klog.commands.doctor.broker_start import diagnose
from klog.commands.doctor.diagnosis import Diagnosis, KafkaVersion, NextStep
from klog.commands.doctor.meta_properties_check import BrokerConfig, choose_log_dirs, read_config
from klog.commands.doctor.start_request import StartRequest
from klog.formats.java_text import parse_uuid
from klog.tier.tier import Tier

from klog_cli import output


class DoctorRequest(NamedTuple):
    """The arguments of the command."""

    log_dirs: Sequence[str]
    version: str
    cluster_id: str | None
    node_id: int | None
    directory_ids: Sequence[str]
    config: str | None
    records: bool
    tier: Tier | None = None


def doctor(asked: DoctorRequest, form: str, everything: bool = False) -> int:
    """Print the course of a start, and return the exit code.  Raises UsageError, UnreadableError.

    *everything*: text has a line for each partition.
    """
    request = _request(asked)
    with output.Results() as results:
        found = diagnose(request, results)
        text = [] if form == "json" else list(_text(found, asked, results, everything))
    if form == "json":
        output.emit_json(_document(found))
    else:
        output.lines(text)
    return ExitCode.CLEAN if found.is_harmless else ExitCode.PROBLEMS_LEFT


def _request(asked: DoctorRequest) -> StartRequest:
    config = read_config(asked.config) if asked.config is not None else None
    log_dirs = choose_log_dirs(asked.log_dirs, config, asked.config)
    config = config or BrokerConfig()
    for one in asked.directory_ids:
        if parse_uuid(one) is None:
            raise UsageError(f"--directory-id {one}: expected the 22 letters of an id")
    if len(asked.directory_ids) > len(log_dirs):
        raise UsageError(f"{len(asked.directory_ids)} --directory-id for {counted(len(log_dirs), 'log dir')}")
    if None not in (asked.node_id, config.node_id) and asked.node_id != config.node_id:
        raise UsageError(f"{asked.config} has node.id={config.node_id}, and --node-id is {asked.node_id}")
    return StartRequest(
        log_dirs,
        KafkaVersion(asked.version),
        config.node_id if asked.node_id is None else asked.node_id,
        asked.cluster_id,
        asked.directory_ids,
        config.metadata_log_dir,
        config.delete_delay_ms,
        asked.records,
        config.producer_expiration_ms,
        config.properties,
        tier=asked.tier,
    )


def _text(found: Diagnosis, asked: DoctorRequest, sink: Sink, everything: bool) -> Iterator[str]:
    from klog_cli.views.doctor_text import DoctorText
    from klog_cli.views.repair_costs import RepairCosts

    return DoctorText(found, RepairCosts(asked.records, sink).of, everything).lines()


def _document(found: Diagnosis) -> dict[str, object]:
    return {
        "version": found.version.value,
        "starts": found.starts,
        "loses": found.loses,
        "fatal": None if found.failure is None else found.failure._asdict(),
        "notes": [note._asdict() for note in found.notes],
        "retention": [one.json() for one in found.retention],
        "offsets": [one._asdict() for one in found.offsets],
        "log_dirs": [{**one._asdict(), "fate": one.fate.value} for one in found.log_dirs],
        "steps": [step._asdict() for step in found.steps],
        "partitions": [{**row._asdict(), "fate": row.fate.value} for row in found.partitions],
        "recovery": {**found.recovery._asdict(), "seconds": list(found.recovery.seconds)},
        "next": [_step(step) for step in found.next],
    }


def _step(step: NextStep) -> dict[str, object]:
    what = {"manual": step.manual} if step.command is None else {"command": step.command}
    return {**what, "why": step.why}
