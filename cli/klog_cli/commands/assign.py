"""`klog assign`: its options."""

from __future__ import annotations

from typing import Annotated

import typer

from klog_cli import options

ASSIGN_OUTPUTS = ("text", "json", "jsonl", "csv", "reassignment")
ALGORITHMS = ("kraft", "classic")
MOST_STEPS = 100_000
"""A start or a shift counts brokers."""
MOST_PARTITIONS = 10_000_000

Brokers = Annotated[
    str | None, typer.Option(metavar="ID,ID,...", help="The brokers to place on; instead of --metadata.")
]
Racks = Annotated[
    str | None, typer.Option(metavar="ID:RACK,...", help="The racks of these brokers; the others have none.")
]
From = Annotated[
    str | None,
    typer.Option("--metadata", metavar="DIR", help="Brokers, racks and fencing of the metadata log in this log dir."),
]
PartitionCount = Annotated[int | None, typer.Option(metavar="N", help="Number of partitions to place.")]
Replication = Annotated[int | None, typer.Option(metavar="N", help="Number of replicas of each partition.")]
Algorithm = Annotated[
    str,
    typer.Option(
        metavar="|".join(ALGORITHMS),
        help="kraft: as KRaft controllers; classic: as ZooKeeper-era controllers and tools up to 3.9.",
    ),
]
Seed = Annotated[int | None, typer.Option(metavar="N", help="Seed of java.util.Random for kraft; default: random.")]
StartIndex = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=0, max=MOST_STEPS, help="Starting broker index for the classic algorithm; default: random."
    ),
]
Shift = Annotated[
    int | None,
    typer.Option(metavar="N", min=0, max=MOST_STEPS, help="Shift of classic; default: the start index."),
]
StartPartition = Annotated[
    int,
    typer.Option(metavar="N", min=0, max=MOST_PARTITIONS, help="Number of the first partition, if a topic grows."),
]
Fenced = Annotated[
    str | None, typer.Option(metavar="ID,ID,...|none", help="Fenced brokers; none: no broker is fenced.")
]
NoRacks = Annotated[bool, typer.Option("--no-racks", help="Ignore racks.")]
Check = Annotated[
    str | None, typer.Option(metavar="DIR", help="Check the topics of the metadata log in this log dir instead.")
]
AssignOutput = Annotated[str, options.output_form(ASSIGN_OUTPUTS)]


def assign(
    brokers: Brokers = None,
    racks: Racks = None,
    source: From = None,
    partitions: PartitionCount = None,
    replication: Replication = None,
    algorithm: Algorithm = "kraft",
    seed: Seed = None,
    start_index: StartIndex = None,
    shift: Shift = None,
    start_partition: StartPartition = 0,
    fenced: Fenced = None,
    no_racks: NoRacks = False,
    topic: options.Topics = None,
    check: Check = None,
    form: AssignOutput = "text",
) -> int:
    """Show which brokers a new topic's partitions would get.

    With --check, klog checks the replicas of existing topics instead. The controller draws at random: --seed gives
    the same result each time. Exit code 4, with --check: a partition has a broker twice, or is in fewer racks than
    it could be.
    """
    from klog_cli.views.assign.assign import AssignRequest
    from klog_cli.views.assign.assign import assign as run

    options.known_form(form, ASSIGN_OUTPUTS)
    options.known("--algorithm", algorithm, ALGORITHMS)
    if check is not None:
        from klog_cli.views.assign.check import check as run_check

        given: dict[str, object] = {
            "--brokers": brokers,
            "--racks": racks,
            "--metadata": source,
            "--seed": seed,
            "--fenced": fenced,
        }
        given |= {"--partitions": partitions, "--replication": replication, "--start-index": start_index}
        return run_check(check, topic or (), [name for name, value in given.items() if value is not None], form)
    placed_on = (brokers, racks, source)
    begins = (start_index, shift, start_partition)
    request = AssignRequest(
        *placed_on, partitions, replication, algorithm, seed, *begins, fenced, no_racks, topic or ()
    )
    return run(request, form)
