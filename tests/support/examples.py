"""Settings of hypothesis: the normal run takes few examples, always the same; KLOG_EXAMPLES=5000 looks for new ones."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

DEFAULT = "klog"
"""The profile of tests that set nothing: other work may share the machine."""
settings.register_profile(DEFAULT, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))

EXAMPLES = int(os.environ.get("KLOG_EXAMPLES", "0"))

if not EXAMPLES:
    # Hypothesis draws numbers and texts that it finds in modules, and finds more of them with each module that an
    # earlier test loads: the examples would be others in each run.
    assert callable(providers._get_local_constants)
    providers._get_local_constants = Constants


def examples(count: int, **more: Any) -> settings:
    """Return settings for *count* examples.

    Other work may share the machine: drawing an example may be slow, and a single one has 20 seconds.
    """
    return settings(
        max_examples=EXAMPLES or count,
        derandomize=not EXAMPLES,
        deadline=timedelta(seconds=20),
        suppress_health_check=list(HealthCheck),
        **more,
    )
