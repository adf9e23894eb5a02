# A window on a log, as the other extensions see it: its rows, its class, and the functions that go from record to record.

from libc.stdint cimport uint8_t, uint32_t


from klog.kernel.layouts cimport *
from klog.kernel.numbers cimport add, be16, be32, be64, increment_sequence

# The kernel's result for a window: one row a batch, one row a record.  Positions in a record row count from the start
# of its batch (plain) or of its batch's decompressed records, so a row serves both.

cdef struct BatchRow:
    long long position           # bytes from the start of the file
    long long base_offset        # v0, v1 wrapper: unknown until decoded, so the offset field (= last offset)
    long long last_offset
    long long base_timestamp     # delete horizon if that flag is set
    long long max_timestamp
    long long producer_id
    int size                     # bytes, overhead included
    int at                       # bytes from the start of the window
    int leader_epoch
    unsigned int crc             # as stored
    unsigned int computed_crc    # valid once CHECKED is set
    int base_sequence
    int last_offset_delta
    int records_count            # -1: v0, v1, where only decoding tells
    short attributes
    short producer_epoch
    signed char magic
    unsigned char state          # the flags below

cdef enum:
    CHECKED = 1                  # computed_crc was computed
    HOLDS = 2                    # … and equals the stored one
    SKIPPED = 4                  # left out by a filter: not decoded, not formatted
    SUPERSEDED = 8               # … because each of its records has a later one of the same key

cdef struct RecordRow:
    long long offset
    long long timestamp
    int key_at
    int key_length               # -1: null
    int value_at
    int value_length             # -1: null
    int headers_at               # first header; v0, v1: MESSAGE_HOLDS or MESSAGE_BAD
    int headers_count
    int batch                    # its batch's row
    int start                    # v2: where the record begins, with its length
    unsigned int crc             # v0, v1: the message's own, as stored

cdef enum:
    MESSAGE_HOLDS = -1
    MESSAGE_BAD = -2
    MOST_HEADERS = 1 << 20       # of a record in columns or as objects: two bytes of a record take a hundred there
    VALUE_TOO_LONG = -1          # headers_count of a message whose value is not all there

cpdef enum:                      # why a scan or a decode stopped
    DONE = 0                     # nothing is left
    MORE = 1                     # scan: the next entry goes on beyond the window; decode: the rows are full
    BAD_LENGTH = 2               # a size below the smallest possible
    BAD_MAGIC = 3                # not 0, 1 or 2
    SHORT_HEADER = 4             # the entry is smaller than its own format's header
    BAD_RECORD = 5               # a record's structure is broken
    BAD_COUNT = 6                # the records do not fill their batch, or overfill it
    TO_COMPRESS = 17             # from who makes batches: the records of the one at hand wait to be compressed

cdef enum:
    SMALL = 65536                # bytes of work for which giving up the interpreter's lock costs more than it brings: another thread
                                 # may take it for a thousand times as long
    FEW = 256                    # … and rows

cpdef enum:                      # what is known about a batch before its records are looked at; SKIPPED: none of them stays
    RETAIN_EMPTY = 1             # it stays even when none of its records does
    WITHOUT_DATA = 2             # a marker of a transaction none of whose data is left

cdef enum:                       # how values are shown: the places in VALUES
    VALUES_TEXT = 0              # as UTF-8 text, as base64 where it is none
    VALUES_BASE64 = 1
    VALUES_HEX = 2
    VALUES_REDACTED = 3          # only how long it is
    VALUES_NONE = 4

cpdef enum:
    BATCH_OFFSETS = 8            # is added where each line also has its batch's base offset

