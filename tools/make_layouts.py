"""Write core/klog/kernel/layouts.pxd: the byte offsets of the layouts in klog.formats, for the kernel.

python tools/make_layouts.py [--check]
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "core"))

from klog.formats import batch, control, index, message_set, transaction_state  # noqa: E402

TARGET = ROOT / "core/klog/kernel/layouts.pxd"
PREFIXES = {
    "BATCH": batch.BATCH,
    "MESSAGE_V0": message_set.MESSAGE_V0,
    "MESSAGE_V1": message_set.MESSAGE_V1,
    "ENTRY": batch.ENTRY,
    "OFFSET_ENTRY": index.OFFSET_ENTRY,
    "TIME_ENTRY": index.TIME_ENTRY,
    "STATE": transaction_state.VALUE_HEAD,
    "CONTROL_KEY": control.KEY,
    "END_MARKER": control.END_TXN_MARKER,
}


def text() -> str:
    lines = [
        "# Written by tools/make_layouts.py from klog.formats: each layout is declared there, once.",
        "cdef enum:",
    ]
    for prefix, layout in PREFIXES.items():
        lines += [f"    {prefix}_{name.upper()} = {offset}" for name, offset in layout.offsets.items()]
        lines.append(f"    {prefix}_BYTES = {layout.size}")
    lines += [f"    ATTRIBUTE_{name} = {int(flag)}" for name, flag in batch.Attributes.__members__.items()]
    lines += [f"    CONTROL_{name} = {number}" for number, name in control.TYPES.items()]
    lines += [
        f"    OVERHEAD = {batch.OVERHEAD}",
        f"    MIN_SIZE = {batch.MIN_SIZE}",
        f"    BATCH_CRC_START = {batch.CRC_START}",
        f"    MESSAGE_CRC_START = {message_set.CRC_START}",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    if "--check" in sys.argv:
        return 0 if TARGET.read_text() == text() else 1
    TARGET.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
