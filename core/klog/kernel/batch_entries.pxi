# The table of digests in memory: of each batch eight bytes in one of 256 buckets, and twelve more in the order they came.

cdef enum:
    LINE_WORDS = 8               # of a line of the processor's caches
    CHUNK_WORDS = 127 * LINE_WORDS # with the line in front of them 8 KiB
    CHUNKS_AT_LEAST = 1024       # of a table that is full
    SLAB_BYTES = 1 << 20         # not in large pages: to a virtual machine fresh ones come slowly from its host
    REST_BITS = 16
    REST_ROWS = 1 << REST_BITS   # of a slab
    WORDS_AHEAD = 32             # memory that is on its way
    FIRST_BITS = 32              # lowest bits of a word by which batches are told apart: at first, and then
    OTHER_BITS = 46

# A word is 32 bits of a digest, from bit 24 on, above the number of its batch in the table; a bucket's number is the eight
# bits above.  What tells a bucket's batches apart so stays in the nearest caches.  Words are put into their buckets by
# whole lines: a processor has entries for the pages of 16 places where it writes, not of 256.

cdef struct Chunk:               # words of one bucket
    Chunk *next
    uint64_t unused[7]
    uint64_t words[1]            # really as many as the table's chunks have

cdef struct Bucket:
    uint64_t *free               # where the next line goes
    uint64_t *end                # of the last chunk
    Chunk *first
    Chunk *last
    Py_ssize_t chunks

cdef struct EntryRest:
    uint32_t position, crc
    uint32_t low                 # the other 24 bits of the digest, and eight for the codec

cdef struct EntryBlock:          # batches that follow one another in a log, and came one after the other
    uint32_t first               # number of the first one in the table
    uint32_t log
    uint32_t number              # of the first one in the log


cdef Py_ssize_t mark_words(const uint64_t *words, Py_ssize_t count, uint8_t *seen, int bits, int shift) noexcept nogil:
    """Do what `mark_seen` does."""
    cdef Py_ssize_t i, again = 0
    cdef uint64_t mask = (<uint64_t>1 << bits) - 1, slot
    cdef uint8_t once, found
    for i in range(count):
        slot = words[i] >> shift & mask
        once = 1 << 2 * (slot & 3)
        found = seen[slot >> 2] & once
        seen[slot >> 2] |= once + found
        again += found != 0
    return again


cdef Py_ssize_t take_words(const uint64_t *words, Py_ssize_t count, const uint8_t *seen, int bits, int shift,
                           uint64_t *to) noexcept nogil:
    """Do what `take_marked` does."""
    cdef Py_ssize_t i, kept = 0
    cdef uint64_t mask = (<uint64_t>1 << bits) - 1, slot
    for i in range(count):
        slot = words[i] >> shift & mask
        to[kept] = words[i]      # which may be where it is
        kept += seen[slot >> 2] >> 2 * (slot & 3) >> 1 & 1
    return kept


