"""Builds the kernel a second time, so that each branch of its source counts how often it goes which way.

Cython writes C that names the source line of each statement, and gcc's --coverage counts by such names.  Cython's own
insertions (checks of types, bounds and errors, the parsing of arguments, conversions) are no decision of the kernel's
source: such C lines are given a name of their own, and no figure counts them.  The other branches count on source lines
that decide something.  In the kernel's .h files, which are C, every branch counts.
"""

from __future__ import annotations

import gzip
import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.support import kernel_parts
from tests.support.kernel_parts import KERNEL

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "core"
_OWN = "what Cython puts in"
_DIRECTIVE = re.compile(r'#line \d+ "')
_CHECK = re.compile(r"likely\(|__PYX_ERR|__Pyx|Py[A-Z]\w*_|__pyx_(kwds|nargs|clineno|temp)|values\[|refnanny|PYREX")
_DECIDES = re.compile(r"\b(if|elif|else|while|for|and|or|not|min|max|any|all|assert)\b")
_DUMP = """
extern void __gcov_dump(void);
__attribute__((visibility("default"))) void klog_counts_written(void) { __gcov_dump(); }
"""


def build(folder: Path) -> Path:
    """Compile the kernel with counters into *folder*, unless it is newer than its sources; return its folder."""
    sources = [*KERNEL.glob("*.p[yx]*"), *KERNEL.glob("*.h"), Path(__file__), Path(kernel_parts.__file__)]
    made = folder / "klog" / "kernel"
    newest = max(source.stat().st_mtime for source in sources)
    if not made.exists() or min(module.stat().st_mtime for module in made.glob("*.so")) <= newest:
        flags = ["-O0", "-DPy_LIMITED_API=0x030B0000", "--coverage", "-fprofile-update=prefer-atomic"]
        kernel_parts.compiled(folder, flags, cython=["--line-directives"], edited=_counting)
    return made


def _counting(translated: str) -> str:
    return "\n".join(_named(translated.splitlines())) + _DUMP


def _named(lines: list[str]) -> Iterator[str]:
    """Yield the lines of Cython's C; those that are Cython's own carry its name."""
    own, source, is_source, is_continued = f'#line 1 "{_OWN}"', "", False, False
    yield own
    for line in lines:
        if _DIRECTIVE.match(line):
            source, is_source = line, True
            yield line
            continue
        if is_source and not is_continued and (line[:1] in ("}", "s") or line.startswith(("/*", "#", "P"))):
            source, is_source = own, False
            yield own
        is_check = is_source and not is_continued and bool(_CHECK.search(line)) and not line.lstrip().startswith("#")
        if is_check:
            yield own
        yield line
        is_continued = line.endswith("\\")
        if is_check and not is_continued:
            yield source


def branches(folder: Path) -> dict[str, tuple[int, int]]:
    """Return how many branches each file of the kernel has, and how many were taken."""
    made = folder / "klog" / "kernel"
    lines: dict[str, list[dict[str, object]]] = defaultdict(list)
    for notes in sorted(set(made.glob("*.gcno")) - {made / f"{kernel_parts.MEMORYVIEWS}.gcno"}):
        command = ["gcov", "--json-format", "--branch-probabilities", "--stdout", str(notes)]
        said = subprocess.run(command, cwd=folder, check=True, capture_output=True).stdout
        content = gzip.decompress(said) if said[:2] == b"\x1f\x8b" else said
        for file in json.loads(content)["files"]:
            path = folder / file["file"]
            if path.parent == made and path.suffix in (".pyx", ".pxi", ".pxd", ".h"):
                lines[path.name] += file["lines"]
    return {name: _counted(KERNEL / name, found) for name, found in sorted(lines.items())}


def _counted(path: Path, lines: list[dict[str, object]]) -> tuple[int, int]:
    source = path.read_text().splitlines()
    by_place: dict[tuple[int, int], list[int]] = defaultdict(list)
    for line in lines:
        number = int(str(line["line_number"]))
        if path.suffix == ".h" or (number <= len(source) and _DECIDES.search(source[number - 1].partition("#")[0])):
            for at, branch in enumerate(line["branches"]):  # type: ignore[arg-type, var-annotated]
                by_place[number, at].append(branch["count"])
    return len(by_place), sum(any(counts) for counts in by_place.values())
