/* From an expression to a deterministic automaton: states with edges first, then sets of them. What ^ and $ ask for is
 * part of a place in those sets: whether a character was read before, and whether one may still come. */
#include "serve/grammar/lang_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/hash.h"
#include "serve/grammar/pda_priv.h"

enum { EMPTY, SET, BEGIN, END };
enum { PHASE_START, PHASE_INSIDE, PHASE_END, PHASES }; /* nothing read yet; something; nothing may follow */

struct edge {
    int kind;
    uint32_t to, set, next;
};

struct nfa {
    const struct ash_regex *regex;
    const struct ash_grammar_limits *limits;
    uint32_t *heads;
    size_t state_count, state_capacity;
    struct edge *edges;
    size_t edge_count, edge_capacity;
    uint32_t final;
    int rc;
};

/* ---- states and edges -------------------------------------------------------------------------------------------- */

static uint32_t add_state(struct nfa *nfa)
{
    if (nfa->rc == 0 && nfa->state_count >= nfa->limits->states) nfa->rc = -E2BIG;
    if (nfa->rc == 0 &&
        ash_array_reserve(&nfa->heads, &nfa->state_capacity, nfa->state_count + 1, sizeof(*nfa->heads)) < 0)
        nfa->rc = -ENOMEM;
    if (nfa->rc < 0) return 0;
    nfa->heads[nfa->state_count] = ASH_PDA_NONE;
    return (uint32_t)nfa->state_count++;
}

static void add_edge(struct nfa *nfa, uint32_t from, struct edge edge)
{
    if (nfa->rc == 0 && nfa->edge_count >= 8 * nfa->limits->states) nfa->rc = -E2BIG;
    if (nfa->rc == 0 && ash_array_reserve(&nfa->edges, &nfa->edge_capacity, nfa->edge_count + 1, sizeof(edge)) < 0)
        nfa->rc = -ENOMEM;
    if (nfa->rc < 0) return;
    edge.next = nfa->heads[from];
    nfa->heads[from] = (uint32_t)nfa->edge_count;
    nfa->edges[nfa->edge_count++] = edge;
}

static void draw(struct nfa *nfa, uint32_t index, uint32_t from, uint32_t to);

static void draw_repeat(struct nfa *nfa, const struct ash_regex_node *node, uint32_t from, uint32_t to)
{
    bool is_unbounded = node->max == ASH_PDA_UNBOUNDED;
    uint32_t optional = is_unbounded ? 0 : node->max - node->min, next;

    for (uint32_t i = 0; i < node->min && nfa->rc == 0; i++, from = next) {
        next = add_state(nfa);
        draw(nfa, node->left, from, next);
    }
    for (uint32_t i = 0; i < optional && nfa->rc == 0; i++, from = next) {
        next = add_state(nfa);
        add_edge(nfa, from, (struct edge){.kind = EMPTY, .to = to});
        draw(nfa, node->left, from, next);
    }
    if (is_unbounded) {
        next = add_state(nfa);
        add_edge(nfa, from, (struct edge){.kind = EMPTY, .to = next});
        draw(nfa, node->left, next, next);
        from = next;
    }
    add_edge(nfa, from, (struct edge){.kind = EMPTY, .to = to});
}

/* Trees lean to the left: recursion only goes as deep as groups do. */
static void draw(struct nfa *nfa, uint32_t index, uint32_t from, uint32_t to)
{
    const struct ash_regex_node *node = &nfa->regex->nodes[index];

    while (nfa->rc == 0 && (node->kind == ASH_REGEX_CONCAT || node->kind == ASH_REGEX_EITHER)) {
        uint32_t middle = to;
        if (node->kind == ASH_REGEX_CONCAT) middle = add_state(nfa);
        draw(nfa, node->right, node->kind == ASH_REGEX_CONCAT ? middle : from, to);
        to = middle;
        node = &nfa->regex->nodes[node->left];
    }
    switch (node->kind) {
    case ASH_REGEX_SET:
        add_edge(nfa, from, (struct edge){.kind = SET, .to = to, .set = node->set});
        break;
    case ASH_REGEX_REPEAT:
        draw_repeat(nfa, node, from, to);
        break;
    case ASH_REGEX_BEGIN:
        add_edge(nfa, from, (struct edge){.kind = BEGIN, .to = to});
        break;
    case ASH_REGEX_END:
        add_edge(nfa, from, (struct edge){.kind = END, .to = to});
        break;
    default:
        add_edge(nfa, from, (struct edge){.kind = EMPTY, .to = to});
        break;
    }
}

