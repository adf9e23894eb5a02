"""Docstrings, comments, CONTRIBUTING and the decisions are plain English: subject, verb, object.

Two patterns are refused.  A sentence begins with a noun and not with "What", "Of", "By", "So" or "Where".  Files and
plans are no persons: a file exists, contains, is missing, is written, is deleted.

In the pages for users, in help and in messages, the same openings are refused, and words that a newcomer cannot search
for: a change is undone, a key is misplaced, a copy is a duplicate, a start has an outcome.
"""

from __future__ import annotations

import ast
import re
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
STRING_OR_COMMENT = re.compile(
    r'"""(?:\\.|[^\\])*?"""|"(?:\\.|[^"\\])*"'
    r"|'''(?:\\.|[^\\])*?'''|'(?:\\.|[^'\\])*'|(#[^\n]*)",
    re.DOTALL,
)
"""Those of Python; its own tokenizer takes ten times as long."""
SENTENCE = re.compile(r"(?<=[.!?:])\s+(?=[A-Z`*])")
PERSON = re.compile(
    r"\b(?:file|plan|log|segment|batch|record|index|checkpoint|partition|directory|snapshot|header|marker|copy|backup)"
    r"(?:e?s)? (?:comes?|goes|go|stands?|says?|waits?|wants?|knows?|tells?)\b"
    r"|(?<!`)\bnobody\b|\bcomes? of\b|\bthat which\b",
    re.IGNORECASE,
)
WORDS = re.compile(
    r"\b(?:tak(?:e|es|en|ing)(?: (?:it|them|that|this|these))? back|(?:the|of|one|wrong) homes?(?! director)|at home"
    r"|twins?|fates?|not looked at|told|whole(?! numbers?\b)|brokers? (?:of )?\d\.[\dx]+|ZooKeeper's time|shall"
    r"|as ever|some hundred|counts? as had|so many|not one is)\b",
    re.IGNORECASE,
)
"""Words of the project's own; "home directory" and "whole number" are everybody's."""
USERS_PAGES = ("README.md", "CHANGELOG.md", "docs/*.md", "docs/decisions/*.md")
CODE = re.compile(r"`[^`]*`")
VALUES = ("taken back", "when told")
"""The state of a plan in JSON, and a value in the file of `klog replicas simulate`."""


def docstrings(text: str, has_help: bool = False) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each string that is a statement: docstrings, and notes below a constant.

    *has_help*: leave out those of functions.
    """
    statements = [*statements_of(ast.parse(text))]
    left_out = {node.body[0] for node in statements if has_help and isinstance(node, ast.FunctionDef)}
    for node in statements:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node not in left_out:
            yield node.lineno, str(node.value.value)


def statements_of(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements in *node*, at any depth; a walk over their expressions takes ten times as long."""
    for block in ("body", "handlers", "orelse", "finalbody", "cases"):
        for statement in getattr(node, block, ()):
            yield statement
            yield from statements_of(statement)


def comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield the first line and the text of each block of comments."""
    first, last, words = 0, -1, ""
    line, at = 1, 0
    for match in STRING_OR_COMMENT.finditer(text):
        if match[1] is not None:
            line, at = line + text.count("\n", at, match.start()), match.start()
            if line != last + 1:
                yield first, words
                first, words = line, ""
            last = line
            words += match[1].lstrip("#: ") + " "
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


def strange(text: str) -> list[str]:
    """Return the sentences of *text*, for users, that begin with a refused word or have a word of the project's own."""
    found = []
    for sentence in SENTENCE.split(" ".join(text.split())):
        words = CODE.sub("`x`", sentence)
        if WORDS.search(words) or (OPENING.match(words) and not words.endswith("?")):
            found.append(sentence)
    return found


def messages(text: str, has_help: bool) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each string that is no docstring; with *has_help* those of functions, too."""
    nodes = [*ast.walk(ast.parse(text))]
    notes = {node.value for node in nodes if isinstance(node, ast.Expr)}
    parts = {part for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in notes | parts:
            if node.value not in VALUES:
                yield node.lineno, node.value
        elif has_help and isinstance(node, ast.FunctionDef):
            yield node.lineno, ast.get_docstring(node) or ""


def strange_sentences(root: Path) -> list[str]:
    """Return `file:line: sentence` for each sentence for users below *root* that a newcomer does not understand."""
    found = []
    for path in sorted(page for pattern in USERS_PAGES for page in root.glob(pattern)):
        text = re.sub(r"^#+ .*$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        found += [(path, line, one) for line, words in paragraphs(text) for one in strange(words)]
    for path in sorted(path for folder in ("core", "cli") for path in (root / folder).rglob("*.py")):
        is_help = path.relative_to(root).as_posix().startswith(HELP)
        strings = messages(path.read_text(encoding="utf-8"), is_help)
        found += [(path, line, one) for line, words in strings if " " in words for one in strange(words)]
    return [f"{path.relative_to(root).as_posix()}:{line}: {sentence}" for path, line, sentence in found]


def test_users_read_words_that_they_can_search_for() -> None:
    """Somebody whose broker is down has no time for a word that only this project uses."""
    assert strange_sentences(ROOT) == []


def test_planted_words_are_refused(tmp_path: Path) -> None:
    """In pages, in help and in messages, but not in code, headings, questions and values of JSON."""
    for file, text in (
        ("README.md", "# What it is\n\nFine. It takes that back. `fate` is a field.\n\n| What now? | a broker 4.3 |\n"),
        ("docs/a.md", "Of a copy it says so.\n\n```\nWhat it prints\n```\n\nA whole number; a home directory.\n"),
        ("core/m.py", '"""The whole module."""\nA = f"{1} is not looked at"\nB = "taken back"\nC = "whole"\n'),
        ("cli/klog_cli/commands/c.py", 'def c() -> None:\n    """Find twins.\n\n    Fine."""\n'),
    ):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text, encoding="utf-8")
    assert strange_sentences(tmp_path) == [
        "README.md:3: It takes that back.",
        "README.md:5: a broker 4.3",
        "docs/a.md:1: Of a copy it says so.",
        "cli/klog_cli/commands/c.py:1: Find twins.",
        "core/m.py:2: {} is not looked at",
    ]


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
