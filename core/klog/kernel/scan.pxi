# From bytes to batch rows: the walk from header to header, and the checksums.

cdef int scan_entries(View *v, Py_ssize_t *at, Py_ssize_t end, Py_ssize_t room, bint lenient, Py_ssize_t beyond, bint check) noexcept nogil:
    """Append a row for each entry from *at* on that lies before *end* whole; *at* is where it stopped.

    Stops as a broker does: with 17 bytes or less left, or an entry that goes on beyond the end (MORE), or a size that
    no entry can have.  Kafka: FileLogInputStream.nextBatch.  With *beyond*, so many bytes of the file follow the
    window, and the body of the last entry may reach into them: its row is there, but is left out of all that reads it.
    With *check* each checksum is computed while the entry is in the processor's nearest cache.
    """
    cdef const uint8_t *p = v.data + at[0]
    cdef const uint8_t *stop = v.data + end
    cdef BatchRow *row = v.batches + v.batches_count
    cdef Py_ssize_t count = v.batches_count
    cdef int status = MORE
    cdef bint has_producers = v.has_producers, is_good = v.good_count == count
    while count < room:
        if stop - p <= ENTRY_BYTES:
            status = DONE if p >= stop else MORE
            break
        status = unfit(p, stop - p + beyond, lenient)
        if status != DONE:
            break
        status = MORE
        if stop - p < BATCH_BYTES and stop - p < smallest_entry(p[ENTRY_MAGIC]) and be32(p + ENTRY_SIZE) > stop - p - OVERHEAD:
            break  # not even its header is all there
        row.at = <int>(p - v.data)
        row.position = v.position + row.at
        row.size = be32(p + ENTRY_SIZE) + OVERHEAD
        row.magic = p[ENTRY_MAGIC]
        row.state = SKIPPED if row.size > stop - p else 0
        row.computed_crc = 0
        if row.magic >= 2:
            read_batch(p, row)
            has_producers |= row.producer_id >= 0
        else:
            read_message(p, row)
        v.bases[count] = p
        v.lengths[count] = row.size
        if check:
            check_entry(v, row)
            is_good = is_good and row.state & (CHECKED | HOLDS) != CHECKED
            v.good_count += is_good
        elif row.size < 4096:
            prefetch(p + 1536)
        p += row.size
        count += 1
        row += 1
    at[0] = p - v.data
    v.batches_count, v.has_producers = count, has_producers
    return status


cdef Py_ssize_t first_reaching(const View *v, Py_ssize_t i, long long offset) noexcept nogil:
    """Return the first row from *i* on whose last offset is *offset* or more."""
    while i < v.batches_count and v.batches[i].last_offset < offset:
        i += 1
    return i


cdef Py_ssize_t first_as_late(const View *v, Py_ssize_t i, long long timestamp) noexcept nogil:
    """Return the first row from *i* on whose largest timestamp is *timestamp* or more."""
    while i < v.batches_count and v.batches[i].max_timestamp < timestamp:
        i += 1
    return i


cdef Py_ssize_t row_at(const View *v, Py_ssize_t at) noexcept nogil:
    """Return the row of the entry that begins at byte *at* of the window, -1 if none does."""
    cdef Py_ssize_t low = 0, high = v.batches_count, middle
    while low < high:
        middle = (low + high) // 2
        if v.batches[middle].at < at:
            low = middle + 1
        else:
            high = middle
    return low if low < v.batches_count and v.batches[low].at == at else -1


cdef inline uint32_t entry_crc(const uint8_t *p, int magic, int size) noexcept nogil:
    if magic >= 2:
        return klog_crc32c(0, p + BATCH_CRC_START, size - BATCH_CRC_START)
    return klog_crc32(0, p + MESSAGE_CRC_START, size - MESSAGE_CRC_START)


