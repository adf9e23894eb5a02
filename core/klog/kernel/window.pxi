# The window, which Python holds: bytes, batch rows, record rows and lines, each a class of its own, and columns.


cdef class Window(LineOutput):
    """A stretch of a log in memory, and what was made of it.

    Load bytes into `buffer(n)` and say so with `load`; `scan` appends batch rows; `check` compares checksums; `decompress`
    prepares compressed batches; `begin` and `decode` fill record rows, as many as there is room for, again and again
    until DONE; `lines` and the column methods turn those rows into output.  One thread at a time.
    """

    def __cinit__(self, Py_ssize_t capacity=1 << 20, Py_ssize_t records=8192, Py_ssize_t output=1 << 18):
        import_classes()
        self.data = bytearray(capacity)
        self.payloads = []
        self._reserve_output(max(output, SMALLEST_OUTPUT))
        self._reserve_records(records)
        self._reserve_batches(256)

    # ---- columns: buffers of Arrow arrays in which *first* rows stand already.  The first offset of all is the caller's: 0.

    def numbers(self, int column, int width, unsigned char[::1] out, unsigned char[::1] validity, Py_ssize_t first=0):
        """Write a number of each row (which, the order of COLUMNS tells); return how many are none.

        *width*: bytes of a number; 0: only *validity* is wanted.  *validity*: a bit a row, or None.
        """
        cdef Py_ssize_t rows = first + self.view.records_count, nulls
        if not 0 <= column <= COLUMN_BATCH or width not in (0, 1, 2, 4, 8) or first < 0:
            raise ValueError(f"column {column} in {width} bytes a number behind {first} rows")
        if (width and (out is None or out.shape[0] < width * rows)) or (validity is not None and validity.shape[0] * 8 < rows):
            raise ValueError("a buffer is too small")
        if not self.view.records_count:
            return 0
        with nogil:
            nulls = fill_numbers(&self.view, column, width, &out[0] if width else NULL, &validity[0] if validity is not None else NULL, first)
        return nulls

    def content_sizes(self):
        """Return the bytes of all keys and of all values, how many headers there are, the bytes of their keys and values."""
        cdef Sizes sizes
        measure(&self.view, &sizes)
        return sizes.keys, sizes.values, sizes.headers, sizes.header_keys, sizes.header_values

    def binary(self, bint values, unsigned char[::1] data not None, int[::1] offsets not None, unsigned char[::1] validity not None,
               Py_ssize_t first=0):
        """Copy all keys (or all values) into the buffers of an Arrow binary array; return how many are null."""
        cdef Py_ssize_t nulls = -1, rows = first + self.view.records_count, room = min(data.shape[0], 0x7FFFFFFF)
        self._all_there()
        if first >= 0 and room and offsets.shape[0] > rows and validity.shape[0] * 8 > rows and 0 <= offsets[first] <= room:
            with nogil:
                nulls = fill_binary(&self.view, values, &data[0], room, &offsets[0], &validity[0], first)
        if nulls < 0:
            raise ValueError("a buffer is too small")
        return nulls

    def headers(self, int[::1] lists not None, unsigned char[::1] keys not None, int[::1] key_offsets not None,
                unsigned char[::1] values not None, int[::1] value_offsets not None, unsigned char[::1] validity not None,
                Py_ssize_t first=0, unsigned char[::1] present=None):
        """Copy all headers into the buffers of Arrow arrays; return how many values are null.

        *present*: a bit a row, whether it has headers, or None.
        """
        cdef Py_ssize_t nulls
        cdef Sizes sizes
        measure(&self.view, &sizes)
        if first < 0 or lists.shape[0] <= first + self.view.records_count or lists[first] < 0:
            raise ValueError("a buffer is too small")
        cdef long long count = sizes.headers + lists[first]
        if key_offsets.shape[0] <= count or value_offsets.shape[0] <= count or validity.shape[0] * 8 <= count:
            raise ValueError("a buffer is too small")
        if present is not None and present.shape[0] * 8 <= first + self.view.records_count:
            raise ValueError("a buffer is too small")
        _fits(keys.shape[0], key_offsets[lists[first]], sizes.header_keys)
        _fits(values.shape[0], value_offsets[lists[first]], sizes.header_values)
        with nogil:
            nulls = fill_headers(&self.view, &lists[0], &keys[0], &key_offsets[0], &values[0], &value_offsets[0], &validity[0],
                                 &present[0] if present is not None else NULL, first)
        return nulls


cdef int _fits(Py_ssize_t room, long long used, long long more) except -1:
    if used < 0 or more > room - used or not room or used + more > 0x7FFFFFFF:
        raise ValueError("a buffer is too small")
    return 0
