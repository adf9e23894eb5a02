"""The compiled parts of klog: everything that happens once a batch or once a record.

Each part is loaded when a name of it is first used.  Written by tools/make_kernel_face.py.
"""

from __future__ import annotations

_PARTS = {
    "_compact": "OUTPUT_FULL OffsetMap Rewriter TO_CONVERT",
    "_index": "IndexBuilder offset_index_used time_index_used",
    "_json_values": "framed_run json_values",
    "_keys": (
        "ANOTHER_RULE GROWN HASH_OF_RULE KEY_FORMS KeyExamples KeyLines KeyPlaces KeyReader NO_CAUSE UNFRAMED "
        "key_partitions read_key"
    ),
    "_metadata": "PartitionTable skip_partitions",
    "_producers": "ENTRY_ERROR ENTRY_FULL ENTRY_ODD EntryList HeaderPass record_signs",
    "_profile": "Profile",
    "_survey": "LogLandmarks SegmentSurvey ascending_run batch_identities flipped_bit last_batch_end",
    "_transactions": "LatestRecords OpenTransactions TransactionSpans transaction_states",
    "_window": (
        "BAD_COUNT BAD_LENGTH BAD_MAGIC BAD_RECORD BATCH_OFFSETS COLUMNS DONE KeySet MORE RETAIN_EMPTY "
        "SHORT_HEADER TEXT_BARE TEXT_CONTENT TEXT_LAZY TEXT_RECORDS TO_COMPRESS VALUES WITHOUT_DATA Window "
        "begin_sync cached_pages crc32 crc32_shift crc32c crc32c_portable crc32c_shift finish_sync "
        "give_memory_back hardware_crc is_utf8 java_string json_text set_aside set_io_priority "
        "sync_file_system"
    ),
    "_write": (
        "ASK BatchBuilder BatchRouter FIRST_FAULT FLUSH InputRecords OPEN_PARTITION RECORD_ERRORS "
        "RECORD_FAULTS RecordColumns RecordLines TopicRoute TransactionEnds drop_producers stamp"
    ),
}
_HOMES = {name: part for part, names in _PARTS.items() for name in names.split()}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'klog.kernel' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"klog.kernel.{_HOMES[name]}"), name)
    return value
