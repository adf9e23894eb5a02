# From batch rows to record rows.  Every length is compared with what is left before it is used; a row is counted only
# when its record is known to be whole.

cdef const uint8_t *skip_headers(const uint8_t *p, const uint8_t *end, int count) noexcept nogil:
    cdef int i, length = 0
    for i in range(count):
        p = varint(p, end, &length)
        if p == NULL or length < 0 or length > end - p:
            return NULL
        p += length
        p = varint(p, end, &length)
        if p == NULL or length > end - p:
            return NULL
        if length > 0:
            p += length
    return p


cdef inline const uint8_t *decode_record(const uint8_t *p, const uint8_t *end, const uint8_t *base,
                                         const BatchRow *batch, RecordRow *row) noexcept nogil:
    """Decode the record at *p*; return where the next one begins, NULL if it is broken.  Kafka: DefaultRecord.readFrom."""
    cdef int length = 0, offset_delta = 0
    cdef long long timestamp_delta = 0
    cdef const uint8_t *record_end
    row.start = <int>(p - base)
    p = varint(p, end, &length)
    if p == NULL or length < 1 or length > end - p:
        return NULL
    record_end = p + length
    p = varlong(p + 1, record_end, &timestamp_delta)   # + 1: the attributes, unused
    if p == NULL:
        return NULL
    p = varint(p, record_end, &offset_delta)
    if p == NULL:
        return NULL
    row.offset = add(batch.base_offset, offset_delta)
    if batch.attributes & ATTRIBUTE_LOG_APPEND_TIME:
        row.timestamp = batch.max_timestamp
    else:
        row.timestamp = add(batch.base_timestamp, timestamp_delta)
    p = varint(p, record_end, &length)
    if p == NULL or length > record_end - p:
        return NULL
    row.key_at = <int>(p - base)
    row.key_length = length if length >= 0 else -1
    if length > 0:
        p += length
    p = varint(p, record_end, &length)
    if p == NULL or length > record_end - p:
        return NULL
    row.value_at = <int>(p - base)
    row.value_length = length if length >= 0 else -1
    if length > 0:
        p += length
    p = varint(p, record_end, &length)
    if p == NULL or length < 0 or length > record_end - p:
        return NULL
    row.headers_at = <int>(p - base)
    row.headers_count = length
    row.crc = 0
    if length:
        p = skip_headers(p, record_end, length)
        if p == NULL:
            return NULL
    return p if p == record_end else NULL


cdef const uint8_t *read_record(const uint8_t *p, const uint8_t *end, const uint8_t *base, const BatchRow *batch, RecordRow *row) noexcept nogil:
    """Decode a record for another extension; here each loop has `decode_record` in itself."""
    return decode_record(p, end, base, batch, row)


cdef int decode_batch(View *v) noexcept nogil:
    """Decode the batch at hand from its next record on, until it ends, or the rows are full or have MOST_HEADERS headers."""
    cdef const BatchRow *batch = v.batches + v.batch
    cdef const uint8_t *base = v.bases[v.batch]
    cdef const uint8_t *end = base + v.lengths[v.batch]
    cdef const uint8_t *p = base + v.cursor
    cdef const uint8_t *following
    cdef RecordRow *row
    cdef long long headers = 0
    while v.record < batch.records_count:
        if v.records_count == v.records_room or headers >= MOST_HEADERS:
            return MORE
        row = v.records + v.records_count
        following = decode_record(p, end, base, batch, row)
        if following == NULL:
            return BAD_RECORD
        if v.record == batch.records_count - 1 and following != end:
            return BAD_COUNT
        row.batch = <int>v.batch
        p = following
        v.cursor = <int>(p - base)
        v.record += 1
        v.records_count += 1
        headers += row.headers_count
    return BAD_COUNT if batch.records_count < 0 else DONE


cdef bint batch_decodes(View *v) noexcept nogil:
    """Whether all records of the batch at hand are whole; fills no row."""
    cdef const BatchRow *batch = v.batches + v.batch
    cdef const uint8_t *base = v.bases[v.batch]
    cdef const uint8_t *end = base + v.lengths[v.batch]
    cdef const uint8_t *p = base
    cdef RecordRow row
    cdef int i
    for i in range(batch.records_count):
        p = decode_record(p, end, base, batch, &row)
        if p == NULL:
            return False
    return p == end