/* State 0 is the start. The last set of the regex is all characters. */
static void draw_all(struct nfa *nfa, enum ash_lang_span span)
{
    uint32_t start = add_state(nfa), first = add_state(nfa), last = add_state(nfa), any;

    nfa->final = add_state(nfa);
    add_edge(nfa, start, (struct edge){.kind = EMPTY, .to = first});
    add_edge(nfa, last, (struct edge){.kind = EMPTY, .to = nfa->final});
    if (span == ASH_LANG_PART) {
        any = (uint32_t)nfa->regex->set_count - 1;
        add_edge(nfa, start, (struct edge){.kind = SET, .to = start, .set = any});
        add_edge(nfa, nfa->final, (struct edge){.kind = SET, .to = nfa->final, .set = any});
    }
    draw(nfa, nfa->regex->root, first, last);
}

/* ---- sets of states ---------------------------------------------------------------------------------------------- */

struct subsets {
    const struct nfa *nfa;
    struct ash_lang *lang;
    size_t capacity; /* of lang's states */
    uint64_t end_ns;
    uint32_t *members; /* of all subsets, one after the other; state * PHASES + phase */
    size_t member_count, member_capacity;
    uint32_t *firsts; /* [subset]: where its members begin; one more at the end */
    size_t first_count, first_capacity;
    uint32_t *slots;
    size_t slot_count;
    uint32_t *stamps, stamp; /* of each member: the closure that saw it */
    uint32_t *stack;
};

static bool set_has(const struct ash_lang_set *set, uint32_t point)
{
    size_t low = 0, high = set->count;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (point > set->ranges[middle][1])
            low = middle + 1;
        else
            high = middle;
    }
    return low < set->count && point >= set->ranges[low][0];
}

/* Add a member and what follows from it without a character. */
static int close_member(struct subsets *subsets, uint32_t member)
{
    const struct nfa *nfa = subsets->nfa;
    size_t depth = 0;

    if (subsets->stamps[member] == subsets->stamp) return 0;
    subsets->stamps[member] = subsets->stamp;
    subsets->stack[depth++] = member;
    while (depth > 0) {
        uint32_t at = subsets->stack[--depth], phase = at % PHASES;
        if (ash_array_reserve(&subsets->members, &subsets->member_capacity, subsets->member_count + 1,
                              sizeof(uint32_t)) < 0)
            return -ENOMEM;
        subsets->members[subsets->member_count++] = at;
        for (uint32_t e = nfa->heads[at / PHASES]; e != ASH_PDA_NONE; e = nfa->edges[e].next) {
            const struct edge *edge = &nfa->edges[e];
            uint32_t next = edge->to * PHASES + (edge->kind == END ? PHASE_END : phase);
            if (edge->kind == SET || (edge->kind == BEGIN && phase != PHASE_START)) continue;
            if (edge->kind == BEGIN) next = edge->to * PHASES + phase;
            if (subsets->stamps[next] == subsets->stamp) continue;
            subsets->stamps[next] = subsets->stamp;
            subsets->stack[depth++] = next;
        }
    }
    return 0;
}

static int compare_members(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

    return (left > right) - (left < right);
}

