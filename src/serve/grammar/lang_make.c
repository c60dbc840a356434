/* Languages that are no expression: texts, lengths, tables; and how a language is drawn, raw or in a JSON string. */
#include "serve/grammar/lang_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"
#include "serve/grammar/pda_priv.h"

static int compare_points(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

    return (left > right) - (left < right);
}

/* Sort and make distinct. */
static size_t settle_points(uint32_t *points, size_t count)
{
    size_t kept = 1;

    qsort(points, count, sizeof(*points), compare_points);
    for (size_t i = 1; i < count; i++)
        if (points[i] != points[kept - 1]) points[kept++] = points[i];
    return kept;
}

/* Classes that tell all characters of the texts apart. NULL: *rc_out says why. */
static struct ash_lang *open_for_texts(const struct ash_pda_text *texts, size_t count, int *rc_out)
{
    size_t total = 1, used = 0;
    struct ash_lang *lang;
    uint32_t *points;

    for (size_t i = 0; i < count; i++)
        total += 2 * texts[i].size_bytes;
    points = malloc(total * sizeof(*points));
    *rc_out = -ENOMEM;
    if (points == NULL) return NULL;
    points[used++] = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t at = 0; at < texts[i].size_bytes;) {
            int size = ash_utf8_decode(texts[i].bytes + at, texts[i].size_bytes - at, &points[used]);
            if (size == 0) {
                free(points);
                *rc_out = -EINVAL;
                return NULL;
            }
            points[used + 1] = points[used] + 1 < ASH_LANG_POINTS ? points[used] + 1 : points[used];
            used += 2;
            at += (size_t)size;
        }
    lang = ash_lang_open(points, settle_points(points, used), 1);
    free(points);
    return lang;
}

int ash_lang_from_texts(struct ash_pda_text *texts, size_t count, struct ash_lang **lang_out, struct ash_err *err)
{
    int rc = 0;
    struct ash_lang *lang = open_for_texts(texts, count, &rc);
    size_t capacity = 1;

    rc = lang == NULL ? rc : ash_lang_reserve(lang, &capacity, 2);
    if (rc == 0) lang->start = 1;
    for (size_t i = 0; i < count && rc == 0; i++) {
        uint32_t state = 1, point;
        for (size_t at = 0; at < texts[i].size_bytes && rc == 0;) {
            int size = ash_utf8_decode(texts[i].bytes + at, texts[i].size_bytes - at, &point);
            size_t entry = state * lang->class_count + ash_lang_class(lang, point);
            if (lang->next[entry] == 0) {
                rc = ash_lang_reserve(lang, &capacity, lang->state_count + 1);
                if (rc == 0) lang->next[entry] = (uint32_t)lang->state_count - 1;
            }
            if (rc == 0) state = lang->next[entry];
            at += (size_t)size;
        }
        if (rc == 0) lang->is_final[state] = true;
    }
    if (rc == 0 && count == 0) lang->start = 0;
    if (rc == 0) {
        *lang_out = lang;
        return 0;
    }
    ash_lang_close(lang);
    return ash_err_set(err, rc, rc == -EINVAL ? "a text is not UTF-8" : "out of memory for a grammar");
}

int ash_lang_from_length(uint32_t min, uint32_t max, const struct ash_grammar_limits *limits,
                         struct ash_lang **lang_out, struct ash_err *err)
{
    static const uint32_t all = 0;
    uint32_t last = max == ASH_PDA_UNBOUNDED ? min : max;
    struct ash_lang *lang;

