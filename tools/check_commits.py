"""Checks the messages of the commits since the branch point: `make lint`.

    python -m tools.check_commits [BASE]

A subject has at most 72 characters and begins with its area ("dump: tell a torn tail from a bad length"); a body says
what was and why.  *BASE*: `origin/main` unless given; without such a branch nothing is checked.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUBJECT_CHARACTERS = 72
_AREA = r"[\w/.-]+( [\w-]+)?"  # a folder, or a command and its verb
_SUBJECT = re.compile(rf"{_AREA}(, {_AREA})*: \S")


def violations(message: str) -> Iterator[str]:
    """Yield a sentence for each rule that the message of a commit breaks."""
    subject, _, rest = message.partition("\n")
    if len(subject) > SUBJECT_CHARACTERS:
        yield f"the subject has {len(subject)} characters; {SUBJECT_CHARACTERS} are the limit"
    if not _SUBJECT.match(subject):
        yield "the subject does not begin with its area and a colon"
    blank, _, body = rest.partition("\n")
    if blank.strip():
        yield "no blank line separates the subject from the body"
    if not body.strip():
        yield "there is no body that says what was and why"


def _git(*words: str) -> str | None:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def main() -> int:
    """Check the commits since the branch point; return 1 if one breaks a rule."""
    base = sys.argv[1] if len(sys.argv) > 1 else "origin/main"
    point = _git("merge-base", base, "HEAD")
    commits = (_git("rev-list", "--no-merges", f"{point.strip()}..HEAD") or "").split() if point else []
    found = [
        f"{commit[:12]} {subject.splitlines()[0]}: {sentence}"
        for commit in commits
        if (subject := _git("show", "--no-patch", "--format=%B", commit))
        for sentence in violations(subject)
    ]
    for line in found:
        print(line, file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
