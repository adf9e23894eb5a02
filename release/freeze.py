"""Freeze klog, what it depends on and all that these reach of the standard library: `freeze.py OUTPUT ROOT...`.

Writes OUTPUT.bin, the code of all modules, and OUTPUT.c, the table that tells Python where each lies in it.  ROOTs are
directories of modules, the first match counts; the last is the standard library.  Nothing of where they lie is kept.
"""

from __future__ import annotations

import ast
import marshal
import os
import sys
from collections.abc import Iterator

WHOLE = (
    *("klog", "klog_cli", "typer", "rich", "markdown_it", "mdurl", "shellingham"),
    *("lz4", "isal", "zstandard", "fastavro"),
)
"""Packages of which all modules are taken: they import some by names made at run time."""

BESIDES = (
    *("runpy", "encodings.ascii", "encodings.latin_1", "encodings.utf_8", "encodings.utf_16", "encodings.utf_16_le"),
    *("encodings.utf_16_be", "encodings.idna", "encodings.unicode_escape", "encodings.raw_unicode_escape"),
    *("google._upb", "google.protobuf.internal.well_known_types"),
    *(f"google.protobuf.{name}_pb2" for name in ("any", "api", "descriptor", "duration", "empty", "field_mask")),
    *(f"google.protobuf.{name}_pb2" for name in ("source_context", "struct", "timestamp", "type", "wrappers")),
)
"""What the interpreter and compiled modules import on their own, and klog by names made at run time."""

WIDGETS = (
    *("collapsible", "data_table", "help_panel", "list_view", "log", "markdown", "masked_input", "progress_bar"),
    *("radio_set", "rich_log", "selection_list", "tabbed_content", "tabs", "text_area"),
)
"""Those of Textual's that `klog browse` does not show, and that are large."""

LEFT_OUT = (
    *("zstandard.backend_cffi", "lz4.stream"),
    *("test", "idlelib", "tkinter", "turtle", "turtledemo", "ensurepip", "venv", "pydoc", "pydoc_data", "pdb"),
    *("doctest", "unittest", "_pyrepl", "ctypes", "sqlite3", "curses", "readline", "multiprocessing"),
    *("sysconfig", "_sysconfigdata", "xmlrpc", "wsgiref", "cProfile", "profile", "lzma", "bz2"),
    *("IPython", "ipywidgets", "attr", "cffi", "jupyter", "linkify_it", "numpy"),
    *("asyncio.proactor_events", "asyncio.windows_events", "textual.drivers.windows_driver", "textual._win_sleep"),
    *("platformdirs.android", "platformdirs.ios", "platformdirs.macos", "platformdirs.windows"),
    *(f"textual.widgets._{name}" for name in WIDGETS),
)
"""What no command comes to, with all that lies in it."""

SELDOM = ("asyncio", "fastavro", "google", "platformdirs", "textual", "typing_extensions")
"""Packages that only `klog browse` or `--schemas` imports: they are last in the table, which is searched in order."""

RESOURCES = {"klog.formats.structs": "schemas", "klog.commands.report": ""}
"""Packages whose other files are read at run time, and where these lie."""

REPLACED = {"pkgutil": "resources.py", "google.protobuf.internal.api_implementation": "upb.py"}
"""Modules that are another here, and the files of those."""

Module = tuple[str, bool]


class Tree:
    """Modules in directories: their sources by name."""

    def __init__(self, roots: list[str]) -> None:
        self.roots = roots

    def find(self, name: str) -> Module | None:
        """Return the file of a module and whether it is a package, or None."""
        path = name.replace(".", "/")
        for root in self.roots:
            for file, package in ((f"{root}/{path}/__init__.py", True), (f"{root}/{path}.py", False)):
                if os.path.isfile(file):
                    return file, package
        return None

    def inside(self, name: str) -> Iterator[str]:
        """Yield a module and, of a package, all that lie in it."""
        yield name
        found = self.find(name)
        if found is None or not found[1]:
            return
        directory = os.path.dirname(found[0])
        for entry in sorted(os.listdir(directory)):
            inner = entry.removesuffix(".py")
            if inner != "__init__" and self.find(f"{name}.{inner}"):
                yield from self.inside(f"{name}.{inner}")


def imported(tree: ast.AST, name: str, package: bool) -> Iterator[str]:
    """Yield the names of all modules that a module may import, and some that are none."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = name.split(".")
                above = parts[: len(parts) - node.level + package]
                base = ".".join([*above, *([base] if base else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def left_out(name: str) -> bool:
    """Say whether a module or a package around it is left out."""
    parts = name.split(".")
    return any(".".join(parts[:count]) in LEFT_OUT for count in range(1, len(parts) + 1))


def frozen(tree: Tree, replaced: dict[str, str]) -> dict[str, tuple[bytes, bool]]:
    """Return the code of all modules, and whether each is a package."""
    made: dict[str, tuple[bytes, bool]] = {}
    waiting = [name for whole in WHOLE for name in tree.inside(whole)] + list(BESIDES)
    while waiting:
        name = waiting.pop()
        if name in made or left_out(name):
            continue
        if "." in name:
            waiting.append(name.rpartition(".")[0])
        found = (replaced[name], False) if name in replaced else tree.find(name)
        if found is None:
            continue
        with open(found[0], "rb") as file:
            source = ast.parse(file.read(), found[0])
        waiting += imported(source, name, found[1])
        made[name] = marshal.dumps(compile(source, f"<{name}>", "exec", dont_inherit=True, optimize=0)), found[1]
    return made


def resources(tree: Tree) -> bytes:
    """Return the code of a module with all files that are read at run time, as `FILES`."""
    files = {}
    for package, inner in RESOURCES.items():
        found = tree.find(package)
        assert found is not None
        directory = os.path.join(os.path.dirname(found[0]), inner)
        for name in sorted(os.listdir(directory)):
            if name.endswith((".txt", ".css", ".js")):
                with open(os.path.join(directory, name), "rb") as file:
                    files[package, os.path.join(inner, name)] = file.read()
    return marshal.dumps(compile(f"FILES = {files!r}", "<klog_resources>", "exec", dont_inherit=True))


def write(output: str, modules: dict[str, tuple[bytes, bool]]) -> None:
    """Write the code, and the table of where it lies."""
    at = 0
    rows = []
    with open(f"{output}.bin", "wb") as file:
        for name in sorted(modules, key=lambda name: (name.partition(".")[0] in SELDOM, name)):
            code, package = modules[name]
            rows.append(f'    {{"{name}", klog_code + {at}, {len(code)}, {int(package)}}},\n')
            at += file.write(code)
    with open(f"{output}.c", "w", encoding="utf-8") as file:
        file.write("#include <Python.h>\n")
        file.write('__asm__(".section .rodata\\n.global klog_code\\nklog_code: .incbin \\"modules.bin\\"\\n.text");\n')
        file.write("extern const unsigned char klog_code[];\n")
        file.write("const struct _frozen klog_modules[] = {\n" + "".join(rows) + "    {0, 0, 0, 0},\n};\n")


def main() -> None:
    """Freeze everything."""
    output, roots = sys.argv[1], sys.argv[2:]
    tree = Tree(roots)
    modules = frozen(tree, {name: os.path.join(os.path.dirname(__file__), file) for name, file in REPLACED.items()})
    modules["klog_resources"] = resources(tree), False
    write(output, modules)


if __name__ == "__main__":
    main()
