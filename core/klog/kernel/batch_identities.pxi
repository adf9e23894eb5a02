# What tells a batch from another one: 32 bytes a batch, for comparing replicas without decoding a record.

cdef packed struct BatchIdentity:
    long long base_offset
    long long last_offset
    int leader_epoch
    unsigned int crc
    int records_count            # -1: v0, v1
    short attributes
    signed char magic
    signed char padding


def batch_identities(Window window not None, Py_ssize_t first, Py_ssize_t end):
    """Return offsets, leader epoch, CRC, count of records, attributes and format of each batch from *first* to *end*.

    32 bytes a batch, in the machine's byte order: int64 ×2, int32, uint32, int32, int16, int8, and a byte of zeros.
    """
    cdef bytes result
    cdef BatchIdentity *to
    cdef const BatchRow *row
    cdef Py_ssize_t i
    window._range(first, end)
    result = PyBytes_FromStringAndSize(NULL, (end - first) * <Py_ssize_t>sizeof(BatchIdentity))
    to = <BatchIdentity *>PyBytes_AsString(result)
    with nogil:
        for i in range(first, end):
            row = window.view.batches + i
            to.base_offset, to.last_offset = row.base_offset, row.last_offset
            to.leader_epoch, to.crc, to.records_count = row.leader_epoch, row.crc, row.records_count
            to.attributes, to.magic, to.padding = row.attributes, row.magic, 0
            to += 1
    return result
