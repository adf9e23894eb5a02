# Records that come from outside: from JSON lines and CSV lines.

cdef extern from "input_lines.h" nogil:
    cdef enum:
        KLOG_BAD_SYNTAX
        KLOG_WRONG_TYPE
        KLOG_BAD_UTF8
        KLOG_WRONG_COLUMNS
        KLOG_UNDECIDED
        KLOG_NO_CONTROL
        KLOG_FIELD_HEADERS
    int64_t KLOG_MISSING
    ctypedef struct InRecord "klog_record":
        int64_t line, offset, timestamp, producer_id, position, batch
        uint8_t *key
        uint8_t *value
        uint8_t *headers
        uint8_t *topic
        uint8_t *stopped
        int32_t key_length, value_length, headers_length, headers_count, topic_length
        int32_t partition, leader_epoch, producer_epoch, sequence, coordinator_epoch
        int32_t error
        uint8_t transactional, append_time, control
        int8_t field
    void clear_record "klog_record_clear"(InRecord *r, int64_t line)
    enum:
        KLOG_GAPS
    ctypedef struct Gap "klog_gap":
        pass
    int field_number "klog_field"(const uint8_t *name, int32_t n)
    int take_number_value "klog_take_value"(InRecord *r, int field, int64_t value)
    int take_text "klog_take_text"(InRecord *r, int field, uint8_t *p, int32_t n)
    bint is_content "klog_is_content"(int field)
    const char *field_name "klog_field_name"(int field)
    void json_record "klog_json_record"(InRecord *r, uint8_t *p, const uint8_t *end, Gap *gaps)
    uint8_t *csv_line_end "klog_csv_line_end"(uint8_t *p, const uint8_t *end)
    uint8_t *csv_record "klog_csv_record"(InRecord *r, uint8_t *p, const uint8_t *end, const int8_t *fields, int columns)
    int length_bytes "klog_length_bytes"(int32_t length)
    uint8_t *put_length "klog_put_length"(uint8_t *w, int32_t length)

cdef extern from "string.h" nogil:
    uint8_t *find_byte "memchr"(const uint8_t *p, int c, size_t n)

cdef inline long long count_byte(const uint8_t *p, const uint8_t *end, uint8_t wanted) noexcept nogil:
    cdef long long n = 0
    while p < end:
        n += p[0] == wanted
        p += 1
    return n

cdef enum:
    INPUT_ROWS = 1024            # as many lines as stay in the processor's cache
    INPUT_SLACK = 64             # bytes behind the last line, which a look at a word may reach
    MOST_COLUMNS = 256

RECORD_ERRORS = ("", "syntax", "type", "base64", "utf-8", "damage", "columns", "undecided")


cdef class InputRecords:
    """Records that came from somewhere, a row each; `BatchRouter` takes them in.  Their bytes are those of the source."""

    cdef InRecord *rows
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t room

    def __dealloc__(self):
        free(self.rows)

    cdef int _reserve_rows(self, Py_ssize_t count) except -1:
        cdef InRecord *larger
        if count > self.room:
            larger = <InRecord *>realloc(self.rows, count * sizeof(InRecord))
            if larger == NULL:
                raise MemoryError()
            self.rows, self.room = larger, count
        return 0

    def line(self, Py_ssize_t i) -> int:
        """Return the number of the line, or of the row, from 1 on, that record *i* came from."""
        return self._row(i).line

    def topic(self, Py_ssize_t i) -> bytes | None:
        """Return the topic that record *i* names, in bytes; None when it names none."""
        cdef InRecord *row = self._row(i)
        return None if row.topic_length < 0 else (<const char *>row.topic)[:row.topic_length]

    def error(self, Py_ssize_t i) -> str:
        """Return what is wrong with the text of record *i*, one of RECORD_ERRORS; empty when nothing is."""
        return RECORD_ERRORS[self._row(i).error]

    def place(self, Py_ssize_t i) -> tuple[str, int]:
        """Return the field in which record *i* has its error, and where in its line, from 1 on: empty and 0 where that is not known."""
        cdef InRecord *row = self._row(i)
        return field_name(row.field).decode(), row.position if row.error else 0

    def partition(self, Py_ssize_t i) -> int | None:
        """Return the partition that record *i* names; None when it names none."""
        cdef int partition = self._row(i).partition
        return None if partition < 0 else partition

    def producer(self, Py_ssize_t i) -> tuple[int, int, bool, int | None]:
        """Return producer id and epoch of record *i*, whether it belongs to a transaction, and of a marker its type, else None."""
        cdef InRecord *row = self._row(i)
        control = None if row.control == KLOG_NO_CONTROL else row.control
        return row.producer_id, max(row.producer_epoch, 0), bool(row.transactional), control

    cdef InRecord *_row(self, Py_ssize_t i) except NULL:
        if not 0 <= i < self.count:
            raise IndexError(f"record {i} of {self.count}")
        return self.rows + i


