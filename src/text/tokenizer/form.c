/* Unicode's normalization forms, by utf8proc. Most text is already normalized, so a table says which characters a form
 * leaves alone wherever they are, and only the stretches between such characters are worked on. Marks are put in
 * order here, in linear time: utf8proc's own ordering is quadratic, which a text of a million marks would turn into a
 * hang. */
#include "text/tokenizer/tokenizer_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/array.h"
#include "base/utf8.h"

#define TABLE_POINTS 0x10000u
#define DECOMPOSED_MAX 32 /* characters that one character can become: 18 in Unicode 15 */
#define INSERTION_MAX 16  /* marks in a row that are ordered by insertion */

struct ash_tok_former {
    utf8proc_option_t options;
    bool composes;
    uint32_t first_unsafe;          /* nothing below this ever changes */
    uint8_t safe[TABLE_POINTS / 8]; /* a bit for each character of the first plane */
};

/* Code points of the stretch at work. */
struct points {
    utf8proc_int32_t *data, *spare;
    size_t count, capacity;
};

/* ---- which characters are left alone ----------------------------------------------------------------------------- */

/* Does the form leave this character alone, and does nothing before it ever combine with it? */
static bool is_safe(const struct ash_tok_former *former, uint32_t point)
{
    utf8proc_int32_t to[DECOMPOSED_MAX];
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)point);
    utf8proc_ssize_t count;

    if (category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME) return false;
    /* letters that combine with the one before: Hangul, Kirat Rai */
    if ((point >= 0x1100 && point <= 0x11ff) || (point >= 0x16d00 && point <= 0x16dff)) return false;
    count = utf8proc_decompose_char((utf8proc_int32_t)point, to, DECOMPOSED_MAX, former->options, NULL);
    if (count > 1 && count <= DECOMPOSED_MAX && former->composes)
        count = utf8proc_normalize_utf32(to, count, former->options);
    return count == 1 && to[0] == (utf8proc_int32_t)point;
}

static bool safe_at(const struct ash_tok_former *former, uint32_t point)
{
    if (point < former->first_unsafe) return true;
    if (point >= TABLE_POINTS) return is_safe(former, point);
    return former->safe[point / 8] >> point % 8 & 1;
}

struct ash_tok_former *ash_tok_former_open(enum ash_tok_form form)
{
    struct ash_tok_former *former = calloc(1, sizeof(*former));
    bool compat = form == ASH_TOK_NFKC || form == ASH_TOK_NFKD;

