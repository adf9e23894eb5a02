"""The command line as data: the source of completions, the manual page and the reference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from klog_cli.command_class import group_of

# Values that name something on disk: shells complete these as files.
FILES = ("FILE", "DIR", "PATH", "PLAN", "BACKUP")


@dataclass(frozen=True)
class Option:
    """One option.

    *metavar* stands for its value (empty: a switch); *choices* are all its values (else free); *group* is its heading
    in the help.
    """

    names: tuple[str, ...]
    help: str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    repeatable: bool = False
    group: str = ""

    @property
    def takes_file(self) -> bool:
        """Whether the value is the name of a file or a directory."""
        return any(word in FILES for word in self.metavar.replace("|", " ").split())


@dataclass(frozen=True)
class Command:
    """One command.

    *words* follow `klog` (none for klog itself); a group has *children* and takes no paths.  *argument_help* has a text
    for each of *arguments*.
    """

    words: tuple[str, ...]
    help: str
    arguments: tuple[str, ...]
    options: tuple[Option, ...]
    children: tuple[Command, ...]
    argument_help: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The words in one text."""
        return " ".join(self.words)

    @property
    def summary(self) -> str:
        """The first paragraph of the help, in one line."""
        return " ".join(self.help.split("\n\n")[0].split())

    def walk(self) -> Iterator[Command]:
        """Yield this command and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()


def read() -> Command:
    """Return klog's command line, hidden commands and options left out."""
    import typer

    from klog_cli.command_tree import build

    klog = typer.main.get_command(build())
    help_names = klog.context_settings.get("help_option_names", ["--help"])
    return _command(klog, (), Option(tuple(help_names), "Show this help and exit.", group=group_of(help_names)))


def _command(found: Any, words: tuple[str, ...], help_option: Option) -> Command:
    children = [child for child in getattr(found, "commands", {}).values() if not child.hidden]
    options = [_option(param) for param in found.params if param.param_type_name == "option" and not param.hidden]
    arguments = [param for param in found.params if param.param_type_name == "argument" and not param.hidden]
    return Command(
        words=words,
        help=(found.help or "").strip(),
        arguments=tuple(map(_argument, arguments)),
        argument_help=tuple(" ".join((param.help or "").split()) for param in arguments),
        options=(*options, help_option),
        children=tuple(_command(child, (*words, child.name), help_option) for child in children),
    )


def _argument(param: Any) -> str:
    name: str = (param.metavar or param.name.upper()).rstrip(".…")
    return name + "..." if param.nargs != 1 else name


def _option(param: Any) -> Option:
    metavar = param.metavar or param.name.upper()
    choices = tuple(metavar.split("|")) if re.fullmatch(r"[a-z0-9_]+(\|[a-z0-9_]+)+", metavar) else ()
    return Option(
        names=(*param.opts, *param.secondary_opts),
        help=" ".join((param.help or "").split()),
        metavar="" if param.is_flag else metavar,
        choices=choices,
        repeatable=bool(param.multiple),
        group=group_of(param.opts),
    )
