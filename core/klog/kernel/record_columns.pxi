# Records that come from outside: from the columns of Arrow.

cdef enum:
    COLUMN_ROWS = 1024           # so many rows at a time: they stay in the processor's cache while one column after another is read
    OF_NUMBERS, OF_TIMES, OF_FLAGS, OF_TEXTS

cdef struct ArrowTexts:          # an array of binary
    const uint8_t *data
    const int *offsets
    const uint8_t *validity      # a bit an item; NULL: all are there
    Py_ssize_t size, first       # bytes of data; which item is the first

cdef struct InColumn:
    int field, kind, width       # width: bytes of a number; below zero: it has no sign; 0: there are none
    const uint8_t *numbers       # of texts: which of them is that of a row, where there is a dictionary
    const uint8_t *validity
    Py_ssize_t first
    ArrowTexts texts

cdef struct InHeaders:
    const int *lists         # where in the pairs those of a row begin
    const uint8_t *validity
    const uint8_t *pairs_validity
    Py_ssize_t first, pairs_first, pairs
    ArrowTexts keys, values


cdef class RecordColumns(InputRecords):
    """Rows from Arrow arrays: `begin`, say where each column lies, then `next` until it returns False; the buffers are kept as long.

    Columns are named as fields of JSON lines are.  Everywhere *first* is which item of an array is that of the first row, and
    *validity* has a bit an item, or is None: then all are there.
    """

    cdef list kept                           # the buffers that rows point into
    cdef InColumn columns[32]
    cdef InHeaders pairs
    cdef int used                            # columns
    cdef Py_ssize_t total, done
    cdef long long line
    cdef uint8_t *arena                      # headers, as records have them
    cdef Py_ssize_t arena_room

    def __cinit__(self):
        self.kept = []

    def __dealloc__(self):
        free(self.arena)

    def begin(self, Py_ssize_t count, long long first):
        """Begin with *count* rows that have nothing yet; *first*: the number of the first, from 1 on."""
        if count < 0:
            raise ValueError(f"{count} rows")
        self._reserve_rows(COLUMN_ROWS)
        self.kept.clear()
        self.pairs.lists = NULL
        self.count, self.total, self.done, self.used, self.line = 0, count, 0, 0, first

    cdef InColumn *_column(self, bytes name, int kind, int width, const unsigned char[::1] numbers,
                           const unsigned char[::1] validity, Py_ssize_t first) except NULL:
        cdef InColumn *column
        cdef long long room = 8 * numbers.shape[0] if kind == OF_FLAGS else numbers.shape[0] // max(abs(width), 1) if width else first + self.total
        if self.used == 32 or abs(width) not in (0, 1, 2, 4, 8):
            raise ValueError(f"{self.used} columns, {width} bytes")
        self._fits(room, validity, first, self.total)
        column = self.columns + self.used
        column.kind, column.width, column.first, column.field = kind, width, first, field_number(name, <int>len(name))
        column.numbers, column.validity = address(numbers), address(validity)
        self.kept.append((numbers, validity))
        self.used += 1
        return column

    cdef int _fits(self, long long room, const unsigned char[::1] validity, Py_ssize_t first, Py_ssize_t count) except -1:
        if first < 0 or room < first + count or (validity is not None and validity.shape[0] * 8 < first + count):
            raise ValueError("a buffer is too small")
        return 0

    cdef int _texts(self, ArrowTexts *found, tuple texts, Py_ssize_t count) except -1:
        """Take data, offsets, validity and first of *count* texts."""
        cdef const unsigned char[::1] data = texts[0], validity = texts[2]
        cdef const int[::1] offsets = texts[1]
        found.size, found.first = 0 if data is None else data.shape[0], texts[3]
        self._fits(offsets.shape[0] - 1, validity, found.first, count)
        found.data, found.offsets, found.validity = address(data), &offsets[0], address(validity)
        self.kept.append(texts)
        if not in_order(found.offsets + found.first, count, found.size):
            raise ValueError("offsets are not in order")
        return 0

    def numbers(self, bytes name not None, const unsigned char[::1] values not None, int width, const unsigned char[::1] validity: Buffer | None,
                Py_ssize_t first=0):
        """Take a column of whole numbers of *width* bytes; below zero: they have no sign.  A timestamp that is null is -1."""
        if not width:
            raise ValueError("numbers have bytes")
        self._column(name, OF_TIMES if name == b"timestamp" else OF_NUMBERS, width, values, validity, first)

    def flags(self, bytes name not None, const unsigned char[::1] bits not None, const unsigned char[::1] validity: Buffer | None, Py_ssize_t first=0):
        """Take `transactional`, a bit a row."""
        self._column(name, OF_FLAGS, 0, bits, validity, first)

    def texts(self, bytes name not None, tuple texts not None: ArrowTexts):
        """Take a column of binary, by its data, offsets, validity and first; a null key or value is one."""
        cdef InColumn *column = self._column(name, OF_TEXTS, 0, None, texts[2], texts[3])
        self._texts(&column.texts, texts, self.total)

    def coded(self, bytes name not None, tuple texts not None: ArrowTexts, Py_ssize_t count, const unsigned char[::1] codes not None, int width,
              const unsigned char[::1] validity: Buffer | None, Py_ssize_t first):
        """Take a column of binary with a dictionary, the *count* *texts*; *codes*: numbers of *width* bytes."""
        cdef Py_ssize_t i
        cdef InColumn *column = self._column(name, OF_TEXTS, width, codes, validity, first)
        self._texts(&column.texts, texts, count)
        for i in range(first, first + self.total):
            if is_set(column.validity, i) and not 0 <= number_at(column.numbers, width, i) < count:
                raise ValueError("a code is out of range")

    def headers(self, const int[::1] lists not None: memoryview, const unsigned char[::1] validity: Buffer | None, Py_ssize_t first,
                tuple found not None: tuple[Buffer | None, int, int], tuple keys not None: ArrowTexts, tuple values not None: ArrowTexts):
        """Take headers.

        *lists*: where in the pairs those of a row begin.  *found*: of the pairs validity and first, and how many there are.
        *keys*, *values*: of the pairs, as `texts` takes them.
        """
        cdef const unsigned char[::1] pairs_validity = found[0]
        cdef Py_ssize_t pairs_first = found[1], pairs = found[2]
        self._fits(lists.shape[0] - 1, validity, first, self.total)
        self._fits(pairs_first + pairs, pairs_validity, pairs_first, pairs)
        if not in_order(&lists[first], self.total, pairs):
            raise ValueError("offsets are not in order")
        if lists[first] == lists[first + self.total]:
            return
        self._texts(&self.pairs.keys, keys, pairs)
        self._texts(&self.pairs.values, values, pairs)
        self.pairs.lists, self.pairs.validity, self.pairs.first = &lists[0], address(validity), first
        self.pairs.pairs_validity, self.pairs.pairs_first, self.pairs.pairs = address(pairs_validity), pairs_first, pairs
        self.kept.append((lists, validity, pairs_validity))

    def next(self) -> bool:
        """Make rows of the next records, as many as there is room for; False when there is none."""
        cdef int i
        cdef Py_ssize_t k
        self.count = min(COLUMN_ROWS, self.total - self.done)
        with nogil:
            for k in range(self.count):
                clear_record(self.rows + k, self.line + self.done + k)
            for i in range(self.used):
                fill_column(self.columns + i, self.rows, self.done, self.count)
        if self.pairs.lists != NULL:
            self._fill_headers()
        self.done += self.count
        return self.count > 0

    cdef int _fill_headers(self) except -1:
        cdef Py_ssize_t i, used = 0, size
        cdef long long needed = 0
        cdef uint8_t *larger
        for i in range(self.count):
            needed += headers_size(&self.pairs, self.done + i)
        if needed > self.arena_room:
            larger = <uint8_t *>realloc(self.arena, needed)
            if larger == NULL:
                raise MemoryError()
            self.arena, self.arena_room = larger, needed
        for i in range(self.count):
            size = put_row_headers(&self.pairs, self.done + i, self.rows + i, self.arena + used)
            used += size
        return 0

    def place(self, Py_ssize_t i) -> tuple[str, int]:
        """Return the column in which record *i* has its error, empty where it has none, and 0."""
        return field_name(self._row(i).field).decode(), 0


