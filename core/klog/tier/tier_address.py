"""The address of a tier: the arguments that open it, for another process."""

from __future__ import annotations

from typing import NamedTuple


class TierAddress(NamedTuple):
    """The arguments of `klog.tier.tier.open_tier`; *key_files*: pairs of a key id and a file."""

    uri: str
    layout: str | None = None
    key_files: tuple[tuple[str, str], ...] = ()

    @property
    def words(self) -> list[str]:
        """The options of a command that name it."""
        layout = [] if self.layout is None else ["--remote-layout", self.layout]
        keys = [word for key_id, path in self.key_files for word in ("--remote-keys", f"{key_id}={path}")]
        return ["--remote", self.uri, *layout, *keys]
