# What compaction makes of most batches of transactions.  The rest is for Python: klog.commands.compact.cleaned_transactions.

cdef class OpenTransactions:
    """The producers whose data has been seen of a transaction that has not ended, as far as batches have been taken.

    *committed*: with data that counts.  *aborted*: whose transaction will end in ABORT, kept by the caller.  *with_data*: those of
    *aborted* whose data has been seen.  *special*: producers whose markers `take` leaves alone.  *begins*: the first offset of
    the next transaction that has to be moved into *aborted*.
    """

    cdef readonly set committed, with_data, special
    cdef readonly dict aborted
    cdef public long long begins

    def __cinit__(self, dict aborted not None, special=()):
        self.committed, self.with_data, self.special, self.aborted = set(), set(), set(special), aborted
        self.begins = 0x7FFFFFFFFFFFFFFF

    def take(self, Window window not None, Py_ssize_t first, bytearray decisions=None, long long now=-1):
        """Take batches from *first* on; return the first that is for the caller, or `count`.

        Those are: where an aborted transaction begins; all markers but sound COMMITs.  Skipped are aborted data, and markers
        that nothing needs any more: their delete horizon is not above *now* (ms; below zero: they are for the caller).
        *decisions*: where it is noted that a marker's data is gone, as for a Rewriter; None: all markers are skipped.
        """
        cdef Py_ssize_t i
        cdef BatchRow *row
        cdef long long known = -1    # a producer that is in *committed* for certain
        cdef object producer
        window._range(first, window.view.batches_count)
        if decisions is not None and len(decisions) < window.view.batches_count:
            raise ValueError("room for a decision about each batch is wanted")
        for i in range(first, window.view.batches_count):
            row = window.view.batches + i
            if row.magic < 2 or not row.attributes & ATTRIBUTE_TRANSACTIONAL:
                continue
            if row.last_offset >= self.begins:
                return i
            if not row.attributes & ATTRIBUTE_CONTROL:
                if row.producer_id == known and known >= 0:
                    continue
                producer = row.producer_id
                if producer in self.aborted:
                    self.with_data.add(producer)
                    row.state |= SKIPPED
                else:
                    self.committed.add(producer)
                    known = row.producer_id
                continue
            producer = row.producer_id
            if producer in self.special or not commits(window.view.data + row.at, row):
                return i
            if decisions is None:
                self.committed.discard(producer)
                row.state |= SKIPPED
            elif producer in self.committed:
                self.committed.discard(producer)
            elif now < 0:
                return i
            else:
                decisions[i] |= WITHOUT_DATA
                if row.attributes & ATTRIBUTE_DELETE_HORIZON and row.base_timestamp <= now:
                    row.state |= SKIPPED
            known = -1
        return window.view.batches_count


cdef bint commits(const uint8_t *p, const BatchRow *batch) noexcept nogil:
    """Whether a control batch is a plain COMMIT in every respect."""
    cdef RecordRow record
    return is_plain_marker(p, batch, &record) and be16(p + record.key_at + 2) == 1


cdef bint is_plain_marker(const uint8_t *p, const BatchRow *batch, RecordRow *record) noexcept nogil:
    """Whether a control batch, all of which is at *p*, is a plain marker in every respect; then *record* is its record."""
    if batch.attributes & ATTRIBUTE_CODEC or batch.records_count != 1:
        return False
    if decode_record(p + BATCH_BYTES, p + batch.size, p, batch, record) != p + batch.size:
        return False
    return is_end_marker(record, p)
