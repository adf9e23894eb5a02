"""The mutants of a source, and that the tests of a mutant reach the mutant."""

from __future__ import annotations

import ast

from tests.mutation.mutants import mutants_of, mutated, place_of
from tests.mutation.run import CORE
from tests.mutation.same import SAME

SOURCE = '''"""A module: 1 < 2."""

if TYPE_CHECKING:
    import json


@dataclass(frozen=True)
class Ends:
    last: int = 7

    def grows(self, ends: dict[str, Literal[3]], at: int) -> bool:
        """Say 4 + 4."""
        assert at > 5
        if not ends or at <= self.last:
            raise ValueError(f"bad end {at + 6}")
        self.last = at
        write(ends, "é", at)
        return any(ends)
'''
CHANGES = {
    ("7", "8", "constant"),
    ("7", "6", "constant"),
    ("not ends or at <= self.last", "(not ends and at <= self.last)", "and, or"),
    ("not ends", "(ends)", "not"),
    ("at <= self.last", "(at < self.last)", "comparison"),
    ('raise ValueError(f"bad end {at + 6}")', "pass", "removed"),
    ("self.last = at", "pass", "removed"),
    ('write(ends, "é", at)', "pass", "removed"),
    ('write(ends, "é", at)', "(write('é', ends, at))", "swapped arguments"),
    ("return any(ends)", "return None", "return value"),
    ("any(ends)", "(all(ends))", "any, all, min, max"),
}


def test_mutants_are_small_mistakes_where_something_is_decided() -> None:
    """Texts, annotations, decorators, docstrings and assertions decide nothing."""
    assert {(mutant.was, mutant.now, mutant.kind) for mutant in mutants_of("ends.py", SOURCE)} == CHANGES


def test_a_mutant_is_the_source_with_one_change() -> None:
    for mutant in mutants_of("ends.py", SOURCE):
        text = mutated(SOURCE, mutant)
        assert ast.unparse(ast.parse(text)) != ast.unparse(ast.parse(SOURCE)), mutant
        before, after = SOURCE.partition(mutant.was)[0], text.partition(mutant.now)[2]
        assert mutant.kind == "constant" or before + mutant.was + after == SOURCE, mutant


def test_what_is_said_to_be_the_same_is_a_mutant() -> None:
    """Otherwise a reason outlives its subject."""
    for file in {file for file, _, _ in SAME}:
        source = (CORE / file).read_text()
        places = {place_of(source, mutant) for mutant in mutants_of(file, source)}
        assert {place for place in SAME if place[0] == file} <= places
