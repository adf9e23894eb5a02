# The lines that are made of a window's rows.

cdef enum:
    SMALLEST_OUTPUT = 4096       # holds any line but those with large keys, values or headers
    JSON_LINES = 0
    CSV_LINES = 1
    TEXT_LINES = 2
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


cdef class LineOutput(RecordRows):
    """Lines of text, JSON or CSV of the rows of a window, in a buffer that is used again once it is `flushed`."""

    cdef bytearray out
    cdef uint8_t *out_start
    cdef Py_ssize_t out_room
    cdef readonly Py_ssize_t out_used        # bytes of output that wait in `output()`

    cdef int _reserve_output(self, Py_ssize_t size) except -1:
        self.out = bytearray(size)
        self.out_start = <uint8_t *>PyByteArray_AsString(self.out)
        self.out_room = size
        return 0

    def output(self):
        """Return the lines that wait; `flushed` makes room again."""
        return memoryview(self.out)[: self.out_used]

    def flushed(self):
        """Mark the output as taken."""
        self.out_used = 0

    def json_lines(self, Py_ssize_t first, bytes origin, int values, Py_ssize_t end=-1):
        """Write rows from *first* (to *end*) as JSON lines; return the first row that found no room any more.

        *values*: how values are shown, a place in VALUES, with BATCH_OFFSETS added for their batches' base offsets.
        """
        return self._lines(first, self._row_end(end), JSON_LINES, origin, values, None)

    def csv_lines(self, Py_ssize_t first, bytes origin, int values, Py_ssize_t end=-1):
        """Write rows from *first* (to *end*) as CSV lines; return the first row that found no room any more."""
        return self._lines(first, self._row_end(end), CSV_LINES, origin, values, None)

    cdef Py_ssize_t _row_end(self, Py_ssize_t end):
        return self.view.records_count if end < 0 else min(end, self.view.records_count)

    def text_lines(self, Py_ssize_t first, Py_ssize_t end, int flags, list contents=None):
        """Write rows from *first* to *end* as Kafka's dump tool does, each batch's line before its first row's.

        *contents*: for each row None, or the bytes that follow its metadata.  Returns the first row that found no room.
        """
        if end > self.view.records_count:
            raise IndexError(f"rows to {end} of {self.view.records_count}")
        return self._lines(first, end, TEXT_LINES, b"", flags, contents)

    cdef Py_ssize_t _lines(self, Py_ssize_t first, Py_ssize_t end, int kind, bytes origin, int option, list contents) except -1:
        cdef LineStyle style
        cdef Py_ssize_t row = first
        cdef long long wanted = 0
        cdef const uint8_t **starts = NULL
        cdef Py_ssize_t *lengths = NULL
        cdef Py_ssize_t count = self.view.records_count
        if first < 0:
            raise IndexError(f"row {first}")
        if kind != TEXT_LINES:
            self._all_there()
        style.origin = <const uint8_t *>PyBytes_AsString(origin)
        style.origin_length = PyBytes_Size(origin)
        set_values(&style, option if kind == TEXT_LINES else option & ~BATCH_OFFSETS, kind != TEXT_LINES and option & BATCH_OFFSETS)
        try:
            if contents is not None:
                starts = <const uint8_t **>calloc(count + 1, sizeof(uint8_t *))
                lengths = <Py_ssize_t *>calloc(count + 1, sizeof(Py_ssize_t))
                self._contents(contents, starts, lengths)
            while row < end:
                with nogil:
                    row = self._write(row, end, kind, &style, starts, lengths, &wanted)
                if row >= end or self.out_used or (kind != TEXT_LINES and self.is_huge(row, origin, option)):
                    break
                self._reserve_output(<Py_ssize_t>wanted)
        finally:
            free(starts)
            free(lengths)
        return row

    cdef int _all_there(self) except -1:
        if self.view.whole and self.overlong_values():
            raise ValueError("a message's value claims more bytes than there are")
        return 0

    cdef int _contents(self, list contents, const uint8_t **starts, Py_ssize_t *lengths) except -1:
        cdef Py_ssize_t i
        if starts == NULL or lengths == NULL:
            raise MemoryError()
        if len(contents) != self.view.records_count:
            raise ValueError(f"{len(contents)} contents for {self.view.records_count} rows")
        for i in range(self.view.records_count):
            if contents[i] is not None:
                starts[i] = <const uint8_t *>PyBytes_AsString(<bytes?>contents[i])
                lengths[i] = PyBytes_Size(contents[i])
        return 0

    cdef Py_ssize_t _write(self, Py_ssize_t row, Py_ssize_t stop, int kind, LineStyle *style, const uint8_t **starts, Py_ssize_t *lengths,
                           long long *wanted) noexcept nogil:
        cdef uint8_t *out = self.out_start
        cdef uint8_t *w = out + self.out_used
        cdef uint8_t *end = out + self.out_room
        cdef const RecordRow *r
        cdef const uint8_t *base
        cdef const uint8_t *content = NULL
        cdef View *v = &self.view
        while row < stop:
            r = v.records + row
            base = v.bases[r.batch]
            if kind == TEXT_LINES:
                content = starts[row] if starts != NULL else NULL
                w = self._batch_lines(w, end, r.batch + 1, style.values & TEXT_LAZY)
                if self.line_batch <= r.batch:
                    break
                wanted[0] = text_room(r, base, style.values if content == NULL else 0)
                if content != NULL:
                    wanted[0] += lengths[row]
            else:
                wanted[0] = line_room(r, base, style)
            if wanted[0] > end - w or (kind != TEXT_LINES and wanted[0] > HUGE and huge_parts(r, base, style)):
                break
            if kind == JSON_LINES:
                w = put_json_record(w, v, r, style)
            elif kind == CSV_LINES:
                w = put_csv_record(w, v, r, style)
            else:
                w = put_text_record(w, v, r, style.values, content, lengths[row] if content != NULL else 0)
                w = put(w, b"\n")
            row += 1
        self.out_used = w - out
        return row

    cdef uint8_t *_batch_lines(self, uint8_t *w, uint8_t *end, Py_ssize_t stop, bint lazy) noexcept nogil:
        """Write the lines of batches up to *stop* that have not been written, as long as there is room before *end*."""
        while self.line_batch < stop and w <= end - BATCH_LINE_ROOM:
            if not self.view.batches[self.line_batch].state & SKIPPED and (not lazy or self.line_batch == stop - 1):
                w = put_batch_line(w, self.view.batches + self.line_batch)
            self.line_batch += 1
        return w

    def is_huge(self, Py_ssize_t i, bytes origin, int values):
        """Whether the JSON or CSV line of row *i* is too large to be made in one piece; then `split_line` makes it."""
        cdef LineStyle style
        cdef const RecordRow *r = self.view.records + i
        if not 0 <= i < self.view.records_count or is_control(&self.view, r):
            return False
        style.origin_length = len(origin)
        set_values(&style, values & ~BATCH_OFFSETS, values & BATCH_OFFSETS)
        return line_room(r, self.view.bases[r.batch], &style) > HUGE and huge_parts(r, self.view.bases[r.batch], &style) != 0

    def split_line(self, Py_ssize_t i, bint csv, bytes origin, int values):
        """Return row *i*'s line in parts: tuples (text, name, content), and the text that ends it.

        The text comes before what is huge: `key` or `value`, its bytes as they stand, or `headers`, how many there are.
        """
        cdef RecordRow *r = self.view.records + i
        cdef RecordRow whole
        cdef LineStyle style
        cdef uint8_t *w
        cdef uint8_t *at
        cdef int huge
        if not 0 <= i < self.view.records_count or self.out_used:
            raise ValueError(f"row {i}, with output of {self.out_used} bytes waiting")
        style.origin = <const uint8_t *>PyBytes_AsString(origin)
        style.origin_length = len(origin)
        set_values(&style, values & ~BATCH_OFFSETS, values & BATCH_OFFSETS)
        whole, huge = r[0], huge_parts(r, self.view.bases[r.batch], &style)
        if huge & HUGE_KEY:
            r.key_length = -1
        if huge & HUGE_VALUE:
            r.value_length = -1
        if huge & HUGE_HEADERS:
            r.headers_count = 0
        try:
            self._reserve_output(max(self.out_room, <Py_ssize_t>line_room(r, self.view.bases[r.batch], &style)))
            w = put_csv_record(self.out_start, &self.view, r, &style) if csv else put_json_record(self.out_start, &self.view, r, &style)
        finally:
            r[0] = whole
        parts, at = [], self.out_start
        if huge & HUGE_KEY:
            parts.append(((<char *>at)[: style.key_at - at], "key", self._bytes(r, r.key_at, r.key_length)))
            at = style.key_at + (2 if csv else len(b',"key":null'))
        if huge & HUGE_VALUE:
            parts.append(((<char *>at)[: style.value_at - at], "value", self._bytes(r, r.value_at, r.value_length)))
            at = style.value_at + (2 if csv else len(b',"value":null'))
        if huge & HUGE_HEADERS:
            parts.append(((<char *>at)[: style.headers_at - at], "headers", r.headers_count))
            at = style.headers_at + (0 if csv else len(b"[]"))
        return parts, (<char *>at)[: w - at]

    cdef object _bytes(self, const RecordRow *r, int at, int length):
        return None if length < 0 else PyMemoryView_FromMemory(<char *>self.view.bases[r.batch] + at, length, 0x100)

    def headers_from(self, Py_ssize_t i, int number, int at, int values):
        """Write row *i*'s headers from *number* on, which begins at byte *at* of them, as they stand in a line's JSON.

        Returns the number and the byte of the first one that finds no room any more.
        """
        cdef const RecordRow *r = self.view.records + i
        cdef RecordRow one
        cdef const uint8_t *base
        cdef const uint8_t *p
        cdef uint8_t *w = self.out_start + self.out_used
        cdef uint8_t *end = self.out_start + self.out_room
        if not 0 <= i < self.view.records_count or not 0 <= number <= r.headers_count:
            raise IndexError(f"header {number} of row {i}")
        with nogil:
            base, one = self.view.bases[r.batch], r[0]
            p = base + r.headers_at + at
            one.headers_count = 1
            while number < r.headers_count:
                one.headers_at = <int>(p - base)
                if headers_room(&one, base) > end - w:
                    break
                w = put(w, b",[") if number else put(w, b"[")
                w = put_header(w, &p, values)
                number += 1
            self.out_used = w - self.out_start
        return number, p - base - r.headers_at

    def header_at(self, Py_ssize_t i, int at):
        """Return key and value of the header that begins at byte *at* of row *i*'s, and where the next one begins."""
        cdef const RecordRow *r = self.view.records + i
        cdef const uint8_t *base
        cdef const uint8_t *p
        cdef int key_length = 0, value_length = 0
        cdef int key_at
        if not 0 <= i < self.view.records_count or at < 0:
            raise IndexError(f"row {i}")
        base = self.view.bases[r.batch]
        p = base + r.headers_at + at
        p = varint(p, p + 5, &key_length)
        key_at = <int>(p - base)
        p = varint(p + key_length, p + key_length + 5, &value_length)
        key = self._bytes(r, key_at, key_length)
        value = self._bytes(r, <int>(p - base), value_length)
        return key, value, p - base - r.headers_at + max(value_length, 0)

    def batch_lines(self, Py_ssize_t stop, int flags=0):
        """Write the text lines of the batches before *stop* that have none yet; True when all are written."""
        cdef uint8_t *w
        if stop > self.view.batches_count:
            raise IndexError(f"batch {stop} of {self.view.batches_count}")
        if flags & TEXT_LAZY:
            self.line_batch = max(self.line_batch, stop)
            return True
        with nogil:
            w = self._batch_lines(self.out_start + self.out_used, self.out_start + self.out_room, stop, False)
            self.out_used = w - self.out_start
        return self.line_batch >= stop

    def batch_head(self, Py_ssize_t i):
        """Return the part of batch *i*'s text line that Kafka's tool writes first (bytes)."""
        cdef uint8_t line[BATCH_LINE_ROOM]
        self._range(i, i + 1)
        self.line_batch = i + 1
        return (<char *>line)[: put_batch_head(line, self.view.batches + i) - line]

    def batch_rows(self, Py_ssize_t first, Py_ssize_t end, bint csv, bytes origin):
        """Write batches *first* to *end* as JSON (or CSV) lines; return the first that found no room any more."""
        cdef LineStyle style
        cdef uint8_t *w
        cdef uint8_t *stop
        self._range(first, end)
        style.origin = <const uint8_t *>PyBytes_AsString(origin)
        style.origin_length = PyBytes_Size(origin)
        with nogil:
            w = self.out_start + self.out_used
            stop = self.out_start + self.out_room
            while first < end and stop - w >= LINE_ROOM + style.origin_length:
                if not self.view.batches[first].state & SKIPPED:
                    w = put_csv_batch(w, self.view.batches + first, &style) if csv else put_json_batch(w, self.view.batches + first, &style)
                first += 1
            self.out_used = w - self.out_start
        return first
