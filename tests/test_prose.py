"""Docstrings, comments, CONTRIBUTING and the decisions are plain English: subject, verb, object.

Two patterns are refused.  A sentence begins with a noun and not with "What", "Of", "By", "So" or "Where".  Files and
plans are no persons: a file exists, contains, is missing, is written, is deleted.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import ROOT

FOLDERS = ("core", "cli", "tests", "tools", "bench")
SUFFIXES = (".py", ".pyx", ".pxi", ".pxd", ".h")
PAGES = ("CONTRIBUTING.md", "docs/decisions")
HELP = "cli/klog_cli/commands/"
"""The docstrings of functions there are the help of commands, which `tests/cli` fixes word by word."""

OPENING = re.compile(r"(?:What|Of|By|So|Where)\b")
NOTE = re.compile(r'"""(.*?)"""|/\*(.*?)\*/|((?:^ *# [^\n]*\n)+)|  # ([^\n]*)', re.DOTALL | re.MULTILINE)
SENTENCE = re.compile(r"(?<=[.!?:])\s+(?=[A-Z`*])")
PERSON = re.compile(
    r"\b(?:file|plan|log|segment|batch|record|index|checkpoint|partition|directory|snapshot|header|marker|copy|backup)"
    r"(?:e?s)? (?:comes?|goes|go|stands?|says?|waits?|wants?|knows?|tells?)\b"
    r"|(?<!`)\bnobody\b|\bcomes? of\b|\bthat which\b",
    re.IGNORECASE,
)


def docstrings(text: str, has_help: bool = False) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each string that is a statement: docstrings, and notes below a constant.

    *has_help*: leave out those of functions.
    """
    tree = ast.parse(text)
    left_out = {node.body[0] for node in ast.walk(tree) if has_help and isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node not in left_out:
            yield node.lineno, str(node.value.value)


def comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield the first line and the text of each block of comments."""
    first, last, words = 0, -1, ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != last + 1:
                yield first, words
                first, words = token.start[0], ""
            last = token.start[0]
            words += token.string.lstrip("#: ") + " "
    yield first, words


def kernel_notes(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each docstring and each comment of Cython or C."""
    for match in NOTE.finditer(text):
        note = next(filter(None, match.groups()), "").partition("\n\n\n")[0]
        yield text.count("\n", 0, match.start()) + 1, re.sub(r"^ *[#*] ?", "", note, flags=re.MULTILINE)


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each heading, paragraph, list item and table cell of a page, without its code."""
    fenced, first, words = False, 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        fenced ^= line.startswith("```")
        content = "" if fenced or line.startswith(("```", "    ")) else line.strip()
        if not content or content.startswith(("#", "*", "-", "|")):
            yield first, words
            words = ""
        first = first if words.strip() else number
        if content.startswith("|"):
            yield from ((number, cell.strip()) for cell in content.split("|"))
        else:
            words += content.lstrip("#*- ") + " "
    yield first, words


def refused(text: str) -> list[str]:
    """Return the sentences of *text* that have one of the two patterns."""
    return [
        sentence
        for paragraph in re.split(r"\n\s*\n", text)
        for sentence in SENTENCE.split(" ".join(paragraph.split()))
        if OPENING.match(sentence) or PERSON.search(sentence)
    ]


def violations(root: Path) -> list[str]:
    """Return `file:line: sentence` for each sentence below *root* that breaks a rule."""
    found = []
    files = [path for folder in FOLDERS for path in (root / folder).rglob("*") if path.suffix in SUFFIXES]
    files += [path for page in PAGES for path in (root / page, *(root / page).rglob("*.md")) if path.is_file()]
    for path in sorted(files):
        name = path.relative_to(root).as_posix()
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            pieces = [*docstrings(text, has_help=name.startswith(HELP)), *comments(text)]
        else:
            pieces = [*(paragraphs(text) if path.suffix == ".md" else kernel_notes(text))]
        found += [f"{name}:{line}: {sentence}" for line, piece in pieces for sentence in refused(piece)]
    return found


def test_prose_is_plain() -> None:
    """A maintainer who has to read a sentence twice reads the code instead."""
    assert violations(ROOT) == []


def test_planted_sentences_are_refused(tmp_path: Path) -> None:
    """Otherwise the test above could be blind."""
    for file, text in (
        ("core/module.py", '"""Read a log.  What is torn is left out."""\nNEW = 1\n"""Where it begins."""\n'),
        ("tools/comment.py", "x = 1  # fine\n# The name is\n# kept.  So\n# is this.\n"),
        ("tests/plan.py", 'def f() -> None:\n    """The plan says which files come of it."""\n'),
        ("CONTRIBUTING.md", "# By hand\n\nFine. Of two, one.\n\n```\nWhat it prints\n```\n| A | What b |\n"),
        ("docs/decisions/001.md", "* A note: The log\n  goes.\n"),
        ("README.md", "What klog is.\n"),
    ):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text, encoding="utf-8")
    assert violations(tmp_path) == [
        "CONTRIBUTING.md:1: By hand",
        "CONTRIBUTING.md:3: Of two, one.",
        "CONTRIBUTING.md:8: What b",
        "core/module.py:1: What is torn is left out.",
        "core/module.py:3: Where it begins.",
        "docs/decisions/001.md:1: The log goes.",
        "tests/plan.py:2: The plan says which files come of it.",
        "tools/comment.py:1: So is this.",
    ]
