"""A disk for work that may be abandoned while it runs."""

from __future__ import annotations

import errno
import os

from klog.data_dir.disk.disk import Disk


class FencedDisk(Disk):
    """A disk for work that may be abandoned while it runs: directories are created only inside *fence*, which is not
    created.

    Otherwise a task that is still running would create directories again that others have removed. *shared*: new files
    get the permissions that the umask allows.
    """

    def __init__(self, fence: str, *, shared: bool = False) -> None:
        self._inside = os.path.join(fence, "")
        if shared:
            self.file_mode, self.directory_mode = 0o666, 0o777

    def make_directory(self, path: str, like: str | None = None) -> None:
        """Make a directory; FileNotFoundError for one that is not inside of the fence."""
        if not path.startswith(self._inside):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        super().make_directory(path, like)
