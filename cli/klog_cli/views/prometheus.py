"""Prometheus' text format 0.0.4, as node_exporter's textfile collector reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from klog_cli import output

Labels = Mapping[str, str]


class Metric(NamedTuple):
    """A gauge: its name, its meaning, and its samples by their labels."""

    name: str
    meaning: str
    samples: Iterable[tuple[Labels, int | float]]


def emit_metrics(metrics: Iterable[Metric], to: str | None) -> None:
    """Print *metrics*, or write them to the file *to*, which appears under its name when it is whole.

    Raises UsageError for a file that may not be written there, OSError.
    """
    lines = (line for metric in metrics for line in _lines(metric))
    if to is None:
        for line in lines:
            output.write(line.encode())
        return
    from klog.data_dir.disk.disk_changes import NewFile

    with NewFile(to) as file:
        for line in lines:
            output.write(line.encode(), file.descriptor, name=to)
        file.commit()


def _lines(metric: Metric) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.meaning}\n# TYPE {metric.name} gauge\n"
    for labels, value in metric.samples:
        pairs = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
        yield f"{metric.name}{{{pairs}}} {value}\n" if pairs else f"{metric.name} {value}\n"


def _escaped(text: str) -> str:
    """Return a label's value; a byte that is no UTF-8 shows as its escape, so that two names stay two."""
    valid = text.encode("utf-8", "backslashreplace").decode()
    return valid.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