cdef class RecordLines(InputRecords):
    """Reads records from lines: read into `buffer()`, say how much with `loaded`, then `parse` until it returns False.

    *columns*: of CSV, by their names; None: JSON lines.  The rest of an unfinished line is put before the next bytes.
    """

    cdef bytearray data
    cdef Py_ssize_t used, at                 # bytes of the buffer that are there; that are parsed
    cdef readonly long long lines            # that were parsed
    cdef bint is_csv, is_utf8
    cdef int columns
    cdef int8_t fields[MOST_COLUMNS]         # the fields that columns are
    cdef Gap gaps[KLOG_GAPS]                 # what stood before the values of the line before, in JSON

    def __init__(self, columns: Sequence[bytes] | None=None, Py_ssize_t capacity=1 << 18, long long lines=0):
        cdef Py_ssize_t i
        self.data, self.lines = bytearray(capacity + INPUT_SLACK), lines
        self._reserve_rows(INPUT_ROWS)
        memset(self.fields, -1, sizeof(self.fields))
        if columns is None:
            return
        if len(columns) > MOST_COLUMNS:
            raise ValueError(f"{len(columns)} columns")
        self.is_csv, self.columns = True, len(columns)
        for i, name in enumerate(columns):
            self.fields[i] = field_number(name, len(name)) if name else -1

    def buffer(self) -> memoryview:
        """Return where the next bytes go; the records of the bytes before are gone.  It grows while a line is not whole."""
        cdef Py_ssize_t left = self.used - self.at
        cdef uint8_t *start = <uint8_t *>PyByteArray_AsString(self.data)
        self.count = 0
        if self.at:
            memmove(start, start + self.at, left)
        elif left and left > len(self.data) // 2:
            self.data = self.data + bytearray(len(self.data))
        self.used, self.at = left, 0
        return memoryview(self.data)[left : len(self.data) - INPUT_SLACK]

    @property
    def unfinished(self) -> int:
        """Bytes of a line whose end has not been read."""
        return self.used - self.at

    def loaded(self, Py_ssize_t size):
        """Mark *size* bytes as read into the buffer; 0: the input has ended, and so has its last line."""
        cdef uint8_t *start
        if not 0 <= size <= len(self.data) - INPUT_SLACK - self.used:
            raise ValueError(f"{size} bytes in a smaller buffer")
        start = <uint8_t *>PyByteArray_AsString(self.data)
        self.used += size
        if not size and self.used > self.at:
            start[self.used] = 10
            self.used += 1
        memset(start + self.used, 0, INPUT_SLACK if size else INPUT_SLACK - 1)
        # A letter that continues beyond the present bytes is undecided here: each line is then checked.
        self.is_utf8 = utf8_valid(start + self.at, start + self.used)

    def parse(self) -> bool:
        """Make rows of the lines that are whole, as many as there is room for; False when there is no such line."""
        cdef uint8_t *start = <uint8_t *>PyByteArray_AsString(self.data)
        with nogil:
            self._parse(start)
        return self.count > 0

    cdef void _parse(self, uint8_t *start) noexcept nogil:
        cdef uint8_t *p = start + self.at
        cdef uint8_t *end = start + self.used
        cdef uint8_t *line_end
        cdef InRecord *row
        cdef long long within
        self.count = 0
        while self.count < self.room:
            line_end = csv_line_end(p, end) if self.is_csv else (find_byte(p, 10, end - p) if p < end else NULL)
            if line_end == NULL:
                break
            self.lines += 1
            within = count_byte(p, line_end, 10) if self.is_csv else 0  # counted before the line is decoded in place
            if self.lines == 1 and not self.is_csv and line_end - p >= 3 and p[0] == 0xEF and p[1] == 0xBB and p[2] == 0xBF:
                p += 3  # a byte order mark
            if line_end > p and not (line_end == p + 1 and p[0] == 13):
                row = self.rows + self.count
                clear_record(row, self.lines)
                if not self.is_utf8 and not utf8_valid(p, line_end):
                    row.error, row.stopped = KLOG_BAD_UTF8, p
                elif self.is_csv:
                    csv_record(row, p, line_end + 1, self.fields, self.columns)
                else:
                    json_record(row, p, line_end + 1, self.gaps)
                if row.error:
                    row.position = row.stopped - p + 1
                self.count += 1
            self.lines += within
            p = line_end + 1
        self.at = p - start
