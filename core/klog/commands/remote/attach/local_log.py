"""The empty local log behind the remote part of a partition.

Open transactions are ended by markers in a closed segment of their own: a broker that recovers a segment without the
data of a transaction writes an empty transaction index for it, and readers of remote segments take the aborted
transactions from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from klog.cluster.leader_epoch_cache import LeaderEpochCache
from klog.commands.remote.attach.files_in_memory import FilesInMemory
from klog.formats.checkpoint import EpochEntry
from klog.formats.names import FileKind, file_name
from klog.formats.producer_snapshot import Producer, write_snapshot
from klog.kernel import DONE, crc32c
from klog.log.header_walk import window_of
from klog.partition.append.appender import Appender, AppendSettings, empty_log
from klog.partition.transactions.appended_ends import EndedTransaction, transaction_ends
from klog.partition.transactions.producer_state import ProducerState


class EmptyLog(NamedTuple):
    """The files of a local log without records.  *end*: its log end offset; *ended*: the transactions that it ends."""

    files: FilesInMemory
    end: int
    ended: tuple[EndedTransaction, ...] = ()


class LogBeginning(NamedTuple):
    """The state at the remote end.  *end*: the offset behind it.  *epochs*: the history below it."""

    end: int
    epochs: Sequence[EpochEntry]
    producers: Sequence[Producer]

    @property
    def open(self) -> list[Producer]:
        """The producers with an open transaction."""
        return [one for one in self.producers if one.current_txn_first_offset >= 0]


def local_log(begin: LogBeginning, commits: Mapping[int, bool], now_ms: int, *, keeps_producers: bool) -> EmptyLog:
    """Return the log that begins at the remote end.

    *commits*: by producer id, whether its open transaction is committed or aborted.  *keeps_producers*: the producers
    stay known.
    """
    log = empty_log(AppendSettings(), begin.end)
    log.epochs = LeaderEpochCache(begin.epochs)
    log.producers.take(begin.producers)
    files = FilesInMemory()
    appender = Appender(log, files)
    ended: tuple[EndedTransaction, ...] = ()
    if commits:
        ends = transaction_ends(begin.end, begin.producers, commits, log.epochs.latest, now_ms)
        window = window_of(ends.batches, 0)
        assert window.scan(0) == DONE
        assert not window.check(0, window.count)
        appender.append(window, 0, window.count)
        ended = (*ends.aborted, *ends.committed)
    if not keeps_producers:
        log.producers = ProducerState(log.end)
    if commits:
        appender.skip_to(log.end)
    appender.close()
    files.put(file_name(log.end, FileKind.SNAPSHOT), write_snapshot(log.producers.snapshot(), crc32c))
    return EmptyLog(files, log.end, ended)
