"""Files of directories that are not on their disk: those of segments in remote storage, beside the local ones.

`klog.base.read_only` lists and opens them as it does others, and readers of a partition directory do not see the
difference.  There are none unless a command was given remote storage.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from klog.base.readable_log import ReadableLog


class OverlayFile(NamedTuple):
    """A file that a directory has in an overlay.

    *modified_ms*: a broker's value for the time of the last write.  *key*: of its object in remote storage, and
    *segment_id*: of its segment; None for a file without an object.  *is_asked_for_times*: a broker looks in it for
    the offset of a time.
    """

    size: int
    open: Callable[[], ReadableLog]
    modified_ms: int = 0
    key: str | None = None
    segment_id: str | None = None
    is_asked_for_times: bool = True


class Overlay(NamedTuple):
    """The files of a directory by name, in place of those of the same names on the disk; *hidden* ones are not listed.

    *is_alone*: the disk has no such directory.  *directories*: the names of directories in it that are so.
    """

    files: Mapping[str, OverlayFile]
    hidden: frozenset[str] = frozenset()
    is_alone: bool = False
    directories: frozenset[str] = frozenset()


OVERLAYS: Final[dict[str, Overlay]] = {}
"""The overlays of this process, by the absolute paths of their directories."""
_BY_KEY: Final[dict[str, OverlayFile]] = {}


def add_overlay(path: str, overlay: Overlay) -> None:
    """Lay *overlay* over the directory at *path*, whichever of its names is used."""
    for place in {os.path.abspath(path), os.path.realpath(path)}:
        OVERLAYS[place] = overlay
    _BY_KEY.update((file.key, file) for file in overlay.files.values() if file.key is not None)


def clear_overlays() -> None:
    """Remove all overlays."""
    OVERLAYS.clear()
    _BY_KEY.clear()


def remote_object(name: str) -> OverlayFile | None:
    """Return the file of a segment in remote storage with this path, or with this key; None for a local one."""
    if not OVERLAYS:
        return None
    found = _BY_KEY.get(name) or overlay_file(name)
    return None if found is None or found.key is None else found


def shown_path(path: str) -> str:
    """Return how results name the file at *path*: by the key of its object, if it is in remote storage."""
    found = remote_object(path)
    return path if found is None or found.key is None else found.key


def overlay_at(path: str) -> Overlay | None:
    """Return the overlay of the directory at *path*; None without one."""
    return OVERLAYS.get(os.path.abspath(path)) if OVERLAYS else None


def overlay_file(path: str) -> OverlayFile | None:
    """Return the file of an overlay at *path*; None if there is none."""
    if not OVERLAYS:
        return None
    folder, name = os.path.split(os.path.abspath(path))
    found = OVERLAYS.get(folder)
    return None if found is None else found.files.get(name)
