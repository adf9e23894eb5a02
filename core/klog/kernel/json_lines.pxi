# JSON lines and CSV lines: one a record, one a batch.

cdef enum:
    LINE_ROOM = 1024             # everything in a line but topic, key, value and headers

cdef uint8_t *put_named(uint8_t *w, const uint8_t *p, int length, int values) noexcept nogil:
    """The text behind the name of a key or value: `":…`, or a suffix that tells the encoding and then that."""
    cdef uint8_t *end
    if length < 0:
        return put(w, b'":null')
    if values == VALUES_TEXT:
        end = json_string(put(w, b'":'), p, length)
        if end != NULL:
            return end
        values = VALUES_BASE64
    if values == VALUES_REDACTED:
        return decimal(put(w, b'_size":'), length)
    if values == VALUES_HEX:
        w = hex_digits(put(w, b'_hex":"'), p, length)
    else:
        w = base64(put(w, b'_base64":"'), p, length)
    return put(w, b'"')


cdef uint8_t *put_string_or_base64(uint8_t *w, const uint8_t *p, int length, int values) noexcept nogil:
    """A header's key or value: a string, null, or {"base64":"…"}."""
    cdef uint8_t *end
    if length < 0:
        return put(w, b"null")
    if values == VALUES_TEXT:
        end = json_string(w, p, length)
        if end != NULL:
            return end
    if values == VALUES_REDACTED or values == VALUES_NONE:
        return put(decimal(put(w, b'{"size":'), length), b"}")
    if values == VALUES_HEX:
        return put(hex_digits(put(w, b'{"hex":"'), p, length), b'"}')
    return put(base64(put(w, b'{"base64":"'), p, length), b'"}')


cdef inline uint8_t *put_header(uint8_t *w, const uint8_t **header, int values) noexcept nogil:
    """The header at *header*, without the bracket that opens it, and move on to the next one."""
    cdef int length = 0
    cdef const uint8_t *p = header[0]
    p = varint(p, p + 5, &length)
    w = put_string_or_base64(w, p, length, VALUES_TEXT)
    w = put(w, b",")
    p = varint(p + length, p + length + 5, &length)
    w = put_string_or_base64(w, p, length, values)
    header[0] = p + max(length, 0)
    return put(w, b"]")


cdef uint8_t *put_headers(uint8_t *w, const RecordRow *row, const uint8_t *base, int values) noexcept nogil:
    cdef int i
    cdef const uint8_t *p = base + row.headers_at
    w = put(w, b"[")
    for i in range(row.headers_count):
        w = put(w, b",[") if i else put(w, b"[")
        w = put_header(w, &p, values)
    return put(w, b"]")


cdef inline long long json_room(const uint8_t *p, int length) noexcept nogil:
    """Bytes that a text takes at most in JSON; exact where six for one would hurt."""
    if length < 4096:
        return 6 * <long long>max(length, 0)
    return max(json_size(p, length), 2 * <long long>length) + 64


cdef long long headers_room(const RecordRow *row, const uint8_t *base) noexcept nogil:
    """Bytes that the headers take at most, as JSON inside CSV."""
    cdef long long total = 16
    cdef int i, length = 0
    cdef const uint8_t *p = base + row.headers_at
    for i in range(row.headers_count):
        p = varint(p, p + 5, &length)
        total += 64 + 2 * json_room(p, length)
        p = varint(p + length, p + length + 5, &length)
        total += 2 * json_room(p, length)
        p += max(length, 0)
    return total


cdef long long line_room(const RecordRow *row, const uint8_t *base, const LineStyle *style) noexcept nogil:
    """Bytes that a record's JSON or CSV line takes at most; exact about large values, where six for one would hurt."""
    cdef long long room = LINE_ROOM + style.origin_length
    room += json_room(base + row.key_at, row.key_length)
    if style.values <= VALUES_HEX:
        room += json_room(base + row.value_at, row.value_length)
    if row.headers_count:
        room += headers_room(row, base)
    return room


cdef uint8_t *put_control_name(uint8_t *w, int control) noexcept nogil:
    if control == 0:
        return put(w, b"ABORT")
    if control == 1:
        return put(w, b"COMMIT")
    if control == 2:
        return put(w, b"LEADER_CHANGE")
    if control == 3:
        return put(w, b"SNAPSHOT_HEADER")
    if control == 4:
        return put(w, b"SNAPSHOT_FOOTER")
    if control == 5:
        return put(w, b"KRAFT_VERSION")
    if control == 6:
        return put(w, b"KRAFT_VOTERS")
    return put(decimal(put(w, b"UNKNOWN("), control), b")")


