"""One vocabulary of options for all commands: a name has one meaning, and a meaning one name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from klog_cli.command_class import OPTION_GROUPS
from klog_cli.command_tree import build

SHORT = {
    "-o": "--output",
    "-t": "--topic",
    "-p": "--partition",
    "-n": "--limit",
    "-j": "--jobs",
    "-q": "--quiet",
}
FORMS = (
    *("text", "json", "jsonl", "csv", "parquet", "log", "reset-offsets", "reassignment", "prometheus", "keys"),
    *("records", "requests", "files"),
)
"""The order of the forms of output."""
OLD = {"--output-path", "--into", "--export", "--format", "--config", "--conf", "--rules", "--until", "--at", "--from"}
"""Names that another one replaced."""
OTHERWISE = {
    # The format of a record, with the letters of kcat, is not the form of a result.
    "records": {"--format"},
    # The log dirs of the cluster that is gone, beside those of the one that gets its tier.
    "remote attach": {"--from"},
}
"""Commands in which such a name has a meaning of its own."""
SEVERAL = {
    "--as": "the kind of a file, the name of a partition, the form of a key: what the argument is taken for",
    "--batches": "rows of batches; batches to fill or keep",
    "--check": "the checks of audit; the metadata log that assign checks",
    "--choose": "a copy of a partition",
    "--context": "the context of a schema; bytes around those that are shown",
    "--deep": "reads all data, for what the command is about",
    "--group": "names or globs",
    "--isolation": "fetch also takes a follower",
    "--keys-from": "a file of keys",
    "--kafka-version": "doctor and compact know different versions",
    "--open-transactions": "serve, adopt and remote attach do different things with them",
    "--output": "its forms",
    "--partition": "metadata history takes one",
    "--partitioner": "write has those that pick at random",
    "--partitions": "a number of partitions, needed or not",
    "--producers": "write can shift their ids",
    "--producer-expiration": "with and without a default",
    "--seed": "write takes no negative one",
    "--subject": "names or globs",
    "--to": "a file or a directory",
    "--topic": "write and assign take a name",
    "--topic-id": "write takes one",
    "--with": "further disks",
    "--max-bytes": "fetch has a default",
    "--min-bytes": "fetch and follow",
    "--file-size": "of files",
    "--map-memory": "smaller on Spark",
    "--metadata": "one log dir",
    "--backup": "where backups are, or are to be",
    "--apply": "of what the command changes",
    "--all": "everything",
}
"""Options whose values differ between commands, and why that is one meaning."""
WITHOUT_CHOICE = {
    "metadata plan": "a metadata log is planned as a whole",
    "report": "the page is about the whole log dir",
    "schemas export": "subjects narrow it",
    "schemas list": "subjects narrow it",
    "schemas show": "an id or a subject chooses",
}
"""Commands that take PATH or DISK and no --topic and --partition."""


def commands() -> Iterator[tuple[str, Any]]:
    """Yield each command that does something, with its name."""

    def walk(found: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        for name, child in getattr(found, "commands", {}).items():
            yield from walk(child, (*words, name))
        if not hasattr(found, "commands"):
            yield " ".join(words), found

    return walk(typer.main.get_command(build()), ())


EVERY = dict(commands())


def options_of(command: Any) -> list[Any]:
    return [one for one in command.params if one.param_type_name == "option"]


@pytest.mark.parametrize("name", EVERY)
def test_short_names_and_the_options_of_every_command(name: str) -> None:
    found = {one: option.opts for option in options_of(EVERY[name]) for one in option.opts}
    for short, long in SHORT.items():
        assert (short in found) == (long in found), (name, short)
        assert short not in found or long in found[short]
    assert {"--quiet", "--color", "--jobs"} <= found.keys()
    assert ("--apply" in found) == ("--dry-run" in found)
    assert not found.keys() & (OLD - OTHERWISE.get(name, set()))


def test_a_name_has_one_meaning() -> None:
    """Options of one name take the same kind of value everywhere, or are listed with the reason."""
    kinds: dict[str, set[tuple[str | None, bool]]] = defaultdict(set)
    for command in EVERY.values():
        for option in options_of(command):
            kinds[max(option.opts, key=len)].add((option.metavar, bool(option.is_flag)))
    assert {name: kind for name, kind in kinds.items() if len(kind) > 1 and name not in SEVERAL} == {}


@pytest.mark.parametrize("name", EVERY)
def test_forms_have_one_order(name: str) -> None:
    for option in options_of(EVERY[name]):
        if "--output" in option.opts:
            forms = option.metavar.split("|")
            assert forms == sorted(forms, key=FORMS.index), name
            assert "table" not in forms


@pytest.mark.parametrize("name", EVERY)
def test_what_takes_paths_can_be_narrowed(name: str) -> None:
    command = EVERY[name]
    arguments = {one.metavar for one in command.params if one.param_type_name == "argument"}
    if arguments & {"PATH...", "DISK...", "PARTITION", "SOURCE..."} and name not in WITHOUT_CHOICE:
        names = {one for option in options_of(command) for one in option.opts}
        assert {"--topic", "--partition"} <= names, name


@pytest.mark.parametrize("name", EVERY)
def test_values_have_names_in_capitals(name: str) -> None:
    """Or are all the words that there are."""
    for option in options_of(EVERY[name]):
        if not option.is_flag:
            assert option.metavar, (name, option.opts)
            assert option.metavar.upper() == option.metavar or "|" in option.metavar or "." in option.metavar


def test_groups_name_options_that_there_are() -> None:
    named = {one for command in EVERY.values() for option in options_of(command) for one in option.opts}
    grouped = {f"--{one}" for names in OPTION_GROUPS.values() for one in names.split()}
    assert grouped - named == {"--help"}
