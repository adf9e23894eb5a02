"""Ids that several schemas claim, and which of them keeps the number in a registry that is made anew.

A registry takes one schema for an id in a context.  Two leaders at once, or a restored topic, have left two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from klog.base.errors import UsageError
from klog.commands.schemas.usage import Usage
from klog.schemas.schema_version import SchemaVersion


class Claim(NamedTuple):
    """An id in a context, and the schemas that claim it: for each the versions with it, by offset.

    *fits*: how many records each of them decodes, None if no data was read.
    """

    context: str
    schema_id: int
    schemas: tuple[tuple[SchemaVersion, ...], ...]
    fits: tuple[int, ...] | None = None


class Settled(NamedTuple):
    """A claim whose schema *keeps* keeps the id; *losers*: the versions of the others; *reason*: why."""

    claim: Claim
    keeps: tuple[SchemaVersion, ...]
    losers: tuple[SchemaVersion, ...]
    reason: str


def claims_of(versions: Sequence[SchemaVersion]) -> list[Claim]:
    """Return the ids among *versions* that several schemas claim."""
    by_id: dict[tuple[str, int], dict[object, list[SchemaVersion]]] = {}
    for row in versions:
        schemas = by_id.setdefault((row.context, row.id), {})
        schemas.setdefault((row.type, row.text, row.references), []).append(row)
    return [
        Claim(context, number, tuple(map(tuple, schemas.values())))
        for (context, number), schemas in by_id.items()
        if len(schemas) > 1
    ]


def with_fits(claims: Iterable[Claim], usage: Usage) -> list[Claim]:
    """Return *claims* with the numbers of keys and values that each schema decodes."""
    fits: dict[tuple[int | str, str, int], int] = {}
    for use in usage.values():
        for key, one in use.ids.items():
            for (subject, version), count in one.schemas.items():
                place = key, subject, version
                fits[place] = fits.get(place, 0) + count
    return [
        one._replace(
            fits=tuple(sum(fits.get((row.id, row.subject, row.version), 0) for row in rows) for rows in one.schemas)
        )
        for one in claims
    ]


def settle(claims: Iterable[Claim], chosen: Mapping[int, tuple[str, int]]) -> list[Settled]:
    """Return which schema of each claim keeps the id: the *chosen* one, else the best fitting one, else the first.

    *chosen*: subject and version by id.  Raises UsageError for a choice that is no claimant.
    """
    claims = list(claims)
    unknown = chosen.keys() - {one.schema_id for one in claims}
    if unknown:
        raise UsageError(f"--choose {min(unknown)}=…: no two schemas claim this id")
    return [_settle(one, chosen.get(one.schema_id)) for one in claims]


def _settle(claim: Claim, chosen: tuple[str, int] | None) -> Settled:
    if chosen is not None:
        at = next((i for i, rows in enumerate(claim.schemas) if any(_is(row, chosen) for row in rows)), None)
        if at is None:
            names = ", ".join(f"{row.subject}:{row.version}" for rows in claim.schemas for row in rows)
            raise UsageError(f"--choose {claim.schema_id}={chosen[0]}:{chosen[1]}: its claimants are {names}")
        reason = "chosen"
    elif claim.fits is not None and any(claim.fits):
        at = max(range(len(claim.fits)), key=lambda i: (claim.fits or ())[i])
        reason = f"it fits {claim.fits[at]} of {sum(claim.fits)} keys and values"
    else:
        at, reason = 0, "the first in the log, as a registry takes it"
    losers = tuple(row for i, rows in enumerate(claim.schemas) if i != at for row in rows)
    return Settled(claim, claim.schemas[at], losers, reason)


def _is(row: SchemaVersion, chosen: tuple[str, int]) -> bool:
    return chosen[0] in (row.subject, row.name) and row.version == chosen[1]
