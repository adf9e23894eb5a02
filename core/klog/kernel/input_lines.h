/* One record a line: as JSON, or as CSV with the columns that a first line names. */
#ifndef KLOG_RECORD_LINES_H
#define KLOG_RECORD_LINES_H

#include <stddef.h>

#include "record_text.h"

enum {
    KLOG_FIELD_KEY, KLOG_FIELD_KEY_BASE64, KLOG_FIELD_VALUE, KLOG_FIELD_VALUE_BASE64, KLOG_FIELD_HEADERS, KLOG_FIELD_TOPIC,
    KLOG_FIELD_TIMESTAMP_TYPE, KLOG_FIELD_TRANSACTIONAL, KLOG_FIELD_CONTROL, KLOG_FIELD_DAMAGE,
    KLOG_FIELD_NUMBER /* and from here on those of klog_numbers */
};

typedef struct {
    const char *name;
    int64_t lowest, highest;
    size_t at;
    int is_long;
} klog_number;

#define KLOG_INT_FIELD(name, lowest, highest) {#name, lowest, highest, offsetof(klog_record, name), 0}
#define KLOG_LONG_FIELD(name, lowest) {#name, lowest, INT64_MAX, offsetof(klog_record, name), 1}

static const klog_number klog_numbers[] = {
    KLOG_LONG_FIELD(offset, -1), KLOG_LONG_FIELD(timestamp, INT64_MIN + 1), KLOG_INT_FIELD(partition, 0, INT32_MAX),
    KLOG_INT_FIELD(leader_epoch, -1, INT32_MAX), KLOG_LONG_FIELD(producer_id, -1), KLOG_INT_FIELD(producer_epoch, -1, INT16_MAX),
    KLOG_INT_FIELD(sequence, -1, INT32_MAX), KLOG_LONG_FIELD(position, -1), KLOG_INT_FIELD(coordinator_epoch, INT32_MIN, INT32_MAX),
    KLOG_LONG_FIELD(batch, -1),
};
enum { KLOG_NUMBERS = sizeof klog_numbers / sizeof *klog_numbers };

static const char *const klog_names[] = {"key", "key_base64", "value", "value_base64", "headers", "topic",
                                         "timestamp_type", "transactional", "control", "damage"};

/* Which field has this name, -1 for one that is ignored. */
static int klog_field(const uint8_t *name, int32_t n) {
    for (int i = 0; i < KLOG_FIELD_NUMBER; i++)
        if (klog_names[i][0] == name[0] && strlen(klog_names[i]) == (size_t)n && !memcmp(klog_names[i], name, (size_t)n)) return i;
    for (int i = 0; i < KLOG_NUMBERS; i++)
        if (klog_numbers[i].name[0] == name[0] && strlen(klog_numbers[i].name) == (size_t)n
            && !memcmp(klog_numbers[i].name, name, (size_t)n)) return KLOG_FIELD_NUMBER + i;
    return -1;
}

static inline const char *klog_field_name(int field) {
    if (field < 0) return "";
    return field < KLOG_FIELD_NUMBER ? klog_names[field] : klog_numbers[field - KLOG_FIELD_NUMBER].name;
}

/* The value of a numeric field; 0 if it cannot be this one. */
static inline int klog_take_value(klog_record *r, int field, int64_t value) {
    const klog_number *one = klog_numbers + (field - KLOG_FIELD_NUMBER);
    if (field < KLOG_FIELD_NUMBER || value < one->lowest || value > one->highest) return 0;
    if (one->is_long) memcpy((uint8_t *)r + one->at, &value, 8);
    else memcpy((uint8_t *)r + one->at, &(int32_t){(int32_t)value}, 4);
    return 1;
}

static inline uint8_t *klog_take_number(klog_record *r, uint8_t *p, int field) {
    int64_t value;
    uint8_t *stop = klog_whole(r, p, &value);
    return !stop || klog_take_value(r, field, value) ? stop : klog_stop(r, p, KLOG_WRONG_TYPE);
}

static inline int klog_is_content(int field) { return field == KLOG_FIELD_KEY || field == KLOG_FIELD_VALUE; }

/* The content of a text field, once it is decoded: *p, n bytes. */
static inline int klog_take_text(klog_record *r, int field, uint8_t *p, int32_t n) {
    switch (field) {
    case KLOG_FIELD_KEY: case KLOG_FIELD_KEY_BASE64: r->key = p, r->key_length = n; return 1;
    case KLOG_FIELD_VALUE: case KLOG_FIELD_VALUE_BASE64: r->value = p, r->value_length = n; return 1;
    case KLOG_FIELD_TOPIC: r->topic = p, r->topic_length = n; return 1;
    case KLOG_FIELD_TIMESTAMP_TYPE:
        r->append_time = n == 13 && klog_word(p, "LogAppendTime", 13);
        return r->append_time || (n == 10 && klog_word(p, "CreateTime", 10));
    case KLOG_FIELD_CONTROL:
        r->control = n == 6 && klog_word(p, "COMMIT", 6) ? 1 : n == 5 && klog_word(p, "ABORT", 5) ? 0 : KLOG_NO_CONTROL;
        return r->control != KLOG_NO_CONTROL;
    }
    return 0;
}