cdef inline int control_type(const RecordRow *row, const uint8_t *base) noexcept nogil:
    return be16(base + row.key_at + CONTROL_KEY_TYPE) if row.key_length >= CONTROL_KEY_BYTES else -1


cdef int set_origin(LineStyle *style, bytes origin) except -1:
    cdef Py_ssize_t zero = origin.find(b"\0")
    style.origin, style.origin_length = <const uint8_t *>PyBytes_AsString(origin), len(origin)
    style.before_position = style.origin_length if zero < 0 else zero
    return 0


cdef void keep_tail(LineStyle *style, const BatchRow *batch, int index) noexcept nogil:
    """Write what all records of a batch end with, once."""
    cdef uint8_t *w = style.tail
    if batch.leader_epoch != -1:
        w = decimal(put(w, b',"leader_epoch":'), batch.leader_epoch)
    if batch.producer_id != -1:
        w = decimal(put(w, b',"producer_id":'), batch.producer_id)
    if batch.producer_epoch != -1:
        w = decimal(put(w, b',"producer_epoch":'), batch.producer_epoch)
    style.tail_length = w - style.tail
    w = style.end
    if batch.attributes & ATTRIBUTE_TRANSACTIONAL and batch.magic >= 2:
        w = put(w, b',"transactional":true')
    w = decimal(put(w, b',"position":'), batch.position)
    if style.batch_offsets and batch.magic >= 2:
        w = decimal(put(w, b',"batch":'), batch.base_offset)
    w = put(w, b"}\n")
    style.end_length = w - style.end
    style.batch = index


cdef uint8_t *put_json_record(uint8_t *w, const View *v, const RecordRow *row, LineStyle *style, const LineContent *content) noexcept nogil:
    """A record's line.  *content*, where not NULL, is its value in JSON."""
    cdef const BatchRow *batch = v.batches + row.batch
    cdef const uint8_t *base = v.bases[row.batch]
    w = decimal(put(w, b'{"offset":'), row.offset)
    w = decimal(put(w, b',"timestamp":'), row.timestamp)
    if batch.magic and batch.attributes & ATTRIBUTE_LOG_APPEND_TIME:
        w = put(w, b',"timestamp_type":"LogAppendTime"')
    if batch.attributes & ATTRIBUTE_CONTROL and batch.magic >= 2:
        w = put(put_control_name(put(w, b',"control":"'), control_type(row, base)), b'"')
        if is_end_marker(row, base):
            w = decimal(put(w, b',"coordinator_epoch":'), be32(base + row.value_at + END_MARKER_COORDINATOR_EPOCH))
    else:
        style.key_at = w
        w = put_named(put(w, b',"key'), base + row.key_at, row.key_length, VALUES_TEXT)
        style.value_at = w
        if content != NULL and style.values != VALUES_NONE:
            w = put_bytes(put_bytes(put(w, b',"value":'), content.text, content.length), content.facts, content.facts_length)
        elif style.values != VALUES_NONE:
            w = put_named(put(w, b',"value'), base + row.value_at, row.value_length, style.values)
        w = put(w, b',"headers":')
        style.headers_at = w
        if row.headers_count:
            w = put_headers(w, row, base, style.values)
        else:
            w = put(w, b"[]")
    w = put_bytes(w, style.origin, style.before_position)
    if style.batch != row.batch:
        keep_tail(style, batch, row.batch)
    memcpy(w, style.tail, TAIL_ROOM)  # always all of it: a known length is copied faster
    w += style.tail_length
    if batch.base_sequence >= 0:
        w = decimal(put(w, b',"sequence":'), record_sequence(batch, row))
    memcpy(w, style.end, TAIL_ROOM)
    w += style.end_length
    return w if style.before_position == style.origin_length else put(put_last(w - 2, style), b"}\n")  # over those two bytes


cdef uint8_t *put_last(uint8_t *w, const LineStyle *style) noexcept nogil:
    """Write the members that end a JSON line."""
    cdef Py_ssize_t at = style.before_position + 1
    return put_bytes(w, style.origin + at, style.origin_length - at) if at < style.origin_length else w


