# Record batches (v2) from records, as a producer fills them and a leader stamps them.

cdef enum:                       # what `add` and `close` return, besides DONE and TO_COMPRESS
    FLUSH = 32                   # there is no room for the batch: take the output, then go on
    ASK = 33                     # a batch of a producer begins: `allow` it, or leave the record out
    BAD_TEXT = 34                # … or why the record cannot be written, in the order of RECORD_FAULTS
    NO_TOPIC = 35
    NO_PARTITION = 36
    NO_KEY = 37
    NO_VALUE = 38
    NULL_KEY = 39
    BAD_TIMESTAMP = 40
    NO_OFFSET = 41
    OFFSET_BELOW = 42
    TOO_LARGE = 43
    NO_POSITION = 44
    EPOCH_BELOW = 45
    EPOCH_ABOVE = 46
    NO_PRODUCER = 47
    MOVED = 48
    BATCH_TOO_LARGE = 49         # this one is about the open batch

RECORD_FAULTS = ("text", "topic", "partition", "key", "value", "null-key", "timestamp", "no-offset", "offset-below", "too-large",
                 "position", "epoch-below", "epoch-above", "producer", "moved", "batch-too-large")

cdef enum:
    RECORD_ROOM = 64             # bytes of a record's numbers, at most
    MARKER_BYTES = 4 + 6
    FIRST_ROOM = 4096            # bytes of output, at least

cdef struct OutRecord:           # a record as it is going to be written
    long long offset, timestamp, group, producer_id
    int leader_epoch, producer_epoch, sequence
    int flags                    # the attributes of its batch, without a codec