static inline int klog_is_base64(int field) { return field == KLOG_FIELD_KEY_BASE64 || field == KLOG_FIELD_VALUE_BASE64; }

static inline uint8_t *klog_json_value(klog_record *r, int field, uint8_t *p, const uint8_t *end) {
    int32_t n;
    p = klog_blank(p);
    /* The usual field: a number, or unescaped text. */
    if (field >= KLOG_FIELD_NUMBER && *p <= '9') return klog_take_number(r, p, field);
    if (*p == '"' && (klog_is_content(field) || field == KLOG_FIELD_TOPIC)) {
        uint8_t *text = p + 1;
        p = klog_string(r, text, end, &n);
        if (p) klog_take_text(r, field, text, n);
        return p;
    }
    if (field < 0) return klog_pass(r, p, end);
    if (field == KLOG_FIELD_DAMAGE) return klog_stop(r, p, KLOG_DAMAGE);
    if (*p == 'n' && klog_word(p, "null", 4)) {
        if (field < KLOG_FIELD_HEADERS && !klog_is_base64(field)) klog_take_text(r, field, p, -1);
        return p + 4;
    }
    if (field >= KLOG_FIELD_NUMBER) return klog_take_number(r, p, field);
    if (field == KLOG_FIELD_HEADERS) return klog_headers(r, p, end);
    if (field == KLOG_FIELD_TRANSACTIONAL) {
        r->transactional = *p == 't' && klog_word(p, "true", 4);
        if (r->transactional) return p + 4;
        return *p == 'f' && klog_word(p, "false", 5) ? p + 5 : klog_stop(r, p, KLOG_WRONG_TYPE);
    }
    if (*p != '"') return klog_stop(r, p, KLOG_WRONG_TYPE);
    uint8_t *start = p + 1;
    p = klog_string(r, start, end, &n);
    if (!p) return NULL;
    if (klog_is_base64(field) && (n = (int32_t)klog_read_base64(start, start, n)) < 0) return klog_stop(r, start, KLOG_BAD_BASE64);
    return klog_take_text(r, field, start, n) ? p : klog_stop(r, start, KLOG_WRONG_TYPE);
}

enum { KLOG_GAPS = 32, KLOG_GAP_WORDS = 3, KLOG_GAP_BYTES = 8 * KLOG_GAP_WORDS };

/* The text before a value in the line before, `,"offset":`, for lines are alike; length 0: nothing is kept. */
typedef struct {
    uint64_t bytes[KLOG_GAP_WORDS], mask[KLOG_GAP_WORDS];
    int32_t length, field;
} klog_gap;

/* The bits at which eight bytes of a gap, from byte 8 i on, differ from those at p. */
static inline uint64_t klog_other_bits(const uint8_t *p, const klog_gap *gap, int i) {
    uint64_t bytes;
    memcpy(&bytes, p + 8 * i, 8);
    return (bytes ^ gap->bytes[i]) & gap->mask[i];
}

/* Whether a gap is at p, with KLOG_GAP_BYTES that can be read.  No newline is in one. */
static inline int klog_is_gap(const uint8_t *p, const klog_gap *gap) {
    return gap->length && !(klog_other_bits(p, gap, 0) | klog_other_bits(p, gap, 1) | klog_other_bits(p, gap, 2));
}

/* Read what stands before the next value, or at the object's end: then, and where there is an error, NULL. */
static uint8_t *klog_json_name(klog_record *r, uint8_t *p, const uint8_t *end, int is_first, int32_t *field) {
    int32_t n;
    p = klog_blank(p);
    if (is_first && *p != '{') return klog_stop(r, p, KLOG_BAD_SYNTAX);
    if (is_first) p = klog_blank(p + 1);
    if (*p == '}') {
        p = klog_blank(p + 1);
        return *p == '\n' ? NULL : klog_stop(r, p, KLOG_BAD_SYNTAX);
    }
    if (!is_first && *p != ',') return klog_stop(r, p, KLOG_BAD_SYNTAX);
    if (!is_first) p = klog_blank(p + 1);
    if (*p != '"') return klog_stop(r, p, KLOG_BAD_SYNTAX);
    uint8_t *name = p + 1;
    p = klog_string(r, name, end, &n);
    if (!p) return NULL;
    *field = n ? klog_field(name, n) : -1;
    p = klog_blank(p);
    return *p == ':' ? p + 1 : klog_stop(r, p, KLOG_BAD_SYNTAX);
}

/* The same, and keep what stood there, if it is not too long. */
static uint8_t *klog_learn_gap(klog_record *r, uint8_t *p, const uint8_t *end, int is_first, klog_gap *gap) {
    uint8_t *start = p;
    memcpy(gap->bytes, p, KLOG_GAP_BYTES); /* before a name in it is decoded in place */
    gap->length = 0;
    p = klog_json_name(r, p, end, is_first, &gap->field);
    if (!p || p - start > KLOG_GAP_BYTES) return p;
    gap->length = (int32_t)(p - start);
    memset(gap->mask, 0, KLOG_GAP_BYTES);
    memset(gap->mask, 0xFF, (size_t)gap->length);
    return p;
}

