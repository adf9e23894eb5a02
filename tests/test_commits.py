"""The rules for the messages of commits, with planted breaches."""

from __future__ import annotations

import pytest

from tools.check_commits import violations

BODY = "\n\nA crash in the middle of an append was reported as corruption.\n"


@pytest.mark.parametrize(
    "subject",
    [
        "dump: tell a torn tail from a bad length",
        "tests/cli, docs: name the directory",
        "metadata plan: name the partitions",
        ".ci: run on two cores",
        f"kernel: {'x' * 64}",
    ],
)
def test_a_message_with_an_area_and_a_body_passes(subject: str) -> None:
    assert list(violations(subject + BODY)) == []


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (f"kernel: {'x' * 65}{BODY}", "the subject has 73 characters"),
        (f"Fix the dump{BODY}", "does not begin with its area"),
        (f"dump:{BODY}", "does not begin with its area"),
        (f"some more words: and more{BODY}", "does not begin with its area"),
        ("dump: tell a torn tail from a bad length\n", "there is no body"),
        ("dump: tell a torn tail\nfrom a bad length\n\nA crash was corruption.\n", "no blank line"),
    ],
)
def test_a_planted_breach_is_named(message: str, sentence: str) -> None:
    assert any(sentence in found for found in violations(message))
