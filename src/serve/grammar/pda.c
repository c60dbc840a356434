/* Drawing automata. A draft keeps a list of edges per state; the first failure stays, so that callers can draw on and
 * ask at the end. */
#include "serve/grammar/pda.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/clock.h"
#include "serve/grammar/pda_priv.h"

#define CHECK_EVERY 1024 /* edges between two looks at the clock */

struct ash_pda_draft *ash_pda_draft_open(const struct ash_grammar_limits *limits)
{
    struct ash_pda_draft *draft = calloc(1, sizeof(*draft));

    if (draft == NULL) return NULL;
    draft->limits = *limits;
    draft->end_ns = ash_clock_thread_ns() + (uint64_t)(limits->seconds * 1e9);
    return draft;
}

void ash_pda_draft_close(struct ash_pda_draft *draft)
{
    if (draft == NULL) return;
    free(draft->heads);
    free(draft->edges);
    free(draft->rules);
    free(draft);
}

const struct ash_grammar_limits *ash_pda_draft_limits(const struct ash_pda_draft *draft)
{
    return &draft->limits;
}

void ash_pda_draft_stop(struct ash_pda_draft *draft, int rc)
{
    if (draft->rc == 0) {
        draft->rc = rc;
        draft->what = "the grammar is too large";
    }
}

/* Remember the first failure. */
static void stop(struct ash_pda_draft *draft, int rc, const char *what)
{
    if (draft->rc == 0) {
        draft->rc = rc;
        draft->what = what;
    }
}

int ash_pda_draft_check(struct ash_pda_draft *draft, struct ash_err *err)
{
    if (ash_clock_thread_ns() > draft->end_ns) stop(draft, -E2BIG, "it takes too long to compile");
    if (draft->rc == -ENOMEM) return ash_err_set(err, -ENOMEM, "out of memory for a grammar");
    if (draft->rc == 0) return 0;
    return ash_err_set(err, draft->rc, "%s (the limit is %zu states and %g seconds): simplify it", draft->what,
                       draft->limits.states, draft->limits.seconds);
}

uint32_t ash_pda_add_state(struct ash_pda_draft *draft)
{
    if (draft->state_count >= draft->limits.states) stop(draft, -E2BIG, "the grammar has too many states");
    if (draft->rc < 0) return 0;
    if (ash_array_reserve(&draft->heads, &draft->state_capacity, draft->state_count + 1, sizeof(*draft->heads)) < 0) {
        stop(draft, -ENOMEM, NULL);
        return 0;
    }
    draft->heads[draft->state_count] = ASH_PDA_NONE;
    return (uint32_t)draft->state_count++;
}

uint32_t ash_pda_add_rule(struct ash_pda_draft *draft)
{
    struct ash_pda_rule rule = {.start = ash_pda_add_state(draft)};

    rule.end = ash_pda_add_state(draft);
    if (draft->rc < 0) return 0;
    if (ash_array_reserve(&draft->rules, &draft->rule_capacity, draft->rule_count + 1, sizeof(rule)) < 0) {
        stop(draft, -ENOMEM, NULL);
        return 0;
    }
    draft->rules[draft->rule_count] = rule;
    return (uint32_t)draft->rule_count++;
}

uint32_t ash_pda_rule_start(const struct ash_pda_draft *draft, uint32_t rule)
{
    ash_assert(draft->rc < 0 || rule < draft->rule_count);
    return draft->rc < 0 ? 0 : draft->rules[rule].start;
}

uint32_t ash_pda_rule_end(const struct ash_pda_draft *draft, uint32_t rule)
{
    ash_assert(draft->rc < 0 || rule < draft->rule_count);
    return draft->rc < 0 ? 0 : draft->rules[rule].end;
}

static void add_edge(struct ash_pda_draft *draft, uint32_t from, struct ash_pda_edge edge)
{
    if (draft->edge_count >= 8 * draft->limits.states) stop(draft, -E2BIG, "the grammar has too many edges");
    if (draft->edge_count % CHECK_EVERY == 0 && ash_clock_thread_ns() > draft->end_ns)
        stop(draft, -E2BIG, "it takes too long to compile");
    if (draft->rc < 0) return;
    ash_assert(from < draft->state_count && edge.to < draft->state_count);
    if (ash_array_reserve(&draft->edges, &draft->edge_capacity, draft->edge_count + 1, sizeof(edge)) < 0) {
        stop(draft, -ENOMEM, NULL);
        return;
    }
    edge.next = draft->heads[from];
    draft->heads[from] = (uint32_t)draft->edge_count;
    draft->edges[draft->edge_count++] = edge;
}

void ash_pda_add_bytes(struct ash_pda_draft *draft, uint32_t from, uint32_t to, uint8_t low, uint8_t high)
{
    ash_assert(low <= high);
    add_edge(draft, from, (struct ash_pda_edge){.kind = ASH_PDA_BYTES, .low = low, .high = high, .to = to});
}

void ash_pda_add_text(struct ash_pda_draft *draft, uint32_t from, uint32_t to, const void *bytes, size_t size_bytes)
{
    const uint8_t *at = bytes;

    if (size_bytes == 0) ash_pda_add_empty(draft, from, to);
    for (size_t i = 0; i < size_bytes && draft->rc == 0; i++) {
        uint32_t next = i + 1 == size_bytes ? to : ash_pda_add_state(draft);
        ash_pda_add_bytes(draft, from, next, at[i], at[i]);
        from = next;
    }
}

void ash_pda_add_empty(struct ash_pda_draft *draft, uint32_t from, uint32_t to)
{
    if (from != to) add_edge(draft, from, (struct ash_pda_edge){.kind = ASH_PDA_EMPTY, .to = to});
}