/* Read the JSON object that begins at p; *gaps: those of the line before, KLOG_GAPS of them. */
static void klog_json_record(klog_record *r, uint8_t *p, const uint8_t *end, klog_gap *gaps) {
    for (int i = 0;; i++) {
        klog_gap *gap = gaps + (i < KLOG_GAPS ? i : KLOG_GAPS - 1);
        if (klog_is_gap(p, gap)) p += gap->length;
        else p = klog_learn_gap(r, p, end, !i, gap);
        if (!p) return;
        p = klog_json_value(r, gap->field, p, end);
        if (!p) {
            r->field = (int8_t)gap->field;
            return;
        }
    }
}

/* Take a quoted field's doubled quotes out, in place; p is behind the first quote.  NULL where it does not end. */
static uint8_t *klog_csv_quoted(uint8_t *p, const uint8_t *end, int32_t *length) {
    uint8_t *w = p, *start = p;
    for (;;) {
        uint8_t *quote = memchr(p, '"', (size_t)(end - p));
        if (!quote) return NULL;
        memmove(w, p, (size_t)(quote - p));
        w += quote - p;
        p = quote + 1;
        if (p == end || *p != '"') break;
        *w++ = '"';
        p++;
    }
    *length = (int32_t)(w - start);
    return p;
}

/* Take one field of a CSV line: n bytes at p, where the byte behind them may be overwritten. */
static int klog_csv_field_value(klog_record *r, int field, uint8_t *p, int32_t n, int quoted) {
    uint8_t *stop;
    if (field < 0 || (!n && !quoted)) return 1;
    p[n] = '\n'; /* a field ends here now: nothing looks beyond it */
    if (field == KLOG_FIELD_DAMAGE) return !!klog_stop(r, p, KLOG_DAMAGE);
    if (field == KLOG_FIELD_HEADERS) {
        stop = klog_headers(r, p, p + n);
        return stop && (stop == p + n || klog_stop(r, stop, KLOG_BAD_SYNTAX));
    }
    if (field == KLOG_FIELD_TRANSACTIONAL) {
        r->transactional = n == 4 && klog_word(p, "true", 4);
        return r->transactional || (n == 5 && klog_word(p, "false", 5)) || klog_stop(r, p, KLOG_WRONG_TYPE);
    }
    if (field >= KLOG_FIELD_NUMBER) {
        stop = klog_take_number(r, p, field);
        return stop && (stop == p + n || klog_stop(r, p, KLOG_WRONG_TYPE));
    }
    if (klog_is_base64(field) && (n = (int32_t)klog_read_base64(p, p, n)) < 0) return !!klog_stop(r, p, KLOG_BAD_BASE64);
    return klog_take_text(r, field, p, n) || klog_stop(r, p, KLOG_WRONG_TYPE);
}

/* The end of the CSV line at p, its newline; NULL if it continues beyond end.  A quoted field may have newlines. */
static uint8_t *klog_csv_line_end(uint8_t *p, const uint8_t *end) {
    int quoted = 0;
    for (; p < end; p++) {
        if (*p == '"') quoted = !quoted;
        else if (*p == '\n' && !quoted) return p;
    }
    return NULL;
}

/* Read the CSV line at p, whose columns are `fields`, and whose newline is the last byte before end.  NULL: there is an error. */
static uint8_t *klog_csv_record(klog_record *r, uint8_t *p, const uint8_t *end, const int8_t *fields, int columns) {
    uint8_t *line = p;
    r->key_length = r->value_length = -1;
    for (int i = 0;; i++) {
        int32_t n;
        uint8_t *start = p, after;
        int quoted = *p == '"';
        if (quoted) {
            p = klog_csv_quoted(++start, end, &n);
            if (!p || p == end) return klog_stop(r, start, KLOG_BAD_SYNTAX);
        } else {
            while (*p != ',' && *p != '\n') p++;
            n = (int32_t)(p - start);
            if (n && start[n - 1] == '\r' && *p == '\n') n--;
        }
        if (quoted && *p == '\r' && p[1] == '\n') p++;
        after = *p;
        if (after != ',' && after != '\n') return klog_stop(r, p, KLOG_BAD_SYNTAX);
        if (i >= columns) return klog_stop(r, start, KLOG_WRONG_COLUMNS);
        if (!klog_csv_field_value(r, fields[i], start, n, quoted)) {
            r->field = fields[i];
            return NULL;
        }
        if (after == '\n') {
            if (i != columns - 1) return klog_stop(r, line, KLOG_WRONG_COLUMNS);
            /* A quote within a field that does not begin with one: more than this line was taken for it. */
            return p + 1 == end ? p : klog_stop(r, start, KLOG_BAD_SYNTAX);
        }
        p++;
    }
}
#endif
