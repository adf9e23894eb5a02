# Keys and the partitions that clients put them into: one at a time, or as JSON lines, millions a second.

cdef extern from "partitions.h" nogil:
    ctypedef struct KeyHashes "klog_key_hashes":
        uint32_t murmur2, crc32, fnv1a
    enum:
        RULES "KLOG_RULES"
        KEY_TEXT "KLOG_KEY_TEXT"
        KEY_INT64 "KLOG_KEY_INT64"
    uint32_t murmur2_of "klog_murmur2"(const uint8_t *p, size_t n)
    uint32_t key_check "klog_key_check"(const uint8_t *p, size_t n, uint64_t secret)
    uint32_t fnv1a_of "klog_fnv1a"(const uint8_t *p, size_t n)
    void hash_key "klog_hash_key"(const uint8_t *p, size_t n, KeyHashes *out)
    uint64_t reciprocal_of "klog_reciprocal"(uint32_t n)
    uint32_t remainder_of "klog_remainder"(uint32_t value, uint64_t reciprocal, uint32_t n)
    uint32_t dividend "klog_dividend"(int rule, const KeyHashes *hashes)
    unsigned rules_for "klog_rules_for"(const KeyHashes *hashes, uint32_t partition, uint64_t reciprocal, uint32_t n)
    int64_t read_key_text "klog_read_key"(uint8_t *w, const uint8_t *p, int64_t n, int form)

cdef extern from "string.h" nogil:
    const void *memchr(const void *p, int c, size_t n)

cdef enum:
    MOST_MEMBERS = 16            # partitioners that a line names
    MEMBER_ROOM = 12             # bytes of a partition's number, or of null
    KEY_LINE_ROOM = 64           # bytes of a line's braces and of the name of its key


KEY_FORMS = ("text", "hex", "base64", "int32", "int64")
"""How keys are given as text: the place in this list is the form's number (`partitions.h`)."""


def key_partitions(const unsigned char[::1] key not None, unsigned int partitions) -> tuple[int, ...]:
    """Return the partition of *key* by each rule, in the order of klog.cluster.partitioners.RULES."""
    cdef KeyHashes hashes
    cdef int rule
    cdef const uint8_t *p = &key[0] if key.shape[0] else <const uint8_t *>b""
    if not 0 < partitions <= 0x7FFFFFFF:
        raise ValueError(f"{partitions} partitions")
    hash_key(p, key.shape[0], &hashes)
    return tuple([dividend(rule, &hashes) % partitions for rule in range(RULES)])


def read_key(const unsigned char[::1] text not None, int form) -> bytes | None:
    """Return the key that *text* means; None if it means none.  *form*: a place in KEY_FORMS."""
    cdef bytearray key = bytearray(text.shape[0] + 8)
    cdef const uint8_t *p = &text[0] if text.shape[0] else <const uint8_t *>b""
    cdef int64_t length = read_key_text(<uint8_t *>PyByteArray_AsString(key), p, text.shape[0], form)
    return None if length < 0 else bytes(memoryview(key)[:length])


cdef struct Member:
    const char *name             # `,"java":`
    Py_ssize_t name_length
    int rule                     # -1: always null
    long long of_empty           # the partition of the empty key, -1: none is known