cdef bint records_are_sound(const View *v, Py_ssize_t at) noexcept nogil:
    """Whether batch *at* (v2), decompressed, has exactly the records that it counts, their offsets its own and ascending."""
    cdef const BatchRow *batch = v.batches + at
    cdef const uint8_t *base = v.bases[at]
    cdef const uint8_t *end = base + v.lengths[at]
    cdef const uint8_t *p = base + (0 if batch.attributes & ATTRIBUTE_CODEC else BATCH_BYTES)
    cdef RecordRow row
    cdef long long previous = 0
    cdef int i
    if batch.size < BATCH_BYTES or batch.records_count < 0:
        return False
    for i in range(batch.records_count):
        p = decode_record(p, end, base, batch, &row)
        if p == NULL or not batch.base_offset <= row.offset <= batch.last_offset or (i and row.offset <= previous):
            return False
        previous = row.offset
    return p == end or not batch.records_count


cdef Py_ssize_t first_unsound(const View *v, Py_ssize_t i, Py_ssize_t end) noexcept nogil:
    """Return the first batch from *i* to *end* that is not skipped and not known to be sound: of v0 and v1 none is."""
    while i < end and (v.batches[i].state & SKIPPED or (v.batches[i].magic >= 2 and records_are_sound(v, i))):
        i += 1
    return i


cdef int decode_message(const uint8_t *p, const uint8_t *end, const uint8_t *base, const BatchRow *wrapper,
                        RecordRow *row, bint lenient) noexcept nogil:
    """Decode the message whose entry is p … end.  Kafka: LegacyRecord.

    *lenient*: a value that claims more bytes than there are is for the caller to deal with.
    """
    cdef int at
    cdef int magic = p[MESSAGE_V0_MAGIC]
    if end - p < smallest_entry(1 if magic else 0):
        return BAD_RECORD
    row.offset = be64(p)
    row.crc = <uint32_t>be32(p + MESSAGE_V0_CRC)
    row.headers_count = 0
    row.headers_at = MESSAGE_HOLDS
    if klog_crc32(0, p + MESSAGE_CRC_START, end - p - MESSAGE_CRC_START) != row.crc:
        row.headers_at = MESSAGE_BAD
    at = MESSAGE_V1_KEY_LENGTH if magic else MESSAGE_V0_KEY_LENGTH
    row.timestamp = be64(p + MESSAGE_V1_TIMESTAMP) if magic else -1
    if magic == 1 and wrapper.magic == 1 and wrapper.attributes & ATTRIBUTE_LOG_APPEND_TIME:
        row.timestamp = wrapper.max_timestamp
    row.key_length = be32(p + at)
    row.key_at = <int>(p + at + 4 - base)
    p += at + 4
    if row.key_length > end - p - 4:
        return BAD_RECORD
    if row.key_length > 0:
        p += row.key_length
    row.value_length = be32(p)
    row.value_at = <int>(p + 4 - base)
    if row.value_length <= end - p - 4:
        return DONE
    row.headers_count = VALUE_TOO_LONG
    return DONE if lenient else BAD_RECORD


cdef int open_set(View *v) noexcept nogil:
    """Look through the wrapper at hand: every size, and what relative offsets count from.

    A message that the end of the data cuts off is dropped in silence, as a broker does.
    Kafka: AbstractLegacyRecordBatch.DeepRecordsIterator.
    """
    cdef const BatchRow *wrapper = v.batches + v.batch
    cdef const uint8_t *base = v.bases[v.batch]
    cdef Py_ssize_t length = v.lengths[v.batch], at = 0
    cdef long long last = -1
    cdef int size, count = 0
    while length - at >= OVERHEAD:
        size = be32(base + at + ENTRY_SIZE)
        if size < MIN_SIZE:
            return BAD_LENGTH
        if size > length - at - OVERHEAD:
            break
        last = be64(base + at)
        at += size + OVERHEAD
        count += 1
    if count == 0:
        return BAD_COUNT
    v.lengths[v.batch] = <int>at
    v.set_base = 0
    if wrapper.magic == 1 and wrapper.last_offset != 0:
        if wrapper.last_offset < last:
            return BAD_RECORD
        v.set_base = subtract(wrapper.last_offset, last)
    return DONE


