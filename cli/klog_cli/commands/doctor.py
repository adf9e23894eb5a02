"""`klog doctor`: its options."""

from __future__ import annotations

from typing import Annotated

import typer

from klog_cli import options
from klog_cli.remote_options import Remote, RemoteKeys, RemoteLayout

FORMS = ("text", "json")
VERSIONS = ("4.3", "3.9", "2.8")


def doctor(
    log_dirs: Annotated[
        list[str] | None, typer.Argument(metavar="LOG_DIR...", help="log.dirs of one broker, in that order.")
    ] = None,
    version: Annotated[
        str, typer.Option("--kafka-version", metavar="|".join(VERSIONS), help="Version of the broker that will start.")
    ] = VERSIONS[0],
    cluster_id: Annotated[
        str | None, typer.Option("--cluster-id", metavar="ID", help="Id of the cluster that the broker joins.")
    ] = None,
    node_id: Annotated[
        int | None, typer.Option("--node-id", metavar="N", min=0, help="node.id of the broker; default: as on disk.")
    ] = None,
    directory_id: Annotated[
        list[str] | None,
        typer.Option("--directory-id", metavar="ID", help="Id by which the cluster knows a log dir, in their order."),
    ] = None,
    config: options.ServerProperties = None,
    records: Annotated[
        bool,
        typer.Option(
            "--records", help="Count the records of every partition, and compare every transaction index with its log."
        ),
    ] = False,
    tier: Remote = None,
    layout: RemoteLayout = None,
    keys: RemoteKeys = None,
    everything: Annotated[
        bool, typer.Option("--all", help="A line for each partition and topic, even if their outcomes are equal.")
    ] = False,
    form: Annotated[str, options.output_form(FORMS)] = "text",
) -> int:
    """Predict the next start of a broker.

    The output has the verdict, the partitions that are served, emptied, deleted or set aside, the number of records
    that nobody can read afterwards, the time of the recovery, and the steps to a start that loses nothing. Nothing
    is changed. Exit code 4: the broker does not start; or it loses records or sets a directory aside; or its
    metadata log is damaged or behind the logs; or a transaction index lacks aborted transactions.
    """
    from klog_cli.views.doctor import DoctorRequest
    from klog_cli.views.doctor import doctor as run
    from klog_cli.views.remote.tier_option import tier_of

    options.known_form(form, FORMS)
    options.known("--kafka-version", version, VERSIONS)
    place = tier_of(tier, layout, keys or ())
    request = DoctorRequest(log_dirs or (), version, cluster_id, node_id, directory_id or (), config, records, place)
    return run(request, form, everything)
