/* Sets of characters in expressions: escapes and [classes]. */
#include "serve/grammar/lang_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/utf8.h"
#include "serve/grammar/pda_priv.h"

#define LAST_POINT (ASH_LANG_POINTS - 1)

int ash_lang_set_add(struct ash_lang_set *set, uint32_t first, uint32_t last)
{
    if (ash_array_reserve(&set->ranges, &set->capacity, set->count + 1, sizeof(*set->ranges)) < 0) return -ENOMEM;
    set->ranges[set->count][0] = first;
    set->ranges[set->count++][1] = last;
    return 0;
}

static int compare_ranges(const void *a, const void *b)
{
    const uint32_t *left = a, *right = b;

    return (left[0] > right[0]) - (left[0] < right[0]);
}

/* The gaps between settled ranges, in their place. */
static int complement(struct ash_lang_set *set)
{
    struct ash_lang_set others = {0};
    uint32_t from = 0;
    int rc = 0;

    for (size_t i = 0; i < set->count && rc == 0; i++) {
        if (set->ranges[i][0] > from) rc = ash_lang_set_add(&others, from, set->ranges[i][0] - 1);
        from = set->ranges[i][1] + 1;
    }
    if (rc == 0 && from <= LAST_POINT) rc = ash_lang_set_add(&others, from, LAST_POINT);
    free(rc == 0 ? (void *)set->ranges : (void *)others.ranges);
    if (rc == 0) *set = others;
    return rc;
}

int ash_lang_set_settle(struct ash_lang_set *set, bool wants_others)
{
    size_t kept = 0;

    if (set->count > 0) qsort(set->ranges, set->count, sizeof(*set->ranges), compare_ranges);
    for (size_t i = 0; i < set->count; i++) {
        if (kept > 0 && set->ranges[i][0] <= set->ranges[kept - 1][1] + 1) {
            if (set->ranges[i][1] > set->ranges[kept - 1][1]) set->ranges[kept - 1][1] = set->ranges[i][1];
        } else {
            memmove(set->ranges[kept++], set->ranges[i], sizeof(set->ranges[0]));
        }
    }
    set->count = kept;
    return wants_others ? complement(set) : 0;
}

int ash_regex_point(struct ash_regex_cursor *cursor, uint32_t *point_out, struct ash_err *err)
{
    int size;

    if (cursor->at >= cursor->size_bytes)
        return ash_err_set(err, -EINVAL, "the expression ends too early, at byte %zu", cursor->at);
    size = ash_utf8_decode(cursor->text + cursor->at, cursor->size_bytes - cursor->at, point_out);
    if (size == 0) return ash_err_set(err, -EINVAL, "byte %zu of the expression is not UTF-8", cursor->at);
    cursor->at += (size_t)size;
    return 0;
}

/* ---- escapes ----------------------------------------------------------------------------------------------------- */