@cython.final
cdef class BatchEntries:
    """Entries in memory, up to *most* of them: `add` until it is full, and look at each of 256 buckets."""

    cdef uint64_t lines[BUCKETS][LINE_WORDS] # the last words of each bucket
    cdef uint32_t sizes[BUCKETS]             # of all its words
    cdef Bucket buckets[BUCKETS]
    cdef uint8_t **slabs                     # memory for chunks; it grows as it is needed and never moves
    cdef EntryRest **rests                   # slabs of REST_ROWS rows
    cdef EntryBlock *blocks
    cdef Py_ssize_t slabs_count, slab_bytes, slab_chunks, chunk_bytes, chunk_words, chunks_used
    cdef Py_ssize_t rests_count, blocks_count, blocks_room
    cdef uint32_t next_log, next_number      # what goes on with the last block
    cdef uint64_t *words                     # of one bucket
    cdef Py_ssize_t words_room
    cdef RepeatedEntries search
    cdef readonly Py_ssize_t count, most

    def __cinit__(self, Py_ssize_t most):
        cdef Py_ssize_t chunks
        self.most = min(max(most, 1), 0x7FFFFFFF)
        self.chunk_words = min(max(self.most // CHUNKS_AT_LEAST // LINE_WORDS, 1) * LINE_WORDS, CHUNK_WORDS)
        chunks = self.most // self.chunk_words + BUCKETS + 1  # the last of each bucket is not full
        self.chunk_bytes = (LINE_WORDS + self.chunk_words) * sizeof(uint64_t)
        self.slab_chunks = min(SLAB_BYTES // self.chunk_bytes, chunks)
        self.slab_bytes = self.slab_chunks * self.chunk_bytes
        self.search = RepeatedEntries()
        self.slabs = <uint8_t **>calloc(chunks // self.slab_chunks + 1, sizeof(uint8_t *))
        self.rests = <EntryRest **>calloc((self.most >> REST_BITS) + 1, sizeof(EntryRest *))
        if self.slabs == NULL or self.rests == NULL:
            raise MemoryError("no memory for batches")

    def __dealloc__(self):
        self._release()
        free(self.slabs)
        free(self.rests)
        free(self.words)

    def __len__(self):
        return self.count

    cdef bint _extend(self, Bucket *bucket) noexcept nogil:
        """Give a bucket another chunk; False when there is no memory."""
        cdef Py_ssize_t slab = self.chunks_used // self.slab_chunks
        cdef Chunk *chunk
        if slab == self.slabs_count:
            self.slabs[slab] = <uint8_t *>klog_slab(self.slab_bytes)
            if self.slabs[slab] == NULL:
                return False
            self.slabs_count += 1
        chunk = <Chunk *>(self.slabs[slab] + self.chunks_used % self.slab_chunks * self.chunk_bytes)
        self.chunks_used += 1
        chunk.next = NULL
        if bucket.first == NULL:
            bucket.first = chunk
        else:
            bucket.last.next = chunk
        bucket.last, bucket.free, bucket.end = chunk, chunk.words, chunk.words + self.chunk_words
        bucket.chunks += 1
        return True

    cdef bint _begin_block(self, const BatchEntry *entry, Py_ssize_t at) noexcept nogil:
        """Begin a block with the entry that becomes number *at*; False when there is no memory."""
        cdef Py_ssize_t room = max(2 * self.blocks_room, 64)
        cdef void *larger
        if self.blocks_count == self.blocks_room:
            larger = realloc(self.blocks, room * sizeof(EntryBlock))
            if larger == NULL:
                return False
            self.blocks, self.blocks_room = <EntryBlock *>larger, room
        self.next_log, self.next_number = entry.log, entry.tag >> CODEC_BITS
        self.blocks[self.blocks_count] = EntryBlock(first=<uint32_t>at, log=self.next_log, number=self.next_number)
        self.blocks_count += 1
        return True

    cdef bint _more_rests(self) noexcept nogil:
        if self.count >> REST_BITS == self.rests_count:
            self.rests[self.rests_count] = <EntryRest *>klog_slab(min(REST_ROWS, self.most) * sizeof(EntryRest))
            if self.rests[self.rests_count] == NULL:
                return False
            self.rests_count += 1
        return True

    def add(self, const unsigned char[::1] entries not None, Py_ssize_t start=0):
        """Append *entries* from byte *start* on, as many as there is room for; return the first byte not taken."""
        cdef Py_ssize_t left = entry_count(entries, start), at = start, taken
        while left and self.count < self.most:
            with nogil:
                taken = self._add(<const BatchEntry *>&entries[at], min(left, self.most - self.count))
            if taken < 0:
                raise MemoryError("no memory for more batches")
            at += taken * <Py_ssize_t>sizeof(BatchEntry)
            left -= taken
        return at

    cdef Py_ssize_t _add(self, const BatchEntry *entry, Py_ssize_t count) noexcept nogil:
        """Take *count* entries, or those for which the slab of their rests has room; return how many, -1 without memory."""
        cdef Py_ssize_t i
        cdef uint32_t number, in_line
        cdef uint64_t word
        cdef Bucket *bucket
        cdef EntryRest *rest
        if not self._more_rests():
            return -1
        rest = self.rests[self.count >> REST_BITS] + (self.count & (REST_ROWS - 1))
        count = min(count, REST_ROWS - (self.count & (REST_ROWS - 1)))
        for i in range(count):
            if (entry.log != self.next_log or entry.tag >> CODEC_BITS != self.next_number or not self.blocks_count) and not self._begin_block(entry, self.count):
                return -1
            number = <uint32_t>(entry.digest >> TOP_SHIFT)
            word = entry.digest >> 24 << 32 | <uint64_t>self.count
            in_line = self.sizes[number] & (LINE_WORDS - 1)
            if in_line < LINE_WORDS - 1:
                self.lines[number][in_line] = word
            else:
                bucket = self.buckets + number
                if bucket.free == bucket.end and not self._extend(bucket):
                    return -1
                memcpy(bucket.free, self.lines[number], (LINE_WORDS - 1) * sizeof(uint64_t))
                bucket.free[LINE_WORDS - 1] = word  # not by the line: to load what was just stored takes long
                bucket.free += LINE_WORDS
                prefetch_to_write(bucket.free, 1)  # where a line goes two thousand entries later
            self.sizes[number] += 1
            rest.position, rest.crc = entry.position, entry.crc
            rest.low = <uint32_t>(entry.digest << 8) | entry.tag & ((1 << CODEC_BITS) - 1)
            self.count += 1
            self.next_number += 1
            rest += 1
            entry += 1
        return count

    cdef inline Py_ssize_t _filled(self, const Bucket *bucket, const Chunk *chunk) noexcept nogil:
        return bucket.free - chunk.words if chunk == bucket.last else self.chunk_words

    cdef Bucket *_bucket(self, int number) except NULL:
        if not 0 <= number < BUCKETS:
            raise IndexError(f"bucket {number} of {BUCKETS}")
        return self.buckets + number

    cdef inline Py_ssize_t _in_line(self, int number) noexcept nogil:
        return self.sizes[number] & (LINE_WORDS - 1)

    cdef int _room(self, Py_ssize_t count) except -1:
        """Make room for so many words."""
        if count > self.words_room:
            free(self.words)
            self.words_room = count
            self.words = <uint64_t *>malloc(count * sizeof(uint64_t))
            if self.words == NULL:
                self.words_room = 0
                raise MemoryError("no memory for digests")
        return 0

    cdef void _whole(self, uint64_t top, const uint64_t *words, Py_ssize_t count, BatchEntry *to) noexcept nogil:
        """Write the entries of words, which are in the order they came, to *to*."""
        cdef Py_ssize_t i, block = 0
        cdef uint32_t at
        cdef const EntryRest *rest
        for i in range(count):
            if i + WORDS_AHEAD < count:
                at = <uint32_t>words[i + WORDS_AHEAD]
                prefetch(self.rests[at >> REST_BITS] + (at & (REST_ROWS - 1)))
            at = <uint32_t>words[i]
            rest = self.rests[at >> REST_BITS] + (at & (REST_ROWS - 1))
            block = self._block_of(at, block)
            to[i].digest = top << TOP_SHIFT | words[i] >> 32 << 24 | rest.low >> 8
            to[i].log, to[i].position, to[i].crc = self.blocks[block].log, rest.position, rest.crc
            to[i].tag = self.blocks[block].number + (at - self.blocks[block].first) << CODEC_BITS | rest.low & ((1 << CODEC_BITS) - 1)

    cdef inline Py_ssize_t _block_of(self, uint32_t at, Py_ssize_t low) noexcept nogil:
        """Return the block that has number *at*, from block *low* on."""
        cdef Py_ssize_t step = 1, middle, high
        while low + step < self.blocks_count and self.blocks[low + step].first <= at:
            low += step
            step *= 2
        high = min(low + step, self.blocks_count)
        while high - low > 1:
            middle = (low + high) // 2
            if self.blocks[middle].first <= at:
                low = middle
            else:
                high = middle
        return low

    def content(self, int number):
        """Return the entries of a bucket; they count until the next call."""
        cdef Bucket *bucket = self._bucket(number)
        cdef Py_ssize_t count = self.sizes[number], at = 0
        cdef Chunk *chunk = bucket.first
        self._room(count)
        self.search.room(count)
        with nogil:
            while chunk != NULL:
                memcpy(self.words + at, chunk.words, self._filled(bucket, chunk) * sizeof(uint64_t))
                at += self._filled(bucket, chunk)
                chunk = chunk.next
            memcpy(self.words + at, self.lines[number], self._in_line(number) * sizeof(uint64_t))
            self._whole(number, self.words, count, self.search.kept)
        return PyMemoryView_FromMemory(<char *>self.search.kept, count * sizeof(BatchEntry), 0x100)

    def repeated(self, int number):
        """Return the entries of a bucket whose digest another one has, by digest, log and position."""
        cdef Bucket *bucket = self._bucket(number)
        cdef RepeatedEntries search = self.search
        cdef Py_ssize_t count = self.sizes[number], again, kept
        if count < 2:
            return b""
        search.begin(count)
        with nogil:
            again = self._mark(bucket, number)
        if not again:
            return b""
        self._room(min(2 * again, count) + 1)  # what is looked at is written first, and counts if it stays
        with nogil:
            kept = self._take(bucket, number)
            search.forget()
            mark_words(self.words, kept, search.seen, search.bits, OTHER_BITS)
            kept = take_words(self.words, kept, search.seen, search.bits, OTHER_BITS, self.words)
        search.room(kept)
        with nogil:
            self._whole(number, self.words, kept, search.kept)
        search.kept_count = kept
        return search.found(0)

    cdef Py_ssize_t _mark(self, const Bucket *bucket, int number) noexcept nogil:
        cdef Chunk *chunk = bucket.first
        cdef Py_ssize_t again = 0
        while chunk != NULL:
            again += mark_words(chunk.words, self._filled(bucket, chunk), self.search.seen, self.search.bits, FIRST_BITS)
            chunk = chunk.next
        return again + mark_words(self.lines[number], self._in_line(number), self.search.seen, self.search.bits, FIRST_BITS)

    cdef Py_ssize_t _take(self, const Bucket *bucket, int number) noexcept nogil:
        cdef const uint8_t *seen = self.search.seen
        cdef int bits = self.search.bits
        cdef Chunk *chunk = bucket.first
        cdef Py_ssize_t kept = 0
        while chunk != NULL:
            kept += take_words(chunk.words, self._filled(bucket, chunk), seen, bits, FIRST_BITS, self.words + kept)
            chunk = chunk.next
        return kept + take_words(self.lines[number], self._in_line(number), seen, bits, FIRST_BITS, self.words + kept)

    def clear(self, bint release=False):
        """Forget all entries; the memory stays, unless it is to be *released*."""
        self.count = self.chunks_used = self.blocks_count = 0
        memset(self.buckets, 0, sizeof(self.buckets))
        memset(self.sizes, 0, sizeof(self.sizes))
        if release:
            self._release()

    cdef void _release(self) noexcept:
        cdef Py_ssize_t i
        for i in range(self.slabs_count):
            free(self.slabs[i])
        for i in range(self.rests_count):
            free(self.rests[i])
        free(self.blocks)
        self.blocks, self.blocks_room = NULL, 0
        self.slabs_count = self.rests_count = 0
