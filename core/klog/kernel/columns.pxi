# Columns: record rows as the buffers of Arrow arrays, made by the caller.

cdef enum:
    COLUMN_OFFSET = 0
    COLUMN_TIMESTAMP = 1
    COLUMN_LEADER_EPOCH = 2
    COLUMN_PRODUCER_ID = 3
    COLUMN_PRODUCER_EPOCH = 4
    COLUMN_SEQUENCE = 5
    COLUMN_ATTRIBUTES = 6        # of the batch; -1 for v0, which has no timestamp type
    COLUMN_POSITION = 7
    COLUMN_CONTROL = 8           # type of a control record, -1 for data

COLUMNS = ("offset", "timestamp", "leader_epoch", "producer_id", "producer_epoch", "sequence", "attributes", "position", "control")


cdef inline long long row_number(const View *v, const RecordRow *row, int column) noexcept nogil:
    cdef const BatchRow *batch = v.batches + row.batch
    if column == COLUMN_OFFSET:
        return row.offset
    if column == COLUMN_TIMESTAMP:
        return row.timestamp
    if column == COLUMN_LEADER_EPOCH:
        return batch.leader_epoch
    if column == COLUMN_PRODUCER_ID:
        return batch.producer_id
    if column == COLUMN_PRODUCER_EPOCH:
        return batch.producer_epoch
    if column == COLUMN_SEQUENCE:
        return record_sequence(batch, row)
    if column == COLUMN_ATTRIBUTES:
        return batch.attributes & 0xFF if batch.magic else -1
    if column == COLUMN_POSITION:
        return batch.position
    if batch.magic >= 2 and batch.attributes & ATTRIBUTE_CONTROL:
        return control_type(row, v.bases[row.batch])
    return -1


cdef void fill_numbers(const View *v, int column, long long *out) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(v.records_count):
        out[i] = row_number(v, v.records + i, column)


cdef inline void set_bit(uint8_t *bits, Py_ssize_t i, bint value) noexcept nogil:
    if value:
        bits[i >> 3] |= <uint8_t>(1 << (i & 7))
    else:
        bits[i >> 3] &= <uint8_t>(~(1 << (i & 7)) & 0xFF)


cdef long long binary_bytes(const View *v, bint values) noexcept nogil:
    cdef Py_ssize_t i
    cdef long long total = 0
    for i in range(v.records_count):
        if not is_control(v, v.records + i):
            total += max(v.records[i].value_length if values else v.records[i].key_length, 0)
    return total


cdef Py_ssize_t fill_binary(const View *v, bint values, uint8_t *data, int *offsets, uint8_t *validity) noexcept nogil:
    """Copy all keys or all values; return how many are null.  A control record's count as null."""
    cdef Py_ssize_t i, nulls = 0
    cdef const RecordRow *row
    cdef int at = 0, length, start
    for i in range(v.records_count):
        row = v.records + i
        length = row.value_length if values else row.key_length
        start = row.value_at if values else row.key_at
        if is_control(v, row):
            length = -1
        offsets[i] = at
        set_bit(validity, i, length >= 0)
        if length > 0:
            memcpy(data + at, v.bases[row.batch] + start, length)
            at += length
        elif length < 0:
            nulls += 1
    offsets[v.records_count] = at
    return nulls


cdef void measure_headers(const View *v, long long *count, long long *key_bytes, long long *value_bytes) noexcept nogil:
    cdef Py_ssize_t i
    cdef int j, length = 0
    cdef const uint8_t *p
    cdef const RecordRow *row
    count[0] = key_bytes[0] = value_bytes[0] = 0
    for i in range(v.records_count):
        row = v.records + i
        p = v.bases[row.batch] + row.headers_at if row.headers_count else NULL
        for j in range(row.headers_count):
            p = varint(p, p + 5, &length)
            key_bytes[0] += java_size(p, length)
            p = varint(p + length, p + length + 5, &length)
            value_bytes[0] += max(length, 0)
            p += max(length, 0)
        count[0] += row.headers_count


cdef Py_ssize_t fill_headers(const View *v, int *lists, uint8_t *keys, int *key_offsets, uint8_t *values, int *value_offsets,
                             uint8_t *validity) noexcept nogil:
    """Copy all headers; return how many values are null.  Keys become valid UTF-8, malformed bytes U+FFFD."""
    cdef Py_ssize_t i, nulls = 0, n = 0
    cdef int j, length = 0, value_at = 0
    cdef uint8_t *w = keys
    cdef const uint8_t *p
    cdef const RecordRow *row
    for i in range(v.records_count):
        row = v.records + i
        lists[i] = <int>n
        p = v.bases[row.batch] + row.headers_at if row.headers_count else NULL
        for j in range(row.headers_count):
            p = varint(p, p + 5, &length)
            key_offsets[n] = <int>(w - keys)
            w = java_text(w, p, length)
            p = varint(p + length, p + length + 5, &length)
            value_offsets[n] = value_at
            set_bit(validity, n, length >= 0)
            if length > 0:
                memcpy(values + value_at, p, length)
                value_at += length
                p += length
            elif length < 0:
                nulls += 1
            n += 1
    lists[v.records_count] = <int>n
    key_offsets[n] = <int>(w - keys)
    value_offsets[n] = value_at
    return nulls
