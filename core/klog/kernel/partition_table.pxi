# Partitions of the metadata log: millions of changes applied without a Python object for each, and all of them as JSON.

cdef enum:
    ROWS_STEP = 16               # rows from one thing that is asked for to the next
    ROWS_AHEAD = 64              # rows of which something is known: four steps

cdef struct RowAhead:
    uint64_t hashed
    int slot                     # where the partition probably is, -1: not known


cdef class PartitionTable(PartitionSlots):
    """The partitions of a cluster while records are replayed.

    `take` applies the records of partitions that controllers write; whatever is unusual about one is left to the caller, who
    decodes it with care and calls `put`.
    """

    # records

    def take(self, RecordRows rows not None, Py_ssize_t first, long long expected, long long until):
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
        """Whether each replica has a log dir, or none has; ids that say that nobody has reported any are left out."""
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

    def json(self, bytes topic_id not None):
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