cdef struct View:
    const uint8_t *data          # the window's bytes
    Py_ssize_t size
    long long position           # of data[0] in the file
    BatchRow *batches
    Py_ssize_t batches_count
    Py_ssize_t good_count        # so many of the first batches were checked, and none of them is bad
    bint has_producers           # a batch with a producer id was found
    const uint8_t **bases        # where each batch's records count from: the batch, or its decompressed records
    int *lengths                 # bytes from there to the end of the records
    RecordRow *records
    Py_ssize_t records_count
    Py_ssize_t records_room
    bint has_bad_messages        # among the records is a message (v0, v1) whose own checksum does not match
    # where decoding is
    Py_ssize_t batch             # the batch at hand
    Py_ssize_t batch_end         # first batch not to decode
    int record                   # its next record …
    int cursor                   # … and where that begins, counted from the batch's base
    long long set_base           # v1 wrapper: what its messages' relative offsets count from
    bint whole                   # all of a compressed batch's records or none


cdef inline void read_batch(const uint8_t *p, BatchRow *row) noexcept nogil:
    row.base_offset = be64(p + BATCH_BASE_OFFSET)
    row.leader_epoch = be32(p + BATCH_LEADER_EPOCH)
    row.crc = <uint32_t>be32(p + BATCH_CRC)
    row.attributes = be16(p + BATCH_ATTRIBUTES)
    row.last_offset_delta = be32(p + BATCH_LAST_OFFSET_DELTA)
    row.last_offset = add(row.base_offset, row.last_offset_delta)
    row.base_timestamp = be64(p + BATCH_BASE_TIMESTAMP)
    row.max_timestamp = be64(p + BATCH_MAX_TIMESTAMP)
    row.producer_id = be64(p + BATCH_PRODUCER_ID)
    row.producer_epoch = be16(p + BATCH_PRODUCER_EPOCH)
    row.base_sequence = be32(p + BATCH_BASE_SEQUENCE)
    row.records_count = be32(p + BATCH_RECORDS_COUNT)


cdef inline void read_message(const uint8_t *p, BatchRow *row) noexcept nogil:
    row.base_offset = be64(p + MESSAGE_V0_OFFSET)
    row.last_offset = row.base_offset
    row.last_offset_delta = 0
    row.leader_epoch = -1
    row.crc = <uint32_t>be32(p + MESSAGE_V0_CRC)
    row.attributes = p[MESSAGE_V0_ATTRIBUTES]
    row.base_timestamp = be64(p + MESSAGE_V1_TIMESTAMP) if row.magic == 1 else -1
    row.max_timestamp = row.base_timestamp
    row.producer_id = -1
    row.producer_epoch = -1
    row.base_sequence = -1
    row.records_count = -1


cdef inline int smallest_entry(int magic) noexcept nogil:
    """Bytes of the smallest entry of that format: its header, and for messages the lengths of a null key and value."""
    if magic >= 2:
        return BATCH_BYTES
    return MESSAGE_V1_BYTES + 4 if magic == 1 else MESSAGE_V0_BYTES + 4


cdef inline int header_bytes(int magic) noexcept nogil:
    """Bytes that a broker reads to learn an entry's facts.  Kafka: FileLogInputStream, headerSize()."""
    if magic >= 2:
        return BATCH_BYTES
    return MESSAGE_V1_KEY_LENGTH if magic == 1 else MESSAGE_V0_KEY_LENGTH


cdef inline int unfit(const uint8_t *p, Py_ssize_t left, bint lenient) noexcept nogil:
    """Why the entry at *p*, *left* bytes before the end, gets no row; DONE if it does.

    Kafka's own tools are lenient: they take any format above 2 for 2, and read the header of an entry that is too
    small for it from what follows.
    """
    cdef int size = be32(p + ENTRY_SIZE)
    cdef int magic = <signed char>p[ENTRY_MAGIC]
    if size < MIN_SIZE:
        return BAD_LENGTH
    if size > left - OVERHEAD:
        return MORE
    if magic < 0 or (magic > 2 and not lenient):
        return BAD_MAGIC
    if lenient:
        return MORE if left < header_bytes(magic) else DONE
    return SHORT_HEADER if size < smallest_entry(magic) - OVERHEAD else DONE


cdef inline bint is_control(const View *v, const RecordRow *row) noexcept nogil:
    return v.batches[row.batch].magic >= 2 and (v.batches[row.batch].attributes & ATTRIBUTE_CONTROL) != 0


