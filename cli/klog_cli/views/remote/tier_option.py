"""The tier that `--remote`, `--remote-layout` and `--remote-keys` name."""

from __future__ import annotations

from collections.abc import Sequence

from klog.base.errors import UsageError
from klog.tier.tier import LAYOUTS, Tier, open_tier

from klog_cli import options


def tier_of(uri: str | None, layout: str | None, keys: Sequence[str], *, in_order: bool = False) -> Tier | None:
    """Return the tier at *uri*; None without one.  *keys*: texts `KEYID=FILE`.  *in_order*: logs are read as a whole.

    Raises UsageError, KlogError.
    """
    if layout is not None:
        options.known("--remote-layout", layout, LAYOUTS)
    files = {}
    for one in keys:
        key_id, equals, path = one.partition("=")
        if not (key_id and equals and path):
            raise UsageError(f"--remote-keys {one}: expected KEYID=FILE, such as key1=private.pem")
        files[key_id] = path
    if uri is None:
        if layout is not None or files:
            raise UsageError("--remote-layout and --remote-keys need --remote TIER")
        return None
    return open_tier(uri, layout, files, in_order=in_order)
