# Lines as Kafka's dump tool prints them.  Kafka: DumpLogSegments of 4.3.1.

cdef enum:
    BATCH_LINE_ROOM = 1024
    RECORD_LINE_ROOM = 320       # without header keys, key and payload

cpdef enum:
    TEXT_RECORDS = 1             # record lines, not only batch lines
    TEXT_CONTENT = 2             # keys and payloads
    TEXT_BARE = 4                # record lines without metadata (--skip-record-metadata)
    TEXT_LAZY = 8                # a batch line only for a batch with a record line

cdef inline uint8_t *put_bool(uint8_t *w, bint value) noexcept nogil:
    return put(w, b"true") if value else put(w, b"false")


cdef inline uint8_t *put_timestamp_type(uint8_t *w, const BatchRow *row) noexcept nogil:
    if row.magic == 0:
        return put(w, b" NoTimestampType: ")
    if row.attributes & ATTRIBUTE_LOG_APPEND_TIME:
        return put(w, b" LogAppendTime: ")
    return put(w, b" CreateTime: ")


cdef inline uint8_t *put_codec(uint8_t *w, int codec) noexcept nogil:
    if codec == 0:
        return put(w, b"none")
    if codec == 1:
        return put(w, b"gzip")
    if codec == 2:
        return put(w, b"snappy")
    return put(w, b"lz4") if codec == 3 else put(w, b"zstd")


cdef uint8_t *put_batch_head(uint8_t *w, const BatchRow *row) noexcept nogil:
    """The batch line up to its position: what Kafka prints in a first write of its own."""
    if row.magic < 2:
        w = put(w, b"offset: ")
        return decimal(w, row.last_offset)
    w = put(w, b"baseOffset: ")
    w = decimal(w, row.base_offset)
    w = put(w, b" lastOffset: ")
    w = decimal(w, row.last_offset)
    w = put(w, b" count: ")
    w = decimal(w, row.records_count)
    w = put(w, b" baseSequence: ")
    w = decimal(w, row.base_sequence)
    w = put(w, b" lastSequence: ")
    w = decimal(w, last_sequence(row))
    w = put(w, b" producerId: ")
    w = decimal(w, row.producer_id)
    w = put(w, b" producerEpoch: ")
    w = decimal(w, row.producer_epoch)
    w = put(w, b" partitionLeaderEpoch: ")
    w = decimal(w, row.leader_epoch)
    w = put(w, b" isTransactional: ")
    w = put_bool(w, row.attributes & ATTRIBUTE_TRANSACTIONAL)
    w = put(w, b" isControl: ")
    w = put_bool(w, row.attributes & ATTRIBUTE_CONTROL)
    if row.attributes & ATTRIBUTE_DELETE_HORIZON:
        w = put(w, b" deleteHorizonMs: OptionalLong[")
        w = decimal(w, row.base_timestamp)
        return put(w, b"]")
    return put(w, b" deleteHorizonMs: OptionalLong.empty")


cdef uint8_t *put_batch_line(uint8_t *w, const BatchRow *row) noexcept nogil:
    w = put_batch_head(w, row)
    w = put(w, b" position: ")
    w = decimal(w, row.position)
    w = put_timestamp_type(w, row)
    w = decimal(w, row.max_timestamp)
    w = put(w, b" size: ")
    w = decimal(w, row.size)
    w = put(w, b" magic: ")
    w = decimal(w, row.magic)
    w = put(w, b" compresscodec: ")
    w = put_codec(w, row.attributes & ATTRIBUTE_CODEC)
    w = put(w, b" crc: ")
    w = decimal(w, row.crc)
    w = put(w, b" isvalid: ")
    w = put_bool(w, row.state & HOLDS)
    return put(w, b"\n")


cdef inline int record_sequence(const BatchRow *batch, const RecordRow *row) noexcept nogil:
    if batch.base_sequence < 0:
        return -1
    return increment_sequence(batch.base_sequence, <int>subtract(row.offset, batch.base_offset))


cdef inline long long java_room(const uint8_t *p, int length) noexcept nogil:
    """Bytes that a text takes at most; exact where three for one would hurt."""
    if length <= 0:
        return 0
    return 3 * length if length < 4096 else java_size(p, length)


cdef long long text_room(const RecordRow *row, const uint8_t *base, int flags) noexcept nogil:
    """Bytes that a record line takes at most."""
    cdef long long room = RECORD_LINE_ROOM
    if flags & TEXT_CONTENT:
        room += java_room(base + row.key_at, row.key_length) + java_room(base + row.value_at, row.value_length)
    if row.headers_count > 0:
        room += 3 * header_key_bytes(row, base) + row.headers_count
    return room


