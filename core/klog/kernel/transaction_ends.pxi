# Records without their producers: what a consumer of committed data gets.


cdef class TransactionEnds:
    """How the transactions of an input end, by topic, partition and producer.

    `learn` all rows once; then `apply` to the same rows, in the same order.
    """

    cdef dict ends                           # by producer: what its markers are, 1 for COMMIT, in their order
    cdef dict passed                         # by producer: how many of them `apply` has seen

    def __cinit__(self):
        self.ends, self.passed = {}, {}

    def learn(self, InputRecords rows not None):
        """Take in the markers among *rows*."""
        cdef Py_ssize_t i
        cdef InRecord *r
        for i in range(rows.count):
            r = rows.rows + i
            if r.control != KLOG_NO_CONTROL and r.producer_id >= 0 and not r.error:
                self.ends.setdefault(producer_key(r), bytearray()).append(r.control)

    def apply(self, InputRecords rows not None):
        """Leave markers and aborted records out of *rows*, and take the producers from the others.

        A record of a transaction whose marker never came gets the error `undecided`.
        """
        cdef Py_ssize_t i, n = 0
        cdef InRecord *r
        for i in range(rows.count):
            r = rows.rows + i
            if r.producer_id < 0 or r.error or self._stays(r):
                rows.rows[n] = r[0]
                n += 1
        rows.count = n

    cdef bint _stays(self, InRecord *r) except -1:
        cdef bint is_marker = r.control != KLOG_NO_CONTROL
        if is_marker or r.transactional:
            key = producer_key(r)
            at, ends = self.passed.get(key, 0), self.ends.get(key, b"")
            if is_marker:
                self.passed[key] = at + 1
                return False
            if at >= len(ends):
                r.error, r.position = KLOG_UNDECIDED, 0
                return True
            if not ends[at]:
                return False
        r.producer_id = r.producer_epoch = r.sequence = -1
        r.transactional = False
        return True


cdef tuple producer_key(const InRecord *r):
    return None if r.topic_length < 0 else (<const char *>r.topic)[:r.topic_length], r.partition, r.producer_id
