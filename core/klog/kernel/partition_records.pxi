# The records of the metadata log that make partitions and change them, as controllers write them.

cdef enum:
    # The lists of a partition, by the tags of PartitionChangeRecord.
    LIST_ISR = 0
    LIST_REPLICAS = 2
    LIST_REMOVING = 3
    LIST_ADDING = 4
    LIST_ELR = 6
    LIST_LAST_ELR = 7
    LIST_DIRECTORIES = 8
    LISTS = 9                    # 1 and 5 are the tags of the leader and of its recovery
    TAG_LEADER = 1
    TAG_RECOVERY = 5
    MOST_REPLICAS = 10000         # longer lists, which no cluster has, are left to the caller
    PARTITION_KEY = 20           # number and topic id, as both records have them
    NO_LEADER_CHANGE = -2
    NO_RECOVERY_CHANGE = -1

# What PartitionRecord and PartitionChangeRecord say.  Kafka's names: PARTITION_RECORD, PARTITION_CHANGE_RECORD.
cdef enum:
    PARTITION_TYPE = 3
    PARTITION_CHANGE_TYPE = 5
    NO_OP_TYPE = 20
    NEWEST_PARTITION = 2         # version of both
    RECORD_HEAD = 3              # frame version, type and version, a byte each here

cdef struct MemberList:
    const uint8_t *p             # int32s, or uuids, as in the record
    int count                    # -1: the record does not have it

cdef struct PartitionFacts:
    MemberList lists[LISTS]
    int leader
    int recovery
    long long leader_epoch       # of a PartitionRecord only, as is the next
    long long partition_epoch

cdef inline int list_width(int which) noexcept nogil:
    """How many bytes a member of the list takes."""
    return 16 if which == LIST_DIRECTORIES else 4


cdef inline const uint8_t *short_varint(const uint8_t *p, const uint8_t *end, int *value) noexcept nogil:
    """Read an unsigned varint of one or two bytes; NULL for a longer one."""
    if p < end and p[0] < 0x80:
        value[0] = p[0]
        return p + 1
    if end - p >= 2 and p[1] < 0x80:
        value[0] = (p[0] & 0x7F) | <int>p[1] << 7
        return p + 2
    return NULL


cdef const uint8_t *member_list(const uint8_t *p, const uint8_t *end, int width, MemberList *found) noexcept nogil:
    """Read a list that is not null; NULL where it is, or is not whole."""
    cdef int count
    p = short_varint(p, end, &count)
    if p == NULL or count == 0 or count > MOST_REPLICAS or <long long>(count - 1) * width > end - p:
        return NULL
    found.p = p
    found.count = count - 1
    return p + (count - 1) * width


cdef bint read_change(const uint8_t *p, const uint8_t *end, int version, PartitionFacts *found) noexcept nogil:
    """Read what follows the key of a PartitionChangeRecord; False for anything that no controller writes."""
    cdef int tags, tag, size, seen = 0
    cdef const uint8_t *stop
    p = short_varint(p, end, &tags)
    if p == NULL:
        return False
    while tags > 0:
        tags -= 1
        p = short_varint(p, end, &tag)
        if p == NULL or tag >= LISTS or seen >> tag & 1 or (tag == LIST_DIRECTORIES and version < 1) or (LIST_ELR <= tag <= LIST_LAST_ELR and version < 2):
            return False
        seen |= 1 << tag
        p = short_varint(p, end, &size)
        if p == NULL or size > end - p:
            return False
        stop = p + size
        if tag == TAG_LEADER:
            if size != 4:
                return False
            found.leader = be32(p)
        elif tag == TAG_RECOVERY:
            if size != 1:
                return False
            found.recovery = <signed char>p[0]
        elif member_list(p, stop, list_width(tag), &found.lists[tag]) != stop:
            return False
        p = stop
    return p == end


cdef bint read_partition(const uint8_t *p, const uint8_t *end, int version, PartitionFacts *found) noexcept nogil:
    """Read what follows the key of a PartitionRecord; False for anything that no controller writes."""
    cdef int tags, tag, size, seen = 0
    p = member_list(p, end, 4, &found.lists[LIST_REPLICAS])
    if p != NULL:
        p = member_list(p, end, 4, &found.lists[LIST_ISR])
    if p != NULL:
        p = member_list(p, end, 4, &found.lists[LIST_REMOVING])
    if p != NULL:
        p = member_list(p, end, 4, &found.lists[LIST_ADDING])
    if p == NULL or end - p < 12:
        return False
    found.leader, found.leader_epoch, found.partition_epoch = be32(p), be32(p + 4), be32(p + 8)
    p += 12
    if version >= 1:
        p = member_list(p, end, 16, &found.lists[LIST_DIRECTORIES])
        if p == NULL:
            return False
    p = short_varint(p, end, &tags)
    if p == NULL:
        return False
    while tags > 0:
        tags -= 1
        p = short_varint(p, end, &tag)
        # 0: the leader's recovery, 1: the ELR, 2: the last known one
        if p == NULL or tag > 2 or seen >> tag & 1 or (tag > 0 and version < 2):
            return False
        seen |= 1 << tag
        p = short_varint(p, end, &size)
        if p == NULL or size > end - p:
            return False
        if tag == 0:
            if size != 1:
                return False
            found.recovery = <signed char>p[0]
        elif member_list(p, p + size, 4, &found.lists[LIST_ELR + tag - 1]) != p + size:
            return False
        p += size
    return p == end


cdef inline bint all_zero(const uint8_t *p, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        if p[i]:
            return False
    return True


cdef inline bint is_metadata(const View *view, const RecordRow *row) noexcept nogil:
    """Whether a row is one of a metadata record: not of a control batch, without a key, with a value that is there."""
    return not is_control(view, row) and row.key_length < 0 and row.value_length >= 4 and row.headers_count >= 0


cdef inline bint is_no_op(const uint8_t *p, int size) noexcept nogil:
    return size == 4 and p[0] == 1 and p[1] == NO_OP_TYPE and p[2] == 0 and p[3] == 0


def skip_partitions(RecordRows rows not None, Py_ssize_t first, long long expected, long long until, bytes keys):
    """Return the first row from *first* on that is not about a partition, or about one of *keys*, 20 bytes each; None: of all.

    *expected* and *until*: see `PartitionTable.take`.  Of records that are passed over only the beginning is looked at.
    """
    cdef const RecordRow *row
    cdef const uint8_t *p
    cdef const uint8_t *wanted = NULL
    cdef Py_ssize_t i, k
    if keys is not None:
        wanted = <const uint8_t *>PyBytes_AsString(keys)
    for i in range(first, rows.view.records_count):
        row = rows.view.records + i
        if row.offset != expected or expected >= until or not is_metadata(&rows.view, row):
            return i
        expected += 1
        p = rows.view.bases[row.batch] + row.value_at
        if is_no_op(p, row.value_length):
            continue
        if wanted == NULL or row.value_length < RECORD_HEAD + PARTITION_KEY or p[0] != 1 or p[2] > NEWEST_PARTITION or (p[1] != PARTITION_TYPE and p[1] != PARTITION_CHANGE_TYPE):
            return i
        for k in range(len(keys) // PARTITION_KEY):
            if memcmp(wanted + k * PARTITION_KEY, p + RECORD_HEAD, PARTITION_KEY) == 0:
                return i
    return rows.view.records_count
