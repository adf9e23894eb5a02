"""Settings of topics, each with its origin."""

from __future__ import annotations

from collections.abc import Mapping

from klog.cluster.metadata.topic_config import Setting, Value


def settings_json(found: Mapping[str, Setting]) -> dict[str, object]:
    """Return settings with their origins, for JSON."""
    return {name: {"value": one.value, "origin": one.origin.value, "name": one.name} for name, one in found.items()}


def settings_text(found: Mapping[str, Setting]) -> str:
    """Return settings with their origins, for text."""
    return ", ".join(f"{name} {_in_words(one.value)} ({one.origin.value})" for name, one in found.items())


def _in_words(value: Value) -> str:
    """Return a setting's value as Kafka has it."""
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