cdef inline int last_sequence(const BatchRow *row) noexcept nogil:
    return -1 if row.base_sequence == -1 else increment_sequence(row.base_sequence, row.last_offset_delta)


cdef inline bint is_end_marker(const RecordRow *row, const uint8_t *base) noexcept nogil:
    """Whether a control record is a plain COMMIT or ABORT marker (key: version, type; value: version, epoch)."""
    return (row.key_length >= CONTROL_KEY_BYTES and be16(base + row.key_at + CONTROL_KEY_VERSION) >= 0
            and CONTROL_ABORT <= be16(base + row.key_at + CONTROL_KEY_TYPE) <= CONTROL_COMMIT
            and row.value_length >= END_MARKER_BYTES and be16(base + row.value_at + END_MARKER_VERSION) >= 0)


cdef const uint8_t *read_record(const uint8_t *p, const uint8_t *end, const uint8_t *base, const BatchRow *batch, RecordRow *row) noexcept nogil
cdef int decode_some(View *v) noexcept nogil
cdef uint8_t *put_named(uint8_t *w, const uint8_t *p, int length, int values) noexcept nogil


cdef enum:
    TAIL_ROOM = 96               # `,"leader_epoch":-2147483648,"producer_id":-9223372036854775808,"producer_epoch":-32768`

cdef struct LineStyle:
    const uint8_t *origin        # `,"partition":3,"topic":"orders"` (JSON) or `3,"orders"` (CSV), as the caller made it
    Py_ssize_t origin_length
    Py_ssize_t before_position   # as much of the origin; a zero byte and members that end a JSON line may follow
    int values                   # VALUES_…
    bint batch_offsets
    uint8_t *key_at              # where the line being written has its key, value and headers
    uint8_t *value_at
    uint8_t *headers_at
    int batch                    # the batch whose part of a JSON line is kept here, -1: none
    int tail_length
    uint8_t tail[TAIL_ROOM]      # its fields between origin and sequence
    int end_length
    uint8_t end[TAIL_ROOM]       # its fields after the sequence

cdef struct LineContent:
    const uint8_t *text          # takes the place of a value, of key and value in text lines; NULL: they stay
    Py_ssize_t length
    const uint8_t *facts         # the members of a JSON line behind the value
    Py_ssize_t facts_length


cdef class Window:
    cdef View view
    cdef bytearray data
    cdef const unsigned char[::1] lent       # the content, where it is not in `data`
    cdef list payloads
    cdef readonly Py_ssize_t next_at         # where the scan stopped: bytes from the start of the window
    cdef Py_ssize_t line_batch               # first batch whose text line has not been written
    cdef Py_ssize_t batches_room
    cdef readonly object error  #: Exception | None: why `decompress` stopped
    cdef bytearray out
    cdef uint8_t *out_start
    cdef Py_ssize_t out_room
    cdef readonly Py_ssize_t out_used        # bytes of output that wait in `output()`

    cdef _forget(self)
    cdef int _reserve_batches(self, Py_ssize_t count) except -1
    cdef int _reserve_records(self, Py_ssize_t count) except -1
    cdef int _reserve_output(self, Py_ssize_t size) except -1
    cdef int _range(self, Py_ssize_t first, Py_ssize_t end) except -1
    cdef object _slice(self, int batch, int at, int length)
    cdef object _bytes(self, const RecordRow *r, int at, int length)
    cdef Py_ssize_t _row_end(self, Py_ssize_t end)
    cdef int _all_there(self) except -1
    cdef Py_ssize_t _lines(self, Py_ssize_t first, Py_ssize_t end, int kind, bytes origin, int option, list contents, list facts) except -1
    cdef Py_ssize_t _write(self, Py_ssize_t row, Py_ssize_t stop, int kind, LineStyle *style, const LineContent *contents,
                           long long *wanted) noexcept nogil
    cdef uint8_t *_batch_lines(self, uint8_t *w, uint8_t *end, Py_ssize_t stop, bint lazy) noexcept nogil
