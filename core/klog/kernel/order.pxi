# Whether batches follow one another as those of a log must.

def ascending_run(Window window not None, Py_ssize_t first, Py_ssize_t end, long long last_offset, int epoch, long long ceiling):
    """Return the first batch from *first* to *end* that cannot stand where it does, and the records of those before it.

    A batch can when its offsets begin above *last_offset*, the last one before it, and end at *ceiling* at most, and its
    leader epoch is -1 or not below *epoch*, that of the batch before it.  A message set counts as one record.
    """
    cdef Py_ssize_t i
    cdef long long records = 0
    window._range(first, end)
    if end - first < FEW:
        i = ascending_end(window.view.batches, first, end, last_offset, epoch, ceiling, &records)
    else:
        with nogil:
            i = ascending_end(window.view.batches, first, end, last_offset, epoch, ceiling, &records)
    return i, records


cdef Py_ssize_t ascending_end(const BatchRow *rows, Py_ssize_t i, Py_ssize_t end, long long last_offset, int epoch,
                              long long ceiling, long long *records) noexcept nogil:
    cdef const BatchRow *row
    while i < end:
        row = rows + i
        if row.base_offset <= last_offset or row.last_offset < row.base_offset or row.last_offset > ceiling:
            break
        if row.leader_epoch < epoch and row.leader_epoch != -1:
            break
        last_offset, epoch = row.last_offset, row.leader_epoch
        records[0] += max(row.records_count, 0) if row.magic >= 2 else 1
        i += 1
    return i


def last_batch_end(const unsigned char[::1] data not None):
    """Return where the whole batches at the beginning of *data* end, as the header of the last one says it.

    The offset behind it, and its leader epoch; -1, -1 where there is no whole batch.  Nothing is checked but lengths.
    """
    cdef Py_ssize_t at = 0, left = data.shape[0], size
    cdef long long end = -1
    cdef int epoch = -1
    cdef const uint8_t *p
    while left >= ENTRY_BYTES:
        p = &data[at]
        size = <Py_ssize_t>be32(p + BATCH_SIZE) + OVERHEAD
        if size < OVERHEAD + MIN_SIZE or size > left:
            break
        end, epoch = be64(p + BATCH_BASE_OFFSET), -1
        if p[BATCH_MAGIC] >= 2:
            if size < BATCH_BYTES:
                break
            end = <long long>(<unsigned long long>end + <unsigned long long>be32(p + BATCH_LAST_OFFSET_DELTA))
            epoch = be32(p + BATCH_LEADER_EPOCH)
        end = <long long>(<unsigned long long>end + 1)
        at, left = at + size, left - size
    return end, epoch
