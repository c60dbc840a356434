/* attn_shared_body - one new token each of texts that begin with the same pages. Keys and values of a shared page are
 * read and widened once, for the queries of all of them. Rows do not meet in any sum, so every bit is that of
 * attn_body.h. */
#ifndef ASH_COMPUTE_ATTN_SHARED_BODY_H
#define ASH_COMPUTE_ATTN_SHARED_BODY_H

#ifndef ASH_COMPUTE_ATTN_SPLIT_BODY_H
#error "include attn_split_body.h first"
#endif

#define SHARED_NONE UINT32_MAX

/* A text of a cohort. */
struct shared_member {
    uint32_t seq;   /* of args->seqs */
    uint32_t depth; /* blocks, from the first on, that are the same pages as those of the cohort's first member */
};

/* Members [first, first + count) of the list: they share their first page; those that share more come first. */
struct shared_cohort {
    uint32_t first, count;
};

struct attn_shared {
    struct attn_op *op;
    struct shared_member *members;           /* [seq_count] */
    struct shared_cohort *cohorts;           /* [seq_count] */
    size_t member_count, cohort_count, most; /* most members of a cohort */
    uint32_t *next, *heads;                  /* [seq_count], [slots]: texts by their first page */
    size_t slots;
    bool *is_member; /* [seq_count] */
};

/* ---- who shares -------------------------------------------------------------------------------------------------- */

/* May the text's query be computed together with others? */
static bool shared_may(const struct ash_attn_seq *seq)
{
    return seq->q_count == 1 && seq->pages != NULL && seq->pos >= ASH_ATTN_BLOCK;
}

/* Blocks that two texts have in common: whole pages that both see to their end. */
static uint32_t shared_depth(const struct ash_attn_seq *a, const struct ash_attn_seq *b)
{
    size_t most = (ash_min(a->pos, b->pos) + 1) / ASH_ATTN_BLOCK, depth = 0;

    while (depth < most && a->pages[depth] == b->pages[depth])
        depth++;
    return (uint32_t)depth;
}

static void shared_init(struct attn_shared *shared, struct attn_op *op)
{
    const struct ash_attn_args *args = op->args;
    size_t count = args->seq_count, threads = (size_t)ash_workers_count(op->exec->workers), slots = 16;
    char *memory;

    while (slots < 2 * count)
        slots *= 2;
    *shared = (struct attn_shared){.op = op, .slots = slots};
    memory = ash_exec_shared(op->exec, count * (sizeof(struct shared_member) + sizeof(struct shared_cohort)) +
                                           (count + slots) * sizeof(uint32_t) + count * sizeof(bool));
    shared->members = (struct shared_member *)(void *)memory;
    shared->cohorts = (struct shared_cohort *)(void *)(shared->members + count);
    shared->next = (uint32_t *)(void *)(shared->cohorts + count);
    shared->heads = shared->next + count;
    shared->is_member = (bool *)(shared->heads + slots);
    memset(shared->heads, 0xff, slots * sizeof(*shared->heads));
    memset(shared->is_member, 0, count * sizeof(*shared->is_member));
    /* As many as the state of a unit takes, but all threads shall have some. */
    shared->most = ash_max(count * args->kv_heads / (2 * threads), 1);
    shared->most = ash_min(shared->most, op->unit_rows);
}

/* Chain texts by their first page, the first text last in its chain. */
static void shared_chain(struct attn_shared *shared)
{
    const struct ash_attn_args *args = shared->op->args;

    for (size_t s = args->seq_count; s-- > 0;) {
        size_t slot;

        if (!shared_may(&args->seqs[s])) continue;
        slot = (uint32_t)args->seqs[s].pages[0] * 2654435761u & (shared->slots - 1);
        while (shared->heads[slot] != SHARED_NONE && args->seqs[shared->heads[slot]].pages[0] != args->seqs[s].pages[0])
            slot = (slot + 1) & (shared->slots - 1);
        shared->next[s] = shared->heads[slot];
        shared->heads[slot] = (uint32_t)s;
    }
}

/* A text becomes a member of the last cohort, behind those that share as much. */
static void shared_join(struct attn_shared *shared, struct shared_cohort *cohort, uint32_t seq)
{
    const struct ash_attn_seq *seqs = shared->op->args->seqs;
    struct shared_member *members = shared->members + cohort->first;
    uint32_t at = cohort->count++, depth = UINT32_MAX;

    if (at > 0) depth = shared_depth(&seqs[members[0].seq], &seqs[seq]);
    for (; at > 0 && members[at - 1].depth < depth; at--)
        members[at] = members[at - 1];
    members[at] = (struct shared_member){seq, depth};
    shared->member_count++;
}

/* Cohorts of the texts of a chain; one that would be alone is left out. */
static void shared_cut(struct attn_shared *shared, uint32_t seq)
{
    while (seq != SHARED_NONE && shared->next[seq] != SHARED_NONE) {
        struct shared_cohort *cohort = &shared->cohorts[shared->cohort_count++];

        *cohort = (struct shared_cohort){.first = (uint32_t)shared->member_count};
        for (; seq != SHARED_NONE && cohort->count < shared->most; seq = shared->next[seq])
            shared_join(shared, cohort, seq);
        shared->members[cohort->first].depth = /* the first member: as deep as the second */
            cohort->count > 1 ? shared->members[cohort->first + 1].depth : 0;
        for (uint32_t m = 0; m < cohort->count; m++)
            shared->is_member[shared->members[cohort->first + m].seq] = true;
    }
}

