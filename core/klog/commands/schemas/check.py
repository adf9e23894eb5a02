"""`klog schemas check`: missing, doubled, broken and unused schemas, and keys and values that do not decode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from klog.base.progress import Sink
from klog.commands.schemas.findings import DAMAGE, WARNING, SchemaFinding, SchemaFindings
from klog.commands.schemas.usage import Usage, UsageOptions, count_usage
from klog.data_dir.partition import Partition
from klog.jobs.runner import Runner
from klog.schemas.registry import Registry


class SchemaCheck(NamedTuple):
    """The results: counts by topic and side, findings, and the places that cannot be read."""

    usage: Usage
    findings: list[SchemaFinding]
    damage: list[str]

    @property
    def is_clean(self) -> bool:
        """Whether there is nothing but notes."""
        return not self.damage and not any(one.severity in (DAMAGE, WARNING) for one in self.findings)


def check_schemas(
    registry: Registry,
    partitions: Sequence[Partition],
    options: UsageOptions,
    runner: Runner,
    sink: Sink,
    partial: bool = False,
) -> SchemaCheck:
    """Decode all keys and values of *partitions* by the schemas of *registry*, and judge both.

    *partitions*: by topic and number.  *partial*: they are not all that use the registry.  Content raises nothing.
    """
    usage, damage = count_usage(registry, partitions, options, runner, sink)
    found = SchemaFindings(registry, usage, options.sample > 1, partial).all()
    return SchemaCheck(usage, found, damage)
