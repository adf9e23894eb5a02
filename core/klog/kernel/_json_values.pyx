# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False, binding=False, annotation_typing=False
"""Values that schemas name: which rows have them, and the check that a value is JSON.

`json_values` may be stricter than JSON, never more lenient: a value that it does not take is for Python's own reader.
"""

from libc.stdint cimport uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp

from klog.kernel._window cimport RecordRow, Window, is_control
from klog.kernel.chars cimport json_plain, put_bytes, utf8_valid
from klog.kernel.python cimport PyBytes_AsString, PyBytes_FromStringAndSize, PyBytes_Size

cdef extern from "string.h" nogil:
    uint8_t *find_byte "memchr"(const uint8_t *p, int c, size_t n)

cdef enum:
    FRAMING_BYTES = 5            # a zero byte and the id of a schema
    LAST_MAGIC = 1               # higher first bytes are those of no framing
    MOST_NESTED = 256
    LARGE = 1 << 20              # values of more bytes are decoded one at a time

cdef struct JsonText:
    const uint8_t *p             # where the check is
    const uint8_t *end
    const uint8_t *kept          # from here on the text has not been copied
    uint8_t *w


cdef inline uint8_t next_byte(JsonText *t) noexcept nogil:
    """The next byte, blanks aside, which are left out of the copy; 0 at the end."""
    if t.p < t.end and t.p[0] <= b" ":
        t.w = put_bytes(t.w, t.kept, t.p - t.kept)
        while t.p < t.end and (t.p[0] == b" " or t.p[0] == b"\n" or t.p[0] == b"\r" or t.p[0] == b"\t"):
            t.p += 1
        t.kept = t.p
    return t.p[0] if t.p < t.end else 0


cdef inline bint take(JsonText *t, uint8_t wanted) noexcept nogil:
    if next_byte(t) != wanted:
        return False
    t.p += 1
    return True


cdef inline bint is_digit(uint8_t c) noexcept nogil:
    return b"0" <= c <= b"9"


cdef inline bint take_string(JsonText *t) noexcept nogil:
    """Move behind a string; False if there is none."""
    cdef const uint8_t *p
    if not take(t, b'"'):
        return False
    p = json_plain(t.p, t.end)
    while p < t.end and p[0] == b"\\":
        p = escape_end(p + 1, t.end)
        if p == NULL:
            return False
        p = json_plain(p, t.end)
    t.p = p + 1
    return p < t.end and p[0] == b'"'


