"""How long a file and a function may be: what no longer fits on a few screens is split by its nouns."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

FILE_LINES = 400
KERNEL_LINES = 900
FUNCTION_LINES = 60
USUAL_FUNCTION_LINES = 20
SUFFIXES = (".py", ".pyi", ".pyx", ".pxi", ".pxd", ".h")
ROOT = Path(__file__).parent.parent


def sources() -> Iterator[Path]:
    """Yield every source file of the library and the command line that is written by hand."""
    for folder in ("core", "cli"):
        yield from (path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in SUFFIXES)


def functions() -> Iterator[tuple[str, int]]:
    """Yield every function of the library and the command line, by name, with its number of lines.

    All of it counts, also the signature of a command, which declares an option in each of its lines.
    """
    for path in sources():
        if path.suffix == ".py":
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    name = f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
                    yield name, (node.end_lineno or 0) - node.lineno + 1


def test_no_source_file_is_longer_than_its_budget() -> None:
    """A file that holds more than one thing hides the second one.

    A class of the kernel has to be in one file, so files of Cython may be longer.
    """
    lengths = {path: len(path.read_bytes().splitlines()) for path in sources()}
    assert len(lengths) > 200, "the sources are not where this test looks"
    budgets = {path: KERNEL_LINES if path.suffix in (".pyx", ".pxi", ".pxd") else FILE_LINES for path in lengths}
    assert {path: lines for path, lines in lengths.items() if lines > budgets[path]} == {}


def test_functions_keep_to_their_budget() -> None:
    """A long function mixes reading, deciding and doing; nine in ten fit into 20 lines, and none takes more than 60."""
    lengths = dict(functions())
    assert {name: lines for name, lines in lengths.items() if lines > FUNCTION_LINES} == {}
    assert sorted(lengths.values())[len(lengths) * 9 // 10] <= USUAL_FUNCTION_LINES