# offset,timestamp,timestamp_type,key,key_base64,value,value_base64,headers,partition,topic,leader_epoch,producer_id,
# producer_epoch,sequence,transactional,control,coordinator_epoch,position,damage[,batch]

cdef uint8_t *put_csv_pair(uint8_t *w, const uint8_t *p, int length, int values) noexcept nogil:
    """`TEXT,BASE64,` of which at most one is filled; null fills neither, an empty value gives `""`."""
    if length < 0 or values == VALUES_NONE:
        return put(w, b",,")
    if values == VALUES_TEXT and utf8_valid(p, p + length):
        return put(csv_field(w, p, length), b",,")
    if values == VALUES_REDACTED:
        return put(decimal(put(w, b"<"), length), b" bytes>,,")
    if values == VALUES_HEX:
        return put(hex_digits(w, p, length), b",,")
    return put(base64(put(w, b","), p, length), b",")


cdef uint8_t *put_csv_headers(uint8_t *w, const RecordRow *row, const uint8_t *base, int values) noexcept nogil:
    """The headers as JSON in a quoted field.  The JSON is written behind the room for its own quoting, then moved."""
    cdef long long room = headers_room(row, base) // 2
    cdef uint8_t *text = w + room
    cdef uint8_t *end = put_headers(text, row, base, values)
    return csv_field(w, text, end - text)


cdef uint8_t *put_csv_number(uint8_t *w, long long value) noexcept nogil:
    """`N,`, or only the comma for -1."""
    return put(w, b",") if value == -1 else put(decimal(w, value), b",")


cdef uint8_t *put_csv_record(uint8_t *w, const View *v, const RecordRow *row, LineStyle *style) noexcept nogil:
    cdef const BatchRow *batch = v.batches + row.batch
    cdef const uint8_t *base = v.bases[row.batch]
    cdef bint control = batch.magic >= 2 and (batch.attributes & ATTRIBUTE_CONTROL) != 0
    w = put(decimal(w, row.offset), b",")
    w = put(decimal(w, row.timestamp), b",")
    if batch.magic:
        w = put(w, b"LogAppendTime,") if batch.attributes & ATTRIBUTE_LOG_APPEND_TIME else put(w, b"CreateTime,")
    else:
        w = put(w, b",")
    if control:
        w = put(w, b",,,,")
    else:
        style.key_at = w
        w = put_csv_pair(w, base + row.key_at, row.key_length, VALUES_TEXT)
        style.value_at = w
        w = put_csv_pair(w, base + row.value_at, row.value_length, style.values)
    style.headers_at = w
    if row.headers_count and not control:
        w = put_csv_headers(w, row, base, style.values)
    w = put_bytes(put(w, b","), style.origin, style.origin_length)
    w = put(w, b",")
    w = put_csv_number(w, batch.leader_epoch)
    w = put_csv_number(w, batch.producer_id)
    w = put_csv_number(w, batch.producer_epoch)
    w = put_csv_number(w, record_sequence(batch, row))
    w = put(w, b"true,") if batch.magic >= 2 and batch.attributes & ATTRIBUTE_TRANSACTIONAL else put(w, b",")
    if control:
        w = put(put_control_name(w, control_type(row, base)), b",")
        if is_end_marker(row, base):
            w = decimal(w, be32(base + row.value_at + END_MARKER_COORDINATOR_EPOCH))
        w = put(w, b",")
    else:
        w = put(w, b",,")
    w = put(decimal(w, batch.position), b",")
    if style.batch_offsets:
        w = put(w, b",")
        w = decimal(w, batch.base_offset) if batch.magic >= 2 else w
    return put(w, b"\n")


cdef uint8_t *put_json_number(uint8_t *w, const char *name, long long value, bint null) noexcept nogil:
    w = put(put(put(w, b',"'), name), b'":')
    return put(w, b"null") if null else decimal(w, value)