/* \d, \w, \s as ECMAScript has them. */
static const uint32_t digit_ranges[][2] = {{'0', '9'}};
static const uint32_t word_ranges[][2] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const uint32_t space_ranges[][2] = {{0x09, 0x0d},     {0x20, 0x20},     {0xa0, 0xa0},     {0x1680, 0x1680},
                                           {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
                                           {0x3000, 0x3000}, {0xfeff, 0xfeff}};

static int add_ranges(struct ash_lang_set *set, const uint32_t (*ranges)[2], size_t count, bool wants_others)
{
    struct ash_lang_set own = {0};
    int rc = 0;

    for (size_t i = 0; i < count && rc == 0; i++)
        rc = ash_lang_set_add(&own, ranges[i][0], ranges[i][1]);
    if (rc == 0) rc = ash_lang_set_settle(&own, wants_others);
    for (size_t i = 0; i < own.count && rc == 0; i++)
        rc = ash_lang_set_add(set, own.ranges[i][0], own.ranges[i][1]);
    free(own.ranges);
    return rc;
}

/* 1 when letter names a class, which is added; 0 when it does not. */
static int add_named(struct ash_lang_set *set, uint32_t letter)
{
    static const struct {
        char letter;
        const uint32_t (*ranges)[2];
        size_t count;
    } classes[] = {{'d', digit_ranges, ASH_COUNT(digit_ranges)},
                   {'w', word_ranges, ASH_COUNT(word_ranges)},
                   {'s', space_ranges, ASH_COUNT(space_ranges)}};

    for (size_t i = 0; i < ASH_COUNT(classes); i++) {
        bool is_upper = letter == (uint32_t)(classes[i].letter - 'a' + 'A');
        if (!is_upper && letter != (uint32_t)classes[i].letter) continue;
        return add_ranges(set, classes[i].ranges, classes[i].count, is_upper) < 0 ? -ENOMEM : 1;
    }
    return 0;
}

static int hex_digits(struct ash_regex_cursor *cursor, int count, uint32_t *value_out)
{
    uint32_t value = 0;

    for (int i = 0; i < count; i++, cursor->at++) {
        char c = cursor->at < cursor->size_bytes ? cursor->text[cursor->at] : '\0';
        const char *digits = "0123456789abcdef", *found;
        if (c >= 'A' && c <= 'F') c = (char)(c - 'A' + 'a');
        found = c != '\0' ? strchr(digits, c) : NULL;
        if (found == NULL) return -EINVAL;
        value = value << 4 | (uint32_t)(found - digits);
    }
    *value_out = value;
    return 0;
}

/* \xHH, \uHHHH (a pair of surrogates too), \u{H...}. letter: x or u. */
static int hex_escape(struct ash_regex_cursor *cursor, uint32_t letter, uint32_t *point_out, struct ash_err *err)
{
    size_t start = cursor->at;
    uint32_t low = 0;
    int rc;

    if (letter == 'u' && start < cursor->size_bytes && cursor->text[start] == '{') {
        const char *close = memchr(cursor->text + start, '}', cursor->size_bytes - start);
        size_t count = close != NULL ? (size_t)(close - cursor->text) - start - 1 : 0;
        cursor->at++;
        rc = count < 1 || count > 6 ? -EINVAL : hex_digits(cursor, (int)count, point_out);
        cursor->at++;
    } else {
        rc = hex_digits(cursor, letter == 'u' ? 4 : 2, point_out);
        if (rc == 0 && *point_out >= 0xd800 && *point_out < 0xdc00 && cursor->at + 2 <= cursor->size_bytes &&
            memcmp(cursor->text + cursor->at, "\\u", 2) == 0) {
            cursor->at += 2;
            rc = hex_digits(cursor, 4, &low);
            *point_out = 0x10000 + ((*point_out - 0xd800) << 10) + (low - 0xdc00);
        }
    }
    if (rc < 0 || *point_out > LAST_POINT)
        return ash_err_set(err, -EINVAL, "bad \\%c at byte %zu of the expression", (int)letter, start);
    return 0;
}

/* The character of a single-character escape, or UINT32_MAX. */
static uint32_t single_escape(uint32_t letter, bool in_class)
{
    static const char *const names = "tnrfv0", *const values = "\t\n\r\f\v\0";
    const char *found = letter != 0 && letter < 0x80 ? strchr(names, (int)letter) : NULL;

    if (found != NULL) return (uint32_t)values[found - names];
    if (in_class && letter == 'b') return 8;
    if (letter < 0x80 &&
        ((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9')))
        return UINT32_MAX;
    return letter;
}

int ash_regex_escape(struct ash_regex_cursor *cursor, bool in_class, struct ash_lang_set *set, uint32_t *single_out,
                     struct ash_err *err)
{
    size_t start = cursor->at;
    uint32_t letter = 0;
    int rc = ash_regex_point(cursor, &letter, err);

    *single_out = UINT32_MAX;
    if (rc < 0) return rc;
    rc = add_named(set, letter);
    if (rc != 0) return rc < 0 ? ash_err_set(err, rc, "out of memory for an expression") : 0;
    if (letter == 'x' || letter == 'u') {
        rc = hex_escape(cursor, letter, single_out, err);
        if (rc < 0) return rc;
    } else {
        *single_out = single_escape(letter, in_class);
    }
    if (*single_out == UINT32_MAX)
        return ash_err_set(err, -ENOTSUP, "'\\%.*s' at byte %zu of the expression is not supported",
                           (int)(cursor->at - start), cursor->text + start, start);
    if (ash_lang_set_add(set, *single_out, *single_out) < 0)
        return ash_err_set(err, -ENOMEM, "out of memory for an expression");
    return 0;
}

/* ---- [classes] --------------------------------------------------------------------------------------------------- */

/* One end of a range, or a class (*single_out UINT32_MAX). */
static int class_item(struct ash_regex_cursor *cursor, struct ash_lang_set *set, uint32_t *single_out,
                      struct ash_err *err)
{
    uint32_t point = 0;
    int rc = ash_regex_point(cursor, &point, err);

    if (rc < 0) return rc;
    if (point == '\\') return ash_regex_escape(cursor, true, set, single_out, err);
    *single_out = point;
    return ash_lang_set_add(set, point, point) < 0 ? ash_err_set(err, -ENOMEM, "out of memory for an expression") : 0;
}

static bool peek(const struct ash_regex_cursor *cursor, size_t ahead, char c)
{
    return cursor->at + ahead < cursor->size_bytes && cursor->text[cursor->at + ahead] == c;
}

int ash_regex_class(struct ash_regex_cursor *cursor, struct ash_lang_set *set, struct ash_err *err)
{
    size_t start = cursor->at;
    bool wants_others = peek(cursor, 0, '^');

    cursor->at += wants_others;
    while (!peek(cursor, 0, ']')) {
        uint32_t first = 0, last = 0;
        int rc = class_item(cursor, set, &first, err);
        if (rc < 0) return rc;
        if (!peek(cursor, 0, '-') || peek(cursor, 1, ']')) continue;
        cursor->at++;
        rc = class_item(cursor, set, &last, err);
        if (rc < 0) return rc;
        if (first == UINT32_MAX || last == UINT32_MAX || first > last)
            return ash_err_set(err, -EINVAL, "bad range in the class at byte %zu of the expression", start);
        if (ash_lang_set_add(set, first, last) < 0) return ash_err_set(err, -ENOMEM, "out of memory for an expression");
    }
    cursor->at++;
    return ash_lang_set_settle(set, wants_others) < 0 ? ash_err_set(err, -ENOMEM, "out of memory for an expression")
                                                      : 0;
}
