/* From a draft to an automaton: what leads nowhere is taken out, and a rule that calls itself before it reads anything
 * is refused, because following it would not end. */
#include "serve/grammar/pda_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"

#define EMPTY_REPEATS_MAX 256

/* Which states reach the end of their rule, and which rules therefore match something; by empty texts only, or by
 * any. */
struct reach {
    const struct ash_pda *pda;
    bool is_empty_only;
    bool *states, *rules;
    uint32_t *sources;                 /* of each edge: the state it leaves */
    uint32_t *into, *into_first;       /* edges by the state they lead to */
    uint32_t *callers, *callers_first; /* edges by the rule they call */
    uint32_t *queue;
    size_t queued;
};

static void reach_fini(struct reach *reach)
{
    free(reach->sources);
    free(reach->into);
    free(reach->into_first);
    free(reach->callers);
    free(reach->callers_first);
    free(reach->queue);
}

/* Edges sorted by key(edge) in [0, count): counting sort. */
static void sort_edges(const struct ash_pda *pda, bool by_rule, size_t count, uint32_t *first, uint32_t *sorted)
{
    memset(first, 0, (count + 2) * sizeof(*first));
    for (size_t pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < pda->edge_count; i++) {
            const struct ash_pda_edge *edge = &pda->edges[i];
            uint32_t key = by_rule ? edge->rule : edge->to;
            if (by_rule && edge->kind != ASH_PDA_CALL && edge->kind != ASH_PDA_REPEAT) continue;
            if (pass == 0)
                first[key + 2]++;
            else
                sorted[first[key + 1]++] = (uint32_t)i;
        }
        for (size_t i = 0; pass == 0 && i < count; i++)
            first[i + 2] += first[i + 1];
    }
}

static int reach_init(struct reach *reach, const struct ash_pda *pda)
{
    size_t edges = pda->edge_count + 1, states = pda->state_count + 2, rules = pda->rule_count + 2;

    reach->pda = pda;
    reach->sources = calloc(edges, sizeof(uint32_t));
    reach->into = calloc(edges, sizeof(uint32_t));
    reach->callers = calloc(edges, sizeof(uint32_t));
    reach->into_first = calloc(states, sizeof(uint32_t));
    reach->callers_first = calloc(rules, sizeof(uint32_t));
    reach->queue = calloc(states, sizeof(uint32_t));
    if (reach->sources == NULL || reach->into == NULL || reach->callers == NULL || reach->into_first == NULL ||
        reach->callers_first == NULL || reach->queue == NULL)
        return -ENOMEM;
    for (size_t s = 0; s < pda->state_count; s++)
        for (uint32_t i = 0; i < pda->states[s].count; i++)
            reach->sources[pda->states[s].first + i] = (uint32_t)s;
    sort_edges(pda, false, pda->state_count, reach->into_first, reach->into);
    sort_edges(pda, true, pda->rule_count, reach->callers_first, reach->callers);
    return 0;
}

static void reach_mark(struct reach *reach, uint32_t state)
{
    if (reach->states[state]) return;
    reach->states[state] = true;
    reach->queue[reach->queued++] = state;
}

/* The state that this edge leaves, if the edge can be passed and leads on. */
static void reach_edge(struct reach *reach, uint32_t index)
{
    const struct ash_pda_edge *edge = &reach->pda->edges[index];
    bool passes = true;

    if (edge->kind == ASH_PDA_BYTES) passes = !reach->is_empty_only;
    if (edge->kind == ASH_PDA_CALL) passes = reach->rules[edge->rule];
    if (edge->kind == ASH_PDA_REPEAT) passes = edge->min == 0 || reach->rules[edge->rule];
    if (passes && reach->states[edge->to]) reach_mark(reach, reach->sources[index]);
}

