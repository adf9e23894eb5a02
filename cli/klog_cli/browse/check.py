"""The check of a partition: `klog verify` for the partition that one goes into."""

from __future__ import annotations

import json

from klog.base.errors import ExitCode

from klog_cli.browse.command_run import CommandRun


class Check:
    """The result of `klog verify -o json` for a partition; *first*: the worst finding, for the list of partitions."""

    def __init__(self) -> None:
        self.is_done = False
        self.damages = self.warnings = 0
        self.first = ""
        self.damaged_files: frozenset[str] = frozenset()

    def take(self, found: bytes) -> None:
        """Take the JSON."""
        findings = json.loads(found)["findings"]
        damages = [one for one in findings if one["severity"] == "damage"]
        warnings = [one for one in findings if one["severity"] == "warning"]
        self.damages, self.warnings = len(damages), len(warnings)
        if worst := [*damages, *warnings][:1]:
            offset = worst[0]["offset"]
            self.first = worst[0]["id"] + ("" if offset is None else f" @{offset}")
        self.damaged_files = frozenset(str(one["file"]) for one in damages if one["file"])
        self.is_done = True

    @property
    def rank(self) -> tuple[int, int]:
        """A number that is smaller for worse damage."""
        return -self.damages, -self.warnings

    @property
    def verdict(self) -> str:
        """The result in a few words."""
        if not (self.damages or self.warnings):
            return "clean"
        more = self.damages + self.warnings - 1
        return f"{'✗' if self.damages else '!'} {self.first}{f' and {more} more' if more else ''}"


def run_check(check: Check, run: CommandRun) -> str:
    """Carry out a check; return the reason why there is no result, empty if there is one."""
    code, found = run.in_pipe()
    if code < 0:
        return "the check was cancelled"
    if code & ExitCode.USAGE or not found:
        return run.errors.decode("utf-8", "replace").strip()
    check.take(found)
    return ""
