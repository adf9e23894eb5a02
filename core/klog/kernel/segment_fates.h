/* Why the segments of a log are still there, and what they add up to: klog.commands.space.reasons says where the rules are from. */

enum { KLOG_FATE_ACTIVE, KLOG_FATE_TIME, KLOG_FATE_SIZE, KLOG_FATE_DUE, KLOG_FATE_BEHIND, KLOG_FATE_FUTURE, KLOG_FATE_BELOW,
       KLOG_FATE_UNKNOWN, KLOG_FATES };

enum { KLOG_CAUSE_NONE, KLOG_CAUSE_LOG_START, KLOG_CAUSE_BY_TIME, KLOG_CAUSE_BY_SIZE, KLOG_CAUSE_ALL_DUE, KLOG_CAUSE_BEHIND,
       KLOG_CAUSE_LATER };

#define KLOG_NEVER INT64_MIN

typedef struct { int64_t deletes, retention_ms, retention_bytes, log_start, now; } klog_retention;

/* What decides about a segment, and what is decided: due is KLOG_NEVER or a date, before the base offset of the segment
   that holds it back. */
typedef struct { int64_t base, bytes, largest, due, before; int32_t reason, cause; } klog_fate;

static int64_t klog_later(int64_t time, int64_t more) {
    int64_t sum;
    return __builtin_add_overflow(time, more, &sum) ? INT64_MAX : sum;
}

/* When *last* goes, by the date of *one*. */
static int64_t klog_date_of(const klog_fate *last, const klog_fate *one, int64_t date) {
    __int128 sum = (__int128)date - one->largest + last->largest;
    return sum > INT64_MAX ? INT64_MAX : (int64_t)sum;
}

/* Count the segments from the front that are below the log start, and those that a check deletes. */
static void klog_count_due(const klog_fate *logs, int64_t count, const klog_retention *r, int64_t *below, int64_t *due) {
    int64_t i = 0;
    while (i + 1 < count && logs[i + 1].base <= r->log_start)
        i++;
    *below = i;
    if (r->deletes && r->retention_bytes >= 0) {
        __int128 excess = -(__int128)r->retention_bytes;
        for (int64_t k = i; k < count; k++)
            excess += logs[k].bytes;
        for (; i < count && excess >= logs[i].bytes; i++)
            excess -= logs[i].bytes;
    }
    if (r->deletes && r->retention_ms >= 0)
        while (i < count && r->now > klog_later(logs[i].largest, r->retention_ms))
            i++;
    *due = i;
}

static void klog_set_fate(klog_fate *one, int reason, int64_t due, int cause, int64_t before) {
    one->reason = reason, one->due = due, one->cause = cause, one->before = before;
}

/* The active one: the last, whatever its age. */
static void klog_judge_active(klog_fate *one, int64_t date, const klog_fate *last, int all_due) {
    if (!one->bytes)
        klog_set_fate(one, KLOG_FATE_ACTIVE, KLOG_NEVER, KLOG_CAUSE_NONE, 0);
    else if (all_due)
        klog_set_fate(one, KLOG_FATE_ACTIVE, date, KLOG_CAUSE_ALL_DUE, 0);
    else if (date == KLOG_NEVER || !last || last->largest <= one->largest)
        klog_set_fate(one, KLOG_FATE_ACTIVE, date, KLOG_CAUSE_NONE, 0);
    else
        klog_set_fate(one, KLOG_FATE_ACTIVE, klog_date_of(last, one, date), KLOG_CAUSE_LATER, last->base);
}

/* One that stays, by its date and the last to go of those before it that stay. */
static void klog_judge_by_time(klog_fate *one, int64_t date, int64_t now, const klog_fate *last) {
    int reason = one->largest > now ? KLOG_FATE_FUTURE : KLOG_FATE_TIME;
    if (now > date)
        klog_set_fate(one, KLOG_FATE_BEHIND, klog_date_of(last, one, date), KLOG_CAUSE_BEHIND, last->base);
    else if (!last || last->largest <= one->largest)
        klog_set_fate(one, reason, date, KLOG_CAUSE_NONE, 0);
    else
        klog_set_fate(one, reason, date, KLOG_CAUSE_LATER, last->base);
}

/* Decide about all segments of a log, base offsets ascending. */
static void klog_judge_segments(klog_fate *logs, int64_t count, const klog_retention *r) {
    int by_time = r->deletes && r->retention_ms >= 0, by_size = r->deletes && r->retention_bytes >= 0;
    const klog_fate *last = NULL;
    int64_t i, below, due;
    klog_count_due(logs, count, r, &below, &due);
    for (i = 0; i < count; i++) {
        klog_fate *one = logs + i;
        int64_t date = by_time ? klog_later(one->largest, r->retention_ms) : KLOG_NEVER;
        int is_old = by_time && r->now > date;
        if (i == count - 1)
            klog_judge_active(one, date, last, due == count);
        else if (i < below && !is_old)
            klog_set_fate(one, KLOG_FATE_BELOW, KLOG_NEVER, KLOG_CAUSE_LOG_START, r->log_start);
        else if (i < due)
            klog_set_fate(one, KLOG_FATE_DUE, date, is_old ? KLOG_CAUSE_BY_TIME : KLOG_CAUSE_BY_SIZE, 0);
        else if (by_time)
            klog_judge_by_time(one, date, r->now, last);
        else
            klog_set_fate(one, by_size ? KLOG_FATE_SIZE : KLOG_FATE_UNKNOWN, KLOG_NEVER, KLOG_CAUSE_NONE, 0);
        if (i >= due && (!last || one->largest > last->largest))
            last = one;
    }
}

typedef struct { int64_t bytes, disk, oldest, due, by_reason[KLOG_FATES]; int has_oldest; } klog_segment_sums;

/* Add up segments whose fates are known. */
static void klog_sum_segments(const klog_sized_segment *rows, const klog_fate *fates, int64_t count, klog_segment_sums *sums) {
    int64_t i;
    memset(sums, 0, sizeof *sums);
    memset(sums->by_reason, -1, sizeof sums->by_reason); /* -1: no segment has it */
    sums->due = KLOG_NEVER;
    for (i = 0; i < count; i++) {
        const klog_sized_segment *row = rows + i;
        const klog_fate *fate = fates + i;
        int64_t size = row->log_bytes + row->index_bytes;
        int waits = fate->cause && (fate->reason == KLOG_FATE_TIME || fate->reason == KLOG_FATE_FUTURE);
        sums->by_reason[fate->reason] += size + (sums->by_reason[fate->reason] < 0);
        sums->bytes += size;
        sums->disk += row->log_disk + row->index_disk;
        if (row->log_bytes && (!sums->has_oldest || fate->largest < sums->oldest))
            sums->oldest = fate->largest, sums->has_oldest = 1;
        if (fate->due != KLOG_NEVER && !waits && (sums->due == KLOG_NEVER || fate->due < sums->due))
            sums->due = fate->due;
    }
}
