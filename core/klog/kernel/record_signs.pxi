# What records say about the topic and the partition that a batch was meant for.

cdef enum:
    SCHEMA_BYTES = 5             # a zero and the id of a schema


cdef extern from "partitions.h" nogil:
    uint32_t murmur2_of "klog_murmur2"(const uint8_t *p, size_t n)


def record_signs(Window window not None, Py_ssize_t first, Py_ssize_t end, int partition, unsigned int partitions,
                 bytes usual=None) -> list[tuple[int, int, int, int, int, int]]:
    """Return (batch, keys, keys of this partition, schema id, values with that id, values) of data batches *first* to *end*.

    The batches have been checked and decompressed; those of v0 and v1, and broken ones, are left out.  A key's partition
    is murmur2's of so many *partitions* (Kafka: BuiltInPartitioner.partitionForKey); 0: keys are not counted.  The schema
    id is that of the first value that begins with one, -1 if none does.  *usual*: int32s of the machine, ascending; left
    out is each batch with a key of this partition and a schema id among them, or none.
    """
    cdef Py_ssize_t i
    cdef int counts[5]
    cdef const int *ids = NULL
    cdef Py_ssize_t ids_count = 0
    cdef bint wanted
    window._range(first, end)
    if usual is not None:
        ids, ids_count = <const int *>PyBytes_AsString(usual), PyBytes_Size(usual) // <Py_ssize_t>sizeof(int)
    found = []
    for i in range(first, end):
        with nogil:
            wanted = signs_of(&window.view, i, partition, partitions, counts)
            if wanted and ids != NULL:
                wanted = (counts[0] and not counts[1]) or (counts[2] >= 0 and not is_among(counts[2], ids, ids_count))
        if wanted:
            found.append((i, counts[0], counts[1], counts[2], counts[3], counts[4]))
    return found


cdef bint is_among(int value, const int *ids, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(count):
        if ids[i] >= value:
            return ids[i] == value
    return False


cdef bint signs_of(const View *v, Py_ssize_t at, int partition, uint32_t partitions, int *counts) noexcept nogil:
    """Fill the five counts of a batch; False if it has none."""
    cdef const BatchRow *batch = v.batches + at
    cdef const uint8_t *base = v.bases[at]
    cdef const uint8_t *end = base + v.lengths[at]
    cdef const uint8_t *p = base + (0 if batch.attributes & ATTRIBUTE_CODEC else BATCH_BYTES)
    cdef RecordRow row
    cdef int i, schema
    counts[0] = counts[1] = counts[3] = counts[4] = 0
    counts[2] = -1
    if batch.state & SKIPPED or batch.magic < 2 or batch.size < BATCH_BYTES or batch.attributes & ATTRIBUTE_CONTROL:
        return False
    for i in range(batch.records_count):
        p = read_record(p, end, base, batch, &row)
        if p == NULL:
            return False
        if partitions and row.key_length >= 0:
            counts[0] += 1
            counts[1] += <int>((murmur2_of(base + row.key_at, row.key_length) & 0x7FFFFFFF) % partitions) == partition
        counts[4] += row.value_length >= 0
        if row.value_length >= SCHEMA_BYTES and not base[row.value_at]:
            schema = be32(base + row.value_at + 1)
            if counts[2] < 0:
                counts[2] = schema
            counts[3] += schema == counts[2]
    return True
