# The state of partitions: a slot a partition, its lists in an arena.

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


cdef class PartitionSlots:
    """Topics by their ids (16 bytes), and their partitions by number.  Topics come and go through `add_topic` and `remove_topic`."""

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

    def numbers(self, bytes topic_id not None):
        """Return the numbers of a topic's partitions, ascending."""
        cdef int slot = self._first(topic_id)
        cdef list found = []
        while slot >= 0:
            found.append(be32(self.slots[slot].key))
            slot = self.slots[slot].next
        found.sort()
        return found

    def count(self, bytes topic_id not None):
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
        """Where in the table a key is, or would be."""
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
        """The slot of a partition, a new one if there is none.  What it was of a topic that is gone is forgotten."""
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

    def get(self, bytes topic_id not None, int number):
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

    def put(self, bytes topic_id not None, int number, tuple lists not None, int leader, long long leader_epoch, long long partition_epoch, bint recovering):
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