static int grow_slots(struct subsets *subsets)
{
    size_t count = subsets->slot_count > 0 ? 2 * subsets->slot_count : 256;
    uint32_t *slots = calloc(count, sizeof(*slots));

    if (slots == NULL) return -ENOMEM;
    for (uint32_t s = 1; s + 1 < subsets->first_count; s++) {
        size_t bytes = (subsets->firsts[s + 1] - subsets->firsts[s]) * sizeof(uint32_t);
        size_t at = ash_hash_bytes(subsets->members + subsets->firsts[s], bytes, 0) & (count - 1);
        while (slots[at] != 0)
            at = (at + 1) & (count - 1);
        slots[at] = s;
    }
    free(subsets->slots);
    subsets->slots = slots;
    subsets->slot_count = count;
    return 0;
}

/* The state of the subset whose members were added last: an old one, and then they are dropped, or a new one. */
static int find_subset(struct subsets *subsets, uint32_t *state_out)
{
    size_t states = subsets->first_count - 1, first = subsets->firsts[states], at;
    size_t count = subsets->member_count - first, bytes = count * sizeof(uint32_t);
    uint32_t *members = subsets->members + first, s;

    if (count == 0) {
        *state_out = 0;
        return 0;
    }
    qsort(members, count, sizeof(*members), compare_members);
    at = ash_hash_bytes(members, bytes, 0) & (subsets->slot_count - 1);
    for (; (s = subsets->slots[at]) != 0; at = (at + 1) & (subsets->slot_count - 1))
        if (subsets->firsts[s + 1] - subsets->firsts[s] == count &&
            memcmp(subsets->members + subsets->firsts[s], members, bytes) == 0) {
            subsets->member_count = first;
            *state_out = s;
            return 0;
        }
    if (states >= subsets->nfa->limits->states || subsets->member_count > 64 * subsets->nfa->limits->states ||
        (states % 64 == 0 && ash_clock_thread_ns() > subsets->end_ns))
        return -E2BIG;
    if (ash_lang_reserve(subsets->lang, &subsets->capacity, states + 1) < 0 ||
        ash_array_reserve(&subsets->firsts, &subsets->first_capacity, states + 2, sizeof(uint32_t)) < 0)
        return -ENOMEM;
    subsets->firsts[subsets->first_count++] = (uint32_t)subsets->member_count;
    subsets->slots[at] = (uint32_t)states;
    for (size_t i = 0; i < count; i++)
        subsets->lang->is_final[states] |= members[i] / PHASES == subsets->nfa->final;
    *state_out = (uint32_t)states;
    return 2 * states > subsets->slot_count ? grow_slots(subsets) : 0;
}

/* The subset after a character of a class. */
static int step(struct subsets *subsets, uint32_t state, uint32_t point, uint32_t *state_out)
{
    const struct nfa *nfa = subsets->nfa;
    int rc = 0;

    subsets->stamp++;
    for (uint32_t m = subsets->firsts[state]; m < subsets->firsts[state + 1] && rc == 0; m++) {
        uint32_t member = subsets->members[m];
        if (member % PHASES == PHASE_END) continue;
        for (uint32_t e = nfa->heads[member / PHASES]; e != ASH_PDA_NONE && rc == 0; e = nfa->edges[e].next)
            if (nfa->edges[e].kind == SET && set_has(&nfa->regex->sets[nfa->edges[e].set], point))
                rc = close_member(subsets, nfa->edges[e].to * PHASES + PHASE_INSIDE);
    }
    return rc < 0 ? rc : find_subset(subsets, state_out);
}

static int determinise(struct subsets *subsets)
{
    struct ash_lang *lang = subsets->lang;
    size_t members = PHASES * subsets->nfa->state_count + 1;
    int rc = grow_slots(subsets);

    subsets->stamps = calloc(members, sizeof(uint32_t));
    subsets->stack = calloc(members, sizeof(uint32_t));
    if (rc < 0 || subsets->stamps == NULL || subsets->stack == NULL ||
        ash_array_reserve(&subsets->firsts, &subsets->first_capacity, 2, sizeof(uint32_t)) < 0)
        return -ENOMEM;
    subsets->firsts[0] = subsets->firsts[1] = 0; /* state 0 has no members */
    subsets->first_count = 2;
    subsets->stamp = 1;
    rc = close_member(subsets, PHASE_START);
    if (rc == 0) rc = find_subset(subsets, &lang->start);
    for (uint32_t state = 1; rc == 0 && state + 1 < subsets->first_count; state++)
        for (size_t class = 0; class < lang->class_count && rc == 0; class ++) {
            uint32_t next = 0;
            rc = step(subsets, state, lang->points[class], &next);
            if (rc == 0) lang->next[state * lang->class_count + class] = next;
        }
    return rc;
}

