"""Writes the pictures of docs/browse.md: screens of `klog browse` over fixtures/, in a terminal of 100 columns."""

from __future__ import annotations

import asyncio
import os
import re

from klog_cli.browse.app import BrowseApp

from tools.terminals import FIXTURES, ROOT

SCREENS = {
    "browse-partitions": ("modern", ()),
    "browse-segments": ("crash/flip-middle", ("enter",)),
    "browse-batches": ("crash/flip-middle", ("enter", "end", "up", "enter", "down", "down")),
}
"""The log dir, and the keys that lead to the screen."""
_SIZE = (100, 22)
_PAUSE_S = 2.0


async def screen(path: str, keys: tuple[str, ...]) -> str:
    """Return the SVG of a screen, without the fonts that Textual loads from another host."""
    app = BrowseApp([path])
    async with app.run_test(size=_SIZE) as pilot:
        await pilot.pause(_PAUSE_S)
        for key in keys:
            await pilot.press(key)
            await pilot.pause(_PAUSE_S)
        found = app.export_screenshot(title=f"klog browse {path}", simplify=True)
    return re.sub(r"\s*@font-face \{.*?\}", "", found, flags=re.DOTALL).strip() + "\n"


def main() -> None:
    """Write the pictures."""
    os.chdir(FIXTURES)
    for name, (path, keys) in SCREENS.items():
        with open(os.path.join(ROOT, "docs/pictures", f"{name}.svg"), "w", encoding="utf-8") as file:
            file.write(asyncio.run(screen(path, keys)))


if __name__ == "__main__":
    main()