static void reach_run(struct reach *reach, bool is_empty_only, bool *states, bool *rules)
{
    const struct ash_pda *pda = reach->pda;

    reach->is_empty_only = is_empty_only;
    reach->states = states;
    reach->rules = rules;
    reach->queued = 0;
    for (size_t r = 0; r < pda->rule_count; r++)
        reach_mark(reach, pda->rules[r].end);
    for (size_t done = 0; done < reach->queued; done++) {
        uint32_t state = reach->queue[done], rule = pda->states[state].start_of;
        for (uint32_t i = reach->into_first[state]; i < reach->into_first[state + 1]; i++)
            reach_edge(reach, reach->into[i]);
        if (rule == ASH_PDA_NONE) continue;
        rules[rule] = true;
        for (uint32_t i = reach->callers_first[rule]; i < reach->callers_first[rule + 1]; i++)
            reach_edge(reach, reach->callers[i]);
    }
}

/* ---- rules that call themselves first ---------------------------------------------------------------------------- */

struct leftmost {
    const struct ash_pda *pda;
    uint32_t *queue;
    uint32_t *seen; /* of each state: the rule that reached it, plus 1 */
    uint32_t *from, *to;
    size_t count, from_capacity, to_capacity;
};

/* Note the rules that `rule` may call before a byte is read. */
static int leftmost_rule(struct leftmost *left, uint32_t rule)
{
    const struct ash_pda *pda = left->pda;
    size_t queued = 0;

    left->queue[queued++] = pda->rules[rule].start;
    left->seen[pda->rules[rule].start] = rule + 1;
    for (size_t done = 0; done < queued; done++) {
        const struct ash_pda_state *state = &pda->states[left->queue[done]];
        for (uint32_t i = 0; i < state->count; i++) {
            const struct ash_pda_edge *edge = &pda->edges[state->first + i];
            if (edge->kind == ASH_PDA_BYTES) continue;
            if (edge->kind != ASH_PDA_EMPTY) {
                if (ash_array_reserve(&left->from, &left->from_capacity, left->count + 1, sizeof(uint32_t)) < 0 ||
                    ash_array_reserve(&left->to, &left->to_capacity, left->count + 1, sizeof(uint32_t)) < 0)
                    return -ENOMEM;
                left->from[left->count] = rule;
                left->to[left->count++] = edge->rule;
                if (!pda->rules[edge->rule].can_be_empty && !(edge->kind == ASH_PDA_REPEAT && edge->min == 0)) continue;
            }
            if (left->seen[edge->to] == rule + 1) continue;
            left->seen[edge->to] = rule + 1;
            left->queue[queued++] = edge->to;
        }
    }
    return 0;
}

/* Take away rules that call nothing first, until none is left; what stays calls itself. scratch: 3 numbers a rule and
 * one a call. The rule, or ASH_PDA_NONE. */
static uint32_t find_circle(const struct leftmost *left, uint32_t *scratch)
{
    size_t rules = left->pda->rule_count, queued = 0;
    uint32_t *calls = scratch, *queue = calls + rules, *first = queue + rules, *by_callee = first + rules + 2;
    uint32_t found = ASH_PDA_NONE;

    memset(scratch, 0, (3 * rules + 2) * sizeof(*scratch));
    for (size_t i = 0; i < left->count; i++) {
        calls[left->from[i]]++;
        first[left->to[i] + 1]++;
    }
    for (size_t r = 0; r < rules; r++)
        first[r + 1] += first[r];
    for (size_t i = left->count; i > 0; i--)
        by_callee[--first[left->to[i - 1] + 1]] = left->from[i - 1]; /* first[r + 1] ends as the start of r */
    for (size_t r = 0; r < rules; r++)
        if (calls[r] == 0) queue[queued++] = (uint32_t)r;
    for (size_t done = 0; done < queued; done++) {
        uint32_t end = queue[done] + 1 < rules ? first[queue[done] + 2] : (uint32_t)left->count;
        for (uint32_t i = first[queue[done] + 1]; i < end; i++)
            if (--calls[by_callee[i]] == 0) queue[queued++] = by_callee[i];
    }
    for (size_t i = 0; i < left->count; i++) /* each that is left calls one that is left: following them leads round */
        if (calls[left->from[i]] > 0 && calls[left->to[i]] > 0) {
            queue[left->from[i]] = left->to[i];
            found = left->from[i];
        }
    for (size_t r = 0; r < rules && found != ASH_PDA_NONE; r++)
        found = queue[found];
    return found;
}