cdef inline const uint8_t *address(const unsigned char[::1] view) except? NULL:
    return NULL if view is None or not view.shape[0] else &view[0]


cdef inline bint is_set(const uint8_t *bits, Py_ssize_t i) noexcept nogil:
    return bits == NULL or (bits[i >> 3] >> (i & 7)) & 1


cdef inline void wrong_value(InRecord *row, int field) noexcept nogil:
    if not row.error:
        row.error, row.field = KLOG_WRONG_TYPE, <int8_t>field


cdef bint in_order(const int *offsets, Py_ssize_t count, long long size) noexcept nogil:
    """Whether *count* items, which end where the next one begins, lie in *size* bytes."""
    cdef Py_ssize_t i
    cdef int bad = offsets[0] < 0 or offsets[count] > size
    for i in range(count):
        bad |= offsets[i] > offsets[i + 1]
    return not bad


cdef inline long long number_at(const uint8_t *p, int width, Py_ssize_t i) noexcept nogil:
    if width == 8:
        return (<const int64_t *>p)[i]
    if width == 4:
        return (<const int32_t *>p)[i]
    if width == -4:
        return (<const uint32_t *>p)[i]
    if width == 2:
        return (<const int16_t *>p)[i]
    if width == -2:
        return (<const uint16_t *>p)[i]
    return p[i] if width == -1 else (<const int8_t *>p)[i]


