# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False, binding=False, annotation_typing=False
"""The profile of a partition's records, counted in memory of a fixed size."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from klog.kernel._window cimport RecordRow, View, Window, is_control
from klog.kernel.digests cimport Digest, siphash, siphash_eight
from klog.kernel.memory cimport prefetch
from klog.kernel.numbers cimport add, varint
from klog.kernel.python cimport PyBytes_AsString

include "digest_slots.pxi"

cdef extern from *:
    int clz "__builtin_clzll"(unsigned long long word) noexcept nogil


cdef inline int leading_zeros(uint64_t word) noexcept nogil:
    return clz(word) if word else 64



cdef enum:
    REGISTER_BITS = 14           # 16384 registers: the number of different keys within 0.8 % (one standard deviation)
    REGISTERS = 1 << REGISTER_BITS
    MOST_RANK = 64 - REGISTER_BITS + 1
    COUNTED_SLOTS = 4096
    MOST_COUNTED = 3072          # keys that are counted at a time
    KEPT_BYTES = 128             # of a key, for people
    LARGEST = 10
    CODECS = 8                   # as many as three bits tell
    SAMPLED = 63

cdef struct CountedKey:
    Digest digest
    long long count              # 0: a free slot
    int length
    uint8_t start[KEPT_BYTES]

cdef struct LargeRecord:
    long long bytes, offset, position


@cython.final
cdef class Profile:
    """Counts records: how many, of which keys, how large, when.

    *key*: 16 bytes for SipHash; profiles that are to be put together have the same.  Different keys are counted by
    HyperLogLog, the most frequent ones by the algorithm of Misra and Gries: each count is too low by `error` at most.
    """

    cdef uint8_t secret[16]
    cdef uint8_t ranks[REGISTERS]
    cdef CountedKey *counted
    cdef CountedKey *spare
    cdef Py_ssize_t taken
    cdef LargeRecord large[LARGEST]          # the smallest first
    cdef long long by_codec[CODECS]
    cdef readonly long long records, markers, null_keys, null_values
    cdef readonly long long first_offset, last_offset         # of the records; -1: none
    cdef readonly long long first_timestamp, last_timestamp   # the lowest and the highest; -1: none
    cdef readonly long long error

    def __cinit__(self, bytes key not None):
        if len(key) != 16:
            raise ValueError(f"a key of {len(key)} bytes for SipHash, which takes 16")
        memcpy(self.secret, PyBytes_AsString(key), 16)
        self.counted = <CountedKey *>calloc(COUNTED_SLOTS, sizeof(CountedKey))
        self.spare = <CountedKey *>calloc(COUNTED_SLOTS, sizeof(CountedKey))
        if self.counted == NULL or self.spare == NULL:
            raise MemoryError("no memory for a profile")
        self.clear()

    def __dealloc__(self):
        free(self.counted)
        free(self.spare)

    def clear(self):
        """Start over."""
        memset(self.ranks, 0, sizeof(self.ranks))
        memset(self.counted, 0, COUNTED_SLOTS * sizeof(CountedKey))
        memset(self.large, 0, sizeof(self.large))
        memset(self.by_codec, 0, sizeof(self.by_codec))
        self.taken = 0
        self.records = self.markers = self.null_keys = self.null_values = self.error = 0
        self.first_offset = self.last_offset = self.first_timestamp = self.last_timestamp = -1

    def add(self, Window window not None):
        """Count the record rows of *window*, control records as markers."""
        with nogil:
            self._add(&window.view)

    @property
    def codecs(self) -> list[int]:
        """How many records there are by the number of their batch's codec."""
        return [self.by_codec[i] for i in range(CODECS)]

    @property
    def registers(self) -> bytes:
        """The registers of the HyperLogLog, a byte each."""
        return (<char *>self.ranks)[:REGISTERS]

    def absorb(self, const unsigned char[::1] registers not None):
        """Take the keys of another profile with the same key for its hash, as far as their number goes."""
        cdef Py_ssize_t i
        if registers.shape[0] != REGISTERS:
            raise ValueError(f"{registers.shape[0]} registers instead of {REGISTERS}")
        for i in range(REGISTERS):
            self.ranks[i] = max(self.ranks[i], min(registers[i], MOST_RANK))

    @property
    def ranks_counted(self) -> list[int]:
        """How many registers have each rank, from 0 on: what the number of different keys is estimated from."""
        cdef long long counts[MOST_RANK + 1]
        cdef Py_ssize_t i
        memset(counts, 0, sizeof(counts))
        for i in range(REGISTERS):
            counts[self.ranks[i]] += 1
        return [counts[i] for i in range(MOST_RANK + 1)]

    @property
    def largest(self) -> list[tuple[int, int, int]]:
        """The largest records, the largest first: bytes, offset, and the position of the batch."""
        cdef LargeRecord *large
        found = []
        for i in range(LARGEST - 1, -1, -1):
            large = &self.large[i]
            if large.bytes:
                found.append((large.bytes, large.offset, large.position))
        return found

    def top(self, Py_ssize_t most) -> list[tuple[int, int, bytes, bytes]]:
        """Return the *most* frequent keys: count, length, the first 128 bytes, and the digest."""
        cdef Py_ssize_t i
        cdef CountedKey *key
        found = []
        for i in range(COUNTED_SLOTS):
            key = self.counted + i
            if key.count:
                found.append((-key.count, i))
        found.sort()
        result = []
        for count, i in found[:most]:
            key = self.counted + i
            start = (<char *>key.start)[: min(key.length, KEPT_BYTES)]
            result.append((-count, key.length, start, (<char *>&key.digest)[: sizeof(Digest)]))
        return result

    cdef void _add(self, const View *v) noexcept nogil:
        cdef Pending pending[AHEAD]
        cdef Py_ssize_t i, count = 0
        cdef const RecordRow *row
        for i in range(v.records_count):
            row = v.records + i
            if is_control(v, row):
                self.markers += 1
                continue
            self._count(v, row)
            if row.key_length < 0:
                self.null_keys += 1
                continue
            pending[count].key, pending[count].key_length = v.bases[row.batch] + row.key_at, row.key_length
            count += 1
            if count == AHEAD:
                self._keys(pending, count)
                count = 0
        self._keys(pending, count)

    cdef void _count(self, const View *v, const RecordRow *row) noexcept nogil:
        """Count all of a record but its key."""
        cdef long long size = max(row.key_length, 0) + <long long>max(row.value_length, 0)
        cdef int length = 0
        cdef const uint8_t *p
        if v.batches[row.batch].magic >= 2:
            p = v.bases[row.batch] + row.start
            size = varint(p, p + 5, &length) - p
            size += length
        self.records += 1
        self.null_values += row.value_length < 0
        self.by_codec[v.batches[row.batch].attributes & CODECS - 1] += 1
        self.first_offset = row.offset if self.first_offset < 0 else min(self.first_offset, row.offset)
        self.last_offset = max(self.last_offset, row.offset)
        if row.timestamp >= 0:
            self.first_timestamp = row.timestamp if self.first_timestamp < 0 else min(self.first_timestamp, row.timestamp)
            self.last_timestamp = max(self.last_timestamp, row.timestamp)
        if size > self.large[0].bytes:
            self._large(size, row.offset, v.batches[row.batch].position)

    cdef void _large(self, long long size, long long offset, long long position) noexcept nogil:
        """Put a record among the largest, in place of the smallest of them."""
        cdef Py_ssize_t i = 0
        while i + 1 < LARGEST and self.large[i + 1].bytes < size:
            self.large[i] = self.large[i + 1]
            i += 1
        self.large[i].bytes, self.large[i].offset, self.large[i].position = size, offset, position

    cdef void _keys(self, Pending *pending, Py_ssize_t count) noexcept nogil:
        cdef const uint8_t *keys[8]
        cdef size_t sizes[8]
        cdef Digest *digests[8]
        cdef Py_ssize_t k, at
        cdef int lane, rank
        for k in range(0, count - 7, 8):
            for lane in range(8):
                keys[lane], sizes[lane] = pending[k + lane].key, pending[k + lane].key_length
                digests[lane] = &pending[k + lane].digest
            siphash_eight(self.secret, keys, sizes, digests)
        for k in range(count - count % 8, count):
            siphash(self.secret, pending[k].key, pending[k].key_length, &pending[k].digest)
        for k in range(count):
            prefetch(self.counted + pending[k].digest.high % COUNTED_SLOTS)
        for k in range(count):
            at = <Py_ssize_t>(pending[k].digest.high >> 64 - REGISTER_BITS)
            rank = min(leading_zeros(pending[k].digest.low) + 1, MOST_RANK)
            self.ranks[at] = max(self.ranks[at], <uint8_t>rank)
            self._frequent(&pending[k])

    cdef void _frequent(self, const Pending *one) noexcept nogil:
        cdef CountedKey *key = slot_of_key(self.counted, &one.digest)
        if key.count == 0:
            if self.taken == MOST_COUNTED:
                self._thin_out()
                key = slot_of_key(self.counted, &one.digest)
            key.digest = one.digest
            key.length = <int>one.key_length
            memcpy(key.start, one.key, min(one.key_length, KEPT_BYTES))
            self.taken += 1
        key.count += 1

    cdef void _thin_out(self) noexcept nogil:
        """Take from each count what about half of them do not have more than; one that has nothing left makes room."""
        cdef Py_ssize_t i
        cdef long long less = self._usual_count()
        cdef CountedKey *before = self.counted
        cdef CountedKey *key
        self.counted, self.spare = self.spare, before
        self.taken = 0
        for i in range(COUNTED_SLOTS):
            if before[i].count > less:
                key = slot_of_key(self.counted, &before[i].digest)
                key[0] = before[i]
                key.count -= less
                self.taken += 1
            before[i].count = 0
        self.error += less

    cdef long long _usual_count(self) noexcept nogil:
        """Return the median of some of the counts, which is at least the smallest of all: so there will be room."""
        cdef long long sample[SAMPLED]
        cdef Py_ssize_t i, j, n = 0
        for i in range(COUNTED_SLOTS):
            if self.counted[i].count and n < SAMPLED:
                j = n
                while j > 0 and sample[j - 1] > self.counted[i].count:
                    sample[j] = sample[j - 1]
                    j -= 1
                sample[j] = self.counted[i].count
                n += 1
        return sample[n // 2]


cdef inline CountedKey *slot_of_key(CountedKey *table, const Digest *digest) noexcept nogil:
    """Return where a key is, or the free slot where it belongs; there always is one."""
    cdef Py_ssize_t at = <Py_ssize_t>(digest.high % COUNTED_SLOTS)
    while table[at].count and (table[at].digest.high != digest.high or table[at].digest.low != digest.low):
        at = (at + 1) % COUNTED_SLOTS
    return table + at
