"""The site's pages of commands, options, exit codes and JSON fields (`make docs`), from their declarations."""

from __future__ import annotations

from collections.abc import Iterator

from klog_cli.command_catalog import Command, Option, read
from klog_cli.command_class import GROUP_ORDER, PURPOSES

from tools import example_runs, json_fields

HEAD = """# Commands

Every command has a page with its options, as `klog COMMAND --help` has them, its examples and its exit codes.
"""


def pages() -> dict[str, str]:
    """Return the page of every command and their index, as Markdown, by path."""
    runs = example_runs.run_all()
    made = {path_of(command): _page(command, runs.get(command.name, [])) for command in leaves()}
    return {"docs/reference/commands.md": _index(), **made}


def leaves() -> list[Command]:
    """Return the commands that run by themselves, by purpose and in the order of the help."""
    order = [name for names in PURPOSES.values() for name in names]
    found = [command for command in read().walk() if command.words and not command.children]
    return sorted(found, key=lambda command: order.index(command.words[0]))


def navigation() -> list[str | dict[str, list[dict[str, str]]]]:
    """Return the pages for MkDocs, by purpose."""
    purposes = {
        purpose: [{command.name: path_of(command)} for command in leaves() if command.words[0] in names]
        for purpose, names in PURPOSES.items()
    }
    return ["docs/reference/commands.md", *({purpose: of} for purpose, of in purposes.items())]


def path_of(command: Command) -> str:
    """Return the path of a command's page."""
    return f"docs/reference/klog-{'-'.join(command.words)}.md"


def _index() -> str:
    parts = [HEAD]
    for purpose, names in PURPOSES.items():
        rows = [
            f"| [klog {command.name}]({path_of(command).rpartition('/')[2]}) | {_escape(command.summary)} |\n"
            for command in leaves()
            if command.words[0] in names
        ]
        parts.append(f"## {purpose}\n\n| Command | Does |\n|---|---|\n{''.join(rows)}")
    parts += ["## Options of klog itself\n", _table(read().options), _exit_codes()]
    return "\n".join(parts)


def _exit_codes() -> str:
    """Return the exit codes as a table."""
    from klog_cli.command_tree import EXIT_CODES

    codes = EXIT_CODES.partition(": ")[2].removesuffix(".").split(" · ")
    rows = (f"| {number} | {_escape(meaning)} |\n" for number, _, meaning in (code.partition(" ") for code in codes))
    return "## Exit codes\n\nThose of fsck; several are added up.\n\n| Code | Means |\n|---|---|\n" + "".join(rows)


JSON = """# JSON fields

What `--output json` prints, as [JSON Schema](https://json-schema.org/draft/2020-12/schema) files; of a command that has
`--output jsonl` alone, what a line is. No field is ever renamed and none changes its type; later versions may add some.
Tests hold outputs of sound and of damaged log dirs against them.

| Command | Schema | Fields |
|---|---|---|
"""


def json_page() -> str:
    """Return the page of schemas, as Markdown."""
    return JSON + "".join(
        f"| `klog {command}` | [{json_fields.file_of(command)}](../schemas/{json_fields.file_of(command)}) | "
        f"{', '.join(f'`{name}`' for name in json_fields.fields(declared))} |\n"
        for command, declared in json_fields.every().items()
    )


def _page(command: Command, examples: list[example_runs.Example]) -> str:
    usage = " ".join(["klog", command.name, "[OPTIONS]", *command.arguments])
    parts = [f"# klog {command.name}\n", *map(_paragraph, command.help.split("\n\n"))]
    parts += [f"## Usage\n\n    {usage}\n", *_arguments(command), *_options(command), *_examples(command, examples)]
    return "\n".join([*parts, _exit_codes()])


def _paragraph(text: str) -> str:
    """Return a paragraph of help; one that begins with Click's mark for it keeps its lines."""
    if text.startswith("\b"):
        return "\n".join(f"    {line}" for line in text.removeprefix("\b\n").splitlines()) + "\n"
    return _escape(" ".join(text.split())) + "\n"


def _arguments(command: Command) -> Iterator[str]:
    if command.arguments:
        rows = zip(command.arguments, command.argument_help, strict=True)
        yield "| Argument | |\n|---|---|\n" + "".join(f"| `{name}` | {_escape(about)} |\n" for name, about in rows)


def _options(command: Command) -> Iterator[str]:
    yield "## Options\n"
    for group in GROUP_ORDER:
        options = tuple(option for option in command.options if option.group == group)
        if options:
            yield f"### {'Of this command' if group == 'Options' else group}\n\n{_table(options)}"


def _table(options: tuple[Option, ...]) -> str:
    return "| Option | |\n|---|---|\n" + "".join(map(_row, options))


def _row(option: Option) -> str:
    names = ", ".join(f"`{name}`" for name in option.names)
    value = " `" + option.metavar.replace("|", "\\|") + "`" if option.metavar else ""
    more = " Repeatable." if option.repeatable and "repeatable" not in option.help.lower() else ""
    return f"| {names}{value} | {_escape(option.help)}{more} |\n"


def _examples(command: Command, examples: list[example_runs.Example]) -> Iterator[str]:
    yield "## Examples\n"
    lines = [example.line for example in examples if example.output is not None]
    copies = [
        f"`/{name}` is a copy of `fixtures/{source}`"
        for name, source in example_runs.copies(command.name).items()
        if any(f" /{name}" in line for line in lines)
    ]
    if copies:
        yield f"{', '.join(copies)}. A line `…` stands for more lines.\n"
    for about, line, output in examples:
        shown = f"$ {line}" + (f"\n{output}" if output else "")
        yield f"{_escape(about[0].upper() + about[1:])}:\n\n```console\n{shown}\n```\n"


def _escape(text: str) -> str:
    """Return *text* with the characters that Markdown would take for its own made harmless."""
    for mark in ("\\", "*", "_", "`", "|", "<", "["):
        text = text.replace(mark, "\\" + mark if mark != "<" else "&lt;")
    return text
