/* Languages as tables: what two of them have in common, and how one is drawn into a pushdown automaton. */
#include "serve/grammar/lang_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/utf8.h"
#include "serve/grammar/pda_priv.h"

#define TABLE_MAX ((size_t)1 << 24) /* entries of one automaton */

struct ash_lang *ash_lang_open(const uint32_t *points, size_t class_count, size_t state_count)
{
    struct ash_lang *lang = calloc(1, sizeof(*lang));

    ash_assert(class_count > 0 && points[0] == 0 && state_count > 0);
    if (lang == NULL) return NULL;
    lang->points = malloc(class_count * sizeof(*points));
    lang->next = calloc(state_count * class_count, sizeof(*lang->next));
    lang->is_final = calloc(state_count, sizeof(*lang->is_final));
    if (lang->points == NULL || lang->next == NULL || lang->is_final == NULL) {
        ash_lang_close(lang);
        return NULL;
    }
    memcpy(lang->points, points, class_count * sizeof(*points));
    lang->class_count = class_count;
    lang->state_count = state_count;
    return lang;
}

int ash_lang_reserve(struct ash_lang *lang, size_t *capacity, size_t state_count)
{
    size_t wanted = *capacity > 0 ? *capacity : 1;
    uint32_t *next;
    bool *is_final;

    if (state_count > *capacity) {
        while (wanted < state_count)
            wanted *= 2;
        if (wanted * lang->class_count > TABLE_MAX) return -ENOMEM;
        next = realloc(lang->next, wanted * lang->class_count * sizeof(*next));
        if (next == NULL) return -ENOMEM;
        lang->next = next;
        is_final = realloc(lang->is_final, wanted * sizeof(*is_final));
        if (is_final == NULL) return -ENOMEM;
        lang->is_final = is_final;
        *capacity = wanted;
    }
    for (size_t s = lang->state_count; s < state_count; s++) {
        memset(lang->next + s * lang->class_count, 0, lang->class_count * sizeof(*lang->next));
        lang->is_final[s] = false;
    }
    if (state_count > lang->state_count) lang->state_count = state_count;
    return 0;
}

void ash_lang_close(struct ash_lang *lang)
{
    if (lang == NULL) return;
    free(lang->points);
    free(lang->next);
    free(lang->is_final);
    free(lang);
}

size_t ash_lang_class(const struct ash_lang *lang, uint32_t point)
{
    size_t low = 0, high = lang->class_count;

    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (lang->points[middle] <= point)
            low = middle;
        else
            high = middle;
    }
    return low;
}

bool ash_lang_is_empty(const struct ash_lang *lang)
{
    return lang->start == 0; /* trimmed */
}

bool ash_lang_has(const struct ash_lang *lang, const char *text, size_t size_bytes)
{
    uint32_t state = lang->start, point;

    for (size_t at = 0; at < size_bytes;) {
        int size = ash_utf8_decode(text + at, size_bytes - at, &point);
        if (size == 0) return false;
        state = lang->next[state * lang->class_count + ash_lang_class(lang, point)];
        at += (size_t)size;
    }
    return lang->is_final[state];
}

/* ---- trimming ---------------------------------------------------------------------------------------------------- */

/* Mark what reaches a final state: from each to those that lead to it. */
static void mark_alive(const struct ash_lang *lang, const uint32_t *first, const uint32_t *sources, bool *alive,
                       uint32_t *queue)
{
    size_t queued = 0;

    for (uint32_t s = 1; s < lang->state_count; s++)
        if (lang->is_final[s]) {
            alive[s] = true;
            queue[queued++] = s;
        }
    for (size_t done = 0; done < queued; done++)
        for (uint32_t i = first[queue[done]]; i < first[queue[done] + 1]; i++) {
            uint32_t source = sources[i];
            if (alive[source]) continue;
            alive[source] = true;
            queue[queued++] = source;
        }
}

int ash_lang_trim(struct ash_lang *lang)
{
    size_t states = lang->state_count, entries = states * lang->class_count;
    uint32_t *first = calloc(states + 2, sizeof(*first)), *sources = malloc((entries + 1) * sizeof(*sources));
    uint32_t *queue = malloc((states + 1) * sizeof(*queue));
    bool *alive = calloc(states + 1, sizeof(*alive));
    int rc = first == NULL || sources == NULL || queue == NULL || alive == NULL ? -ENOMEM : 0;

    if (rc == 0) {
        for (size_t i = 0; i < entries; i++)
            first[lang->next[i] + 1]++;
        for (size_t s = 0; s < states; s++)
            first[s + 1] += first[s];
        for (size_t i = entries; i > 0; i--)
            sources[--first[lang->next[i - 1] + 1]] = (uint32_t)((i - 1) / lang->class_count);
        /* first[s + 1] is now where s begins */
        memmove(first, first + 1, states * sizeof(*first));
        first[states] = (uint32_t)entries;
        mark_alive(lang, first, sources, alive, queue);
        for (size_t i = 0; i < entries; i++)
            if (!alive[lang->next[i]]) lang->next[i] = 0;
        if (!alive[lang->start]) lang->start = 0;
    }
    free(first);
    free(sources);
    free(queue);
    free(alive);
    return rc;
}