cdef void fill_column(const InColumn *c, InRecord *rows, Py_ssize_t done, Py_ssize_t count) noexcept nogil:
    """Give *count* rows, the first of which is number *done*, what a column has for them."""
    cdef Py_ssize_t i, first = c.first + done
    if c.kind == OF_TEXTS:
        fill_texts(c, rows, done, count)
    elif c.kind == OF_FLAGS:
        for i in range(count):
            rows[i].transactional = is_set(c.validity, first + i) and is_set(c.numbers, first + i)
    else:
        for i in range(count):
            if c.kind == OF_TIMES and not is_set(c.validity, first + i):
                rows[i].timestamp = -1
            elif is_set(c.validity, first + i) and not take_number_value(rows + i, c.field, number_at(c.numbers, c.width, first + i)):
                wrong_value(rows + i, c.field)


cdef void fill_texts(const InColumn *c, InRecord *rows, Py_ssize_t done, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t i, at, first = c.first + done
    cdef const int *offsets = c.texts.offsets + c.texts.first
    for i in range(count):
        if not is_set(c.validity, first + i):
            if is_content(c.field):
                take_text(rows + i, c.field, NULL, -1)
            continue
        at = number_at(c.numbers, c.width, first + i) if c.width else done + i
        if not take_text(rows + i, c.field, <uint8_t *>c.texts.data + offsets[at], offsets[at + 1] - offsets[at]):
            wrong_value(rows + i, c.field)


cdef long long headers_size(const InHeaders *h, Py_ssize_t row) noexcept nogil:
    """The most bytes that the headers of a row take in a record."""
    cdef Py_ssize_t i = h.first + row
    cdef const int *keys = h.keys.offsets + h.keys.first
    cdef const int *values = h.values.offsets + h.values.first
    cdef int begin = h.lists[i], end = h.lists[i + 1]
    return 10 * <long long>(end - begin) + keys[end] - keys[begin] + values[end] - values[begin]


cdef Py_ssize_t put_row_headers(const InHeaders *h, Py_ssize_t row, InRecord *r, uint8_t *start) noexcept nogil:
    """Write the headers of a row; return their bytes.  A header that is null, or has no key, is wrong."""
    cdef Py_ssize_t i = h.first + row, k
    cdef uint8_t *w = start
    if not is_set(h.validity, i):
        return 0
    if headers_size(h, row) > 0x7FFFFFFF:
        wrong_value(r, KLOG_FIELD_HEADERS)
        return 0
    for k in range(h.lists[i], h.lists[i + 1]):
        if not is_set(h.pairs_validity, h.pairs_first + k) or not is_set(h.keys.validity, h.keys.first + k):
            wrong_value(r, KLOG_FIELD_HEADERS)
            return 0
        w = put_item(put_item(w, &h.keys, k), &h.values, k)
    r.headers, r.headers_count, r.headers_length = start, h.lists[i + 1] - h.lists[i], <int>(w - start)
    return w - start


cdef inline uint8_t *put_item(uint8_t *w, const ArrowTexts *texts, Py_ssize_t i) noexcept nogil:
    """Write the length and the bytes of a header's key or value."""
    cdef const int *offsets = texts.offsets + texts.first
    cdef int n = offsets[i + 1] - offsets[i]
    if not is_set(texts.validity, texts.first + i):
        return put_length(w, -1)
    return put_bytes_or_null(put_length(w, n), texts.data + offsets[i], n)