@cython.final
cdef class BatchBuilder:
    """Builds the batches of one partition, each where it is going to be written from; only what is compressed comes from elsewhere.

    `rows` lends the output, *used* bytes, to *target*, which many builders may share; `flushed` says that it is taken.
    *batch_size*, *most*: the bytes that a batch is filled to, and that one may have.  *linger*: ms, -1 none.  *codec*: its number.
    *keep*: a batch is a run of records of one position.  *keep_offsets*: of the records.  *next_offset*: the log's end.
    *compacted*: no key may be null.  *time_type*: 1 CreateTime, 2 LogAppendTime, 0 the record's.  *now*: ms since the epoch.
    *leader_epoch*: to stamp, -1 the record's.  *latest_epoch*, *highest_epoch*: none below, none above, -1 whatever.
    *producer_id*: that records without a producer get, -1 none.  *shift*: to add to producer ids.  *room*: bytes of output to begin
    with; there is always as much as one batch needs.
    """

    cdef readonly Window target
    cdef readonly Py_ssize_t used
    cdef readonly long long next_offset, line
    cdef readonly bint has_gap               # offsets were missing, in the input if they are not kept
    cdef long long following                 # the offset after the latest one, in the input
    cdef long long batch_size, most, linger, now, producer_id, shift
    cdef int codec, time_type, stamp, latest_epoch, highest_epoch, own_sequence
    cdef bint keep, keep_offsets, compacted, is_allowed, is_waiting
    # the batch that is open
    cdef readonly int records
    cdef OutRecord first
    cdef long long base_offset, max_timestamp
    cdef int last_delta                      # of the offset of its last record
    cdef Py_ssize_t plain_used               # bytes of its records, before they are compressed
    cdef uint8_t *plain                      # these, where there is a codec; else they are in the output already
    cdef Py_ssize_t plain_room
    cdef bytearray data                      # the output, and the open batch behind it
    cdef uint8_t *out
    cdef Py_ssize_t out_room

    def __cinit__(self, Window target not None, long long next_offset, *, long long batch_size=16384, long long most=1 << 20,
                  long long linger=-1, int codec=0, bint keep=False, bint keep_offsets=False, bint compacted=False,
                  int time_type=0, long long now=0, int leader_epoch=-1, int latest_epoch=-1, int highest_epoch=-1,
                  long long producer_id=-1, long long shift=0, Py_ssize_t room=0):
        self.target, self.next_offset = target, next_offset
        self.batch_size, self.most, self.linger, self.codec = min(batch_size, most), most, linger, codec
        self.keep, self.keep_offsets, self.compacted, self.time_type, self.now = keep, keep_offsets, compacted, time_type, now
        self.stamp, self.latest_epoch, self.highest_epoch = leader_epoch, latest_epoch, highest_epoch
        self.producer_id, self.shift = producer_id, shift
        self._grow(max(room, FIRST_ROOM))

    def __dealloc__(self):
        free(self.plain)

    def continue_at(self, long long next_offset, int latest_epoch):
        """Continue at *next_offset*, in *latest_epoch*: something else was appended.  No batch is open."""
        self.next_offset, self.latest_epoch = next_offset, latest_epoch

    def allow(self):
        """Begin the batch that ASK was about."""
        self.is_allowed = True

    def close(self):
        """End the open batch, if there is one; DONE, FLUSH, TO_COMPRESS or BATCH_TOO_LARGE."""
        return self._close() if self.records else DONE

    def plain_records(self):
        """Return the records that TO_COMPRESS is about."""
        return PyMemoryView_FromMemory(<char *>self.plain, self.plain_used, 0x100)

    def compressed(self, const unsigned char[::1] data not None):
        """Take what `plain_records` has become; DONE, BATCH_TOO_LARGE, or FLUSH: then again."""
        if not self.is_waiting or not data.shape[0]:
            raise ValueError("nothing waits to be compressed")
        return self._end(&data[0], data.shape[0], self.codec)

    def rows(self):
        """Make batch rows of the output, in `target`.  Their checksums have just been computed, and are not again."""
        cdef Py_ssize_t i
        cdef View *v = &self.target.view
        self.target.lend(memoryview(self.data)[: self.used])
        self.target.scan(0)
        for i in range(v.batches_count):
            v.batches[i].computed_crc = v.batches[i].crc
            v.batches[i].state |= CHECKED | HOLDS
        v.good_count = v.batches_count

    def flushed(self):
        """Mark the output as taken; the open batch comes to the front."""
        if self.records and not self.codec:
            memmove(self.out, self.out + self.used, BATCH_BYTES + self.plain_used)
        self.used = 0

    def drop(self):
        """Forget the open batch, as if its records had never come; return how many those were."""
        cdef int count = self.records
        self.records, self.plain_used, self.is_waiting = 0, 0, False
        if count:
            self.next_offset = self.base_offset
        return count

    cdef int add(self, const InRecord *r) except -1:
        """Take a record; DONE, or what has to be done before, or why it cannot be written."""
        cdef OutRecord o
        cdef Py_ssize_t length, size
        cdef int status = self._resolve(r, &o)
        if status != DONE:
            return status
        length = self._length(r, &o)
        if self.records and (self.is_waiting or self._ends(&o, length)):
            status = self._close()
            if status != DONE:
                return status
            length = self._length(r, &o)
        self.has_gap = self.has_gap or (o.offset > self.next_offset if self.keep_offsets else r.offset > self.following)
        size = with_length(length)
        if BATCH_BYTES + self.plain_used + size > self.most and not self.codec:
            return TOO_LARGE
        if not self.records and r.producer_id >= 0 and not self.is_allowed:
            return ASK
        status = self._reserve(size)
        if status != DONE:
            return status
        if not self.records:
            self._begin(&o, r)
        self._write(r, &o, length)
        return DONE

    cdef int _resolve(self, const InRecord *r, OutRecord *o) noexcept nogil:
        """Set what a record is going to be; DONE, or why it cannot be."""
        cdef bint is_marker = r.control != KLOG_NO_CONTROL
        if not is_marker and (r.key_length == -2 or r.value_length == -2):
            return NO_KEY if r.key_length == -2 else NO_VALUE
        if not is_marker and self.compacted and r.key_length < 0:
            return NULL_KEY
        if is_marker and r.producer_id < 0:
            return NO_PRODUCER
        o.flags = (ATTRIBUTE_TRANSACTIONAL | ATTRIBUTE_CONTROL) if is_marker else (ATTRIBUTE_TRANSACTIONAL if r.transactional else 0)
        o.timestamp = self.now if r.timestamp == KLOG_MISSING or self.time_type == 2 else r.timestamp
        if o.timestamp < -1:
            return BAD_TIMESTAMP
        if self.time_type == 2 or (self.time_type == 0 and r.append_time):
            o.flags |= ATTRIBUTE_LOG_APPEND_TIME
        o.offset = r.offset if self.keep_offsets else self.next_offset
        if self.keep_offsets and r.offset < self.next_offset:
            return NO_OFFSET if r.offset < 0 else OFFSET_BELOW
        o.group = r.batch if r.batch >= 0 else r.position
        if self.keep and o.group < 0:
            return NO_POSITION
        return self._resolve_owner(r, o)

    cdef int _resolve_owner(self, const InRecord *r, OutRecord *o) noexcept nogil:
        """Say of which leader and which producer a record is going to be."""
        o.leader_epoch = self.stamp if self.stamp >= 0 else (r.leader_epoch if r.leader_epoch >= 0 else 0)
        if o.leader_epoch < self.latest_epoch or (self.records and o.leader_epoch < self.first.leader_epoch):
            return EPOCH_BELOW
        if self.highest_epoch >= 0 and o.leader_epoch > self.highest_epoch:
            return EPOCH_ABOVE
        o.producer_id, o.producer_epoch, o.sequence = r.producer_id, r.producer_epoch, r.sequence
        if r.producer_id >= 0:
            if not r.producer_id >> 62:  # else it is shifted already
                o.producer_id += self.shift
            o.producer_epoch = r.producer_epoch if r.producer_epoch >= 0 else 0
            if o.flags & ATTRIBUTE_CONTROL:
                o.sequence = -1
        elif r.transactional:
            return NO_PRODUCER
        elif self.producer_id >= 0:
            o.producer_id, o.producer_epoch = self.producer_id, 0
            o.sequence = increment_sequence(self.own_sequence, <int>(o.offset - self.base_offset)) if self.records else self.own_sequence
        return DONE

    cdef bint _ends(self, const OutRecord *o, Py_ssize_t length) noexcept nogil:
        """Whether the open batch ends before a record of *length*."""
        cdef const OutRecord *f = &self.first
        cdef long long delta = o.offset - self.base_offset
        if (o.flags | f.flags) & ATTRIBUTE_CONTROL or o.flags != f.flags or o.leader_epoch != f.leader_epoch:
            return True
        if o.producer_id != f.producer_id or o.producer_epoch != f.producer_epoch or delta > 0x7FFFFFFF:
            return True
        if (o.sequence < 0) != (f.sequence < 0) or (o.sequence >= 0 and o.sequence != increment_sequence(f.sequence, <int>delta)):
            return True
        if o.flags & ATTRIBUTE_LOG_APPEND_TIME and o.timestamp != f.timestamp:
            return True
        if self.keep:
            return o.group != f.group
        if self.linger >= 0 and not -self.linger <= subtract(o.timestamp, f.timestamp) <= self.linger:
            return True
        return BATCH_BYTES + self.plain_used + with_length(length) > self.batch_size

    cdef Py_ssize_t _length(self, const InRecord *r, const OutRecord *o) noexcept nogil:
        """The length of a record in the open batch, or as the first of a new one."""
        cdef Py_ssize_t length
        if o.flags & ATTRIBUTE_CONTROL:
            return 1 + 1 + 1 + 1 + 4 + 1 + 6 + 1
        length = 1 + <Py_ssize_t>max(r.key_length, 0) + max(r.value_length, 0) + r.headers_length
        length += length_bytes(r.key_length) + length_bytes(r.value_length) + length_bytes(r.headers_count)
        if not self.records:
            return length + 2
        return length + varlong_bytes(self._delta(o)) + length_bytes(<int>(o.offset - self.base_offset))

    cdef inline long long _delta(self, const OutRecord *o) noexcept nogil:
        """The timestamp of a record less that of its batch."""
        return 0 if o.flags & ATTRIBUTE_LOG_APPEND_TIME else subtract(o.timestamp, self.first.timestamp)

    cdef void _begin(self, const OutRecord *o, const InRecord *r) noexcept nogil:
        self.first, self.line, self.is_allowed = o[0], r.line, False
        self.base_offset, self.max_timestamp = o.offset, o.timestamp
        if self.keep and self.keep_offsets and self.next_offset <= r.batch <= o.offset and o.offset - r.batch <= 0x7FFFFFFF:
            self.base_offset = r.batch
            if o.sequence >= 0:
                self.first.sequence = <int>((o.sequence - (o.offset - r.batch)) & 0x7FFFFFFF)

    cdef int _reserve(self, Py_ssize_t size) except -1:
        """Make room for a record of the open batch; DONE, FLUSH or TOO_LARGE."""
        cdef uint8_t *larger
        cdef Py_ssize_t room = self.plain_used + size + RECORD_ROOM
        if room > 0x7FFFFFFF - BATCH_BYTES:
            return TOO_LARGE
        if not self.codec:
            return DONE if room <= self.out_room - self.used - BATCH_BYTES else self._make_room(BATCH_BYTES + room)
        if room > self.plain_room:
            room = min(max(2 * room, 4096), 0x7FFFFFFF)
            larger = <uint8_t *>realloc(self.plain, room)
            if larger == NULL:
                raise MemoryError()
            self.plain, self.plain_room = larger, room
        return DONE

    cdef int _make_room(self, Py_ssize_t size) except -1:
        """Make room for *size* bytes of the open batch; FLUSH: other batches are in its way."""
        cdef long long room = max(2 * size, FIRST_ROOM)
        if self.used:
            return FLUSH
        if size > self.out_room:
            # Of ten thousand partitions, each has room for a batch, but not for two.
            if size <= self.batch_size + RECORD_ROOM:
                room = min(room, self.batch_size + RECORD_ROOM)
            elif size <= self.most + RECORD_ROOM:
                room = min(room, self.most + RECORD_ROOM)
            self._grow(<Py_ssize_t>min(room, 0x7FFFFFFF))
        return DONE

    cdef int _grow(self, Py_ssize_t room) except -1:
        cdef bytearray larger = bytearray(room)
        cdef uint8_t *out = <uint8_t *>PyByteArray_AsString(larger)
        if self.records and not self.codec:
            memcpy(out, self.out, BATCH_BYTES + self.plain_used)
        self.data, self.out, self.out_room = larger, out, room
        return 0

    cdef inline uint8_t *_open_records(self) noexcept nogil:
        """Where the records of the open batch are."""
        return self.plain if self.codec else self.out + self.used + BATCH_BYTES

    cdef void _write(self, const InRecord *r, const OutRecord *o, Py_ssize_t length) noexcept nogil:
        cdef uint8_t *w = self._open_records() + self.plain_used
        cdef uint8_t *start = w
        w = put_length(w, <int>length)
        w[0] = 0
        w = put_varlong(w + 1, self._delta(o))
        w = put_length(w, <int>(o.offset - self.base_offset))
        if o.flags & ATTRIBUTE_CONTROL:
            w = put_marker(w, r)
        else:
            w = put_bytes_or_null(put_length(w, r.key_length), r.key, r.key_length)
            w = put_bytes_or_null(put_length(w, r.value_length), r.value, r.value_length)
            w = put_bytes_or_null(put_length(w, r.headers_count), r.headers, r.headers_length)
        self.plain_used += w - start
        self.max_timestamp = max(self.max_timestamp, o.timestamp)
        self.last_delta = <int>(o.offset - self.base_offset)
        self.records += 1
        self.next_offset, self.following = o.offset + 1, r.offset + 1

    cdef int _close(self) except -1:
        if self.codec and not self.first.flags & ATTRIBUTE_CONTROL:
            self.is_waiting = True
            return TO_COMPRESS
        return self._end(self._open_records(), self.plain_used, 0)

    cdef int _end(self, const uint8_t *records, Py_ssize_t length, int codec) except -1:
        """End the batch whose records, compressed or not, are here."""
        cdef Py_ssize_t size = BATCH_BYTES + length
        cdef uint8_t *w
        if size > self.most:
            return BATCH_TOO_LARGE
        if size > self.out_room - self.used and self._make_room(size) == FLUSH:
            return FLUSH
        w = self.out + self.used
        put64(w + BATCH_BASE_OFFSET, <uint64_t>self.base_offset)
        put32(w + BATCH_SIZE, <uint32_t>(size - OVERHEAD))
        put32(w + BATCH_LEADER_EPOCH, <uint32_t>self.first.leader_epoch)
        w[BATCH_MAGIC] = 2
        put16(w + BATCH_ATTRIBUTES, <uint32_t>(self.first.flags | codec))
        put32(w + BATCH_LAST_OFFSET_DELTA, <uint32_t>self.last_delta)
        put64(w + BATCH_BASE_TIMESTAMP, <uint64_t>self.first.timestamp)
        put64(w + BATCH_MAX_TIMESTAMP, <uint64_t>self.max_timestamp)
        put64(w + BATCH_PRODUCER_ID, <uint64_t>self.first.producer_id)
        put16(w + BATCH_PRODUCER_EPOCH, <uint32_t>self.first.producer_epoch)
        put32(w + BATCH_BASE_SEQUENCE, <uint32_t>self.first.sequence)
        put32(w + BATCH_RECORDS_COUNT, <uint32_t>self.records)
        if self.codec:
            memcpy(w + BATCH_BYTES, records, length)
        put32(w + BATCH_CRC, klog_crc32c(0, w + BATCH_CRC_START, size - BATCH_CRC_START))
        if self.producer_id >= 0 and self.first.producer_id == self.producer_id:
            self.own_sequence = increment_sequence(self.first.sequence, self.last_delta)
            self.own_sequence = increment_sequence(self.own_sequence, 1)
        self.latest_epoch = self.first.leader_epoch
        self.used += size
        self.records, self.plain_used, self.is_waiting = 0, 0, False
        return DONE


cdef inline Py_ssize_t with_length(Py_ssize_t length) noexcept nogil:
    """The bytes of a record of *length*, which comes before it."""
    return length + length_bytes(<int>min(length, 0x7FFFFFFF))


cdef uint8_t *put_marker(uint8_t *w, const InRecord *r) noexcept nogil:
    """Write the rest of the record that ends a transaction.  Kafka: EndTransactionMarker."""
    w = put_length(w, 4)
    put16(w, 0)
    put16(w + 2, r.control)
    w = put_length(w + 4, 6)
    put16(w, 0)
    put32(w + 2, <uint32_t>r.coordinator_epoch)
    return put_length(w + 6, 0)


cdef inline uint8_t *put_bytes_or_null(uint8_t *w, const uint8_t *p, Py_ssize_t n) noexcept nogil:
    if n > 0:
        memcpy(w, p, n)
        return w + n
    return w