/* ---- classes ----------------------------------------------------------------------------------------------------- */

/* Where classes begin: at the ends of all ranges. */
static int find_points(const struct ash_regex *regex, uint32_t **points_out, size_t *count_out)
{
    size_t total = 1, count = 0;
    uint32_t *points;

    for (size_t i = 0; i < regex->set_count; i++)
        total += 2 * regex->sets[i].count;
    points = malloc(total * sizeof(*points));
    if (points == NULL) return -ENOMEM;
    points[count++] = 0;
    for (size_t i = 0; i < regex->set_count; i++)
        for (size_t r = 0; r < regex->sets[i].count; r++) {
            points[count++] = regex->sets[i].ranges[r][0];
            if (regex->sets[i].ranges[r][1] + 1 < ASH_LANG_POINTS) points[count++] = regex->sets[i].ranges[r][1] + 1;
        }
    qsort(points, count, sizeof(*points), compare_members);
    total = count;
    count = 1;
    for (size_t i = 1; i < total; i++)
        if (points[i] != points[count - 1]) points[count++] = points[i];
    *points_out = points;
    *count_out = count;
    return 0;
}

static int add_any(struct ash_regex *regex)
{
    struct ash_lang_set any = {0};

    if (ash_lang_set_add(&any, 0, ASH_LANG_POINTS - 1) < 0) return -ENOMEM;
    if (ash_array_reserve(&regex->sets, &regex->set_capacity, regex->set_count + 1, sizeof(any)) < 0) {
        free(any.ranges);
        return -ENOMEM;
    }
    regex->sets[regex->set_count++] = any;
    return 0;
}

static int make_lang(struct ash_regex *regex, enum ash_lang_span span, const struct ash_grammar_limits *limits,
                     struct ash_lang **lang_out)
{
    struct nfa nfa = {.regex = regex, .limits = limits};
    struct subsets subsets = {.nfa = &nfa, .end_ns = ash_clock_thread_ns() + (uint64_t)(limits->seconds * 1e9)};
    uint32_t *points = NULL;
    size_t class_count = 0;
    int rc = add_any(regex);

    if (rc == 0) rc = find_points(regex, &points, &class_count);
    if (rc == 0) draw_all(&nfa, span);
    if (rc == 0) rc = nfa.rc;
    if (rc == 0) subsets.lang = ash_lang_open(points, class_count, 1);
    subsets.capacity = 1;
    if (rc == 0) rc = subsets.lang == NULL ? -ENOMEM : determinise(&subsets);
    if (rc == 0) rc = ash_lang_trim(subsets.lang);
    if (rc == 0)
        *lang_out = subsets.lang;
    else
        ash_lang_close(subsets.lang);
    free(points);
    free(nfa.heads);
    free(nfa.edges);
    free(subsets.members);
    free(subsets.firsts);
    free(subsets.slots);
    free(subsets.stamps);
    free(subsets.stack);
    return rc;
}

int ash_lang_from_regex(const char *pattern, size_t size_bytes, enum ash_lang_span span,
                        const struct ash_grammar_limits *limits, struct ash_lang **lang_out, struct ash_err *err)
{
    struct ash_regex regex = {0};
    int rc = ash_regex_parse(&regex, pattern, size_bytes, limits->depth, err);

    if (rc == 0) {
        rc = make_lang(&regex, span, limits, lang_out);
        if (rc == -E2BIG)
            ash_err_set(err, rc, "the expression needs more than %zu states or %g seconds; simplify it", limits->states,
                        limits->seconds);
        if (rc == -ENOMEM) ash_err_set(err, rc, "out of memory for an expression");
    }
    ash_regex_fini(&regex);
    return rc;
}
