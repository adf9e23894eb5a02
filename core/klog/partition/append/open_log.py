"""Opens a log that no broker uses, to append to it: what a broker's next start would cut off again is refused."""

from __future__ import annotations

from shlex import quote

from klog.base.errors import DamagedError
from klog.base.files.read_only import ReadOnlyFile
from klog.change.partition_plan.strict_reader import StrictReader
from klog.data_dir.partition import Partition
from klog.kernel import Window
from klog.partition.append.log_state import AppendSettings
from klog.partition.append.resume import Resumption, load_producers, resume

_REFUSED = "nothing is appended"


def open_log(partition: Partition, settings: AppendSettings, window: Window, *, is_closed: bool) -> Resumption:
    """Return how *partition*, which has segments, goes on, with its producers.  *window* is used to read.

    *is_closed*: it was left as after a clean stop.  Then a broker checks nothing below the recovery point, and neither
    does this.  Else its start reads the segment of the recovery point, and all behind it, from the beginning on, and
    cuts the log where it finds damage, with all that follows: so all of that is read here, too.  Kafka:
    LogLoader.recoverLog.  Raises DamagedError where it must be recovered first, UnreadableError.
    """
    known = partition.recovery_point or 0
    if not is_closed:
        known = max((files.base_offset for files in partition.segments if files.base_offset <= known), default=0)
        for files in partition.segments[:-1]:
            if files.base_offset >= known:
                with ReadOnlyFile(partition.file(files.log)) as log:
                    reader = StrictReader(log, partition.file(files.log), files.base_offset, _REFUSED)
                    while reader.next(window):
                        pass
    found = resume(partition, settings, window, known)
    if found.torn is not None:
        where, what = found.torn.place, found.torn.detail
        raise DamagedError(f"{where}: {what}; {_REFUSED}; first: klog recover {quote(partition.path)}")
    load_producers(partition, found.log, found.log.end if is_closed else known)
    return found
