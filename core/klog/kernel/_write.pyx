# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False, binding=False, annotation_typing=False
"""Record batches that are built, and batches that are stamped anew."""

cimport cython
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

from klog.kernel._window cimport BatchRow, CHECKED, DONE, TO_COMPRESS, HOLDS, SKIPPED, View, Window
from klog.kernel.chars cimport base64, utf8_valid
from klog.kernel.crc cimport klog_crc32, klog_crc32c
from klog.kernel.layouts cimport (
    ATTRIBUTE_CONTROL, ATTRIBUTE_LOG_APPEND_TIME, ATTRIBUTE_TRANSACTIONAL, BATCH_ATTRIBUTES, BATCH_BASE_OFFSET,
    BATCH_BASE_SEQUENCE, BATCH_BASE_TIMESTAMP, BATCH_BYTES, BATCH_CRC, BATCH_CRC_START, BATCH_LAST_OFFSET_DELTA,
    BATCH_LEADER_EPOCH, BATCH_MAGIC, BATCH_MAX_TIMESTAMP, BATCH_PRODUCER_EPOCH, BATCH_PRODUCER_ID,
    BATCH_RECORDS_COUNT, BATCH_SIZE, CONTROL_KEY_BYTES, CONTROL_KEY_TYPE, CONTROL_KEY_VERSION, END_MARKER_BYTES,
    END_MARKER_COORDINATOR_EPOCH, END_MARKER_VERSION, OVERHEAD,
)
from klog.kernel.numbers cimport add, increment_sequence, put16, put32, put64, put_varlong, subtract, varlong_bytes
from klog.kernel.python cimport (
    PyByteArray_AsString, PyBytes_AsString, PyBytes_Size, PyList_Size, PyMemoryView_FromMemory,
)

include "input_lines.pxi"
include "record_columns.pxi"
include "transaction_ends.pxi"

cpdef enum:                      # what `add` and `close` return, besides DONE and TO_COMPRESS
    FLUSH = 32                   # there is no room for the batch: take the output, then go on
    ASK = 33                     # a batch of a producer begins: `allow` it, or leave the record out
    FIRST_FAULT = 34             # … or, from here on, why the record cannot be written, in the order of RECORD_FAULTS

cdef enum:
    BAD_TEXT = FIRST_FAULT
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

    def close(self) -> int:
        """End the open batch, if there is one; DONE, FLUSH, TO_COMPRESS or BATCH_TOO_LARGE."""
        return self._close() if self.records else DONE

    def plain_records(self) -> memoryview:
        """Return the records that TO_COMPRESS is about."""
        return PyMemoryView_FromMemory(<char *>self.plain, self.plain_used, 0x100)

    def compressed(self, const unsigned char[::1] data not None) -> int:
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
        """Mark the output as taken; the open batch is moved to the front."""
        if self.records and not self.codec:
            memmove(self.out, self.out + self.used, BATCH_BYTES + self.plain_used)
        self.used = 0

    def drop(self) -> int:
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
            # Ten thousand partitions have room for a batch each, but not for two.
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
        """The places of the open batch's records."""
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
    w = put_length(w, CONTROL_KEY_BYTES)
    put16(w + CONTROL_KEY_VERSION, 0)
    put16(w + CONTROL_KEY_TYPE, r.control)
    w = put_length(w + CONTROL_KEY_BYTES, END_MARKER_BYTES)
    put16(w + END_MARKER_VERSION, 0)
    put32(w + END_MARKER_COORDINATOR_EPOCH, <uint32_t>r.coordinator_epoch)
    return put_length(w + END_MARKER_BYTES, 0)


cdef inline uint8_t *put_bytes_or_null(uint8_t *w, const uint8_t *p, Py_ssize_t n) noexcept nogil:
    if n > 0:
        memcpy(w, p, n)
        return w + n
    return w


# The partition of a record, and the builder of its batches.

cdef extern from "partitions.h" nogil:
    uint32_t murmur2_of "klog_murmur2"(const uint8_t *p, size_t n)
    uint32_t fnv1a_of "klog_fnv1a"(const uint8_t *p, size_t n)
    uint32_t absolute "klog_absolute"(uint32_t h)

cdef enum:                       # in the order of klog.commands.write.write_destination.PARTITIONER_NAMES
    BY_JAVA, ROUND_ROBIN, CONSISTENT_RANDOM, CONSISTENT, MURMUR2_RANDOM, MURMUR2, FNV1A_RANDOM, FNV1A, RANDOM

cpdef enum:
    OPEN_PARTITION = 64                    # what `feed` returns besides: the partition has no builder yet


