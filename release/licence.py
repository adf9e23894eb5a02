"""Print the licences in a source archive or a wheel: `licence.py ARCHIVE`.  Exit 1 if there is none."""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile

_NAMES = re.compile(r"(^|/)(licen[cs]e|copying|notice)[^/]*$", re.IGNORECASE)
_DEEPEST = 4
"""How many directories a licence may lie in: those that lie deeper are of tests and examples."""


def texts(path: str) -> dict[str, bytes]:
    """Return the licences of an archive by their paths in it."""
    if path.endswith(".whl"):
        with zipfile.ZipFile(path) as wheel:
            return {name: wheel.read(name) for name in wheel.namelist() if _NAMES.search(name)}
    found = {}
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile() and member.name.count("/") <= _DEEPEST and _NAMES.search(member.name):
                file = archive.extractfile(member)
                assert file is not None
                found[member.name] = file.read()
    return found


def main() -> int:
    """Print all of them, each once, in the order of their paths."""
    found = texts(sys.argv[1])
    said = []
    for _, text in sorted(found.items()):
        if text not in said and not text.startswith(b"#!"):
            said.append(text)
    sys.stdout.buffer.write(b"\n".join(said))
    return not said


if __name__ == "__main__":
    sys.exit(main())
