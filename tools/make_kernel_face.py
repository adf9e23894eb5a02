"""Write the Python face of core/klog/kernel from the declarations in its parts: a stub for each, and __init__.py.

python tools/make_kernel_face.py [--check]

A part is a module _*.pyx with the files that it includes.  Its public names are functions (`def`), classes, constants
in capitals and the members of `cpdef enum`.  The types of arguments are those of C; where these say too little (`list`,
`object`), an annotation says more.  An attribute (`cdef readonly`) has one behind `#:`.  A function without an
annotation of its result returns None.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KERNEL = ROOT / "core/klog/kernel"
INTEGERS = ("int", "long long", "Py_ssize_t", "unsigned int", "unsigned long long", "uint32_t", "int64_t", "uint64_t")
TYPES = {
    **dict.fromkeys(INTEGERS, "int"),
    "bint": "bool",
    "double": "float",
    "bytes": "bytes",
    "bytearray": "bytearray",
    "const unsigned char[::1]": "Buffer",
    "unsigned char[::1]": "Buffer",
    "int[::1]": "memoryview",
}
FOREIGN = {
    "Callable": "collections.abc",
    "Iterable": "collections.abc",
    "Iterator": "collections.abc",
    "Mapping": "collections.abc",
    "Sequence": "collections.abc",
    "BatchFacts": "klog.formats.batch",
}
ALIASES = {
    "Buffer": "bytes | bytearray | memoryview",
    "ArrowTexts": "tuple[Buffer | None, memoryview, Buffer | None, int]",
    "Ids": "tuple[int, ...]",
    "PartitionRow": "tuple[Ids, Ids, int, int, int, Ids, Ids, tuple[str, ...], Ids, Ids, bool]",
}
WIDTH = 120
_ARGUMENT = re.compile(r"(?:(.*?\W))??(\w+)( not None)?(?:: (.+?))?(?:=(.+))?")


def source(path: Path) -> str:
    """Return the text of a part: its declarations, then its module with what that includes."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r'^include "(.+)"$', lambda found: (KERNEL / found[1]).read_text(encoding="utf-8"), text, flags=re.M)
    declared = path.with_suffix(".pxd")
    return (declared.read_text(encoding="utf-8") if declared.exists() else "") + text


def python_type(c_type: str | None, default: str | None, where: str) -> str:
    """Return the Python type of an argument or an attribute declared with *c_type*."""
    name = (c_type or "").strip()
    found = TYPES.get(name, name)
    if not re.fullmatch(r"[A-Z]\w*|int|bool|float|bytes|bytearray|memoryview", found):
        raise SystemExit(f"{where}: {name or 'no type'} says too little; annotate it")
    return f"{found} | None" if default == "None" else found


def split(words: str) -> Iterator[str]:
    """Split arguments at the commas that are inside of no bracket."""
    depth, start = 0, 0
    for at, letter in enumerate(words + ","):
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and depth == 0:
            if words[start:at].strip():
                yield " ".join(words[start:at].split())
            start = at + 1


def argument(word: str, where: str) -> str:
    """Return an argument as a stub has it."""
    if word in ("self", "*") or word.startswith("*"):
        return word
    found = _ARGUMENT.fullmatch(word)
    assert found is not None, (where, word)
    c_type, name, _, annotation, default = found.groups()
    written = annotation or python_type(c_type, default, f"{where}({name})")
    if default is None:
        return f"{name}: {written}"
    return f"{name}: {written} = {default if default in ('None', 'True', 'False') or default.isdigit() else '...'}"


def function(found: re.Match[str], name: str, indent: str) -> str:
    """Return a function as a stub has it, in lines of the usual length."""
    words = [argument(word, name) for word in split(found["arguments"])]
    result = "None" if name == "__init__" else found["result"] or "None"
    line = f"{indent}def {name}({', '.join(words)}) -> {result}: ..."
    if len(line) <= WIDTH:
        return line
    whole = ", ".join(word.replace(" ", "\0") for word in words)  # no line ends inside of an argument
    inside = textwrap.fill(whole, WIDTH, initial_indent=indent + "    ", subsequent_indent=indent + "    ")
    return f"{indent}def {name}(\n{inside}\n{indent}) -> {result}: ...  # fmt: skip".replace("\0", " ")


_DEF = r"def (?P<name>\w+)\((?P<arguments>(?:[^()]|\([^()]*\))*)\)(?: -> (?P<result>.+))?:\n"
_MEMBER = re.compile(
    rf"^    (?P<property>@property\n    )?{_DEF}"
    r"|^    cdef (?:readonly|public) (?P<type>.+?) (?P<names>\w+(?:, \w+)*) *(?:#: (?P<told>.+?)(?:: .*)?|#.*)?$",
    re.M,
)
_TOP = re.compile(
    rf"^{_DEF}"
    r"|^cdef class (?P<class>\w+)(?:\((?P<base>\w+)\))?:\n(?P<body>(?:    .*\n|\n)+)"
    r"|^cpdef enum:.*\n(?P<members>(?:    .*\n)+)"
    r"|^(?P<constant>[A-Z]\w*) = \((?P<first>.)",
    re.M,
)