cdef long long header_key_bytes(const RecordRow *row, const uint8_t *base) noexcept nogil:
    cdef long long total = 0
    cdef int i, length = 0
    cdef const uint8_t *p = base + row.headers_at
    for i in range(row.headers_count):
        p = varint(p, p + 5, &length)
        total += length
        p = varint(p + length, p + length + 5, &length)
        p += max(length, 0)
    return total


cdef uint8_t *put_header_keys(uint8_t *w, const RecordRow *row, const uint8_t *base) noexcept nogil:
    cdef int i, length = 0
    cdef const uint8_t *p = base + row.headers_at
    w = put(w, b" headerKeys: [")
    for i in range(row.headers_count):
        if i:
            w = put(w, b",")
        p = varint(p, p + 5, &length)
        w = java_text(w, p, length)
        p = varint(p + length, p + length + 5, &length)
        p += max(length, 0)
    return put(w, b"]")


cdef uint8_t *put_end_marker(uint8_t *w, const RecordRow *row, const uint8_t *base) noexcept nogil:
    w = put(w, b" endTxnMarker: ABORT coordinatorEpoch: ") if base[row.key_at + 3] == 0 else put(w, b" endTxnMarker: COMMIT coordinatorEpoch: ")
    return decimal(w, be32(base + row.value_at + END_MARKER_COORDINATOR_EPOCH))


cdef uint8_t *put_record_metadata(uint8_t *w, const BatchRow *batch, const RecordRow *row, const uint8_t *base) noexcept nogil:
    w = put(w, b"| offset: ")
    w = decimal(w, row.offset)
    w = put_timestamp_type(w, batch)
    w = decimal(w, row.timestamp)
    w = put(w, b" keySize: ")
    w = decimal(w, row.key_length)
    w = put(w, b" valueSize: ")
    w = decimal(w, row.value_length)
    if batch.magic < 2:
        w = put(w, b" isValid: ")
        w = put_bool(w, row.headers_at == MESSAGE_HOLDS)
        w = put(w, b" crc: ")
        return decimal(w, row.crc)
    w = put(w, b" sequence: ")
    w = decimal(w, record_sequence(batch, row))
    return put_header_keys(w, row, base)


cdef uint8_t *put_record_content(uint8_t *w, const RecordRow *row, const uint8_t *base, bint bare) noexcept nogil:
    if bare and (row.key_length >= 0 or row.value_length >= 0):
        w = put(w, b"|")
    if row.key_length >= 0:
        w = put(w, b" key: ")
        w = java_text(w, base + row.key_at, row.key_length)
    if row.value_length >= 0:
        w = put(w, b" payload: ")
        w = java_text(w, base + row.value_at, row.value_length)
    return w


cdef uint8_t *put_text_record(uint8_t *w, const View *v, const RecordRow *row, int flags, const LineContent *content) noexcept nogil:
    """A record line, without its line end.  *content*, where not NULL, stands for key and payload or a control suffix."""
    cdef const BatchRow *batch = v.batches + row.batch
    cdef const uint8_t *base = v.bases[row.batch]
    cdef bint control = is_control(v, row)
    if not flags & TEXT_BARE:
        w = put_record_metadata(w, batch, row, base)
        if control and content == NULL:
            return put_end_marker(w, row, base)
    elif control:
        return w
    if content != NULL:
        return put_bytes(w, content.text, content.length)
    if flags & TEXT_CONTENT and not control:
        w = put_record_content(w, row, base, flags & TEXT_BARE)
    return w


cdef LineContent *line_contents(list contents, list facts, Py_ssize_t count) except NULL:
    """The contents of *count* rows, with their facts where there are some, to be freed; the lists keep the bytes."""
    cdef Py_ssize_t i
    cdef bytes content, fact
    cdef LineContent *found
    if len(contents) != count or (facts is not None and len(facts) != count):
        raise ValueError(f"{len(contents)} contents for {count} rows")
    found = <LineContent *>calloc(count + 1, sizeof(LineContent))
    if found == NULL:
        raise MemoryError()
    try:
        for i in range(count):
            content = contents[i]
            if content is not None:
                found[i].text, found[i].length = <const uint8_t *>PyBytes_AsString(content), PyBytes_Size(content)
            fact = None if facts is None else facts[i]
            if fact is not None:
                found[i].facts, found[i].facts_length = <const uint8_t *>PyBytes_AsString(fact), PyBytes_Size(fact)
    except TypeError:
        free(found)
        raise
    return found
