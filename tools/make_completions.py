"""Write completions/ (`make completions`): the scripts that `klog completion` prints."""

from __future__ import annotations

import os

from klog_cli.command_catalog import read
from klog_cli.completion_scripts import SHELLS

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FILES = {"bash": "klog.bash", "zsh": "_klog", "fish": "klog.fish"}
"""The name that each shell looks for."""


def main() -> None:
    klog = read()
    for shell, name in FILES.items():
        with open(os.path.join(ROOT, "completions", name), "w", encoding="utf-8") as file:
            file.write(SHELLS[shell](klog))


if __name__ == "__main__":
    main()