    if (last >= limits->states)
        return ash_err_set(err, -E2BIG, "a length of %u together with other conditions needs more than %zu states",
                           last, limits->states);
    lang = ash_lang_open(&all, 1, (size_t)last + 2); /* state i + 1: i characters */
    if (lang == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a grammar");
    lang->start = 1;
    for (uint32_t i = 0; i <= last; i++) {
        lang->next[i + 1] = i < last ? i + 2 : 0;
        lang->is_final[i + 1] = i >= min;
    }
    if (max == ASH_PDA_UNBOUNDED) lang->next[last + 1] = last + 1;
    *lang_out = lang;
    return 0;
}

int ash_lang_from_table(const struct ash_lang_table *table, struct ash_lang **lang_out, struct ash_err *err)
{
    size_t chars = strlen(table->chars), used = 0;
    uint32_t points[257];
    struct ash_lang *lang;

    ash_assert(chars <= 128);
    points[used++] = 0;
    for (size_t i = 0; i < chars; i++) {
        points[used++] = (uint8_t)table->chars[i];
        points[used++] = (uint8_t)table->chars[i] + 1u;
    }
    lang = ash_lang_open(points, settle_points(points, used), table->state_count);
    if (lang == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a grammar");
    lang->start = 1;
    for (size_t s = 1; s < table->state_count; s++) {
        lang->is_final[s] = table->is_final[s];
        for (size_t i = 0; i < chars; i++)
            lang->next[s * lang->class_count + ash_lang_class(lang, (uint8_t)table->chars[i])] =
                table->next[s * chars + i];
    }
    if (ash_lang_trim(lang) < 0) {
        ash_lang_close(lang);
        return ash_err_set(err, -ENOMEM, "out of memory for a grammar");
    }
    *lang_out = lang;
    return 0;
}

/* ---- drawing ----------------------------------------------------------------------------------------------------- */

/* A control character in a JSON string: \n and the like, or \u00xx. */
static void draw_control(struct ash_pda_draft *draft, uint32_t from, uint32_t to, uint32_t point)
{
    static const char *const short_forms = "\b\f\n\r\t", *const letters = "bfnrt";
    const char *found = point != 0 ? strchr(short_forms, (int)point) : NULL;
    char text[16];

    if (found != NULL) {
        snprintf(text, sizeof(text), "\\%c", letters[found - short_forms]);
        ash_pda_add_text(draft, from, to, text, 2);
    }
    snprintf(text, sizeof(text), "\\u%04x", point);
    ash_pda_add_text(draft, from, to, text, 6);
    if (point % 16 < 10) return;
    snprintf(text, sizeof(text), "\\u%04X", point);
    ash_pda_add_text(draft, from, to, text, 6);
}

/* All control characters at once. */
static void draw_controls(struct ash_pda_draft *draft, uint32_t from, uint32_t to)
{
    uint32_t escape = ash_pda_add_state(draft), high = ash_pda_add_state(draft), low = ash_pda_add_state(draft);

    ash_pda_add_text(draft, from, escape, "\\", 1);
    for (const char *letter = "bfnrt"; *letter != '\0'; letter++)
        ash_pda_add_text(draft, escape, to, letter, 1);
    ash_pda_add_text(draft, escape, high, "u00", 3);
    ash_pda_add_bytes(draft, high, low, '0', '1');
    ash_pda_add_bytes(draft, low, to, '0', '9');
    ash_pda_add_bytes(draft, low, to, 'a', 'f');
    ash_pda_add_bytes(draft, low, to, 'A', 'F');
}

static void draw_json(struct ash_pda_draft *draft, uint32_t from, uint32_t to, uint32_t first, uint32_t last)
{
    static const uint32_t raw[][2] = {{0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, ASH_LANG_POINTS - 1}};

    if (first == 0 && last >= 0x1f)
        draw_controls(draft, from, to);
    else
        for (uint32_t point = first; point < 0x20 && point <= last; point++)
            draw_control(draft, from, to, point);
    if (first <= '"' && last >= '"') ash_pda_add_text(draft, from, to, "\\\"", 2);
    if (first <= '\\' && last >= '\\') ash_pda_add_text(draft, from, to, "\\\\", 2);
    for (size_t i = 0; i < ASH_COUNT(raw); i++) {
        uint32_t low = first > raw[i][0] ? first : raw[i][0], high = last < raw[i][1] ? last : raw[i][1];
        if (low <= high) ash_pda_add_points(draft, from, to, low, high);
    }
}

/* The edges of one state; neighbours with the same target are one range. */
static void draw_state(const struct ash_lang *lang, uint32_t state, enum ash_lang_form form,
                       struct ash_pda_draft *draft, const uint32_t *drawn)
{
    const uint32_t *next = lang->next + state * lang->class_count;

    for (size_t class = 0, end; class < lang->class_count; class = end) {
        uint32_t last;
        for (end = class + 1; end < lang->class_count && next[end] == next[class];)
            end++;
        if (next[class] == 0) continue;
        last = (end < lang->class_count ? lang->points[end] : ASH_LANG_POINTS) - 1;
        if (form == ASH_LANG_JSON)
            draw_json(draft, drawn[state], drawn[next[class]], lang->points[class], last);
        else
            ash_pda_add_points(draft, drawn[state], drawn[next[class]], lang->points[class], last);
    }
}

void ash_lang_draw(const struct ash_lang *lang, enum ash_lang_form form, struct ash_pda_draft *draft, uint32_t from,
                   uint32_t to)
{
    uint32_t *drawn = malloc((lang->state_count + 1) * sizeof(*drawn));

    if (drawn == NULL) {
        ash_pda_draft_stop(draft, -ENOMEM);
        return;
    }
    if (lang->start != 0) {
        for (size_t s = 1; s < lang->state_count; s++)
            drawn[s] = ash_pda_add_state(draft);
        ash_pda_add_empty(draft, from, drawn[lang->start]);
        for (uint32_t s = 1; s < lang->state_count && ash_pda_draft_check(draft, NULL) == 0; s++) {
            draw_state(lang, s, form, draft, drawn);
            if (lang->is_final[s]) ash_pda_add_empty(draft, drawn[s], to);
        }
    }
    free(drawn);
}
