# Why segments are still there.  klog.commands.space.reasons has the words for what is decided here.

cdef extern from "segment_fates.h" nogil:
    ctypedef struct Retention "klog_retention":
        int64_t deletes, retention_ms, retention_bytes, log_start, now
    ctypedef struct Fate "klog_fate":
        int64_t base, bytes, largest, due, before
        int32_t reason, cause
    ctypedef struct SegmentSums "klog_segment_sums":
        int64_t bytes, disk, oldest, due
        int64_t *by_reason
        int has_oldest
    void klog_judge_segments(Fate *logs, int64_t count, const Retention *r)
    void klog_sum_segments(const SizedSegment *rows, const Fate *fates, int64_t count, SegmentSums *sums)
    int64_t NEVER "KLOG_NEVER"
    int FATES "KLOG_FATES"
    int FATE_UNKNOWN "KLOG_FATE_UNKNOWN"


cdef Fate *_fates(Py_ssize_t count) except NULL:
    cdef Fate *fates = <Fate *>malloc(max(count, 1) * sizeof(Fate))
    if fates == NULL:
        raise MemoryError()
    return fates


cdef Retention _retention(tuple limits):
    cdef Retention made
    made.deletes, made.retention_ms, made.retention_bytes, made.log_start, made.now = limits
    return made


def judge_segments(list segments not None, tuple limits not None):
    """Return why each of *segments* (base offset, bytes, largest timestamp) stays: reason, due, cause, segment before.

    *limits*: whether retention deletes, its ms, its bytes, the log start offset, now (ms).  Reasons and causes are
    numbers; due is None for never; the segment before is the base offset of the one that holds this one back.
    """
    cdef Py_ssize_t i, count = PyList_Size(segments)
    cdef Retention retention = _retention(limits)
    cdef Fate *fates = _fates(count)
    try:
        for i in range(count):
            fates[i].base, fates[i].bytes, fates[i].largest = segments[i]
        klog_judge_segments(fates, count, &retention)
        return [
            (fates[i].reason, None if fates[i].due == NEVER else fates[i].due, fates[i].cause, fates[i].before)
            for i in range(count)
        ]
    finally:
        free(fates)


def segment_sums(bytes rows not None, tuple limits not None):
    """Return what the segments of a log (`partition_sizes`) add up to, by *limits* as `judge_segments` has them.

    Bytes, bytes occupied, oldest timestamp, when the first goes (None where there is none), and bytes by reason (-1: no
    segment has it).  None where retention does not decide about a segment, or where a largest timestamp is not known.
    """
    cdef const SizedSegment *row = <const SizedSegment *>PyBytes_AsString(rows)
    cdef Py_ssize_t i, count = PyBytes_Size(rows) // <Py_ssize_t>sizeof(SizedSegment)
    cdef Retention retention = _retention(limits)
    cdef SegmentSums sums
    cdef Fate *fates = _fates(count)
    try:
        for i in range(count):
            if row[i].largest == NOT_KNOWN and row[i].log_bytes:
                return None
            fates[i].base, fates[i].bytes = row[i].base, row[i].log_bytes
            is_known = row[i].largest != NOT_KNOWN and row[i].largest != NO_ENTRY
            fates[i].largest = row[i].largest if is_known else row[i].modified_ms
        klog_judge_segments(fates, count, &retention)
        for i in range(count):
            if fates[i].reason == FATE_UNKNOWN:
                return None
        klog_sum_segments(row, fates, count, &sums)
        oldest = sums.oldest if sums.has_oldest else None
        due = None if sums.due == NEVER else sums.due
        return sums.bytes, sums.disk, oldest, due, [sums.by_reason[i] for i in range(FATES)]
    finally:
        free(fates)