/* ---- both, or one without the other ------------------------------------------------------------------------------ */

struct product {
    const struct ash_lang *left, *right;
    struct ash_lang *lang;
    size_t capacity;
    uint32_t (*pairs)[2]; /* [state] */
    size_t pair_capacity;
    uint32_t *slots;
    size_t slot_count;
    bool wants_minus;
};

/* Classes that tell apart what either tells apart. */
static int merge_points(const struct ash_lang *left, const struct ash_lang *right, uint32_t **points_out,
                        size_t *count_out)
{
    uint32_t *points = malloc((left->class_count + right->class_count) * sizeof(*points));
    size_t count = 0, l = 0, r = 0;

    if (points == NULL) return -ENOMEM;
    while (l < left->class_count || r < right->class_count) {
        uint32_t a = l < left->class_count ? left->points[l] : UINT32_MAX;
        uint32_t b = r < right->class_count ? right->points[r] : UINT32_MAX;
        points[count++] = a < b ? a : b;
        l += a <= b;
        r += b <= a;
    }
    *points_out = points;
    *count_out = count;
    return 0;
}

static int grow_pairs(struct product *product)
{
    size_t count = product->slot_count > 0 ? 2 * product->slot_count : 256;
    uint32_t *slots = calloc(count, sizeof(*slots));

    if (slots == NULL) return -ENOMEM;
    for (uint32_t s = 1; s < product->lang->state_count; s++) {
        size_t at = ash_hash_mix((uint64_t)product->pairs[s][0] << 32 | product->pairs[s][1]) & (count - 1);
        while (slots[at] != 0)
            at = (at + 1) & (count - 1);
        slots[at] = s;
    }
    free(product->slots);
    product->slots = slots;
    product->slot_count = count;
    return 0;
}

static int find_pair(struct product *product, uint32_t left, uint32_t right, size_t limit, uint32_t *state_out)
{
    size_t mask = product->slot_count - 1, at = ash_hash_mix((uint64_t)left << 32 | right) & mask, count;
    uint32_t state;

    if (left == 0 || (right == 0 && !product->wants_minus)) {
        *state_out = 0;
        return 0;
    }
    for (; (state = product->slots[at]) != 0; at = (at + 1) & mask)
        if (product->pairs[state][0] == left && product->pairs[state][1] == right) {
            *state_out = state;
            return 0;
        }
    count = product->lang->state_count;
    if (count >= limit) return -E2BIG;
    if (ash_lang_reserve(product->lang, &product->capacity, count + 1) < 0 ||
        ash_array_reserve(&product->pairs, &product->pair_capacity, count + 1, sizeof(*product->pairs)) < 0)
        return -ENOMEM;
    product->pairs[count][0] = left;
    product->pairs[count][1] = right;
    product->lang->is_final[count] =
        product->left->is_final[left] && product->right->is_final[right] != product->wants_minus;
    product->slots[at] = (uint32_t)count;
    *state_out = (uint32_t)count;
    return 2 * count > product->slot_count ? grow_pairs(product) : 0;
}

static int multiply(struct product *product, const struct ash_grammar_limits *limits)
{
    const struct ash_lang *left = product->left, *right = product->right;
    struct ash_lang *lang = product->lang;
    uint64_t end_ns = ash_clock_thread_ns() + (uint64_t)(limits->seconds * 1e9);
    int rc = grow_pairs(product);

    if (rc == 0) rc = find_pair(product, left->start, right->start, limits->states, &lang->start);
    for (uint32_t s = 1; rc == 0 && s < lang->state_count; s++) {
        if (s % 256 == 0 && ash_clock_thread_ns() > end_ns) return -E2BIG;
        for (size_t class = 0; class < lang->class_count && rc == 0; class ++) {
            uint32_t point = lang->points[class], next = 0, a, b;
            a = left->next[product->pairs[s][0] * left->class_count + ash_lang_class(left, point)];
            b = right->next[product->pairs[s][1] * right->class_count + ash_lang_class(right, point)];
            rc = find_pair(product, a, b, limits->states, &next);
            if (rc == 0) lang->next[s * lang->class_count + class] = next;
        }
    }
    return rc;
}

int ash_lang_combine(const struct ash_lang *left, const struct ash_lang *right, bool wants_minus,
                     const struct ash_grammar_limits *limits, struct ash_lang **lang_out, struct ash_err *err)
{
    struct product product = {.left = left, .right = right, .wants_minus = wants_minus, .capacity = 1};
    uint32_t *points = NULL;
    size_t class_count = 0;
    int rc = merge_points(left, right, &points, &class_count);

    if (rc == 0) product.lang = ash_lang_open(points, class_count, 1);
    if (rc == 0) rc = product.lang == NULL ? -ENOMEM : multiply(&product, limits);
    if (rc == 0) rc = ash_lang_trim(product.lang);
    if (rc == 0)
        *lang_out = product.lang;
    else
        ash_lang_close(product.lang);
    if (rc == -E2BIG)
        ash_err_set(err, rc, "several conditions on one text need more than %zu states together; simplify them",
                    limits->states);
    if (rc == -ENOMEM) ash_err_set(err, rc, "out of memory for a grammar");
    free(points);
    free(product.pairs);
    free(product.slots);
    return rc;
}