static int refuse_left_recursion(const struct ash_pda *pda, const char *const *names, struct ash_err *err)
{
    struct leftmost left = {.pda = pda};
    uint32_t *scratch = NULL, circle = ASH_PDA_NONE;
    int rc = 0;

    left.queue = calloc(pda->state_count + 1, sizeof(uint32_t));
    left.seen = calloc(pda->state_count + 1, sizeof(uint32_t));
    if (left.queue == NULL || left.seen == NULL) rc = -ENOMEM;
    for (size_t r = 0; rc == 0 && r < pda->rule_count; r++)
        rc = leftmost_rule(&left, (uint32_t)r);
    if (rc == 0) scratch = malloc((3 * pda->rule_count + 2 + left.count) * sizeof(*scratch));
    if (rc == 0 && scratch == NULL) rc = -ENOMEM;
    if (rc == 0) circle = find_circle(&left, scratch);
    if (rc < 0) ash_err_set(err, rc, "out of memory for a grammar");
    if (circle != ASH_PDA_NONE)
        rc = ash_err_set(err, -EINVAL, "rule '%s' begins with itself: write the repetition as (...)* or to the right",
                         names != NULL && names[circle] != NULL ? names[circle] : "root");
    free(left.queue);
    free(left.seen);
    free(left.from);
    free(left.to);
    free(scratch);
    return rc;
}

/* ---- finishing --------------------------------------------------------------------------------------------------- */

/* Copy the draft's edges, grouped by state. */
static int copy_edges(struct ash_pda *pda, const struct ash_pda_draft *draft)
{
    pda->states = calloc(draft->state_count + 1, sizeof(*pda->states));
    pda->edges = calloc(draft->edge_count + 1, sizeof(*pda->edges));
    pda->rules = calloc(draft->rule_count + 1, sizeof(*pda->rules));
    if (pda->states == NULL || pda->edges == NULL || pda->rules == NULL) return -ENOMEM;
    pda->state_count = draft->state_count;
    pda->rule_count = draft->rule_count;
    memcpy(pda->rules, draft->rules, draft->rule_count * sizeof(*pda->rules));
    for (size_t s = 0; s < draft->state_count; s++) {
        pda->states[s].first = (uint32_t)pda->edge_count;
        pda->states[s].start_of = ASH_PDA_NONE;
        for (uint32_t e = draft->heads[s]; e != ASH_PDA_NONE; e = draft->edges[e].next)
            pda->edges[pda->edge_count++] = draft->edges[e];
        pda->states[s].count = (uint32_t)pda->edge_count - pda->states[s].first;
    }
    for (size_t r = 0; r < pda->rule_count; r++) {
        struct ash_pda_rule *rule = &pda->rules[r];
        pda->states[rule->start].start_of = (uint32_t)r;
        pda->states[rule->start].is_text_start = rule->is_text;
        pda->states[rule->end].is_end = true;
        ash_assert(pda->states[rule->end].count == 0);
    }
    return 0;
}

/* Take out edges that lead nowhere. */
static void prune_edges(struct ash_pda *pda, const bool *alive)
{
    size_t kept = 0;

    for (size_t s = 0; s < pda->state_count; s++) {
        struct ash_pda_state *state = &pda->states[s];
        uint32_t first = (uint32_t)kept;
        for (uint32_t i = 0; i < state->count; i++) {
            struct ash_pda_edge edge = pda->edges[state->first + i];
            bool calls = edge.kind == ASH_PDA_CALL || edge.kind == ASH_PDA_REPEAT;
            if (!alive[edge.to]) continue;
            if (calls && !pda->rules[edge.rule].is_productive) {
                if (edge.kind == ASH_PDA_CALL || edge.min > 0) continue;
                edge.kind = ASH_PDA_EMPTY; /* no time at all */
            }
            if (edge.kind == ASH_PDA_REPEAT && edge.max == 0) edge.kind = ASH_PDA_EMPTY;
            if (edge.kind == ASH_PDA_BYTES) state->has_bytes = true;
            pda->edges[kept++] = edge;
        }
        state->first = first;
        state->count = (uint32_t)kept - first;
    }
    pda->edge_count = kept;
}

