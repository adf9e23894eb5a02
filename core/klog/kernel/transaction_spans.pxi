# Transactions as the headers of a log's batches tell them, and what their coordinator wrote of them.

cdef struct Span:
    long long producer_id
    long long first_offset
    long long last_offset
    long long records
    long long began              # largest timestamp of the first batch, ms
    long long latest             # … of all batches
    int epoch


cdef class TransactionSpans:
    """The transactions of a partition, as far as its batches have been taken.

    *ended*: of those with a marker the facts as in `open` (first offset −1: no data is known), then the marker: 1 for COMMIT,
    its offset, timestamp, producer epoch and coordinator epoch.  The caller empties it.
    """

    cdef public list ended
    cdef Span *spans
    cdef Py_ssize_t count, room
    cdef dict places             # producer id → where its span is

    def __cinit__(self):
        self.places, self.ended = {}, []

    def __dealloc__(self):
        free(self.spans)

    def take(self, Window window not None, Py_ssize_t first, Py_ssize_t end):
        """Take batches from *first* to *end*; return the first control batch that is no plain marker, or not all there."""
        cdef Py_ssize_t i
        cdef const BatchRow *row
        cdef const uint8_t *p
        cdef RecordRow marker
        cdef Span *span = NULL
        window._range(first, end)
        for i in range(first, end):
            row = window.view.batches + i
            if row.magic < 2 or row.producer_id < 0:
                continue
            if row.attributes & ATTRIBUTE_CONTROL:
                p = window.view.data + row.at
                if row.size > window.view.size - row.at or not is_plain_marker(p, row, &marker):
                    return i
                self.end(row.producer_id, be16(p + marker.key_at + 2), row.base_offset, marker.timestamp, row.producer_epoch,
                         be32(p + marker.value_at + 2))
                span = NULL
                continue
            if not row.attributes & ATTRIBUTE_TRANSACTIONAL:
                continue
            if span == NULL or span.producer_id != row.producer_id:
                span = self._span(row)
            span.last_offset = row.last_offset
            span.records += max(row.records_count, 0)
            span.latest = max(span.latest, row.max_timestamp)
            span.epoch = row.producer_epoch
        return end

    cdef Span *_span(self, const BatchRow *row) except NULL:
        cdef Span *larger
        cdef Py_ssize_t place = self.places.get(row.producer_id, -1)
        if place >= 0:
            return self.spans + place
        if self.count == self.room:
            larger = <Span *>realloc(self.spans, (2 * self.room + 4) * sizeof(Span))
            if larger == NULL:
                raise MemoryError("no memory for open transactions")
            self.spans, self.room = larger, 2 * self.room + 4
        place = self.count
        self.places[row.producer_id] = place
        self.count += 1
        larger = self.spans + place
        larger.producer_id, larger.first_offset, larger.records = row.producer_id, row.base_offset, 0
        larger.began = larger.latest = row.max_timestamp
        return larger

    def end(self, long long producer_id, *marker):
        """Put the transaction of a producer among those that have *ended*, with the facts of its marker."""
        cdef Py_ssize_t place = self.places.pop(producer_id, -1)
        if place < 0:
            self.ended.append((producer_id, -1, -1, -1, 0, -1, -1, *marker))
            return
        self.ended.append((*self._facts(place), *marker))
        self.count -= 1
        if place != self.count:
            self.spans[place] = self.spans[self.count]
            self.places[self.spans[place].producer_id] = place

    @property
    def open(self):
        """Of each: producer id, epoch, first offset, last offset, records, time of its first and of its latest batch."""
        cdef Py_ssize_t i
        return [self._facts(i) for i in range(self.count)]

    cdef tuple _facts(self, Py_ssize_t i):
        cdef Span *span = self.spans + i
        return (span.producer_id, span.epoch, span.first_offset, span.last_offset, span.records, span.began, span.latest)


def transaction_states(Window window not None, int statuses):
    """Return offset, timestamp, key and value of the record rows that are in one of *statuses*: a bit a TransactionStatus.

    The rows are of `__transaction_state`.
    """
    cdef const View *v = &window.view
    cdef const RecordRow *row
    cdef const uint8_t *base
    cdef Py_ssize_t i
    cdef list found = []
    for i in range(v.records_count):
        row = v.records + i
        base = v.bases[row.batch]
        if (row.key_length < 0 or row.value_length < STATE_STATUS + 1 or not 0 <= base[row.value_at + STATE_STATUS] < 16
                or not statuses >> base[row.value_at + STATE_STATUS] & 1 or is_control(v, row)):
            continue
        found.append((row.offset, row.timestamp, (<const char *>base + row.key_at)[:row.key_length],
                      (<const char *>base + row.value_at)[:row.value_length]))
    return found
