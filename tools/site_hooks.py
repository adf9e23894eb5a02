"""The additions of `make docs` to docs/: pages from elsewhere in the repository, and those made from declarations.

Pages keep their places in the repository, so that links between them hold on the site as they do there.  The names of
the functions are MkDocs's: https://www.mkdocs.org/user-guide/configuration/#hooks
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import Any

from mkdocs.structure.files import File, Files

from tools import make_pictures, make_reference

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SITE_PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "bench/README.md", "fixtures/README.md")
MADE: dict[str, Callable[[], str]] = {
    "docs/reference/commands.md": make_reference.commands_page,
    "docs/reference/json.md": make_reference.json_page,
    "docs/reference/pictures.md": make_pictures.page,
}


def on_config(config: Any) -> None:
    """List every decision in the navigation."""
    folder = os.path.join(config.docs_dir, "decisions")
    pages = sorted(f"docs/decisions/{name}" for name in os.listdir(folder) if name[0].isdigit())
    (decisions,) = (part["Decisions"] for part in config.nav[-1]["How it is made"] if "Decisions" in part)
    decisions += pages


def on_files(files: Files, config: Any) -> Files:
    """Give the pages their places in the repository, and add the others."""
    return Files(list(_placed(files, config)))


def _placed(files: Files, config: Any) -> Iterator[File]:
    for file in files:
        if file.src_dir == config.docs_dir:
            yield File(f"docs/{file.src_uri}", ROOT, config.site_dir, config.use_directory_urls)
        else:
            yield file
    for page in SITE_PAGES:
        yield File(page, ROOT, config.site_dir, config.use_directory_urls)
    for page, make in MADE.items():
        yield File.generated(config, page, content=make())
    for name, picture in make_pictures.pictures().items():
        yield File.generated(config, f"docs/pictures/{name}", content=picture)


def on_page_content(html: str, **_: Any) -> str:
    """Take the escape off each `|` in a table's code: pages have it for readers of the repository."""
    return re.sub(r"<td[^>]*>.*?</td>", lambda cell: cell[0].replace(r"\|", "|"), html)