cdef uint8_t *put_json_batch(uint8_t *w, const BatchRow *row, const LineStyle *style) noexcept nogil:
    cdef bint old = row.magic < 2
    cdef bint wrapper = old and (row.attributes & ATTRIBUTE_CODEC) != 0
    w = put(w, b'{"base_offset":')
    w = put(w, b"null") if wrapper else decimal(w, row.base_offset)
    w = put_json_number(w, b"last_offset", row.last_offset, False)
    w = put_json_number(w, b"records", 1 if old else row.records_count, wrapper)
    w = put_json_number(w, b"position", row.position, False)
    w = put_json_number(w, b"size", row.size, False)
    w = put_json_number(w, b"magic", row.magic, False)
    w = put(put_codec(put(w, b',"codec":"'), row.attributes & ATTRIBUTE_CODEC), b'"')
    w = put_json_number(w, b"crc", row.crc, False)
    w = put_bool(put(w, b',"crc_holds":'), row.state & HOLDS)
    w = put_json_number(w, b"leader_epoch", row.leader_epoch, row.leader_epoch == -1)
    w = put_json_number(w, b"producer_id", row.producer_id, row.producer_id == -1)
    w = put_json_number(w, b"producer_epoch", row.producer_epoch, row.producer_epoch == -1)
    w = put_json_number(w, b"base_sequence", row.base_sequence, row.base_sequence == -1)
    w = put_json_number(w, b"last_sequence", last_sequence(row), row.base_sequence == -1)
    w = put_json_number(w, b"max_timestamp", row.max_timestamp, False)
    w = put(w, b',"timestamp_type":')
    if row.magic == 0:
        w = put(w, b"null")
    else:
        w = put(w, b'"LogAppendTime"') if row.attributes & ATTRIBUTE_LOG_APPEND_TIME else put(w, b'"CreateTime"')
    w = put_bool(put(w, b',"transactional":'), not old and row.attributes & ATTRIBUTE_TRANSACTIONAL)
    w = put_bool(put(w, b',"control":'), not old and row.attributes & ATTRIBUTE_CONTROL)
    w = put_json_number(w, b"delete_horizon_ms", row.base_timestamp, old or not row.attributes & ATTRIBUTE_DELETE_HORIZON)
    return put(put_last(put_bytes(w, style.origin, style.before_position), style), b"}\n")


cdef uint8_t *put_csv_batch(uint8_t *w, const BatchRow *row, const LineStyle *style) noexcept nogil:
    cdef bint old = row.magic < 2
    cdef bint wrapper = old and (row.attributes & ATTRIBUTE_CODEC) != 0
    w = put(w, b",") if wrapper else put(decimal(w, row.base_offset), b",")
    w = put(decimal(w, row.last_offset), b",")
    w = put(w, b",") if wrapper else put(decimal(w, 1 if old else row.records_count), b",")
    w = put(decimal(w, row.position), b",")
    w = put(decimal(w, row.size), b",")
    w = put(decimal(w, row.magic), b",")
    w = put(put_codec(w, row.attributes & ATTRIBUTE_CODEC), b",")
    w = put(decimal(w, row.crc), b",")
    w = put(put_bool(w, row.state & HOLDS), b",")
    w = put_csv_number(w, row.leader_epoch)
    w = put_csv_number(w, row.producer_id)
    w = put_csv_number(w, row.producer_epoch)
    w = put_csv_number(w, row.base_sequence)
    w = put_csv_number(w, last_sequence(row))
    w = put(decimal(w, row.max_timestamp), b",")
    if row.magic == 0:
        w = put(w, b",")
    else:
        w = put(w, b"LogAppendTime,") if row.attributes & ATTRIBUTE_LOG_APPEND_TIME else put(w, b"CreateTime,")
    w = put(put_bool(w, not old and row.attributes & ATTRIBUTE_TRANSACTIONAL), b",")
    w = put(put_bool(w, not old and row.attributes & ATTRIBUTE_CONTROL), b",")
    if not old and row.attributes & ATTRIBUTE_DELETE_HORIZON:
        w = decimal(w, row.base_timestamp)
    w = put(w, b",")
    return put(put_bytes(w, style.origin, style.origin_length), b"\n")


cdef enum:
    HUGE = 16 << 20              # a line that takes more than this is made in pieces
    HUGE_KEY = 1
    HUGE_VALUE = 2
    HUGE_HEADERS = 4


cdef int huge_parts(const RecordRow *row, const uint8_t *base, const LineStyle *style) noexcept nogil:
    """Which parts of a record are too large to be made in one piece with the others."""
    cdef int parts = HUGE_KEY if row.key_length >= HUGE // 6 else 0
    if row.value_length >= HUGE // 6 and style.values <= VALUES_HEX:
        parts |= HUGE_VALUE
    if row.headers_count and headers_room(row, base) > HUGE:
        parts |= HUGE_HEADERS
    return parts


cdef inline void set_values(LineStyle *style, int values, bint batch_offsets) noexcept:
    style.values, style.batch_offsets, style.batch = values, batch_offsets, -1
