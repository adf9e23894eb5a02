# Batches that become those of another log.


def stamp(Window window not None, Py_ssize_t first, Py_ssize_t end, long long next_offset, int leader_epoch, long long shift):
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


def drop_producers(Window window not None):
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