cdef int decode_set(View *v) noexcept nogil:
    """Decode the message, or the wrapper's messages, at hand."""
    cdef BatchRow *batch = v.batches + v.batch
    cdef const uint8_t *base = v.bases[v.batch]
    cdef const uint8_t *p
    cdef bint wrapped = (batch.attributes & ATTRIBUTE_CODEC) != 0
    cdef RecordRow *row
    cdef int size, status
    if wrapped and v.record == 0:
        status = open_set(v)
        if status != DONE:
            return status
    while v.cursor < v.lengths[v.batch]:
        if v.records_count == v.records_room:
            return MORE
        p = base + v.cursor
        size = be32(p + ENTRY_SIZE) + OVERHEAD
        row = v.records + v.records_count
        if wrapped and p[MESSAGE_V0_ATTRIBUTES] & ATTRIBUTE_CODEC:
            return BAD_RECORD
        status = decode_message(p, p + size, base, batch, row, v.whole)
        if status != DONE:
            return status
        v.has_bad_messages |= row.headers_at == MESSAGE_BAD
        if wrapped and batch.magic == 1:
            row.offset = add(row.offset, v.set_base)
        if v.record == 0:
            batch.base_offset = row.offset
        row.batch = <int>v.batch
        v.cursor += size
        v.record += 1
        v.records_count += 1
    return DONE


cdef int decode_some(View *v) noexcept nogil:
    """Decode from where decoding is, until the last wanted batch is done (DONE), the rows are full (MORE), or a batch is
    broken; then that is the batch at hand, and the rows hold what came before the break."""
    cdef BatchRow *batch
    cdef int status
    while v.batch < v.batch_end:
        batch = v.batches + v.batch
        if not batch.state & SKIPPED:
            if batch.magic < 2:
                status = decode_set(v)
            else:
                if batch.size < BATCH_BYTES:
                    return BAD_COUNT
                if v.record == 0:
                    v.cursor = 0 if batch.attributes & ATTRIBUTE_CODEC else BATCH_BYTES
                    if v.whole and batch.attributes & ATTRIBUTE_CODEC and batch.records_count > 0:
                        if not batch_decodes(v):
                            return BAD_RECORD
                status = DONE if batch.records_count == 0 else decode_batch(v)
            if status != DONE:
                return status
        v.batch += 1
        v.record = 0
        v.cursor = 0
    return DONE


cdef const uint8_t *compressed_part(const View *v, const BatchRow *b, Py_ssize_t *length) except NULL:
    """The place of a batch's compressed bytes: behind its header, or in a wrapper's value."""
    cdef const uint8_t *p = v.data + b.at
    cdef const uint8_t *end = p + b.size
    cdef int size
    if b.size < smallest_entry(b.magic):
        raise CodecError("too small for its header")
    if b.magic >= 2:
        length[0] = b.size - BATCH_BYTES
        return p + BATCH_BYTES
    if b.attributes & ATTRIBUTE_CODEC == 4:
        raise CodecError("zstd in a message set, where it is not allowed")
    p += MESSAGE_V1_KEY_LENGTH if b.magic else MESSAGE_V0_KEY_LENGTH
    size = be32(p)
    p += 4
    if size > end - p - 4:
        raise CodecError(f"the wrapper's key claims {size} bytes")
    p += max(size, 0)
    size = be32(p)
    p += 4
    if size < 0 or size > end - p:
        raise CodecError("the wrapper has no value" if size < 0 else f"the wrapper's value claims {size} bytes")
    length[0] = size
    return p


cdef Py_ssize_t message_end(const View *v, const RecordRow *r) noexcept:
    """The end of a message, counted from its batch's base."""
    cdef const uint8_t *base = v.bases[r.batch]
    cdef int start = r.key_at - 4 - MESSAGE_V1_KEY_LENGTH
    if not v.batches[r.batch].attributes & ATTRIBUTE_CODEC:
        return v.lengths[r.batch]
    if start < 0 or base[start + MESSAGE_V0_MAGIC] == 0 or be32(base + start + ENTRY_SIZE) < MIN_SIZE:
        start = r.key_at - 4 - MESSAGE_V0_KEY_LENGTH
    return start + OVERHEAD + be32(base + start + ENTRY_SIZE)


cdef tuple record_headers(const View *v, const RecordRow *row):
    cdef const uint8_t *base = v.bases[row.batch]
    cdef const uint8_t *p = base + row.headers_at
    cdef int i, length = 0
    cdef list found = []
    if row.headers_count > MOST_HEADERS:
        return None
    for i in range(row.headers_count):
        p = varint(p, p + 5, &length)
        key = (<const char *>p)[:length]
        p = varint(p + length, p + length + 5, &length)
        found.append((key, None if length < 0 else (<const char *>p)[:length]))
        p += max(length, 0)
    return tuple(found)
