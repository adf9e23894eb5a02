# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False, binding=False, annotation_typing=False
"""Partitions of the metadata log."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from os import urandom

from klog.kernel._window cimport RecordRow, View, Window, is_control
from klog.kernel.chars cimport decimal, put
from klog.kernel.memory cimport CACHE_LINE, HUGE_PAGE, huge_pages, posix_memalign, prefetch
from klog.kernel.numbers cimport be32, klog_le32, klog_le64, put32
from klog.kernel.python cimport PyBytes_AsString

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

# The content of PartitionRecord and PartitionChangeRecord.  Kafka's names: PARTITION_RECORD, PARTITION_CHANGE_RECORD.
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


def skip_partitions(Window rows not None, Py_ssize_t first, long long expected, long long until, bytes keys: bytes | None) -> int:
    """Return the first row from *first* on that is not about a partition, or about one of *keys*, 20 bytes each; None: of all.

    *expected* and *until*: see `PartitionTable.take`.  Only the beginning of a skipped record is read.
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


# The partitions of a metadata log: a slot a partition, its lists in an arena; millions of changes are applied without a
# Python object for each, and all of them become JSON.

cdef struct PartitionSlot:
    uint8_t key[PARTITION_KEY]
    int topic                    # -1: its topic is gone
    int next                     # of its topic, -1: the last
    int next_elr                 # of those that have or had an ELR
    int leader
    unsigned char is_elr_listed
    unsigned char is_recovering
    long long leader_epoch
    long long partition_epoch
    uint32_t at[LISTS]           # in the arena, in units of 4 bytes
    unsigned short counts[LISTS]
    unsigned short rooms[LISTS]  # members for which there is room

cdef struct TopicSlot:
    uint8_t id[16]
    int first                    # its partitions, the last that came first; -1: none
    int first_elr
    int next_elr                 # of the topics with such partitions
    bint is_elr_listed
    bint is_there
    int count


cdef inline uint8_t *uuid_letters(uint8_t *w, const uint8_t *p) noexcept nogil:
    """Write a uuid in its 22 letters.  Kafka: Uuid.toString."""
    cdef const char *letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    cdef int i
    cdef uint32_t three
    for i in range(5):
        three = <uint32_t>p[0] << 16 | <uint32_t>p[1] << 8 | p[2]
        w[0], w[1], w[2], w[3] = letters[three >> 18], letters[three >> 12 & 63], letters[three >> 6 & 63], letters[three & 63]
        p += 3
        w += 4
    w[0], w[1] = letters[p[0] >> 2], letters[(p[0] & 3) << 4]
    return w + 2


cdef void *grow_slots(void *old, Py_ssize_t *room, size_t size) except NULL:
    """Return *old* with room for twice as many elements."""
    cdef size_t larger = max(<Py_ssize_t>1024, 2 * room[0]) * size
    cdef void *found = NULL
    if posix_memalign(&found, HUGE_PAGE if larger >= HUGE_PAGE else CACHE_LINE, larger) != 0:
        raise MemoryError()
    if larger >= HUGE_PAGE:
        huge_pages(found, larger)
    if old != NULL:
        memcpy(found, old, room[0] * size)
        free(old)
    room[0] = larger // size
    return found


cdef enum:
    ROWS_STEP = 16               # rows from one thing that is asked for to the next
    ROWS_AHEAD = 64              # rows of which something is known: four steps

cdef struct RowAhead:
    uint64_t hashed
    int slot                     # where the partition probably is, -1: not known


