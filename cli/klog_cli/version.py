"""The output of `--version`."""

from __future__ import annotations

import sys

from klog import __version__
from klog.kernel import hardware_crc


def version_line() -> str:
    """Return the versions of klog, Python and the kernel, and which CRC-32C is in use."""
    python = sys.version.split(maxsplit=1)[0]  # as platform.python_version, whose module takes longer than all the rest
    crc = "hardware CRC-32C" if hardware_crc() else "portable CRC-32C"
    return f"klog {__version__}, Python {python}, kernel {__version__} with {crc}\n"