void ash_pda_add_call(struct ash_pda_draft *draft, uint32_t from, uint32_t to, uint32_t rule)
{
    add_edge(draft, from, (struct ash_pda_edge){.kind = ASH_PDA_CALL, .to = to, .rule = rule});
}

void ash_pda_add_repeat(struct ash_pda_draft *draft, uint32_t from, uint32_t to, uint32_t rule, uint32_t min,
                        uint32_t max)
{
    uint32_t counter = ash_pda_add_state(draft);

    ash_assert(min <= max);
    ash_pda_add_empty(draft, from, counter);
    add_edge(draft, counter,
             (struct ash_pda_edge){.kind = ASH_PDA_REPEAT, .to = to, .rule = rule, .min = min, .max = max});
}

void ash_pda_mark_text(struct ash_pda_draft *draft, uint32_t rule)
{
    ash_assert(draft->rc < 0 || rule < draft->rule_count);
    if (draft->rc == 0) draft->rules[rule].is_text = true;
}

/* ---- characters -------------------------------------------------------------------------------------------------- */

/* By `count` more bytes, each of [low, high] of its place. */
static void add_ranges(struct ash_pda_draft *draft, uint32_t from, uint32_t to, const uint8_t (*ranges)[2],
                       size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t next = i + 1 == count ? to : ash_pda_add_state(draft);
        ash_pda_add_bytes(draft, from, next, ranges[i][0], ranges[i][1]);
        from = next;
    }
}

/* Characters of `size` bytes: split where a byte before the last would not have its whole range. */
static void add_sized(struct ash_pda_draft *draft, uint32_t states[2], uint32_t low, uint32_t high, int size)
{
    uint8_t ranges[4][2];

    for (int i = 1; i < size; i++) {
        uint32_t below = (UINT32_C(1) << 6 * i) - 1;
        if (low >> 6 * i == high >> 6 * i) continue; /* the same bytes before: nothing to split here */
        if ((low & below) != 0) {
            add_sized(draft, states, low, low | below, size);
            add_sized(draft, states, (low | below) + 1, high, size);
            return;
        }
        if ((high & below) != below) {
            add_sized(draft, states, low, (high & ~below) - 1, size);
            add_sized(draft, states, high & ~below, high, size);
            return;
        }
    }
    for (int i = size - 1; i >= 0; i--) { /* six bits each, from the last byte on */
        static const uint8_t marks[] = {0, 0, 0xc0, 0xe0, 0xf0};
        uint8_t mark = i == 0 ? marks[size] : 0x80, mask = i == 0 ? 0xff : 0x3f;
        ranges[i][0] = (uint8_t)(mark | (low & mask));
        ranges[i][1] = (uint8_t)(mark | (high & mask));
        low >>= 6;
        high >>= 6;
    }
    add_ranges(draft, states[0], states[1], ranges, (size_t)size);
}

void ash_pda_add_points(struct ash_pda_draft *draft, uint32_t from, uint32_t to, uint32_t low, uint32_t high)
{
    static const uint32_t spans[][3] = {/* first, last, bytes */
                                        {0, 0x7f, 1},
                                        {0x80, 0x7ff, 2},
                                        {0x800, 0xd7ff, 3},
                                        {0xe000, 0xffff, 3},
                                        {0x10000, 0x10ffff, 4}};
    uint32_t states[2] = {from, to};

    for (size_t i = 0; i < ASH_COUNT(spans); i++) {
        uint32_t first = low > spans[i][0] ? low : spans[i][0], last = high < spans[i][1] ? high : spans[i][1];
        if (first <= last) add_sized(draft, states, first, last, (int)spans[i][2]);
    }
}

/* ---- choices ----------------------------------------------------------------------------------------------------- */

static int compare_texts(const void *a, const void *b)
{
    const struct ash_pda_text *left = a, *right = b;
    size_t common = left->size_bytes < right->size_bytes ? left->size_bytes : right->size_bytes;
    int order = common > 0 ? memcmp(left->bytes, right->bytes, common) : 0;

    return order != 0 ? order : (left->size_bytes > right->size_bytes) - (left->size_bytes < right->size_bytes);
}

void ash_pda_add_choice(struct ash_pda_draft *draft, uint32_t from, uint32_t to, struct ash_pda_text *texts,
                        size_t count)
{
    size_t longest = 0, shared = 0;
    uint32_t *path;

    qsort(texts, count, sizeof(*texts), compare_texts);
    for (size_t i = 0; i < count; i++)
        longest = texts[i].size_bytes > longest ? texts[i].size_bytes : longest;
    path = malloc((longest + 1) * sizeof(*path)); /* the state after each byte of the text before */
    if (path == NULL) {
        stop(draft, -ENOMEM, NULL);
        return;
    }
    path[0] = ash_pda_add_state(draft);
    ash_pda_add_empty(draft, from, path[0]);
    for (size_t i = 0; i < count && draft->rc == 0; i++) {
        const struct ash_pda_text *text = &texts[i], *before = i > 0 ? &texts[i - 1] : text;
        for (shared = 0; i > 0 && shared < text->size_bytes && shared < before->size_bytes; shared++)
            if (text->bytes[shared] != before->bytes[shared]) break;
        for (size_t at = shared; at < text->size_bytes; at++) {
            uint8_t byte = (uint8_t)text->bytes[at];
            path[at + 1] = ash_pda_add_state(draft);
            ash_pda_add_bytes(draft, path[at], path[at + 1], byte, byte);
        }
        ash_pda_add_empty(draft, path[text->size_bytes], to);
    }
    free(path);
}