/* A state is a tail when single empty edges lead from it to the end. */
static void find_tails(struct ash_pda *pda)
{
    for (size_t s = 0; s < pda->state_count; s++) {
        const struct ash_pda_state *state = &pda->states[s];
        for (int steps = 0; steps < 64 && !state->is_end; steps++) {
            if (state->count != 1 || pda->edges[state->first].kind != ASH_PDA_EMPTY) break;
            state = &pda->states[pda->edges[state->first].to];
        }
        pda->states[s].is_tail = state->is_end;
    }
}

static void find_classes(struct ash_pda *pda)
{
    bool starts[257] = {[0] = true};
    int class = -1;

    for (size_t i = 0; i < pda->edge_count; i++) {
        if (pda->edges[i].kind != ASH_PDA_BYTES) continue;
        starts[pda->edges[i].low] = true;
        starts[pda->edges[i].high + 1] = true;
    }
    for (int byte = 0; byte < 256; byte++) {
        if (starts[byte]) pda->members[++class] = (uint8_t)byte;
        pda->classes[byte] = (uint8_t) class;
    }
    pda->class_count = (size_t) class + 1;
}

static int analyse(struct ash_pda *pda, struct ash_err *err)
{
    struct reach reach = {0};
    bool *states = calloc(pda->state_count + 1, sizeof(bool)), *rules = calloc(pda->rule_count + 1, sizeof(bool));
    int rc = states == NULL || rules == NULL ? -ENOMEM : reach_init(&reach, pda);

    if (rc == 0) {
        reach_run(&reach, true, states, rules);
        for (size_t r = 0; r < pda->rule_count; r++)
            pda->rules[r].can_be_empty = rules[r];
        memset(states, 0, pda->state_count * sizeof(bool));
        memset(rules, 0, pda->rule_count * sizeof(bool));
        reach_run(&reach, false, states, rules);
        for (size_t r = 0; r < pda->rule_count; r++)
            pda->rules[r].is_productive = rules[r];
        prune_edges(pda, states);
        find_tails(pda);
        find_classes(pda);
        if (!rules[pda->root]) rc = ash_err_set(err, -EINVAL, "no text at all has this form");
    } else {
        ash_err_set(err, rc, "out of memory for a grammar");
    }
    reach_fini(&reach);
    free(states);
    free(rules);
    return rc;
}

/* Counting what may be empty makes as many places as it may be repeated: only few are allowed. */
static int refuse_empty_repeats(const struct ash_pda *pda, struct ash_err *err)
{
    for (size_t i = 0; i < pda->edge_count; i++) {
        const struct ash_pda_edge *edge = &pda->edges[i];
        uint32_t counts = edge->max == ASH_PDA_UNBOUNDED ? edge->min : edge->max;
        if (edge->kind == ASH_PDA_REPEAT && counts > EMPTY_REPEATS_MAX && pda->rules[edge->rule].can_be_empty)
            return ash_err_set(err, -E2BIG, "what may be empty is repeated %u times, which is more than %d", counts,
                               EMPTY_REPEATS_MAX);
    }
    return 0;
}

int ash_pda_finish(struct ash_pda_draft *draft, uint32_t root, const char *const *names, struct ash_pda **pda_out,
                   struct ash_err *err)
{
    struct ash_pda *pda;
    int rc = ash_pda_draft_check(draft, err);

    if (rc < 0) return rc;
    ash_assert(root < draft->rule_count);
    pda = calloc(1, sizeof(*pda));
    if (pda == NULL || copy_edges(pda, draft) < 0) {
        rc = ash_err_set(err, -ENOMEM, "out of memory for a grammar");
        goto fail;
    }
    pda->root = root;
    rc = analyse(pda, err);
    if (rc == 0) rc = refuse_left_recursion(pda, names, err);
    if (rc == 0) rc = refuse_empty_repeats(pda, err);
    if (rc < 0) goto fail;
    *pda_out = pda;
    return 0;

fail:
    ash_pda_close(pda);
    return rc;
}

void ash_pda_close(struct ash_pda *pda)
{
    if (pda == NULL) return;
    free(pda->states);
    free(pda->edges);
    free(pda->rules);
    free(pda);
}
