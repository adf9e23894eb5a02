# Which partition a record goes to, and the builder of its batches.

cdef extern from "partitions.h" nogil:
    uint32_t absolute "klog_absolute"(uint32_t h)

cdef enum:                       # in the order of klog.commands.write.write_options.PARTITIONER_NAMES
    BY_JAVA, ROUND_ROBIN, CONSISTENT_RANDOM, CONSISTENT, MURMUR2_RANDOM, MURMUR2, FNV1A_RANDOM, FNV1A, RANDOM
    OPEN = 64                    # what `feed` returns besides: the partition has no builder yet


cdef class TopicRoute:
    """The partitions of a topic.  *builders*: of each, None for one that is not open yet; an empty list: no such topic.

    *partitioner*: a place in klog.commands.write.write_options.PARTITIONER_NAMES, for records without a partition.  *sticky_bytes*: after so many,
    records without a key go to another partition (java).  *seed*: for what is random.
    """

    cdef readonly list builders
    cdef int partitioner
    cdef long long sticky_bytes, sent
    cdef uint64_t random
    cdef uint32_t turn, sticky

    def __cinit__(self, list builders not None, int partitioner=0, long long sticky_bytes=16384, unsigned long long seed=0):
        self.builders, self.partitioner, self.sticky_bytes, self.random = builders, partitioner, sticky_bytes, seed
        self.sticky = self._any() if len(builders) else 0

    cdef uint32_t _any(self) noexcept:
        """Some partition.  splitmix64 (Steele, Lea, Flood, 2014)."""
        cdef uint64_t z
        self.random += <uint64_t>0x9E3779B97F4A7C15
        z = self.random
        z = (z ^ (z >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
        z = (z ^ (z >> 27)) * <uint64_t>0x94D049BB133111EB
        return <uint32_t>((z ^ (z >> 31)) % <uint64_t>PyList_Size(self.builders))

    cdef uint32_t choose(self, const InRecord *r) noexcept:
        """The partition of a record that names none.  librdkafka: rd_kafka_msg_partitioner_…"""
        cdef uint32_t count = <uint32_t>PyList_Size(self.builders)
        cdef int how = self.partitioner
        cdef const uint8_t *key = r.key if r.key_length > 0 else <const uint8_t *>b""
        cdef size_t n = max(r.key_length, 0)
        if how == ROUND_ROBIN:
            self.turn = (self.turn + 1) % count
            return (self.turn + count - 1) % count
        if how == RANDOM or (r.key_length < 0 and (how == CONSISTENT_RANDOM or how == MURMUR2_RANDOM or how == FNV1A_RANDOM)):
            return self._any()
        if how == CONSISTENT_RANDOM and n == 0:
            return self._any()
        if how == BY_JAVA and r.key_length < 0:
            return self._stick(r)
        if how == CONSISTENT_RANDOM or how == CONSISTENT:
            return klog_crc32(0, key, n) % count
        if how == FNV1A_RANDOM or how == FNV1A:
            return absolute(fnv1a_of(key, n)) % count
        return (murmur2_of(key, n) & 0x7FFFFFFF) % count

    cdef uint32_t _stick(self, const InRecord *r) noexcept:
        """The partition that records without a key go to now.  Kafka: BuiltInPartitioner."""
        if self.sent >= self.sticky_bytes:
            self.sticky, self.sent = self._any(), 0
        self.sent += 2 + length_bytes(r.value_length) + 4 + max(r.value_length, 0) + r.headers_length
        return self.sticky


cdef class BatchRouter:
    """Hands records to the builders of their partitions.

    *topic*: where all of them go, None for the one that each names.  *repartition*: what partition they name does not count.
    """

    cdef dict routes
    cdef bytes topic, latest_name
    cdef const uint8_t *latest_text          # of that name
    cdef Py_ssize_t latest_length            # -1: there is none yet
    cdef TopicRoute latest
    cdef int latest_partition                # of that topic, whose builder `builder` is; -1: none
    cdef bint repartition
    cdef readonly BatchBuilder builder       # that `feed` was about
    cdef readonly bytes name                 # of the topic
    cdef readonly int partition
    cdef long long chosen_line
    cdef int chosen

    def __cinit__(self, bytes topic=None, bint repartition=False):
        self.topic, self.repartition, self.routes = topic, repartition, {}
        self.chosen_line = self.latest_partition = self.latest_length = -1

    def add_topic(self, bytes name not None, TopicRoute route not None):
        """Set the partitions of a topic."""
        self.routes[name] = route

    def feed(self, InputRecords rows not None, Py_ssize_t i):
        """Take records from *i* on; return where that stopped, and why: DONE at the end, OPEN, or what a builder returns."""
        cdef InRecord *r
        cdef int status = DONE, partition
        while i < rows.count:
            r = rows.rows + i
            status = self._place(r, &partition)
            if status == DONE:
                status = self.builder.add(r)
            if status != DONE:
                return i, status
            i += 1
        return i, DONE

    cdef int _place(self, const InRecord *r, int *partition) except -1:
        """Find the builder of a record."""
        if r.error:
            return BAD_TEXT
        if not self._find_route(r):
            return NO_TOPIC
        partition[0] = r.partition
        if r.partition < 0 or self.repartition:
            if not PyList_Size(self.latest.builders):
                return NO_TOPIC
            if PyList_Size(self.latest.builders) > 1 and (r.control != KLOG_NO_CONTROL or r.transactional):
                return MOVED
            if self.chosen_line != r.line:  # else it has been asked for before, and this is the same record again
                self.chosen, self.chosen_line = <int>self.latest.choose(r), r.line
            partition[0] = self.chosen
        self.partition = partition[0]
        if partition[0] == self.latest_partition:
            return DONE
        if partition[0] >= PyList_Size(self.latest.builders):
            return NO_PARTITION
        found = self.latest.builders[partition[0]]
        if found is None:
            return OPEN
        if found is not self.builder:
            self.builder = <BatchBuilder>found
        self.latest_partition = partition[0]
        return DONE

    cdef bint _find_route(self, const InRecord *r) except -1:
        cdef const uint8_t *name = r.topic
        cdef Py_ssize_t n = r.topic_length
        if self.topic is not None:
            name, n = <const uint8_t *>PyBytes_AsString(self.topic), PyBytes_Size(self.topic)
        if n < 0:
            self.name = None
            return False
        if n != self.latest_length or memcmp(self.latest_text, name, n):
            self.name = (<const char *>name)[:n]
            found = self.routes.get(self.name)
            if found is None:
                return False
            self.latest_name, self.latest, self.latest_partition = self.name, <TopicRoute>found, -1
            self.latest_text, self.latest_length = <const uint8_t *>PyBytes_AsString(self.name), n
        if self.name is not self.latest_name:
            self.name = self.latest_name
        return True
