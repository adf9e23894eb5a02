"""The options that name remote storage, and those with which a command reads a partition over both tiers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from klog.base.errors import ExitCode, UsageError, counted

from klog_cli import options, output

if TYPE_CHECKING:
    from klog.data_dir.selection import PartitionChoice
    from klog.partition.tiered.tiered_log import TieredLog
    from klog.tier.tier import Tier

Remote = Annotated[
    str | None,
    typer.Option(
        "--remote",
        metavar="TIER",
        help="The remote storage: a directory, or s3://BUCKET/PREFIX, gs://… or az://… (pip install 'klog[remote]').",
    ),
]
RemoteLayout = Annotated[
    str | None,
    typer.Option(
        "--remote-layout",
        metavar="local|aiven",
        help="The storage manager that wrote the objects; default: as their names show.",
    ),
]
RemoteKeys = Annotated[
    list[str] | None,
    typer.Option(
        "--remote-keys", metavar="KEYID=FILE", help="The RSA private key of encrypted objects, in PEM (repeatable)."
    ),
]
TierPart = Annotated[
    str | None,
    typer.Option("--tier", metavar="both|local|remote", help="Which of the two tiers to read; default: both."),
]


_MOST_NAMED = 10


class TierArguments(NamedTuple):
    """The options as they were given."""

    uri: str | None
    layout: str | None
    keys: Sequence[str] | None
    part: str | None


class TierPaths(NamedTuple):
    """The paths to read; *code*: the exit code of offsets that neither tier has.

    *logs*: the logs over two tiers by the paths of their directories; None without `--remote`.
    """

    paths: list[str]
    code: int = ExitCode.CLEAN
    logs: Mapping[str, TieredLog] | None = None

    @property
    def only(self) -> str:
        """The only path.  Raises UsageError if there are several."""
        if len(self.paths) > 1:
            raise UsageError(f"{len(self.paths)} partitions: name one with --topic and --partition")
        return self.paths[0]


def named_tier(
    uri: str | None, layout: str | None, keys: Sequence[str] | None, *, in_order: bool = False
) -> Tier | None:
    """Return the tier that the options name; None without one.  *in_order*: logs are read as a whole.

    Raises UsageError, KlogError.
    """
    if uri is None and layout is None and not keys:
        return None
    from klog_cli.views.remote.tier_option import tier_of

    return tier_of(uri, layout, keys or (), in_order=in_order)


@contextmanager
def over_tiers(
    paths: Sequence[str],
    topics: Sequence[str] | None,
    numbers: Sequence[PartitionChoice] | None,
    given: TierArguments,
    cache_bytes: int = 0,
    serves: bool = False,
) -> Iterator[TierPaths]:
    """Lay remote segments over the partitions while the block lasts; yield the paths to read.

    Without `--remote` these are *paths*.  *cache_bytes*: see `MountRequest`.  Names the offsets that neither tier has,
    unless the command *serves*, whose first line is its address.  Raises UsageError, KlogError.
    """
    if not any(given):
        yield TierPaths(list(paths))
        return
    if given.uri is None and given.part is not None:
        raise UsageError("--tier needs --remote TIER")
    from klog.partition.tiered.mounts import BOTH, TIERS, MountRequest, gaps, mounted

    part = options.known("--tier", given.part or BOTH, TIERS)
    tier = named_tier(given.uri, given.layout, given.keys)
    assert tier is not None
    if not paths and not topics:
        raise UsageError("name log dirs, or what to read from remote storage alone: --topic T --partition N")
    request = MountRequest(tier, paths, topics or (), numbers or (), part, cache_bytes)
    with mounted(request) as found:
        lines = [] if part != BOTH or serves else list(gaps(found.logs | found.local_only))
        for line in lines:
            output.error(line)
        for path, log in found.logs.items():
            if log.local_start is None and paths and part == BOTH and not serves:
                output.note(f"{path}: there is no local log: only remote storage is read")
        yield TierPaths(found.paths, ExitCode.PROBLEMS_LEFT if lines else ExitCode.CLEAN, found.logs)


_ADDED = {"remote": Remote, "remote_layout": RemoteLayout, "remote_keys": RemoteKeys, "tier": TierPart}


def _tell_below_local_logs(
    paths: Sequence[str],
    topics: Sequence[str] | None,
    numbers: Sequence[PartitionChoice] | None,
    given: Mapping[str, Any],
) -> int:
    """Name the partitions whose requested offsets are partly in remote storage alone; return the exit code."""
    from klog.base.read_only import is_directory
    from klog.data_dir.replicas import log_end
    from klog.data_dir.selection import PartitionQuery
    from klog.partition.tiered.below_local import below_local_log

    query = PartitionQuery(list(filter(is_directory, paths)), topics or (), numbers or ())
    found = []
    for one in (one for selection in query.selections() for one in selection.partitions):
        first, end = given["from_offset"], given.get("to_offset")
        if first < 0 or (end is not None and end < 0):  # they count from the log end
            reached = log_end(one)
            first = first if first >= 0 else max(0, reached + first)
            end = end if end is None or end >= 0 else reached + end
        below = below_local_log(one, first)
        if below is not None and (end is None or end > below.first):
            found.append(f"{one.path}: {below}")
    for line in found[:_MOST_NAMED]:
        output.error(line)
    if len(found) > _MOST_NAMED:
        output.error(f"{counted(len(found) - _MOST_NAMED, 'more partition')} like these")
    return ExitCode.PROBLEMS_LEFT if found else ExitCode.CLEAN


def reads_both_tiers(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options of remote storage to a command with *paths*, *topic* and *partition*."""

    @wraps(command)
    def run(**given: Any) -> int:
        tiers = TierArguments(*(given.pop(name) for name in _ADDED))
        with over_tiers(given["paths"] or (), given["topic"], given["partition"], tiers) as found:
            code = found.code | command(**given | {"paths": found.paths})
        if found.logs is None and given.get("from_offset") is not None:
            code |= _tell_below_local_logs(given["paths"] or (), given["topic"], given["partition"], given)
        return code

    own = signature(command, eval_str=True)
    added = [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind) for name, kind in _ADDED.items()]
    run.__signature__ = own.replace(parameters=[*own.parameters.values(), *added])  # type: ignore[attr-defined]
    run.__annotations__ = {**command.__annotations__, **_ADDED}
    return run
