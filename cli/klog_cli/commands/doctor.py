"""`klog doctor`: its options."""

from __future__ import annotations

from typing import Annotated

import typer

from klog_cli import options

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
    everything: Annotated[
        bool, typer.Option("--all", help="A line for each partition and topic, also for those that fare alike.")
    ] = False,
    form: Annotated[str, options.output_form(FORMS)] = "text",
) -> int:
    """Say what a broker will do at its next start.

    Whether it starts; which partitions it serves, empties, deletes or sets aside; how many records nobody can read
    after it; how long it recovers; and the steps to a start that loses nothing. Nothing is changed. Exit code 4: it
    does not start, or loses or sets something aside, or its metadata log is damaged or behind the logs, or a
    transaction index does not say what was aborted.
    """
    from klog_cli.views.doctor import DoctorRequest
    from klog_cli.views.doctor import doctor as run

    options.known_form(form, FORMS)
    options.known("--kafka-version", version, VERSIONS)
    request = DoctorRequest(log_dirs or (), version, cluster_id, node_id, directory_id or (), config, records)
    return run(request, form, everything)