cdef const uint8_t *escape_end(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """The end of what follows a backslash at *p*, NULL if nothing of that kind may."""
    cdef int i
    if p == end or find_byte(<const uint8_t *>b'"\\/bfnrtu', p[0], 9) == NULL:
        return NULL
    if p[0] != b"u":
        return p + 1
    if end - p < 5:
        return NULL
    for i in range(1, 5):
        if not (is_digit(p[i]) or b"a" <= p[i] | 0x20 <= b"f"):
            return NULL
    return p + 5


cdef inline bint take_digits(JsonText *t) noexcept nogil:
    cdef const uint8_t *p = t.p
    while p < t.end and is_digit(p[0]):
        p += 1
    t.p, p = p, t.p
    return t.p > p


cdef inline bint take_number(JsonText *t) noexcept nogil:
    t.p += t.p < t.end and t.p[0] == b"-"
    if t.p < t.end and t.p[0] == b"0":
        t.p += 1
    elif not take_digits(t):
        return False
    if t.p < t.end and t.p[0] == b".":
        t.p += 1
        if not take_digits(t):
            return False
    if t.p < t.end and t.p[0] | 0x20 == b"e":
        t.p += 1
        t.p += t.p < t.end and (t.p[0] == b"+" or t.p[0] == b"-")
        return take_digits(t)
    return True


cdef inline bint take_word(JsonText *t, const char *word, Py_ssize_t length) noexcept nogil:
    if t.end - t.p < length or memcmp(t.p, word, length) != 0:
        return False
    t.p += length
    return True


cdef inline bint take_scalar(JsonText *t) noexcept nogil:
    """Move behind a value that is neither an object nor an array, and follows without blanks; False if there is none."""
    if t.p[0] == b'"':
        return take_string(t)
    if t.p[0] == b"t":
        return take_word(t, b"true", 4)
    if t.p[0] == b"f":
        return take_word(t, b"false", 5)
    return take_word(t, b"null", 4) if t.p[0] == b"n" else take_number(t)


cdef bint take_json(JsonText *t) noexcept nogil:
    """Move behind a JSON value and copy all of it but its blanks; False if it is none, or nested too deep."""
    cdef uint8_t closing[MOST_NESTED]
    cdef int depth = 0
    cdef uint8_t c
    while True:
        c = next_byte(t)
        if c == b"{" or c == b"[":
            if depth == MOST_NESTED:
                return False
            closing[depth] = c + 2
            depth += 1
            t.p += 1
            if next_byte(t) != closing[depth - 1]:
                if closing[depth - 1] == b"}" and not (take_string(t) and take(t, b":")):
                    return False
                continue
        elif not c or not take_scalar(t):
            return False
        while depth and take(t, closing[depth - 1]):
            depth -= 1
        if not depth:
            next_byte(t)
            t.w = put_bytes(t.w, t.kept, t.p - t.kept)
            return t.p == t.end
        if not take(t, b",") or (closing[depth - 1] == b"}" and not (take_string(t) and take(t, b":"))):
            return False


def json_values(list payloads not None: list[bytes]) -> list[bytes | None]:
    """Return the JSON of each of *payloads* without blanks; None for one that is no JSON, and for one nested too deep."""
    cdef JsonText text
    cdef Py_ssize_t most = 0
    cdef list found = []
    cdef bytes payload
    cdef uint8_t *copy
    for payload in payloads:
        most = max(most, PyBytes_Size(payload))
    copy = <uint8_t *>malloc(most + 1)
    if copy == NULL:
        raise MemoryError()
    try:
        for payload in payloads:
            text.p = text.kept = <const uint8_t *>PyBytes_AsString(payload)
            text.end, text.w = text.p + PyBytes_Size(payload), copy
            is_json = utf8_valid(text.p, text.end) and take_json(&text)
            found.append(PyBytes_FromStringAndSize(<char *>copy, text.w - copy) if is_json else None)
    finally:
        free(copy)
    return found


cdef bint is_framed(Window window, Py_ssize_t i) noexcept:
    """Whether nothing but the value of a row can name a schema, and by its first bytes; False for a large value."""
    cdef const RecordRow *row = window.view.records + i
    cdef const uint8_t *base = window.view.bases[row.batch]
    if row.headers_count or not FRAMING_BYTES <= row.value_length <= LARGE or is_control(&window.view, row):
        return False
    return row.key_length <= 0 or base[row.key_at] > LAST_MAGIC


def framed_run(Window window not None, Py_ssize_t first, Py_ssize_t end) -> tuple[bytes, list[bytes]]:
    """Return the first five bytes of values from row *first* on, which they share, and the bytes of each behind those.

    The run ends before row *end*, and before a row whose key or headers can name a schema or whose value is large; it is
    empty if *first* is one.
    """
    cdef const RecordRow *row
    cdef const char *value
    cdef const char *begin = NULL
    cdef list payloads = []
    cdef Py_ssize_t i
    if not 0 <= first <= end <= window.view.records_count:
        raise IndexError(f"rows {first} to {end} of {window.view.records_count}")
    for i in range(first, end):
        if not is_framed(window, i):
            break
        row = window.view.records + i
        value = <const char *>window.view.bases[row.batch] + row.value_at
        if begin == NULL:
            begin = value
        elif memcmp(begin, value, FRAMING_BYTES) != 0:
            break
        payloads.append(PyBytes_FromStringAndSize(value + FRAMING_BYTES, row.value_length - FRAMING_BYTES))
    return (b"" if begin == NULL else PyBytes_FromStringAndSize(begin, FRAMING_BYTES)), payloads
