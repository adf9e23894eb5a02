"""The notes of plans in the home of a user who has none: neither HOME nor a line in passwd, as in many containers."""

from __future__ import annotations

import os
import pwd

import pytest
from klog.change.plan import find_plans


def _nobody(_: int) -> pwd.struct_passwd:
    raise KeyError


@pytest.mark.parametrize("state", [None, "", "state"])
def test_notes_lie_below_the_root_and_never_below_the_working_directory(
    monkeypatch: pytest.MonkeyPatch, state: str | None
) -> None:
    """A relative path has no end towards the root: a plan looked for it until memory was full."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    if state is not None:
        monkeypatch.setenv("XDG_STATE_HOME", state)
    monkeypatch.setattr(pwd, "getpwuid", _nobody)
    assert find_plans._earlier_home() == os.path.join("/", ".local", "state", "klog")