    if (former == NULL) return NULL;
    former->composes = form == ASH_TOK_NFC || form == ASH_TOK_NFKC;
    former->options = (utf8proc_option_t)(UTF8PROC_STABLE | (former->composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                                          (compat ? UTF8PROC_COMPAT : 0));
    for (uint32_t point = 0; point < TABLE_POINTS; point++)
        if (is_safe(former, point)) former->safe[point / 8] |= (uint8_t)(1u << point % 8);
    while (former->safe[former->first_unsafe / 8] >> former->first_unsafe % 8 & 1)
        former->first_unsafe++; /* every form changes something in the first plane */
    return former;
}

void ash_tok_former_close(struct ash_tok_former *former)
{
    free(former);
}

/* ---- a stretch that may change ----------------------------------------------------------------------------------- */

static int points_reserve(struct points *points, size_t more)
{
    size_t capacity = points->capacity, wanted = points->count + more; /* of both arrays */

    if (ash_array_reserve(&points->spare, &capacity, wanted, sizeof(*points->spare)) < 0) return -ENOMEM;
    return ash_array_reserve(&points->data, &points->capacity, wanted, sizeof(*points->data));
}

static void points_fini(struct points *points)
{
    free(points->data);
    free(points->spare);
}

static uint8_t mark_class(utf8proc_int32_t point)
{
    return (uint8_t)utf8proc_get_property(point)->combining_class;
}

/* Order marks[0..count) by class, those of one class as they came. */
static void order_marks(utf8proc_int32_t *marks, size_t count, utf8proc_int32_t *spare)
{
    size_t starts[257] = {0};

    if (count <= INSERTION_MAX) {
        for (size_t i = 1; i < count; i++) {
            utf8proc_int32_t mark = marks[i];
            size_t at = i;
            for (; at > 0 && mark_class(marks[at - 1]) > mark_class(mark); at--)
                marks[at] = marks[at - 1];
            marks[at] = mark;
        }
        return;
    }
    for (size_t i = 0; i < count; i++)
        starts[mark_class(marks[i]) + 1]++;
    for (size_t class = 1; class < 257; class ++)
        starts[class] += starts[class - 1];
    for (size_t i = 0; i < count; i++)
        spare[starts[mark_class(marks[i])]++] = marks[i];
    memcpy(marks, spare, count * sizeof(*marks));
}

static void order_all(struct points *points)
{
    size_t start = 0;

    while (start < points->count) {
        size_t end = start;
        while (end < points->count && mark_class(points->data[end]) != 0)
            end++;
        if (end - start > 1) order_marks(points->data + start, end - start, points->spare);
        start = end + 1;
    }
}

static int decompose(const struct ash_tok_former *former, struct ash_tok_span text, struct points *points)
{
    points->count = 0;
    for (size_t at = 0; at < text.size_bytes;) {
        uint32_t point = 0;
        utf8proc_ssize_t count;
        at += (size_t)ash_utf8_decode(text.data + at, text.size_bytes - at, &point);
        if (points_reserve(points, DECOMPOSED_MAX) < 0) return -ENOMEM;
        count = utf8proc_decompose_char((utf8proc_int32_t)point, points->data + points->count, DECOMPOSED_MAX,
                                        former->options, NULL);
        if (count < 0 || count > DECOMPOSED_MAX) return -EINVAL;
        points->count += (size_t)count;
    }
    return 0;
}

static int apply_stretch(const struct ash_tok_former *former, struct ash_tok_span text, struct points *points,
                         struct ash_str *out)
{
    utf8proc_ssize_t count;
    int rc = decompose(former, text, points);

    if (rc < 0) return rc;
    order_all(points);
    count = (utf8proc_ssize_t)points->count;
    if (former->composes) count = utf8proc_normalize_utf32(points->data, count, former->options);
    for (utf8proc_ssize_t i = 0; rc == 0 && i < count; i++) {
        char buf[4];
        int size = ash_utf8_encode((uint32_t)points->data[i], buf);
        rc = ash_str_add(out, buf, (size_t)size);
    }
    return rc;
}

/* ---- a text ------------------------------------------------------------------------------------------------------ */

/* From at on: the first character that may change (or the end), and where the safe character before it begins. */
static size_t find_unsafe(const struct ash_tok_former *former, struct ash_tok_span text, size_t at, size_t *start_out)
{
    *start_out = at;
    while (at < text.size_bytes) {
        uint32_t point = 0;
        size_t size = 1;
        if ((uint8_t)text.data[at] >= 0x80) { /* ASCII never changes */
            size = (size_t)ash_utf8_decode(text.data + at, text.size_bytes - at, &point);
        }
        if (!safe_at(former, point)) return at;
        *start_out = at;
        at += size;
    }
    return at;
}

static size_t find_safe(const struct ash_tok_former *former, struct ash_tok_span text, size_t at)
{
    while (at < text.size_bytes) {
        uint32_t point = 0;
        size_t size = (size_t)ash_utf8_decode(text.data + at, text.size_bytes - at, &point);
        if (safe_at(former, point)) return at;
        at += size;
    }
    return at;
}

int ash_tok_former_apply(const struct ash_tok_former *former, struct ash_tok_span text, struct ash_str *out,
                         bool *changed_out)
{
    struct points points = {0};
    size_t done = 0, start, unsafe = find_unsafe(former, text, 0, &start);
    int rc = 0;

    *changed_out = unsafe < text.size_bytes;
    if (!*changed_out) return 0;
    ash_str_clear(out);
    while (rc == 0 && unsafe < text.size_bytes) {
        size_t end = find_safe(former, text, unsafe);
        rc = ash_str_add(out, text.data + done, start - done);
        if (rc == 0) rc = apply_stretch(former, (struct ash_tok_span){text.data + start, end - start}, &points, out);
        done = end;
        unsafe = find_unsafe(former, text, end, &start);
    }
    if (rc == 0) rc = ash_str_add(out, text.data + done, text.size_bytes - done);
    points_fini(&points);
    return rc;
}