cdef class TopicRoute:
    """The partitions of a topic.  *builders*: of each, None for one that is not open yet; an empty list: no such topic.

    *partitioner*: a place in klog.commands.write.write_destination.PARTITIONER_NAMES, for records without a
    partition.  *sticky_bytes*: after so many, records without a key go to another partition (java).  *seed*: for
    what is random.
    """

    cdef readonly list builders  #: list[BatchBuilder | None]
    cdef int partitioner
    cdef long long sticky_bytes, sent
    cdef uint64_t random
    cdef uint32_t turn, sticky

    def __cinit__(self, list builders not None: list[BatchBuilder | None], int partitioner=0, long long sticky_bytes=16384, unsigned long long seed=0):
        self.builders, self.partitioner, self.sticky_bytes, self.random = builders, partitioner, sticky_bytes, seed
        self.sticky = self._any() if len(builders) else 0

    cdef uint32_t _any(self) noexcept:
        """Some partition.  splitmix64 (Steele, Lea, Flood, 2014)."""
        cdef uint64_t z
        self.random += <uint64_t>0x9E3779B97F4A7C15
        z = self.random
        z = (z ^ (z >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
        z = (z ^ (z >> 27)) * <uint64_t>0x94D049BB133111EB
        return <uint32_t>((z ^ (z >> 31)) % <uint64_t>PyList_Size(self.builders))

    cdef uint32_t choose(self, const InRecord *r) noexcept:
        """The partition of a record that names none.  librdkafka: rd_kafka_msg_partitioner_…"""
        cdef uint32_t count = <uint32_t>PyList_Size(self.builders)
        cdef int how = self.partitioner
        cdef const uint8_t *key = r.key if r.key_length > 0 else <const uint8_t *>b""
        cdef size_t n = max(r.key_length, 0)
        if how == ROUND_ROBIN:
            self.turn = (self.turn + 1) % count
            return (self.turn + count - 1) % count
        if how == RANDOM or (r.key_length < 0 and (how == CONSISTENT_RANDOM or how == MURMUR2_RANDOM or how == FNV1A_RANDOM)):
            return self._any()
        if how == CONSISTENT_RANDOM and n == 0:
            return self._any()
        if how == BY_JAVA and r.key_length < 0:
            return self._stick(r)
        if how == CONSISTENT_RANDOM or how == CONSISTENT:
            return klog_crc32(0, key, n) % count
        if how == FNV1A_RANDOM or how == FNV1A:
            return absolute(fnv1a_of(key, n)) % count
        return (murmur2_of(key, n) & 0x7FFFFFFF) % count

    cdef uint32_t _stick(self, const InRecord *r) noexcept:
        """The partition that records without a key go to now.  Kafka: BuiltInPartitioner."""
        if self.sent >= self.sticky_bytes:
            self.sticky, self.sent = self._any(), 0
        self.sent += 2 + length_bytes(r.value_length) + 4 + max(r.value_length, 0) + r.headers_length
        return self.sticky


cdef class BatchRouter:
    """Hands records to the builders of their partitions.

    *topic*: where all of them go, None for the one that each names.  *repartition*: what partition they name does not count.
    """

    cdef dict routes
    cdef bytes topic, latest_name
    cdef const uint8_t *latest_text          # of that name
    cdef Py_ssize_t latest_length            # -1: there is none yet
    cdef TopicRoute latest
    cdef int latest_partition                # of that topic, whose builder `builder` is; -1: none
    cdef bint repartition
    cdef readonly BatchBuilder builder       # that `feed` was about
    cdef readonly bytes name  #: bytes | None: of the topic
    cdef readonly int partition
    cdef long long chosen_line
    cdef int chosen

    def __cinit__(self, bytes topic=None, bint repartition=False):
        self.topic, self.repartition, self.routes = topic, repartition, {}
        self.chosen_line = self.latest_partition = self.latest_length = -1

    def add_topic(self, bytes name not None, TopicRoute route not None):
        """Set the partitions of a topic."""
        self.routes[name] = route

    def feed(self, InputRecords rows not None, Py_ssize_t i) -> tuple[int, int]:
        """Take records from *i* on; return where that stopped, and why: DONE at the end, OPEN_PARTITION, or what a builder returns."""
        cdef InRecord *r
        cdef int status = DONE, partition
        while i < rows.count:
            r = rows.rows + i
            status = self._place(r, &partition)
            if status == DONE:
                status = self.builder.add(r)
            if status != DONE:
                return i, status
            i += 1
        return i, DONE

    cdef int _place(self, const InRecord *r, int *partition) except -1:
        """Find the builder of a record."""
        if r.error:
            return BAD_TEXT
        if not self._find_route(r):
            return NO_TOPIC
        partition[0] = r.partition
        if r.partition < 0 or self.repartition:
            if not PyList_Size(self.latest.builders):
                return NO_TOPIC
            if PyList_Size(self.latest.builders) > 1 and (r.control != KLOG_NO_CONTROL or r.transactional):
                return MOVED
            if self.chosen_line != r.line:  # else it has been asked for before, and this is the same record again
                self.chosen, self.chosen_line = <int>self.latest.choose(r), r.line
            partition[0] = self.chosen
        self.partition = partition[0]
        if partition[0] == self.latest_partition:
            return DONE
        if partition[0] >= PyList_Size(self.latest.builders):
            return NO_PARTITION
        found = self.latest.builders[partition[0]]
        if found is None:
            return OPEN_PARTITION
        if found is not self.builder:
            self.builder = <BatchBuilder>found
        self.latest_partition = partition[0]
        return DONE

    cdef bint _find_route(self, const InRecord *r) except -1:
        cdef const uint8_t *name = r.topic
        cdef Py_ssize_t n = r.topic_length
        if self.topic is not None:
            name, n = <const uint8_t *>PyBytes_AsString(self.topic), PyBytes_Size(self.topic)
        if n < 0:
            self.name = None
            return False
        if n != self.latest_length or memcmp(self.latest_text, name, n):
            self.name = (<const char *>name)[:n]
            found = self.routes.get(self.name)
            if found is None:
                return False
            self.latest_name, self.latest, self.latest_partition = self.name, <TopicRoute>found, -1
            self.latest_text, self.latest_length = <const uint8_t *>PyBytes_AsString(self.name), n
        if self.name is not self.latest_name:
            self.name = self.latest_name
        return True


# Batches that become those of another log.


def stamp(Window window not None, Py_ssize_t first, Py_ssize_t end, long long next_offset, int leader_epoch, long long shift) -> tuple[int, int]:
    """Give batches *first* to *end* (checksums found to match) of *window* another place; all of them v2 but for an epoch.

    Returns the next offset, and the bytes of the largest of them.

    *next_offset*: of the first of them, -1: offsets stay.  *leader_epoch*: theirs, -1: it stays; no
    checksum covers it, and formats before v2 have none.  *shift*: is added to producer
    ids below 2^62, which alone needs new checksums.  Kafka: LogValidator.assignOffsetsNonCompressed.
    """
    cdef Py_ssize_t i
    cdef int largest = 0
    cdef long long following
    window._range(first, end)
    with nogil:
        for i in range(first, end):
            largest = max(largest, window.view.batches[i].size)
            following = stamp_batch(<uint8_t *>window.view.data, window.view.batches + i, next_offset, leader_epoch, shift)
            next_offset = following if next_offset >= 0 else -1
    return next_offset, largest


cdef long long stamp_batch(uint8_t *data, BatchRow *row, long long next_offset, int leader_epoch, long long shift) noexcept nogil:
    cdef uint8_t *p = data + row.at
    if next_offset >= 0:
        row.base_offset, row.last_offset = next_offset, add(next_offset, row.last_offset_delta)
        put64(p + BATCH_BASE_OFFSET, <uint64_t>next_offset)
    if leader_epoch >= 0 and row.magic >= 2:
        row.leader_epoch = leader_epoch
        put32(p + BATCH_LEADER_EPOCH, <uint32_t>leader_epoch)
    if shift and row.producer_id >= 0 and not row.producer_id >> 62:
        row.producer_id += shift
        put64(p + BATCH_PRODUCER_ID, <uint64_t>row.producer_id)
        row.crc = row.computed_crc = klog_crc32c(0, p + BATCH_CRC_START, row.size - BATCH_CRC_START)
        put32(p + BATCH_CRC, row.crc)
    return row.last_offset + 1


def drop_producers(Window window not None) -> list[tuple[int, int]]:
    """Take the producers from all batches (v2, checksums found to match); return the runs of those that stay: (first, end).

    Skipped ones go, and so do markers, and what compaction left of a producer without records.
    """
    cdef Py_ssize_t i, first = 0
    cdef BatchRow *row
    cdef list runs = []
    for i in range(window.view.batches_count):
        row = window.view.batches + i
        if row.state & SKIPPED or row.attributes & ATTRIBUTE_CONTROL or (row.producer_id >= 0 and row.records_count <= 0):
            if first < i:
                runs.append((first, i))
            first = i + 1
        elif row.producer_id >= 0:
            drop_producer(<uint8_t *>window.view.data + row.at, row)
    if first < window.view.batches_count:
        runs.append((first, window.view.batches_count))
    return runs


cdef void drop_producer(uint8_t *p, BatchRow *row) noexcept nogil:
    row.producer_id, row.producer_epoch, row.base_sequence = -1, -1, -1
    row.attributes &= ~ATTRIBUTE_TRANSACTIONAL
    put16(p + BATCH_ATTRIBUTES, <uint32_t>row.attributes & 0xFFFF)
    memset(p + BATCH_PRODUCER_ID, 0xFF, 8 + 2 + 4)
    row.crc = row.computed_crc = klog_crc32c(0, p + BATCH_CRC_START, row.size - BATCH_CRC_START)
    put32(p + BATCH_CRC, row.crc)
