# Columns: record rows as the buffers of Arrow arrays, made by the caller and filled one window after the other.

cdef enum:
    COLUMN_OFFSET = 0
    COLUMN_TIMESTAMP = 1
    COLUMN_TIMESTAMP_TYPE = 2    # 0 CreateTime, 1 LogAppendTime; v0 has none
    COLUMN_LEADER_EPOCH = 3
    COLUMN_PRODUCER_ID = 4
    COLUMN_PRODUCER_EPOCH = 5
    COLUMN_SEQUENCE = 6
    COLUMN_TRANSACTIONAL = 7     # 1, or none
    COLUMN_CONTROL = 8           # type of a control record, CONTROL_UNKNOWN for those that have no name; data has none
    COLUMN_POSITION = 9
    COLUMN_TIMESTAMP_US = 10     # none where microseconds since the epoch do not fit
    COLUMN_COORDINATOR_EPOCH = 11    # of a transaction's end
    COLUMN_BATCH = 12            # base offset; message sets have none

cdef enum:
    NO_NUMBER = -1               # what stands for none in every column
    CONTROL_UNKNOWN = 7          # one beyond the types that have a name

COLUMNS = ("offset", "timestamp", "timestamp_type", "leader_epoch", "producer_id", "producer_epoch", "sequence", "transactional",
           "control", "position", "timestamp_us", "coordinator_epoch", "batch")

cdef long long MOST_MS = 0x7FFFFFFFFFFFFFFF // 1000


cdef inline long long row_number(const View *v, const RecordRow *row, int column) noexcept nogil:
    cdef const BatchRow *batch = v.batches + row.batch
    if column == COLUMN_OFFSET:
        return row.offset
    if column == COLUMN_TIMESTAMP:
        return row.timestamp
    if column == COLUMN_TIMESTAMP_US:
        return 1000 * row.timestamp if -MOST_MS <= row.timestamp <= MOST_MS else NO_NUMBER
    if column == COLUMN_TIMESTAMP_TYPE:
        return (1 if batch.attributes & ATTRIBUTE_LOG_APPEND_TIME else 0) if batch.magic else NO_NUMBER
    if column == COLUMN_LEADER_EPOCH:
        return batch.leader_epoch
    if column == COLUMN_PRODUCER_ID:
        return batch.producer_id
    if column == COLUMN_PRODUCER_EPOCH:
        return batch.producer_epoch
    if column == COLUMN_SEQUENCE:
        return record_sequence(batch, row)
    if column == COLUMN_TRANSACTIONAL:
        return 1 if batch.magic >= 2 and batch.attributes & ATTRIBUTE_TRANSACTIONAL else NO_NUMBER
    if column == COLUMN_POSITION:
        return batch.position
    if column == COLUMN_BATCH:
        return batch.base_offset if batch.magic >= 2 else NO_NUMBER
    if not is_control(v, row):
        return NO_NUMBER
    if column == COLUMN_COORDINATOR_EPOCH:
        return be32(v.bases[row.batch] + row.value_at + END_MARKER_COORDINATOR_EPOCH) if is_end_marker(row, v.bases[row.batch]) else NO_NUMBER
    cdef int type = control_type(row, v.bases[row.batch])
    return type if 0 <= type < CONTROL_UNKNOWN else CONTROL_UNKNOWN


cdef inline bint is_same_in_batch(const BatchRow *batch, int column) noexcept nogil:
    if column == COLUMN_SEQUENCE:
        return batch.base_sequence < 0
    if column == COLUMN_CONTROL or column == COLUMN_COORDINATOR_EPOCH:
        return not (batch.magic >= 2 and batch.attributes & ATTRIBUTE_CONTROL)
    return COLUMN_TIMESTAMP < column < COLUMN_TIMESTAMP_US or column == COLUMN_BATCH


cdef void fill_run(uint8_t *out, Py_ssize_t i, Py_ssize_t end, int width, long long value) noexcept nogil:
    """Write the same number from place *i* to *end*; nothing with a width of 0."""
    if width == 8:
        while i < end:
            (<int64_t *>out)[i] = value
            i += 1
    elif width == 4:
        while i < end:
            (<int32_t *>out)[i] = <int32_t>value
            i += 1
    elif width == 2:
        while i < end:
            (<int16_t *>out)[i] = <int16_t>value
            i += 1
    elif width == 1:
        memset(out + i, <int>value & 0xFF, end - i)


cdef inline void set_bit(uint8_t *bits, Py_ssize_t i, bint value) noexcept nogil:
    if value:
        bits[i >> 3] |= <uint8_t>(1 << (i & 7))
    else:
        bits[i >> 3] &= <uint8_t>(~(1 << (i & 7)) & 0xFF)


