# The bytes of a window, and what can be said of them before there are rows.

cdef enum:
    SMALL = 65536                # bytes of work for which giving up the interpreter's lock costs more than it brings: another thread
                                 # may take it for a thousand times as long
    FEW = 256                    # … and rows


cdef class WindowBuffer:
    """A stretch of a file in memory.  `load` ends all rows that were made of the bytes before."""

    cdef View view
    cdef bytearray data
    cdef const unsigned char[::1] lent       # the content, where it is not in `data`
    cdef list payloads
    cdef readonly Py_ssize_t next_at         # where the scan stopped: bytes from the start of the window
    cdef Py_ssize_t line_batch               # first batch whose text line has not been written

    def buffer(self, Py_ssize_t size):
        """Return at least *size* writable bytes for the content of the window.  Earlier rows are gone."""
        self._forget()
        if size > len(self.data):
            self.data = bytearray(size)
        return memoryview(self.data)

    def load(self, long long position, Py_ssize_t size):
        """Mark the first *size* bytes of the buffer as those of the file from *position* on."""
        if not 0 <= size <= len(self.data) or size > 2147483647:
            raise ValueError(f"a window of {size} bytes in a buffer of {len(self.data)}")
        self._forget()
        self.view.data = <const uint8_t *>PyByteArray_AsString(self.data)
        self.view.position = position
        self.view.size = size

    def lend(self, const unsigned char[::1] content not None):
        """Have *content*, which stays where it is, as that of a file from position 0 on: until the next `buffer` or `load`."""
        if content.shape[0] > 2147483647:
            raise ValueError(f"a window of {content.shape[0]} bytes")
        self._forget()
        if content.shape[0]:
            self.lent = content
            self.view.data = &content[0]
        self.view.position = 0
        self.view.size = content.shape[0]

    cdef _forget(self):
        self.view.batches_count = self.view.records_count = self.view.good_count = 0
        self.view.has_producers = False
        self.view.batch = self.view.batch_end = 0
        self.view.size = 0
        self.lent = None
        self.next_at = 0
        self.line_batch = 0
        self.payloads.clear()

    @property
    def position(self):
        """Bytes from the start of the file to the start of the window."""
        return self.view.position

    @property
    def size(self):
        """Bytes in the window."""
        return self.view.size

    def copy(self, Py_ssize_t start, Py_ssize_t end):
        """Return a copy of the window's bytes from *start* to *end*."""
        if not 0 <= start <= end <= self.view.size:
            raise IndexError(f"bytes {start} to {end} of a window of {self.view.size}")
        return bytes(self.content()[start:end])

    def content(self):
        """Return the window's bytes; they count until the next `buffer`."""
        return memoryview(self.data if self.lent is None else self.lent)[:self.view.size]

    def find(self, Py_ssize_t start, Py_ssize_t readable, long long floor, long long ceiling):
        """Search from *start* on for an intact entry with an offset from *floor* to *ceiling*.

        *readable*: bytes from the start of the window to the end of the log.  Returns (status, where): DONE, there is
        one; MORE, there may be one but it goes on beyond the window; BAD_LENGTH, there is none before that.
        """
        cdef Py_ssize_t at = start
        cdef int status
        cdef Py_ssize_t stop = min(self.view.size, readable)
        if not 0 <= start <= stop:
            raise IndexError(f"search from {start} in a window of {self.view.size}")
        with nogil:
            status = find_entry(self.view.data, &at, stop, readable, floor, ceiling)
        return status, at

    def entry_holds(self, Py_ssize_t at):
        """Whether a whole entry begins at byte *at* of the window, and its checksum holds."""
        cdef const uint8_t *p = self.view.data + at
        cdef uint32_t stored
        if not 0 <= at <= self.view.size or self.view.size - at <= ENTRY_BYTES or unfit(p, self.view.size - at, False) != DONE:
            return False
        stored = <uint32_t>be32(p + (BATCH_CRC if p[ENTRY_MAGIC] == 2 else MESSAGE_V0_CRC))
        return entry_crc(p, p[ENTRY_MAGIC], be32(p + ENTRY_SIZE) + OVERHEAD) == stored

    def zeros(self, Py_ssize_t start):
        """Whether all bytes from *start* to the end of the window are zero."""
        cdef Py_ssize_t at = start
        with nogil:
            while at < self.view.size and self.view.data[at] == 0:
                at += 1
        return at >= self.view.size