@cython.final
cdef class KeyLines:
    """Makes of each key, a line of text, a JSON line with its partitions.

    *partitions*: how many there are.  *members*: of each partitioner its name as JSON with the colon, the number of its
    rule, and the partition of an empty key, None where that is anybody's guess.  *form*: a place in KEY_FORMS.
    A line ends with LF or CR LF, the last one perhaps with neither.
    """

    cdef uint32_t partitions
    cdef uint64_t reciprocal
    cdef int form
    cdef list names
    cdef Member members[MOST_MEMBERS]
    cdef int count
    cdef bytes closing
    cdef const uint8_t *closing_start        # `,"partitions":7,"partition":{`
    cdef Py_ssize_t closing_length
    cdef bytearray out, key
    cdef uint8_t *out_start
    cdef uint8_t *key_start
    cdef Py_ssize_t used, out_room, key_room
    cdef readonly long long lines            # how many have been made
    cdef readonly bint bad                   # the next line is no key in this form

    def __cinit__(self, unsigned int partitions, list members not None: list[tuple[bytes, int, int | None]], int form, Py_ssize_t room=1 << 20):
        if not 0 < partitions <= 0x7FFFFFFF or len(members) > MOST_MEMBERS or not KEY_TEXT <= form <= KEY_INT64:
            raise ValueError("no such partitions, partitioners or form of keys")
        self.partitions, self.reciprocal = partitions, reciprocal_of(partitions)
        self.form = form
        self.names = [name for name, _, _ in members]
        self.closing = b',"partitions":%d,"partition":{' % partitions
        self.closing_start, self.closing_length = <const uint8_t *>PyBytes_AsString(self.closing), len(self.closing)
        self.count = len(members)
        for i, (name, rule, of_empty) in enumerate(members):
            self.members[i].name, self.members[i].name_length = PyBytes_AsString(name), PyBytes_Size(name)
            self.members[i].rule = rule
            self.members[i].of_empty = -1 if of_empty is None else of_empty
        self._reserve(room, 4096)

    def output(self) -> memoryview:
        """Return the lines that wait; `flushed` makes room again."""
        return memoryview(self.out)[: self.used]

    def flushed(self):
        """Mark the output as taken."""
        self.used = 0

    def take(self, const unsigned char[::1] data not None, Py_ssize_t start, bint last) -> int:
        """Make lines of *data* from *start* on; return where that stopped: at a line that is not whole, is `bad`, or
        has no room any more.  *last*: nothing follows, so that the last line ends with the data.
        """
        cdef Py_ssize_t at = start, size = data.shape[0], end, length, needed = 0
        cdef const uint8_t *p
        cdef const uint8_t *found
        if not 0 <= start <= size:
            raise IndexError(f"from {start} of {size} bytes")
        self.bad = False
        while at < size:
            with nogil:
                p = &data[0]
                while at < size:
                    found = <const uint8_t *>memchr(p + at, 10, size - at)
                    if found == NULL and not last:
                        break
                    end = size if found == NULL else found - p
                    length = end - at
                    if length and p[end - 1] == 13:
                        length -= 1
                    needed = self._line(p + at, length)
                    if needed or self.bad:
                        break
                    at = end + (found != NULL)
            if not needed or self.used:
                break
            self._reserve(needed, length)
        return at

    def put(self, const unsigned char[::1] key not None):
        """Make the line of one key, given in the same form; it may contain line ends."""
        cdef const uint8_t *p = &key[0] if key.shape[0] else <const uint8_t *>b""
        cdef Py_ssize_t needed
        self.bad = False
        needed = self._line(p, key.shape[0])
        if needed:
            self._reserve(self.used + needed, key.shape[0])
            self._line(p, key.shape[0])

    cdef int _reserve(self, Py_ssize_t room, Py_ssize_t length) except -1:
        """Make the buffers large enough; what waits stays."""
        cdef bytearray out
        if room > self.out_room:
            out = bytearray(room)
            memcpy(PyByteArray_AsString(out), self.out_start, self.used)
            self.out, self.out_start, self.out_room = out, <uint8_t *>PyByteArray_AsString(out), room
        if length + 8 > self.key_room:
            self.key = bytearray(length + 8)
            self.key_start, self.key_room = <uint8_t *>PyByteArray_AsString(self.key), length + 8
        return 0

    cdef Py_ssize_t _line(self, const uint8_t *text, Py_ssize_t length) noexcept nogil:
        """Write a line; return 0, or the bytes of room that are missing for it.  Sets `bad`."""
        cdef const uint8_t *p = text
        cdef int64_t n = length
        cdef KeyHashes hashes
        cdef uint8_t *w
        cdef Py_ssize_t room
        if self.form != KEY_TEXT:
            if length + 8 > self.key_room:
                return KEY_LINE_ROOM + 6 * length
            p = self.key_start
            n = read_key_text(self.key_start, text, length, self.form)
            if n < 0:
                self.bad = True
                return 0
        room = self._room(p, n)
        if room > self.out_room - self.used:
            return room
        hash_key(p, n, &hashes)
        w = put_named(put(self.out_start + self.used, b'{"key'), p, <int>n, VALUES_TEXT)
        self.used = self._members(w, &hashes, n == 0) - self.out_start
        self.lines += 1
        return 0

    cdef Py_ssize_t _room(self, const uint8_t *p, int64_t n) noexcept nogil:
        """Bytes that a line takes at most."""
        cdef Py_ssize_t room = KEY_LINE_ROOM + self.closing_length
        cdef int i
        for i in range(self.count):
            room += self.members[i].name_length + MEMBER_ROOM
        return room + (6 * n if n < 4096 else max(json_size(p, n), 2 * n) + 64)

    cdef uint8_t *_members(self, uint8_t *w, const KeyHashes *hashes, bint empty) noexcept nogil:
        """Write what follows the key."""
        cdef int i
        cdef const Member *member
        w = put_bytes(w, self.closing_start, self.closing_length)
        for i in range(self.count):
            member = &self.members[i]
            w = put_bytes(w, <const uint8_t *>member.name, member.name_length)
            if not empty:
                w = decimal(w, remainder_of(dividend(member.rule, hashes), self.reciprocal, self.partitions))
            elif member.of_empty >= 0:
                w = decimal(w, member.of_empty)
            else:
                w = put(w, b"null")
        return put(w, b"}}\n")

