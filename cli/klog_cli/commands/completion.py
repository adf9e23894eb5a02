"""`klog completion`: its options."""

from __future__ import annotations

from typing import Annotated

import typer

Kind = Annotated[
    str, typer.Argument(metavar="SHELL", help="The shell: bash, zsh or fish. Its script asks for `topics` and `plans`.")
]
Words = Annotated[list[str] | None, typer.Argument(metavar="WORD...", help="The words of the line.", hidden=True)]


def completion(kind: Kind, words: Words = None) -> int:
    """Print the completion script of a shell.

    The script completes commands, options and their values, the topics of the paths on the line, and plans.
    """
    from klog_cli.views.completion import complete

    return complete(kind, words or [])