cdef class PartitionTable:
    """The partitions of a cluster while records are replayed.

    `take` applies the records of partitions that controllers write; whatever is unusual about one is left to the caller, who
    decodes it with care and calls `put`.
    """

    cdef PartitionSlot *slots
    cdef Py_ssize_t slots_count, slots_room
    cdef TopicSlot *topics
    cdef Py_ssize_t topics_count, topics_room
    cdef uint8_t *arena
    cdef Py_ssize_t arena_size, arena_room
    cdef int *table                  # slot + 1 by key, 0: free
    cdef Py_ssize_t table_size
    cdef int table_shift             # the first bits of a hash say where to look
    cdef int first_elr_topic
    cdef dict by_id
    cdef uint32_t secrets[6]
    cdef uint64_t factor

    def __cinit__(self):
        cdef bytes secret = urandom(32)  # else a log could be made so that all its keys collide
        memcpy(self.secrets, PyBytes_AsString(secret), 24)
        self.factor = klog_le64(<const uint8_t *>PyBytes_AsString(secret) + 24) | 1
        self.first_elr_topic = -1
        self.by_id = {}

    def __dealloc__(self):
        free(self.slots)
        free(self.topics)
        free(self.arena)
        free(self.table)

    # topics

    def add_topic(self, bytes topic_id not None):
        """Add a topic without partitions; one that is there loses its own."""
        cdef TopicSlot *topic
        if len(topic_id) != 16:
            raise ValueError("a topic id has 16 bytes")
        self.remove_topic(topic_id)
        if self.topics_count == self.topics_room:
            self.topics = <TopicSlot *>grow_slots(self.topics, &self.topics_room, sizeof(TopicSlot))
        topic = self.topics + self.topics_count
        memcpy(topic.id, PyBytes_AsString(topic_id), 16)
        topic.first = topic.first_elr = topic.next_elr = -1
        topic.is_elr_listed, topic.is_there, topic.count = False, True, 0
        self.by_id[topic_id] = self.topics_count
        self.topics_count += 1

    def remove_topic(self, bytes topic_id not None):
        """Remove a topic, if it is there, with its partitions."""
        cdef int slot
        found = self.by_id.pop(topic_id, None)
        if found is not None:
            self.topics[<Py_ssize_t>found].is_there = False
            slot = self.topics[<Py_ssize_t>found].first
            while slot >= 0:
                self.slots[slot].topic = -1
                slot = self.slots[slot].next

    def numbers(self, bytes topic_id not None) -> list[int]:
        """Return the numbers of a topic's partitions, ascending."""
        cdef int slot = self._first(topic_id)
        cdef list found = []
        while slot >= 0:
            found.append(be32(self.slots[slot].key))
            slot = self.slots[slot].next
        found.sort()
        return found

    def count(self, bytes topic_id not None) -> int:
        """Return how many partitions a topic has."""
        found = self.by_id.get(topic_id)
        return 0 if found is None else self.topics[<Py_ssize_t>found].count

    cdef int _first(self, bytes topic_id) except -2:
        found = self.by_id.get(topic_id)
        return -1 if found is None else self.topics[<Py_ssize_t>found].first

    # partitions

    cdef inline uint64_t _hash(self, const uint8_t *key) noexcept nogil:
        """NH of 20 bytes, then multiply-shift.  Both are universal: who does not know the secrets finds no keys that collide."""
        cdef const uint32_t *s = self.secrets
        cdef uint64_t x = <uint64_t>(klog_le32(key) + s[0]) * <uint32_t>(klog_le32(key + 4) + s[1])
        x += <uint64_t>(klog_le32(key + 8) + s[2]) * <uint32_t>(klog_le32(key + 12) + s[3])
        x += <uint64_t>(klog_le32(key + 16) + s[4]) * s[5]
        return x * self.factor

    cdef Py_ssize_t _place(self, const uint8_t *key, uint64_t hashed) noexcept nogil:
        """Return the place of a key in the table, or its future one."""
        cdef Py_ssize_t at = <Py_ssize_t>(hashed >> self.table_shift)
        while self.table[at] and memcmp(self.slots[self.table[at] - 1].key, key, PARTITION_KEY) != 0:
            at = (at + 1) & (self.table_size - 1)
        return at

    cdef int _find(self, const uint8_t *key) noexcept nogil:
        """The slot of a partition that is there, -1 for none."""
        cdef int slot
        if self.table_size == 0:
            return -1
        slot = self.table[self._place(key, self._hash(key))] - 1
        return slot if slot >= 0 and self.slots[slot].topic >= 0 else -1

    cdef int _slot(self, const uint8_t *key, int topic) except -1:
        """The slot of a partition, a new one if there is none.  The partition of a deleted topic is forgotten."""
        cdef Py_ssize_t at
        cdef int slot
        cdef PartitionSlot *one
        if 4 * (self.slots_count + 1) > 3 * self.table_size:
            self._rehash()
        at = self._place(key, self._hash(key))
        if self.table[at] == 0:
            if self.slots_count == 2147483646:
                raise MemoryError()
            if self.slots_count == self.slots_room:
                self.slots = <PartitionSlot *>grow_slots(self.slots, &self.slots_room, sizeof(PartitionSlot))
            one = self.slots + self.slots_count
            memset(one, 0, sizeof(PartitionSlot))
            memcpy(one.key, key, PARTITION_KEY)
            one.topic = -1
            self.table[at] = <int>self.slots_count + 1
            self.slots_count += 1
        slot = self.table[at] - 1
        one = self.slots + slot
        if one.topic < 0:
            one.topic, one.next, one.is_elr_listed = topic, self.topics[topic].first, False
            self.topics[topic].first = slot
            self.topics[topic].count += 1
        return slot

    cdef int _rehash(self) except -1:
        cdef Py_ssize_t i
        free(self.table)
        self.table_size = max(1024, 2 * self.table_size)
        self.table = <int *>calloc(self.table_size, sizeof(int))
        if self.table == NULL:
            self.table_size = 0
            raise MemoryError()
        self.table_shift = 64
        while <Py_ssize_t>1 << 64 - self.table_shift < self.table_size:
            self.table_shift -= 1
        for i in range(self.slots_count):
            self.table[self._place(self.slots[i].key, self._hash(self.slots[i].key))] = <int>i + 1
        return 0

    cdef int _set(self, PartitionSlot *slot, int which, const uint8_t *p, int count, int room=0) except -1:
        """Replace a list; in its old place if that is large enough, else with *room* for so many members at least."""
        cdef Py_ssize_t size = <Py_ssize_t>count * list_width(which)
        if count > slot.rooms[which] or room > slot.rooms[which]:
            room = max(count, room)
            while self.arena_size + <Py_ssize_t>room * list_width(which) > self.arena_room:
                self.arena = <uint8_t *>grow_slots(self.arena, &self.arena_room, 1)
            if self.arena_size >> 2 > 0xFFFF0000:
                raise MemoryError()
            slot.at[which] = <uint32_t>(self.arena_size >> 2)
            slot.rooms[which] = <unsigned short>room
            self.arena_size += <Py_ssize_t>room * list_width(which)
        memcpy(self.arena + (<Py_ssize_t>slot.at[which] << 2), p, size)
        slot.counts[which] = <unsigned short>count
        return 0

    cdef void _list_elr(self, int number) noexcept nogil:
        """Note that a partition has an ELR: else each ClearElrRecord would look at every partition."""
        cdef PartitionSlot *slot = self.slots + number
        cdef TopicSlot *topic = self.topics + slot.topic
        if slot.is_elr_listed or not (slot.counts[LIST_ELR] or slot.counts[LIST_LAST_ELR]):
            return
        slot.is_elr_listed, slot.next_elr, topic.first_elr = True, topic.first_elr, number
        if not topic.is_elr_listed:
            topic.is_elr_listed, topic.next_elr, self.first_elr_topic = True, self.first_elr_topic, slot.topic

    def clear_elr(self, bytes topic_id=None):
        """Take the ELR and the last known one from the partitions of a topic; None: of all."""
        cdef int topic
        if topic_id is not None:
            found = self.by_id.get(topic_id)
            if found is not None:
                self._clear(self.topics + <Py_ssize_t>found)
            return
        topic = self.first_elr_topic
        while topic >= 0:
            self._clear(self.topics + topic)
            self.topics[topic].is_elr_listed = False
            topic = self.topics[topic].next_elr
        self.first_elr_topic = -1

    cdef void _clear(self, TopicSlot *topic) noexcept nogil:
        cdef int number = topic.first_elr
        cdef PartitionSlot *slot
        topic.first_elr = -1
        while number >= 0 and topic.is_there:
            slot = self.slots + number
            slot.is_elr_listed = False
            if slot.counts[LIST_ELR] or slot.counts[LIST_LAST_ELR]:
                slot.counts[LIST_ELR] = slot.counts[LIST_LAST_ELR] = 0
                slot.partition_epoch += 1
            number = slot.next_elr

    cdef bint _replace(self, int number, const PartitionFacts *facts) except False:
        cdef PartitionSlot *slot = self.slots + number
        cdef int which, room
        for which in range(LISTS):
            if which != TAG_LEADER and which != TAG_RECOVERY:
                # The ISR and the ELR come and go: their lists stay beside the others.
                room = facts.lists[LIST_REPLICAS].count if which == LIST_ISR or which == LIST_ELR or which == LIST_LAST_ELR else 0
                self._set(slot, which, facts.lists[which].p, facts.lists[which].count, room)
        slot.leader, slot.leader_epoch, slot.partition_epoch = facts.leader, facts.leader_epoch, facts.partition_epoch
        slot.is_recovering = facts.recovery == 1
        self._list_elr(number)
        return True

    # one by one

    cdef int _slot_of(self, bytes topic_id, int number) except -2:
        cdef uint8_t key[PARTITION_KEY]
        if len(topic_id) != 16:
            return -1
        put32(key, <uint32_t>number)
        memcpy(key + 4, PyBytes_AsString(topic_id), 16)
        return self._find(key)

    def get(self, bytes topic_id not None, int number) -> PartitionRow | None:
        """Return (replicas, isr, leader, leader epoch, partition epoch, elr, last known elr, directories, adding,
        removing, recovering); None for a partition that is not there."""
        cdef int found = self._slot_of(topic_id, number)
        cdef const PartitionSlot *slot
        if found < 0:
            return None
        slot = self.slots + found
        return (self._nodes(slot, LIST_REPLICAS), self._nodes(slot, LIST_ISR), slot.leader, slot.leader_epoch, slot.partition_epoch,
                self._nodes(slot, LIST_ELR), self._nodes(slot, LIST_LAST_ELR), self._directories(slot),
                self._nodes(slot, LIST_ADDING), self._nodes(slot, LIST_REMOVING), bool(slot.is_recovering))

    cdef tuple _nodes(self, const PartitionSlot *slot, int which):
        cdef const uint8_t *p = self.arena + (<Py_ssize_t>slot.at[which] << 2)
        cdef int i
        return tuple([be32(p + 4 * i) for i in range(slot.counts[which])])

    cdef tuple _directories(self, const PartitionSlot *slot):
        cdef const uint8_t *p = self.arena + (<Py_ssize_t>slot.at[LIST_DIRECTORIES] << 2)
        cdef uint8_t letters[22]
        cdef list found = []
        cdef int i
        for i in range(slot.counts[LIST_DIRECTORIES]):
            uuid_letters(letters, p + 16 * i)
            found.append((<const char *>letters)[:22].decode("ascii"))
        return tuple(found)

    def put(self, bytes topic_id not None, int number, tuple lists not None: tuple[bytes, ...], int leader, long long leader_epoch, long long partition_epoch, bint recovering):
        """Set a partition of a topic that is there; *lists*: replicas, isr, elr, last known elr, directories, adding and
        removing, as the bytes of a record.  At most 9999 members each; OverflowError for more."""
        cdef uint8_t key[PARTITION_KEY]
        cdef PartitionFacts facts
        cdef bytes content
        cdef int i, which
        topic = self.by_id[topic_id]
        for i, which in enumerate((LIST_REPLICAS, LIST_ISR, LIST_ELR, LIST_LAST_ELR, LIST_DIRECTORIES, LIST_ADDING, LIST_REMOVING)):
            content = <bytes?>lists[i]
            if len(content) // list_width(which) >= MOST_REPLICAS:
                raise OverflowError(f"{len(content) // list_width(which)} members")
            facts.lists[which].p = <const uint8_t *>PyBytes_AsString(content)
            facts.lists[which].count = <int>(len(content) // list_width(which))
        facts.leader, facts.leader_epoch, facts.partition_epoch, facts.recovery = leader, leader_epoch, partition_epoch, recovering
        put32(key, <uint32_t>number)
        memcpy(key + 4, PyBytes_AsString(topic_id), 16)
        self._replace(self._slot(key, topic), &facts)

    # records

    def take(self, Window rows not None, Py_ssize_t first, long long expected, long long until) -> int:
        """Apply the records from row *first* on; return the first row that is left to the caller.

        Left are a row whose offset is not the *expected* one (the next for each further row), one from *until* on, and
        a record that is no usual one of a partition.  Records that do nothing are passed over.
        """
        cdef const RecordRow *row
        cdef const uint8_t *p
        cdef RowAhead ahead[ROWS_AHEAD]
        cdef Py_ssize_t i
        for i in range(first - 3 * ROWS_STEP, first):
            self._look_ahead(&rows.view, first, i, ahead)
        for i in range(first, rows.view.records_count):
            self._look_ahead(&rows.view, first, i, ahead)
            row = rows.view.records + i
            if row.offset != expected or expected >= until or not is_metadata(&rows.view, row):
                return i
            p = rows.view.bases[row.batch] + row.value_at
            if not is_no_op(p, row.value_length) and not self._apply(p, p + row.value_length, &ahead[i % ROWS_AHEAD]):
                return i
            expected += 1
        return rows.view.records_count

    cdef inline void _look_ahead(self, const View *view, Py_ssize_t first, Py_ssize_t now, RowAhead *ahead) noexcept nogil:
        """Ask for the memory that the rows behind *now* will touch: else each row would wait for it three times.

        Three steps ahead for the place in the table, two for the slot that it names, one for the lists that this names.
        """
        cdef Py_ssize_t i = now + 3 * ROWS_STEP
        cdef const RecordRow *row
        cdef const PartitionSlot *slot
        cdef RowAhead *one = &ahead[i % ROWS_AHEAD]
        if i < view.records_count:
            row = view.records + i
            one.slot = -1
            if self.table_size and row.value_length >= RECORD_HEAD + PARTITION_KEY:
                one.hashed, one.slot = self._hash(view.bases[row.batch] + row.value_at + RECORD_HEAD), 0
                prefetch(self.table + (one.hashed >> self.table_shift))
        i -= ROWS_STEP
        one = &ahead[i % ROWS_AHEAD]
        if first <= i < view.records_count and one.slot >= 0:
            one.slot = self.table[one.hashed >> self.table_shift] - 1
            if one.slot >= 0:
                slot = self.slots + one.slot
                prefetch(slot)
                prefetch(<const uint8_t *>slot + CACHE_LINE)
        i -= ROWS_STEP
        one = &ahead[i % ROWS_AHEAD]
        if first <= i < view.records_count and one.slot >= 0:
            slot = self.slots + one.slot
            prefetch(self.arena + (<Py_ssize_t>slot.at[LIST_ISR] << 2))
            prefetch(self.arena + (<Py_ssize_t>slot.at[LIST_DIRECTORIES] << 2))

    cdef bint _apply(self, const uint8_t *p, const uint8_t *end, const RowAhead *ahead) except? False:
        """Apply a record; False: it is no usual one, and nothing has changed."""
        cdef PartitionFacts facts
        cdef int slot, which, topic
        if end - p < RECORD_HEAD + PARTITION_KEY + 1 or p[0] != 1 or p[2] > NEWEST_PARTITION:
            return False
        for which in range(LISTS):
            facts.lists[which].count = -1
        facts.leader, facts.recovery = NO_LEADER_CHANGE, NO_RECOVERY_CHANGE
        if p[1] == PARTITION_CHANGE_TYPE:
            slot = self._find_ahead(p + RECORD_HEAD, ahead)
            if slot < 0 or not read_change(p + RECORD_HEAD + PARTITION_KEY, end, p[2], &facts) or not self._fits(self.slots + slot, &facts):
                return False
            return self._merge(slot, &facts)
        if p[1] != PARTITION_TYPE:
            return False
        facts.recovery = 0
        facts.lists[LIST_ELR].p = facts.lists[LIST_LAST_ELR].p = facts.lists[LIST_DIRECTORIES].p = p
        facts.lists[LIST_ELR].count = facts.lists[LIST_LAST_ELR].count = facts.lists[LIST_DIRECTORIES].count = 0
        if not read_partition(p + RECORD_HEAD + PARTITION_KEY, end, p[2], &facts) or not self._fits(NULL, &facts):
            return False
        topic = self._topic_of(p + RECORD_HEAD + 4)
        return topic >= 0 and self._replace(self._slot(p + RECORD_HEAD, topic), &facts)

    cdef inline int _find_ahead(self, const uint8_t *key, const RowAhead *ahead) noexcept nogil:
        """The slot of a partition that is there, -1 for none."""
        cdef int slot = ahead.slot
        if slot >= 0 and self.slots[slot].topic >= 0 and memcmp(self.slots[slot].key, key, PARTITION_KEY) == 0:
            return slot
        return self._find(key)

    cdef int _topic_of(self, const uint8_t *topic_id) except -2:
        # Partitions of a topic come one after another, and behind their topic.
        if self.topics_count and self.topics[self.topics_count - 1].is_there and memcmp(self.topics[self.topics_count - 1].id, topic_id, 16) == 0:
            return <int>self.topics_count - 1
        found = self.by_id.get((<const char *>topic_id)[:16])
        return -1 if found is None else found

    cdef bint _fits(self, const PartitionSlot *slot, PartitionFacts *facts) noexcept nogil:
        """Whether each replica has a log dir, or none has; ids that mean that no broker has reported any are left out."""
        cdef MemberList *given = &facts.lists[LIST_DIRECTORIES]
        cdef int replicas = facts.lists[LIST_REPLICAS].count
        cdef int directories
        if given.count > 0 and all_zero(given.p, 16 * given.count):
            given.count = 0
        directories = given.count
        if slot != NULL:
            replicas = slot.counts[LIST_REPLICAS] if replicas < 0 else replicas
            directories = slot.counts[LIST_DIRECTORIES] if directories < 0 else directories
        return directories == 0 or directories == replicas

    cdef bint _merge(self, int number, const PartitionFacts *facts) except False:
        """Kafka: PartitionRegistration.merge."""
        cdef PartitionSlot *slot = self.slots + number
        cdef int which
        for which in range(LISTS):
            if facts.lists[which].count >= 0:
                self._set(slot, which, facts.lists[which].p, facts.lists[which].count)
        if facts.leader != NO_LEADER_CHANGE:
            slot.leader = facts.leader
            slot.leader_epoch += 1  # the same leader again is a new epoch, too
        if facts.recovery != NO_RECOVERY_CHANGE:
            slot.is_recovering = facts.recovery == 1
        slot.partition_epoch += 1
        self._list_elr(number)
        return True

    # JSON

    def json(self, bytes topic_id not None) -> bytes:
        """Return a topic's partitions by number, as a JSON array."""
        cdef list places = []
        cdef Py_ssize_t room = 2
        cdef long long number
        cdef int which, slot = self._first(topic_id)
        cdef uint8_t *start
        cdef uint8_t *w
        while slot >= 0:
            number = be32(self.slots[slot].key)
            places.append(number * 4294967296 + slot)
            room += 512
            for which in range(LISTS):
                room += self.slots[slot].counts[which] * (25 if which == LIST_DIRECTORIES else 12)
            slot = self.slots[slot].next
        places.sort()
        start = <uint8_t *>malloc(room)
        if start == NULL:
            raise MemoryError()
        w = put(start, "[")
        for place in places:
            number = place
            slot = <int>(number & 0x7FFFFFFF)
            w = self._json(w, self.slots + slot)
        w = put(w - (len(places) > 0), "]")
        try:
            return (<const char *>start)[:w - start]
        finally:
            free(start)

    cdef uint8_t *_json(self, uint8_t *w, const PartitionSlot *slot) noexcept nogil:
        w = decimal(put(w, '{"partition":'), be32(slot.key))
        w = self._members(put(w, ',"replicas":'), slot, LIST_REPLICAS)
        w = self._members(put(w, ',"isr":'), slot, LIST_ISR)
        w = self._members(put(w, ',"elr":'), slot, LIST_ELR)
        w = self._members(put(w, ',"last_known_elr":'), slot, LIST_LAST_ELR)
        w = decimal(put(w, ',"leader":'), slot.leader)
        w = decimal(put(w, ',"leader_epoch":'), slot.leader_epoch)
        w = decimal(put(w, ',"partition_epoch":'), slot.partition_epoch)
        w = self._members(put(w, ',"adding":'), slot, LIST_ADDING)
        w = self._members(put(w, ',"removing":'), slot, LIST_REMOVING)
        w = self._members(put(w, ',"directories":'), slot, LIST_DIRECTORIES)
        return put(put(put(w, ',"recovering":'), "true" if slot.is_recovering else "false"), "},")

    cdef uint8_t *_members(self, uint8_t *w, const PartitionSlot *slot, int which) noexcept nogil:
        cdef const uint8_t *p = self.arena + (<Py_ssize_t>slot.at[which] << 2)
        cdef int i
        w = put(w, "[")
        for i in range(slot.counts[which]):
            if i:
                w = put(w, ",")
            if which == LIST_DIRECTORIES:
                w = put(uuid_letters(put(w, '"'), p + 16 * i), '"')
            else:
                w = decimal(w, be32(p + 4 * i))
        return put(w, "]")
