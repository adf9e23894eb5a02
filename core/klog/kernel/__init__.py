"""The one compiled module: scan, checksum, decode, format.  Its source: `_kernel.pyx` and the `.pxi` files."""

from klog.kernel._kernel import (
    COLUMNS,
    RECORD_ERRORS,
    RECORD_FAULTS,
    ActiveSegment,
    BatchBuilder,
    BatchRouter,
    IndexBuilder,
    InputRecords,
    KeyExamples,
    KeyLines,
    KeyPlaces,
    KeyReader,
    KeySet,
    OffsetMap,
    OpenTransactions,
    PartitionTable,
    Profile,
    RecordColumns,
    RecordLines,
    Rewriter,
    SegmentSurvey,
    TopicRoute,
    TransactionEnds,
    Window,
    ascending_run,
    batch_identities,
    crc32,
    crc32_shift,
    crc32c,
    crc32c_portable,
    crc32c_shift,
    drop_producers,
    flipped_bit,
    hardware_crc,
    is_utf8,
    java_string,
    json_text,
    key_partitions,
    last_batch_end,
    offset_index_used,
    read_key,
    skip_partitions,
    stamp,
    time_index_used,
)

DONE, MORE, BAD_LENGTH, BAD_MAGIC, SHORT_HEADER, BAD_RECORD, BAD_COUNT = range(7)
"""Why a scan or a decode stopped (`rows.pxi`)."""

OUTPUT_FULL, TO_COMPRESS, TO_CONVERT = 16, 17, 18
"""Why a Rewriter stopped, besides DONE and what is broken (`rewrite.pxi`)."""

RETAIN_EMPTY, WITHOUT_DATA = 1, 2
"""What a Rewriter is told about batches, added up (`rewrite.pxi`)."""

TEXT_RECORDS, TEXT_CONTENT, TEXT_BARE, TEXT_LAZY = 1, 2, 4, 8
"""What `Window.text_lines` writes (`text.pxi`)."""

FLUSH, ASK, FIRST_FAULT, OPEN_PARTITION = 32, 33, 34, 64
"""Why a BatchRouter stopped; with FIRST_FAULT begin those of RECORD_FAULTS (`batch_builder.pxi`)."""

VALUES, BATCH_OFFSETS = ("text", "base64", "hex", "redacted", "none"), 8
"""How `json_lines` and `csv_lines` show values: the place in this list is the option's number (`json.pxi`)."""

KEY_FORMS = ("text", "hex", "base64", "int32", "int64")
"""How keys are given as text: the place in this list is the form's number (`partitions.h`)."""

__all__ = [
    "ASK",
    "BAD_COUNT",
    "BAD_LENGTH",
    "BAD_MAGIC",
    "BAD_RECORD",
    "BATCH_OFFSETS",
    "COLUMNS",
    "DONE",
    "FIRST_FAULT",
    "FLUSH",
    "KEY_FORMS",
    "MORE",
    "OPEN_PARTITION",
    "OUTPUT_FULL",
    "RECORD_ERRORS",
    "RECORD_FAULTS",
    "RETAIN_EMPTY",
    "SHORT_HEADER",
    "TEXT_BARE",
    "TEXT_CONTENT",
    "TEXT_LAZY",
    "TEXT_RECORDS",
    "TO_COMPRESS",
    "TO_CONVERT",
    "VALUES",
    "WITHOUT_DATA",
    "ActiveSegment",
    "BatchBuilder",
    "BatchRouter",
    "IndexBuilder",
    "InputRecords",
    "KeyExamples",
    "KeyLines",
    "KeyPlaces",
    "KeyReader",
    "KeySet",
    "OffsetMap",
    "OpenTransactions",
    "PartitionTable",
    "Profile",
    "RecordColumns",
    "RecordLines",
    "Rewriter",
    "SegmentSurvey",
    "TopicRoute",
    "TransactionEnds",
    "Window",
    "ascending_run",
    "batch_identities",
    "crc32",
    "crc32_shift",
    "crc32c",
    "crc32c_portable",
    "crc32c_shift",
    "drop_producers",
    "flipped_bit",
    "hardware_crc",
    "is_utf8",
    "java_string",
    "json_text",
    "key_partitions",
    "last_batch_end",
    "offset_index_used",
    "read_key",
    "skip_partitions",
    "stamp",
    "time_index_used",
]