cdef inline void check_entry(const View *v, BatchRow *row) noexcept nogil:
    """Compute the checksum of a batch, if that is wanted and has not been done."""
    if row.state & (SKIPPED | CHECKED):
        return
    row.state |= CHECKED
    if row.magic >= 2 and row.size < BATCH_BYTES:  # lenient: too small to have a checksum at all
        return
    row.computed_crc = entry_crc(v.data + row.at, row.magic, row.size)
    if row.computed_crc == row.crc:
        row.state |= HOLDS


cdef Py_ssize_t check_entries(View *v, Py_ssize_t first, Py_ssize_t end) noexcept nogil:
    """Compute the checksums of batches *first* to *end* that are wanted; return how many do not hold."""
    cdef Py_ssize_t i, bad = 0
    for i in range(first, end):
        check_entry(v, v.batches + i)
        bad += v.batches[i].state & (SKIPPED | CHECKED | HOLDS) == CHECKED
    return bad


cdef enum:
    DIRECT_BYTES = 4096


cdef bint plausible(const uint8_t *p, Py_ssize_t left, long long floor, long long ceiling) noexcept nogil:
    """Whether the *left* bytes at *p* may well begin with an entry whose offset lies between *floor* and *ceiling*."""
    cdef int size, delta, count
    cdef long long offset
    if left <= ENTRY_BYTES or p[ENTRY_MAGIC] > 2:
        return False
    size = be32(p + ENTRY_SIZE)
    if size < smallest_entry(p[ENTRY_MAGIC]) - OVERHEAD:
        return False
    offset = be64(p)
    if offset < floor or offset > ceiling:
        return False
    if left < smallest_entry(p[ENTRY_MAGIC]):
        return False
    if p[ENTRY_MAGIC] < 2:
        return not p[MESSAGE_V0_ATTRIBUTES] & 0xF0 and p[MESSAGE_V0_ATTRIBUTES] & ATTRIBUTE_CODEC <= 3
    delta = be32(p + BATCH_LAST_OFFSET_DELTA)
    count = be32(p + BATCH_RECORDS_COUNT)
    return (not be16(p + BATCH_ATTRIBUTES) & ~0x7F and p[BATCH_ATTRIBUTES + 1] & ATTRIBUTE_CODEC <= 4
            and delta >= 0 and 0 <= count <= <long long>delta + 1
            and be64(p + BATCH_PRODUCER_ID) >= -1 and be16(p + BATCH_PRODUCER_EPOCH) >= -1)


cdef int find_entry(const uint8_t *data, Py_ssize_t *at, Py_ssize_t end, Py_ssize_t readable, long long floor, long long ceiling) noexcept nogil:
    """Search on from *at* for an entry whose header makes sense and whose checksum holds.

    DONE: *at* is one.  MORE: *at* may be one, but it is large, or goes on beyond *end* (though not beyond *readable*, the
    bytes that there are in all).  BAD_LENGTH: none begins before *at*, which is as near to *end* as one can look.
    """
    cdef const uint8_t *p
    cdef int size
    while end - at[0] >= BATCH_BYTES or (end == readable and end - at[0] > ENTRY_BYTES):
        p = data + at[0]
        # sixteen zeros from the size on: no entry begins before the last of them could be part of a size
        if end - at[0] >= 24 and be64(p + 8) == 0 and be64(p + 16) == 0:
            at[0] += 12
            continue
        if plausible(p, end - at[0], floor, ceiling):
            size = be32(p + ENTRY_SIZE)
            # of large ones there could be one at every byte of a hostile file: these are for a caller that counts them
            if size <= DIRECT_BYTES and size <= end - at[0] - OVERHEAD:
                if entry_crc(p, p[ENTRY_MAGIC], size + OVERHEAD) == <uint32_t>be32(p + (BATCH_CRC if p[ENTRY_MAGIC] == 2 else MESSAGE_V0_CRC)):
                    return DONE
            elif size <= readable - at[0] - OVERHEAD:
                return MORE
        at[0] += 1
    return BAD_LENGTH