cdef void set_bits(uint8_t *bits, Py_ssize_t i, Py_ssize_t end, bint value) noexcept nogil:
    while i < end and i & 7:
        set_bit(bits, i, value)
        i += 1
    if end - i >= 8:
        memset(bits + (i >> 3), 0xFF if value else 0, (end - i) >> 3)
        i += (end - i) & ~7
    while i < end:
        set_bit(bits, i, value)
        i += 1


cdef Py_ssize_t fill_numbers(const View *v, int column, int width, uint8_t *out, uint8_t *validity, Py_ssize_t first) noexcept nogil:
    """Write a number of each row behind the *first* that are there already; return how many are none."""
    cdef Py_ssize_t i = 0, end, nulls = 0
    cdef const RecordRow *rows = v.records
    cdef long long value
    cdef bint same
    while i < v.records_count:
        same = is_same_in_batch(v.batches + rows[i].batch, column)
        end = i + 1
        while same and end < v.records_count and rows[end].batch == rows[i].batch:
            end += 1
        value = row_number(v, rows + i, column)
        if value == NO_NUMBER:
            nulls += end - i
        if validity != NULL:
            set_bits(validity, first + i, first + end, value != NO_NUMBER)
        fill_run(out, first + i, first + end, width, value)
        i = end
    return nulls


cdef struct Sizes:
    long long keys               # bytes of all keys
    long long values             # … of all values
    long long headers            # how many there are
    long long header_keys        # bytes of their keys, as valid UTF-8
    long long header_values      # … of their values


cdef void measure(const View *v, Sizes *sizes) noexcept nogil:
    cdef Py_ssize_t i
    cdef int j, length = 0
    cdef const uint8_t *p
    cdef const RecordRow *row
    memset(sizes, 0, sizeof(Sizes))
    for i in range(v.records_count):
        row = v.records + i
        if not is_control(v, row):
            sizes.keys += max(row.key_length, 0)
            sizes.values += max(row.value_length, 0)
        if not row.headers_count:
            continue
        p = v.bases[row.batch] + row.headers_at
        for j in range(row.headers_count):
            p = varint(p, p + 5, &length)
            sizes.header_keys += java_size(p, length)
            p = varint(p + length, p + length + 5, &length)
            sizes.header_values += max(length, 0)
            p += max(length, 0)
        sizes.headers += row.headers_count


cdef Py_ssize_t fill_binary(const View *v, bint values, uint8_t *data, Py_ssize_t room, int *offsets, uint8_t *validity,
                            Py_ssize_t first) noexcept nogil:
    """Copy all keys or all values behind the *first* that are there; return how many are null, -1 if *data* has no room.

    A control record's count as null.
    """
    cdef Py_ssize_t i, nulls = 0
    cdef const RecordRow *row
    cdef int at = offsets[first], length, start
    for i in range(v.records_count):
        row = v.records + i
        length = row.value_length if values else row.key_length
        start = row.value_at if values else row.key_at
        if is_control(v, row):
            length = -1
        set_bit(validity, first + i, length >= 0)
        if length > room - at:
            return -1
        if length > 0:
            memcpy(data + at, v.bases[row.batch] + start, length)
            at += length
        elif length < 0:
            nulls += 1
        offsets[first + i + 1] = at
    return nulls


cdef Py_ssize_t fill_headers(const View *v, int *lists, uint8_t *keys, int *key_offsets, uint8_t *values, int *value_offsets,
                             uint8_t *validity, uint8_t *present, Py_ssize_t first) noexcept nogil:
    """Copy all headers behind those of the *first* rows; return how many values are null.

    Keys become valid UTF-8, malformed bytes U+FFFD.  *present*: a bit a row, whether it has headers, or NULL.
    """
    cdef Py_ssize_t i, nulls = 0, n = lists[first]
    cdef int j, length = 0, value_at = value_offsets[n]
    cdef uint8_t *w = keys + key_offsets[n]
    cdef const uint8_t *p
    cdef const RecordRow *row
    for i in range(v.records_count):
        row = v.records + i
        p = v.bases[row.batch] + row.headers_at if row.headers_count else NULL
        for j in range(row.headers_count):
            p = varint(p, p + 5, &length)
            w = java_text(w, p, length)
            p = varint(p + length, p + length + 5, &length)
            set_bit(validity, n, length >= 0)
            if length > 0:
                memcpy(values + value_at, p, length)
                value_at += length
                p += length
            elif length < 0:
                nulls += 1
            n += 1
            key_offsets[n] = <int>(w - keys)
            value_offsets[n] = value_at
        lists[first + i + 1] = <int>n
        if present != NULL:
            set_bit(present, first + i, row.headers_count > 0)
    return nulls


cdef int fits(Py_ssize_t room, long long used, long long more) except -1:
    if used < 0 or more > room - used or not room or used + more > 0x7FFFFFFF:
        raise ValueError("a buffer is too small")
    return 0
