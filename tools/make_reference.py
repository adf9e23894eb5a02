"""The site's pages of commands, options, exit codes and JSON fields (`make docs`), from their declarations."""

from __future__ import annotations

from klog_cli.command_catalog import Command, Option, read

from tools import json_fields

HEAD = """# Commands

Every command with its options, as `klog COMMAND --help` has them.

## Exit codes

Those of fsck; if several apply they are added up.

{codes}
"""


def commands_page() -> str:
    """Return the page of all commands, as Markdown."""
    from klog_cli.command_tree import EXIT_CODES

    klog = read()
    leaves = [command for command in klog.walk() if command.words and not command.children]
    overall = "\n## klog\n\nOptions of klog itself.\n\n" + _options(klog.options)
    return HEAD.format(codes=EXIT_CODES) + "".join(map(_command, leaves)) + overall


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


def _command(command: Command) -> str:
    usage = " ".join(["klog", command.name, "[options]", *command.arguments])
    paragraphs = "\n\n".join(map(_paragraph, command.help.split("\n\n")))
    return f"\n## klog {command.name}\n\n    {usage}\n\n{paragraphs}\n\n{_options(command.options)}"


def _paragraph(text: str) -> str:
    """Return a paragraph of help; one that begins with Click's mark for it keeps its lines."""
    if text.startswith("\b"):
        return "\n".join(f"    {line}" for line in text.removeprefix("\b\n").splitlines())
    return _escape(" ".join(text.split()))


def _options(options: tuple[Option, ...]) -> str:
    return "| Option | |\n|---|---|\n" + "".join(map(_row, options))


def _row(option: Option) -> str:
    names = ", ".join(f"`{name}`" for name in option.names)
    value = " `" + option.metavar.replace("|", "\\|") + "`" if option.metavar else ""
    more = " *Repeatable.*" if option.repeatable and "repeatable" not in option.help.lower() else ""
    return f"| {names}{value} | {_escape(option.help)}{more} |\n"


def _escape(text: str) -> str:
    """Return *text* with the characters that Markdown would take for its own made harmless."""
    for mark in ("\\", "*", "_", "`", "|", "<", "["):
        text = text.replace(mark, "\\" + mark if mark != "<" else "&lt;")
    return text
