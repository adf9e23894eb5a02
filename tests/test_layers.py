"""Which folder may import which: the floors, the few edges between commands, and what a single module may do.

Floors are listed from the bottom up; a module may import from its own floor and from lower ones, never from above and
never in a circle.  On the floor of commands each folder stands alone: it imports another one only where EDGES says so.
`core/klog/__init__.py` is the front door: it names things from many packages and loads none of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

FLOORS = (
    "base",
    "formats",
    "kernel",
    "log",
    "data_dir",
    "tier",
    "cluster",
    "schemas",
    "change",
    "partition",
    "jobs",
    "commands",
    "spark",
    "klog_cli pyspark_klog",
)
EDGES = {
    ("records", "dump"),
    ("remote", "replicas"),
    ("space", "compact"),
}
"""Commands, and the commands whose code they use."""
FLOOR = {name: number for number, names in enumerate(FLOORS) for name in names.split()}
ONLY_IN = {
    "klog_cli/output.py": "print typer.echo typer.secho rich.print",
    "klog_cli/": "typer click rich",
    "klog_cli/browse/": "textual",
    "klog/spark/": "pyspark",
    "klog/tier/object_store.py": "obstore",
    "klog/tier/aiven_decryption.py": "cryptography",
    "klog/commands/serve/ klog/commands/follow/client/": "socket socketserver ssl selectors asyncio http",
    "klog/commands/serve/ klog/commands/follow/client/ klog_cli/output.py": "select",
    "klog/data_dir/disk/disk_changes.py": "writing-open shutil tempfile os.O_WRONLY os.O_RDWR os.O_CREAT os.O_TRUNC"
    " os.O_APPEND os.truncate os.ftruncate os.rename os.renames os.replace os.unlink os.remove os.rmdir"
    " os.removedirs os.link os.symlink os.mkdir os.makedirs",
}
HOME = {name: place for place, names in ONLY_IN.items() for name in names.split()}


def imports(tree: ast.AST) -> Iterator[str]:
    """Yield what *tree* imports, in functions too, as full dotted names; a relative import keeps its leading dots."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names)


def package(name: str) -> str:
    """The package, or the module of the root, that a dotted name is of; "" for `klog` itself and what is not ours."""
    head, _, rest = name.partition(".")
    if head != "klog":
        return head if head in ("klog_cli", "pyspark_klog") else ""
    part = rest.split(".")[0]
    return "" if part == "__version__" else part


def command(name: str) -> str:
    """The command whose folder a dotted name is in; "" for others."""
    parts = name.split(".")
    return parts[2] if parts[:2] == ["klog", "commands"] and len(parts) > 2 else ""


def may_import(importer: str, imported: str) -> bool:
    """Whether the floors and the edges let one module import another."""
    here, there = package(importer), package(imported)
    if here == there == "commands":
        return command(importer) == command(imported) or (command(importer), command(imported)) in EDGES
    # A package that is not in the table stands above all: nothing may import it.
    above = len(FLOORS)
    return not there or here == there or FLOOR.get(there, above) < FLOOR.get(here, above)


