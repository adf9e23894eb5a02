"""Write cli/klog_cli/completions (`make completions`): the scripts that `klog completion` prints."""

from __future__ import annotations

import os

import klog_cli
from klog_cli.views.completion import SCRIPTS

from tools.command_catalog import read
from tools.completion_scripts import SHELLS

FOLDER = os.path.join(os.path.dirname(klog_cli.__file__), "completions")


def main() -> None:
    klog = read()
    for shell, name in SCRIPTS.items():
        with open(os.path.join(FOLDER, name), "w", encoding="utf-8") as file:
            file.write(SHELLS[shell](klog))


if __name__ == "__main__":
    main()
