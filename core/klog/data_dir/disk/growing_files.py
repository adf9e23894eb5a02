"""New files that grow side by side, any number of them, only some of which are open at a time."""

from __future__ import annotations

from collections import OrderedDict

from klog.data_dir.disk.disk import Disk, OpenFile

_MOST_OPEN = 128


class GrowingFiles:
    """Appends to files by their paths.  All calls raise OSError; call `close_all` at the end, also after an error."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._open: OrderedDict[str, OpenFile] = OrderedDict()

    def create(self, path: str) -> None:
        """Make a new file; it must not be there yet."""
        self._keep(path, self._disk.create(path))

    def write(self, path: str, data: bytes | memoryview) -> None:
        """Append *data* to a file that is there."""
        file = self._open.get(path)
        if file is None:
            file = self._keep(path, self._disk.open_end(path))
        else:
            self._open.move_to_end(path)
        self._disk.write(file, data)

    def _keep(self, path: str, file: OpenFile) -> OpenFile:
        self._open[path] = file
        if len(self._open) > _MOST_OPEN:
            self._disk.close(self._open.popitem(last=False)[1])
        return file

    def close(self, path: str) -> None:
        """Close a file, if it is open: nothing will be appended to it for a while."""
        file = self._open.pop(path, None)
        if file is not None:
            self._disk.close(file)

    def close_all(self) -> None:
        """Close all files."""
        while self._open:
            self._disk.close(self._open.popitem()[1])