/* Find what is shared. Returns whether there is any. */
static bool shared_plan(struct attn_shared *shared, struct attn_op *op)
{
    size_t count = 0;

    for (size_t s = 0; s < op->args->seq_count; s++)
        count += shared_may(&op->args->seqs[s]);
    if (count < 2) return false;
    shared_init(shared, op);
    if (shared->most < 2) return false;
    shared_chain(shared);
    for (size_t slot = 0; slot < shared->slots; slot++)
        if (shared->heads[slot] != SHARED_NONE) shared_cut(shared, shared->heads[slot]);
    return shared->cohort_count > 0;
}

/* ---- a unit: a cohort and a kv head ------------------------------------------------------------------------------ */

/* Keys that the member sees beyond those that are shared, alone. */
static void shared_forward_rest(const struct attn_op *op, const struct shared_member *member, size_t g, size_t m,
                                struct attn_state *state)
{
    const struct ash_attn_seq *seq = &op->args->seqs[member->seq];
    size_t seen = attn_visible_keys(op->args, seq->pos).begin / ASH_ATTN_BLOCK;
    size_t base = ash_max(member->depth, seen) * ASH_ATTN_BLOCK, last = seq->pos + 1;

    for (; base < last; base += ASH_ATTN_BLOCK)
        attn_forward_block(op, seq, g, (struct ash_range){base, ash_min(last - base, ASH_ATTN_BLOCK)},
                           (struct ash_range){m, 1}, state);
}

static void shared_forward_cohort(const struct attn_shared *shared, const struct shared_cohort *cohort, size_t g,
                                  struct attn_state *state)
{
    const struct attn_op *op = shared->op;
    const struct shared_member *members = shared->members + cohort->first;
    const struct ash_attn_seq *seqs = op->args->seqs;
    size_t count = cohort->count, first = SIZE_MAX;

    for (size_t m = 0; m < cohort->count; m++) {
        size_t pos = seqs[members[m].seq].pos;

        state->positions[m] = pos;
        state->out_rows[m] = seqs[members[m].seq].q_row;
        first = ash_min(first, attn_visible_keys(op->args, pos).begin / ASH_ATTN_BLOCK);
    }
    attn_state_reset(op, g, cohort->count, state);
    for (size_t b = first; b < members[0].depth; b++) {
        while (members[count - 1].depth <= b)
            count--;
        attn_forward_block(op, &seqs[members[0].seq], g, (struct ash_range){b * ASH_ATTN_BLOCK, ASH_ATTN_BLOCK},
                           (struct ash_range){0, count}, state);
    }
    for (size_t m = 0; m < cohort->count; m++)
        shared_forward_rest(op, &members[m], g, m, state);
    attn_forward_finish(op, g, cohort->count, state);
}

/* Cohorts first, which take longest; then units of all other queries. */
static void shared_forward_units(void *ctx, size_t begin, size_t end, int worker)
{
    const struct attn_shared *shared = ctx;
    const struct attn_op *op = shared->op;
    size_t kv_heads = op->args->kv_heads, together = shared->cohort_count * kv_heads;
    struct attn_state state;

    attn_state_init(op, worker, &state);
    for (size_t number = begin; number < end; number++) {
        struct attn_unit unit;

        if (number < together) {
            shared_forward_cohort(shared, &shared->cohorts[number / kv_heads], number % kv_heads, &state);
            continue;
        }
        unit = attn_find_unit(op, number - together);
        attn_forward_unit(op, &unit, &state);
    }
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static void attn_forward(struct ash_exec *exec, const struct ash_attn_args *args)
{
    struct attn_shared shared;
    struct attn_op op;
    size_t units = 0;
    bool is_shared;

    if (args->cap != 0 || args->chunk != 0) {
        ash_ref_attn.forward(exec, args);
        return;
    }
    attn_init(&op, exec, args);
    if (split_pays(exec, args)) {
        attn_split_forward(&op);
        return;
    }
    is_shared = shared_plan(&shared, &op);
    if (is_shared) op.is_elsewhere = shared.is_member;
    for (size_t s = 0; s < args->seq_count; s++) {
        const struct ash_attn_seq *seq = &args->seqs[s];

        ash_assert(!args->both_ways || (seq->pages == NULL && seq->pos == 0));
        ash_assert(seq->pages != NULL ? args->pool != NULL : seq->q_count == 0 || (seq->k != NULL && seq->v != NULL));
        units += attn_unit_count(&op, seq) * args->kv_heads;
    }
    if (is_shared)
        ash_workers_run(exec->workers, units + shared.cohort_count * args->kv_heads, 1, shared_forward_units, &shared);
    else
        ash_workers_run(exec->workers, units, 1, attn_forward_units, &op);
}

#endif
