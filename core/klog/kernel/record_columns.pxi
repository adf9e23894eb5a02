# Records that come from outside: from the columns of Arrow.


cdef class RecordColumns(InputRecords):
    """Rows from Arrow arrays, column by column, between `begin` and the next `begin`; the arrays' buffers must stay as long.

    *count*: of the rows; *first*: the number of the first, from 1 on.  Columns are named as fields of JSON lines are.
    """

    cdef list kept                           # the buffers that rows point into
    cdef bytearray arena                     # headers, as records have them

    def begin(self, Py_ssize_t count, long long first):
        """Begin with *count* rows that have nothing yet."""
        cdef Py_ssize_t i
        self._reserve_rows(count)
        self.count, self.kept = count, []
        for i in range(count):
            clear_record(self.rows + i, first + i)

    cdef int _checked(self, Py_ssize_t room, const unsigned char[::1] validity, Py_ssize_t first) except -1:
        if first < 0 or room < first + self.count or (validity is not None and validity.shape[0] * 8 < first + self.count):
            raise ValueError("a buffer is too small")
        return 0

    def numbers(self, bytes name not None, const long long[::1] values not None, const unsigned char[::1] validity, Py_ssize_t first=0):
        """Take a column of int64; *first*: which of its items is that of the first row; *validity*: a bit each, or None.

        A null timestamp is that of a record without one, as it is dumped.
        """
        cdef Py_ssize_t i
        cdef int field = field_number(name, len(name))
        self._checked(values.shape[0], validity, first)
        for i in range(self.count):
            if validity is None or is_set(validity, first + i):
                if not take_number_value(self.rows + i, field, values[first + i]):
                    wrong_value(self.rows + i, field)
            elif name == b"timestamp":
                self.rows[i].timestamp = -1

    def texts(self, bytes name not None, const unsigned char[::1] data not None, const int[::1] offsets not None,
              const unsigned char[::1] validity, Py_ssize_t first=0):
        """Take a column of binary; a null key or value is one."""
        cdef Py_ssize_t i
        cdef int start, end
        cdef int field = field_number(name, len(name))
        cdef uint8_t *p = <uint8_t *>&data[0] if data.shape[0] else <uint8_t *>b""
        self._checked(offsets.shape[0] - 1, validity, first)
        self.kept.append((data, offsets))
        for i in range(self.count):
            start, end = offsets[first + i], offsets[first + i + 1]
            if not 0 <= start <= end <= data.shape[0]:
                raise ValueError("offsets are not in order")
            if validity is not None and not is_set(validity, first + i):
                if is_content(field):
                    take_text(self.rows + i, field, p, -1)
            elif not take_text(self.rows + i, field, p + start, end - start):
                wrong_value(self.rows + i, field)

    def flags(self, const unsigned char[::1] values not None):
        """Take `transactional`: a byte for each row."""
        cdef Py_ssize_t i
        self._checked(values.shape[0], None, 0)
        for i in range(self.count):
            self.rows[i].transactional = values[i]

    def headers(self, const int[::1] lists not None, list keys not None, list values not None):
        """Take headers: which of *keys* and *values*, bytes and bytes or None, each row has, by the offsets in *lists*."""
        cdef Py_ssize_t i, k, used = 0
        cdef uint8_t *start
        cdef uint8_t *w
        self._checked(lists.shape[0] - 1, None, 0)
        self.arena = bytearray(sum(map(len, keys)) + sum([len(value) for value in values if value is not None]) + 10 * len(keys) + 1)
        start = <uint8_t *>PyByteArray_AS_STRING(self.arena)
        for i in range(self.count):
            if not 0 <= lists[i] <= lists[i + 1] <= len(keys):
                raise ValueError("offsets are not in order")
            w = start + used
            for k in range(lists[i], lists[i + 1]):
                w = put_object(put_object(w, keys[k]), values[k])
            self.rows[i].headers, self.rows[i].headers_count = start + used, lists[i + 1] - lists[i]
            self.rows[i].headers_length = <int>(w - start - used)
            used = w - start


cdef inline bint is_set(const unsigned char[::1] bits, Py_ssize_t i) noexcept:
    return (bits[i >> 3] >> (i & 7)) & 1


cdef void wrong_value(InRecord *row, int field) noexcept:
    row.error, row.position, row.field = KLOG_WRONG_TYPE, 0, <int8_t>field


cdef uint8_t *put_object(uint8_t *w, object value) except NULL:
    """Write the length and the bytes of a header's key or value."""
    if value is None:
        return put_length(w, -1)
    w = put_length(w, <int>len(value))
    memcpy(w, PyBytes_AS_STRING(value), len(value))
    return w + len(value)
