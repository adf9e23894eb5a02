"""`klog browse`: its arguments, and whether there is a terminal and Textual."""

from __future__ import annotations

from klog.base.errors import UnsupportedError, UsageError

from klog_cli import options, output


def browse(paths: options.Paths = None, topic: options.Topics = None, partition: options.Partitions = None) -> int:
    """Walk through log dirs, segments and records on the screen.

    Each screen shows the klog command that prints the same. Nothing is changed or locked. As a Python package it
    needs Textual: pip install 'klog[tui]'.
    """
    from klog.data_dir.selection import open_path, partitions_of, select

    if not paths:
        raise UsageError("nothing to browse: name log dirs, partition directories or files")
    opened = [open_path(path) for path in paths]
    if topic or partition:
        select(partitions_of(opened), topic or (), partition or ())
    if not all(map(output.is_terminal, (0, output.STDOUT, output.STDERR))):
        raise UsageError("browse needs a terminal; klog describe prints the same")
    try:
        from klog_cli.browse.app import browse as run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "textual":
            raise
        raise UnsupportedError("browse needs Textual: pip install 'klog[tui]'") from error
    return run(paths, topic or (), partition or ())
