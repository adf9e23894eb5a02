"""The additions of `make docs` to docs/: pages from elsewhere in the repository, and those made from declarations.

Pages keep their places in the repository, so that links between them hold on the site as they do there.  The names of
the functions are MkDocs's: https://www.mkdocs.org/user-guide/configuration/#hooks
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

from mkdocs.structure.files import File, Files

from tools import make_pictures, make_reference

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SITE_PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "bench/README.md", "fixtures/README.md")
HOME, FRONT = "docs/questions.md", "README.md"
"""The page that the site begins with, and the page that GitHub begins with."""
MADE: dict[str, Callable[[], str]] = {
    "docs/reference/json.md": make_reference.json_page,
    "docs/reference/pictures.md": make_pictures.page,
}


def on_config(config: Any) -> None:
    """List every command and every decision in the navigation."""
    folder = os.path.join(config.docs_dir, "decisions")
    _part(config.nav, "Decisions").extend(
        f"docs/decisions/{name}" for name in sorted(os.listdir(folder)) if name[0].isdigit()
    )
    _part(config.nav, "Commands").extend(make_reference.navigation())


def _part(navigation: list[Any], name: str) -> list[Any]:
    """Return the list that the navigation has under *name*, at any depth.  Raises StopIteration if there is none."""
    parts = [part for entry in navigation if isinstance(entry, dict) for part in entry.items()]
    for title, below in parts:
        if title == name:
            return below
    return next(_part(below, name) for _, below in parts if isinstance(below, list) and f"'{name}'" in str(below))


def on_files(files: Files, config: Any) -> Files:
    """Give the pages their places in the repository, and add the others."""
    return Files(list(_placed(files, config)))


def _placed(files: Files, config: Any) -> Iterator[File]:
    for file in files:
        if file.src_dir == config.docs_dir:
            yield _of_repository(f"docs/{file.src_uri}", config)
        else:
            yield file
    for page in SITE_PAGES:
        yield _of_repository(page, config)
    for page, text in {**{page: make() for page, make in MADE.items()}, **make_reference.pages()}.items():
        yield File.generated(config, page, content=text)
    for name, picture in make_pictures.pictures().items():
        yield File.generated(config, f"docs/pictures/{name}", content=picture)


def _of_repository(path: str, config: Any) -> File:
    """Return a file of the repository; the site begins with the questions, and the README has a page of its own."""
    place = {HOME: "index.html", FRONT: "readme.html"}.get(path)
    return File(path, ROOT, config.site_dir, config.use_directory_urls, dest_uri=place)


def on_page_content(html: str, **_: Any) -> str:
    """Finish the tables of a page."""
    return re.sub(r"<table>.*?</table>", lambda table: _table(table[0]), html, flags=re.DOTALL)


def _table(html: str) -> str:
    r"""Give each cell the heading of its column, for narrow screens, and take the escape off each `\|` in its code."""
    headings = [re.sub(r"<[^>]*>", "", heading) for heading in re.findall(r"<th[^>]*>(.*?)</th>", html)]
    columns = itertools.cycle(headings)
    return re.sub(r"<td(?=[ >])", lambda _: f'<td data-label="{next(columns)}"', html).replace(r"\|", "|")
