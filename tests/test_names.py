"""Names say one thing: no public class name of core/klog occurs twice, and no module's name says nothing."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.conftest import ROOT

SAY_NOTHING = frozenset(
    [
    "bases", "class", "classes", "common", "core", "function", "functions", "general", "helper",
    "helpers", "impl", "implementation", "lib", "library", "main", "manager", "managers", "misc",
    "miscellaneous", "module", "object", "objects", "other", "shared", "stuff", "thing", "things", "tool",
    "tools", "type", "types", "util", "utility", "utilities", "utils", "various",
    ]
)  # fmt: skip


def public_classes(path: Path) -> list[str]:
    """Return the names of the public classes at the top level of a module, also below an `if`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    bodies = [tree.body, *(node.body + node.orelse for node in tree.body if isinstance(node, ast.If))]
    return [
        node.name
        for body in bodies
        for node in body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]


def violations(library: Path) -> list[str]:
    """Return a sentence for each name below *library* that breaks the rules.  The kernel's classes are in its stub."""
    found: list[str] = []
    home: dict[str, str] = {}
    for path in sorted((*library.rglob("*.py"), *library.rglob("*.pyi"))):
        file = path.relative_to(library).as_posix()
        name = path.parent.name if path.stem == "__init__" and path.parent != library else path.stem
        if name.strip("_") in SAY_NOTHING:
            found.append(f"{file} has a name that says nothing")
        for public in public_classes(path):
            if public in home:
                found.append(f"{public} is a class in {home[public]} and in {file}")
            home[public] = file
    return found


def test_no_class_name_occurs_twice_and_no_module_name_says_nothing() -> None:
    """A reader who finds `Entries` in three modules has to open all of them."""
    assert violations(ROOT / "core" / "klog") == []


def test_planted_violations_are_found(tmp_path: Path) -> None:
    """Otherwise the test above could be blind."""
    for file, text in (
        ("log/index.py", "class Entries: ...\nclass _Private: ...\n"),
        ("lookup/entries.py", "if True:\n    class Entries: ...\nclass _Private: ...\n"),
        ("kernel/_window.pyi", "class Window: ...\n"),
        ("fetch/windows.py", "class Window: ...\n"),
        ("log/utils.py", ""),
        ("helpers/__init__.py", ""),
        ("log/index_types.py", ""),
    ):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text, encoding="utf-8")
    assert violations(tmp_path) == [
        "helpers/__init__.py has a name that says nothing",
        "Window is a class in fetch/windows.py and in kernel/_window.pyi",
        "log/utils.py has a name that says nothing",
        "Entries is a class in log/index.py and in lookup/entries.py",
    ]
