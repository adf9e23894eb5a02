# What the kernel makes of a window: one row a batch, one row a record.  Positions in a record row count from the start
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

# Why a scan or a decode stopped.
cdef enum:
    DONE = 0                     # nothing is left
    MORE = 1                     # scan: the next entry goes on beyond the window; decode: the rows are full
    BAD_LENGTH = 2               # a size below the smallest possible
    BAD_MAGIC = 3                # not 0, 1 or 2
    SHORT_HEADER = 4             # the entry is smaller than its own format's header
    BAD_RECORD = 5               # a record's structure is broken
    BAD_COUNT = 6                # the records do not fill their batch, or overfill it