def members(body: str, name: str) -> list[str]:
    """Return the lines of a class."""
    lines: list[str] = []
    for found in _MEMBER.finditer(body):
        if found["names"]:
            told = found["told"] or python_type(found["type"], None, f"{name}.{found['names']}")
            lines += [f"    {one}: {told}" for one in found["names"].split(", ")]
        elif found["property"]:
            lines += ["    @property", function(found, found["name"], "    ")]
        elif found["name"] in ("__cinit__", "__init__"):
            lines.append(function(found, "__init__", "    "))
        elif not found["name"].startswith("_") or found["name"] in ("__len__", "__iter__", "__getitem__"):
            lines.append(function(found, found["name"], "    "))
    return lines


def declared(text: str) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the constants and functions of a part, each as a stub has it, and the lines of its classes."""
    simple: dict[str, str] = {}
    classes: dict[str, list[str]] = {}
    for found in _TOP.finditer(text):
        if found["class"]:
            name, base = found["class"], f"({found['base']})" if found["base"] else ""
            lines = classes.get(name, [])[1:] + members(found["body"], name)
            classes[name] = [f"class {name}{base}:", *lines] if lines else [f"class {name}{base}: ..."]
        elif found["members"]:
            names = re.findall(r"^    ([A-Z]\w*)", found["members"], re.M)
            simple |= {name: f"{name}: int" for name in names}
        elif found["constant"]:
            kind = "int" if found["first"].isdigit() else "str"
            simple[found["constant"]] = f"{found['constant']}: tuple[{kind}, ...]"
        else:
            simple[found["name"]] = function(found, found["name"], "")
    return simple, classes


def stub(part: str, simple: dict[str, str], classes: dict[str, list[str]], homes: dict[str, str]) -> str:
    """Return the stub of a part."""
    constants = [line for name, line in simple.items() if name.isupper()]
    functions = [line for name, line in simple.items() if not name.isupper()]
    text = "\n\n".join("\n".join(group) for group in (constants, functions, *classes.values()) if group)
    for name in reversed(ALIASES):
        if re.search(rf"\b{name}\b", text):
            text = f"{name} = {ALIASES[name]}\n{'' if text.split(' ', 1)[0] in ALIASES else chr(10)}{text}"
    imports: dict[str, list[str]] = {}
    for name, home in sorted({**FOREIGN, **homes}.items()):
        if home != f"klog.kernel.{part}" and re.search(rf"\b{name}\b", text):
            imports.setdefault(home, []).append(name)
    order = sorted(imports, key=lambda home: (home.startswith("klog"), home))
    lines = [f"from {home} import {', '.join(imports[home])}" for home in order]
    foreign = [line for line in lines if not line.startswith("from klog")]
    own = [line for line in lines if line.startswith("from klog")]
    head = "\n\n".join("\n".join(group) for group in (foreign, own) if group)
    return f"# Written by tools/make_kernel_face.py.\n{head}\n\n{text}\n"


FACE = '''"""The compiled parts of klog: everything that happens once a batch or once a record.

Each part is loaded when a name of it is first used.  Written by tools/make_kernel_face.py.
"""

from __future__ import annotations

_PARTS = {
%s}
_HOMES = {name: part for part, names in _PARTS.items() for name in names.split()}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'klog.kernel' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"klog.kernel.{_HOMES[name]}"), name)
    return value
'''


def written() -> dict[Path, str]:
    """Return what the files have to hold."""
    parts = {path.stem: declared(source(path)) for path in sorted(KERNEL.glob("_*.pyx"))}
    homes = {name: f"klog.kernel.{part}" for part, (_, classes) in parts.items() for name in classes}
    files = {KERNEL / f"{part}.pyi": stub(part, *both, homes) for part, both in parts.items()}
    files[KERNEL / "__init__.pyi"] = "".join(f"from klog.kernel.{part} import *\n" for part in parts)
    table = ""
    for part, (simple, classes) in parts.items():
        names = " ".join(sorted([*simple, *classes]))
        lines = textwrap.wrap(names, 100, break_long_words=False)
        if len(lines) == 1:
            table += f'    "{part}": "{lines[0]}",\n'
        else:
            inside = "".join(f'        "{line} "\n' for line in lines[:-1]) + f'        "{lines[-1]}"\n'
            table += f'    "{part}": (\n{inside}    ),\n'
    files[KERNEL / "__init__.py"] = FACE % table
    return files


def main() -> int:
    files = written()
    if "--check" in sys.argv:
        return int(any(not path.exists() or path.read_text(encoding="utf-8") != text for path, text in files.items()))
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