def _dotted(node: ast.expr) -> str:
    """Return the text of a name and of an attribute of one, "" for others: to unparse all calls takes seconds."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def opens_for_writing(call: ast.Call) -> bool:
    """Whether *call* opens a file in a mode that is not a literal, or not one that only reads."""
    if _dotted(call.func) not in ("open", "io.open", "io.FileIO", "gzip.open", "codecs.open"):
        return False
    modes = [*call.args[1:2], *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
    return any(not isinstance(mode, ast.Constant) or bool(set("wax+") & set(str(mode.value))) for mode in modes)


def uses(tree: ast.AST) -> Iterator[str]:
    """Yield what *tree* imports and the names and attributes it uses that may belong to one package alone."""
    yield from imports(tree)
    nowhere = [
        call
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and _dotted(call.func) == "os.open" and _dotted(call.args[0]) == "os.devnull"
    ]
    harmless = {part for call in nowhere for part in ast.walk(call)}
    for node in ast.walk(tree):
        if node in harmless:
            continue
        if isinstance(node, ast.Name) and node.id == "print":
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield _dotted(node)
        elif isinstance(node, ast.Call) and opens_for_writing(node):
            yield "writing-open"


def violations(project: Path) -> list[str]:
    """Return a sentence for each thing in `core/` and `cli/` of *project* that breaks the table."""
    found: list[str] = []
    knows: dict[str, list[str]] = {}
    for path in sorted((*project.glob("core/**/*.py"), *project.glob("cli/**/*.py"))):
        file = path.relative_to(project).as_posix().partition("/")[2]
        module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        tree = ast.parse(path.read_text(encoding="utf-8"))
        knows[module] = [] if module == "klog" else list(imports(tree))
        here = package(module)
        found += [f"{file} has no floor in the table"] * (here not in FLOOR and module != "klog")
        found += [
            f"{file} imports {name}, which is not below it" for name in knows[module] if not may_import(module, name)
        ]
        found += [f"{file} imports {name}, a relative name" for name in knows[module] if name.startswith(".")]
        for name in sorted({home for use in uses(tree) for home in HOME if f"{use}.".startswith(f"{home}.")}):
            if not file.startswith(tuple(HOME[name].split())):
                found.append(f"{file} uses {name}, which belongs in {HOME[name]}")
    try:
        names = {name: {to if to in knows else to.rpartition(".")[0] for to in knows[name]} for name in knows}
        TopologicalSorter(names).prepare()
    except CycleError as error:
        found.append(f"import cycle: {' -> '.join(error.args[1])}")
    return found


def test_every_package_imports_downwards_only() -> None:
    """One import upwards, and the packages below can no longer be read, tested or trusted alone."""
    assert violations(Path(__file__).parent.parent) == []


# A file, what is planted in it, and what must then be said.
PLANTED = (
    ("core/klog/formats/batch.py", "import klog.log", "klog/formats/batch.py imports klog.log, which is not below it"),
    ("core/klog/kernel/__init__.py", "def f():\n from klog import log", "imports klog.log, which is not below it"),
    ("core/klog/base/read_only.py", "import klog.kernel", "imports klog.kernel, which is not below it"),
    (
        "core/klog/partition/verify/log_checks.py",
        "from klog.commands.recover.salvage import plan_salvage",
        "imports klog.commands.recover.salvage.plan_salvage, which is not below it",
    ),
    (
        "core/klog/partition/verify/log_checks.py",
        "from klog import Segment",
        "klog/partition/verify/log_checks.py imports klog.Segment, which is not below it",
    ),
    (
        "core/klog/partition/start/log_loader.py",
        "import klog.jobs.runner",
        "klog/partition/start/log_loader.py imports klog.jobs.runner, which is not below it",
    ),
    (
        "core/klog/commands/recover/x.py",
        "def f():\n from klog.commands.adopt import adopt",
        "klog/commands/recover/x.py imports klog.commands.adopt.adopt, which is not below it",
    ),
    ("core/klog/jobs/stats.py", "from klog.commands import dump", "klog/jobs/stats.py imports klog.commands.dump"),
    ("core/klog/spark/job.py", "from klog_cli.app import app", "imports klog_cli.app.app, which is not below it"),
    ("core/klog/log/segment.py", "from .source import S", "klog/log/segment.py imports .source.S, a relative name"),
    ("core/klog/extra.py", "", "klog/extra.py has no floor in the table"),
    ("core/klog/log/segment.py", "from klog.log.index import X", "import cycle: klog.log."),
    ("cli/klog_cli/dump.py", "print(1)", "klog_cli/dump.py uses print, which belongs in klog_cli/output.py"),
    ("cli/klog_cli/dump.py", "import typer\ntyper.echo(1)", "uses typer.echo, which belongs in klog_cli/output.py"),
    (
        "cli/klog_cli/views/spark/jobs.py",
        "import pyspark.sql",
        "klog_cli/views/spark/jobs.py uses pyspark, which belongs in klog/spark/",
    ),
    (
        "cli/klog_cli/views/x.py",
        "def f():\n from textual.app import App",
        "klog_cli/views/x.py uses textual, which belongs in klog_cli/browse/",
    ),
    (
        "core/klog/jobs/x.py",
        "def f():\n import socket",
        "klog/jobs/x.py uses socket, which belongs in klog/commands/serve/",
    ),
    (
        "core/klog/partition/verify/x.py",
        "from rich.table import T",
        "klog/partition/verify/x.py uses rich, which belongs in klog_cli/",
    ),
    (
        "core/klog/partition/verify/x.py",
        "import os\nos.replace('a', 'b')",
        "uses os.replace, which belongs in klog/data_dir/disk/disk_changes.py",
    ),
    (
        "core/klog/partition/verify/x.py",
        "from os import unlink",
        "uses os.unlink, which belongs in klog/data_dir/disk/disk_changes.py",
    ),
    (
        "core/klog/partition/verify/x.py",
        "import os\nos.open('a', os.O_RDWR)",
        "uses os.O_RDWR, which belongs in klog/data_dir/disk/disk_changes.py",
    ),
    (
        "core/klog/partition/verify/x.py",
        "open('a', 'r+b')",
        "uses writing-open, which belongs in klog/data_dir/disk/disk_changes.py",
    ),
    (
        "core/klog/partition/verify/x.py",
        "m = 'w'\nopen('a', m)",
        "uses writing-open, which belongs in klog/data_dir/disk/disk_changes.py",
    ),
    (
        "cli/klog_cli/dump.py",
        "import gzip\ngzip.open('a', mode='wb')",
        "uses writing-open, which belongs in klog/data_dir/disk/disk_changes.py",
    ),
)
ALLOWED = {
    "core/klog/__init__.py": "from klog.log.segment import Segment",
    "core/klog/log/index.py": "import klog.base.errors\nfrom klog.log.segment import S\nopen('a', 'rb')",
    "core/klog/commands/space/free_plan.py": "import klog.partition.append\nfrom klog.commands.compact import S",
    "core/klog/log/segment.py": "from klog import __version__\nimport os\nos.open(os.devnull, os.O_WRONLY)",
    "core/klog/data_dir/disk/disk_changes.py": "import os, shutil\nos.replace('a', 'b')\nopen('a', 'wb')",
    "cli/klog_cli/output.py": "import rich, typer, klog.spark\nprint(1)",
}


@pytest.mark.parametrize(("file", "source", "said"), PLANTED)
def test_a_planted_violation_is_named(tmp_path: Path, file: str, source: str, said: str) -> None:
    """A guard that cannot bark guards nothing."""
    for name, text in ALLOWED.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert violations(tmp_path) == []
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(source)
    assert said in "\n".join(violations(tmp_path))
