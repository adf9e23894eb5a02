"""`klog metadata plan`: from the paths to metadata logs with which a quorum or a broker can start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from klog.base.errors import ExitCode, KlogError, UsageError, counted, offsets_text
from klog.change.plan.model import Loss
from klog.change.plan.plan_document import plan_json
from klog.change.plan.session import PlanOptions, PlanResult, PlanSession
from klog.commands.replicas.copy_plan import CopyPlanSettings, of_copies
from klog.commands.replicas.disks import BrokerDisk, open_disks
from klog.commands.replicas.quorum_plan import QuorumPlanner, QuorumSettings
from klog.commands.replicas.quorum_steps import next_steps, warnings
from klog.commands.replicas.voter_addresses import VoterAddress, parse_address, parse_voters
from klog.data_dir.partition_identity import IdentityChoice
from klog.data_dir.selection import PartitionQuery

from klog_cli import output
from klog_cli.command_line import next_step
from klog_cli.style import bad, good
from klog_cli.views.plan_lines import changes, first_lines
from klog_cli.views.replicas.choice import copy_settings


class QuorumRequest(NamedTuple):
    """The request of the command line."""

    paths: Sequence[str]
    voters: str | None
    uses_disk_ids: bool
    only_broker: int | None
    only_voter: int | None
    voter: str | None
    keep: str | None
    choices: Sequence[str]
    repairs: bool
    without: Sequence[str]
    base: int | None
    choice: IdentityChoice


class _Wanted(NamedTuple):
    """The request, read: the *addresses* of all voters, or the *address* of the only one; which copies count."""

    addresses: dict[int, VoterAddress]
    address: VoterAddress | None
    copies: CopyPlanSettings


def plan(request: QuorumRequest, options: PlanOptions, form: str) -> int:
    """Plan, apply if requested, print, and return the exit code.  Raises KlogError."""
    _check(request)
    disks = open_disks(request.paths, request.choice, output.note)
    wanted = _wanted(request, disks)
    query = PartitionQuery([disk.log_dir.path for disk in disks])
    with PlanSession(query, options, reporter=output.TerminalReporter()) as session:
        if not all(one.whole for one in session.selections):
            raise KlogError("an earlier plan is half done on these disks; first finish or undo it")
        # The directory may have changed between the listing and the lock.
        disks = [BrokerDisk(disk.node, one.log_dir) for disk, one in zip(disks, session.selections, strict=True)]
        settings = QuorumSettings(wanted.copies.now_ms, request.base, wanted.copies.without)
        planner = QuorumPlanner(disks, session.staging, settings, session.disk)
        if request.only_broker is not None:
            planner.own_everything(request.only_broker, wanted.copies, wanted.address)
        elif request.only_voter is not None:
            planner.lead_alone(request.only_voter, wanted.address, uses_disk_ids=request.uses_disk_ids)
        else:
            planner.move_voters(wanted.addresses, uses_disk_ids=request.uses_disk_ids)
        result = session.finish(planner.drafts(), losses=planner.losses, revise=partial(of_copies, planner.copies_json))
    for note in planner.removals.notes():
        output.note(note)
    if form == "json":
        output.emit_json(_json(planner, result))
    else:
        _show(planner, result, options)
    is_lost = planner.gathering is not None and bool(planner.gathering.lost)
    if not is_lost and not planner.base.gone:
        return ExitCode.CLEAN
    return ExitCode.PROBLEMS_LEFT + (ExitCode.CORRECTED if result.is_applied else 0)


def _check(request: QuorumRequest) -> None:
    """Raise UsageError for options that do not go together."""
    tasks = {
        "--voters": request.voters,
        "--only-voter": request.only_voter,
        "--only-broker": request.only_broker,
    }
    given = [name for name, value in tasks.items() if value is not None]
    if len(given) != 1:
        raise UsageError("one of --voters, --only-voter and --only-broker says what to plan")
    for name, is_given, takes in (
        ("--voter", request.voter, ("--only-voter", "--only-broker")),
        ("--without", request.without, ("--voters", "--only-broker")),
        ("--directory-ids", request.uses_disk_ids, ("--voters", "--only-voter")),
        ("--keep", request.keep, ("--only-broker",)),
        ("--choose", request.choices, ("--only-broker",)),
        ("--repair", request.repairs, ("--only-broker",)),
    ):
        if is_given and given[0] not in takes:
            raise UsageError(f"{name} goes with {' and '.join(takes)}")


def _wanted(request: QuorumRequest, disks: Sequence[BrokerDisk]) -> _Wanted:
    """Read the request.  Raises UsageError."""
    for name, node in (("--only-broker", request.only_broker), ("--only-voter", request.only_voter)):
        if node is not None and node not in {disk.node for disk in disks}:
            raise UsageError(f"{name} {node}: no disk of node {node} is given")
    return _Wanted(
        parse_voters(request.voters) if request.voters is not None else {},
        parse_address("--voter", request.voter) if request.voter is not None else None,
        copy_settings(disks, request.keep, request.choices, request.repairs, without=request.without),
    )


def _json(planner: QuorumPlanner, result: PlanResult) -> dict[str, object]:
    base = planner.base
    lost = planner.gathering.lost if planner.gathering is not None else []
    unknown = planner.gathering.unknown if planner.gathering is not None else []
    return {
        **plan_json(result.plan),
        "applied": result.is_applied,
        "copies": planner.copies_json,
        **planner.removals.json(),
        "metadata": {
            "base": {"node": base.node, "offset": base.log_end, "epoch": base.epoch},
            "appended": [
                {"offset": one.offset, "epoch": one.epoch, "records": list(one.records)} for one in planner.new.batches
            ],
            "extended": {str(one.change.node): one.extended for one in planner.logs.changes if one.extended},
            "cut": {str(one.change.node): one.cut for one in planner.logs.changes if one.cut},
            "mended": _mended(planner),
            "lost": [{"topic": topic, "partition": number} for topic, number in lost],
            "unknown": [{"topic": topic, "partition": number} for topic, number in unknown],
            "next": [*next_steps(planner), *warnings(planner)],
        },
    }


def _mended(planner: QuorumPlanner) -> dict[str, object] | None:
    """Return the records to append because the base is behind the logs; None if it is not."""
    if not planner.lag:
        return None
    epochs = [
        {"topic": one.topic, "partition": one.number, "log": one.used, "metadata": one.known}
        for one in planner.lag.epochs
    ]
    return {
        "epochs": epochs,
        "producer_ids": len(planner.lag.producer_ids),
        "next_producer_id": planner.next_producer_id,
    }


def _show(planner: QuorumPlanner, result: PlanResult, options: PlanOptions) -> None:
    made = result.plan
    if made is None:
        output.lines([good("nothing to do"), *_lines(planner)])
        return
    done = "written" if result.is_applied else "planned"
    logs = good(f"{counted(len(planner.logs.changes), 'metadata log')} {done}")
    output.lines([f"{logs}; {changes(len(made.actions))}", *_lines(planner)])
    output.lines(f"backup: {backup}" for backup in (made.backups if result.is_applied else ()))
    output.lines(f"next: {line}" for line in next_steps(planner))
    for warning in warnings(planner):
        output.note(warning)
    output.lines(next_step(result, options))


def _offsets(loss: Loss) -> str:
    if loss.first_offset is None or loss.last_offset is None:
        return "its offsets are unknown"
    return offsets_text(loss.first_offset, loss.last_offset)


def _lines(planner: QuorumPlanner) -> Iterator[str]:
    """Yield the changes of the logs and of the partitions."""
    base = planner.base
    yield f"base: node {base.node}, offset {base.log_end}, epoch {base.epoch} ({base.partition.path})"
    if planner.lag:
        yield f"it is behind the logs on these disks, which the batches mend: {planner.lag.description}"
    for one in planner.logs.changes:
        steps = [
            *([f"{counted(one.cut, 'offset')} cut from {one.change.cut_to} on"] if one.cut else []),
            *([f"{counted(one.extended, 'offset')} filled up"] if one.extended else []),
            f"{counted(len(planner.new.batches), 'batch', 'es')} from {planner.new.batches[0].offset} on",
        ]
        yield f"    node {one.change.node}: {', then '.join(steps)}"
    for batch in planner.new.batches:
        names = ", ".join(f"{name} × {count}" if count > 1 else name for name, count in Counter(batch.records).items())
        yield f"batch at {batch.offset}, epoch {batch.epoch}: {names}"
    if planner.gathering is None:
        return
    gathered = planner.gathering.copies
    yield (
        f"node {planner.gathering.node} owns {counted(len(planner.gathering.directories), 'partition')};"
        f" {len(gathered.equal)} copied from other disks"
    )
    copied = [f"    {one.diff.topic}-{one.diff.number} from node {one.kept}" for one in gathered.equal]
    yield from first_lines(copied, "partitions")
    losses = [
        f"    {one.topic}-{one.partition}: {bad(counted(one.records or 0, 'record') + ' lost')},"
        f" {_offsets(one)} ({one.reason})"
        for one in gathered.losses
    ]
    yield from first_lines(losses, "losses")
    lost = [f"    {topic}-{number}: no disk has it; it stays as it is" for topic, number in planner.gathering.lost]
    yield from first_lines(lost, "partitions that no disk has")
