/* attn_body - attention of one instruction set. Include after row_body.h.
 * Keys of a block are packed side by side, so that a query's scores with them are one vector-matrix product; so is the
 * weighted sum of values, and each product of backward. All of them are chains over rows of a matrix (chain_row). */
#ifndef ASH_COMPUTE_ATTN_BODY_H
#define ASH_COMPUTE_ATTN_BODY_H

#define ATTN_ROWS 64  /* query rows, over all heads of a group, that share a packed block of keys */
#define ATTN_ALIGN 16 /* rows of scratch matrices are padded to a multiple of this: VF_WIDTH divides it */

static size_t attn_pad(size_t dim)
{
    return (dim + ATTN_ALIGN - 1) / ATTN_ALIGN * ATTN_ALIGN;
}

/* ---- chains ------------------------------------------------------------------------------------------------------ */

/* Rows that are read as they lie or from a padded copy. */
struct rows {
    const float *data;
    size_t stride;
};

#define DEFINE_CHAIN(NAME, VECS)                                                                                       \
    static void NAME(float *c, const float *a, size_t a_stride, const float *b, size_t b_stride, size_t count)         \
    {                                                                                                                  \
        vf acc[VECS];                                                                                                  \
                                                                                                                       \
        UNROLL for (size_t v = 0; v < (VECS); v++) acc[v] = vf_load(c + v * VF_WIDTH);                                 \
        for (size_t k = 0; k < count; k++) {                                                                           \
            vf left = vf_set(a[k * a_stride]);                                                                         \
                                                                                                                       \
            UNROLL for (size_t v = 0; v < (VECS); v++) acc[v] =                                                        \
                vf_fma(left, vf_load(b + k * b_stride + v * VF_WIDTH), acc[v]);                                        \
        }                                                                                                              \
        UNROLL for (size_t v = 0; v < (VECS); v++) vf_store(c + v * VF_WIDTH, acc[v]);                                 \
    }

DEFINE_CHAIN(chain_64, 64 / VF_WIDTH)
DEFINE_CHAIN(chain_16, 16 / VF_WIDTH)

/* c[0, width) = c + sum over k of a[k * a_stride] * row k of b, k ascending. width is a multiple of ATTN_ALIGN. */
static void chain_row(float *c, size_t width, const float *a, size_t a_stride, struct rows b, size_t count)
{
    size_t n = 0;

    for (; n + 64 <= width; n += 64)
        chain_64(c + n, a, a_stride, b.data + n, b.stride, count);
    for (; n < width; n += 16)
        chain_16(c + n, a, a_stride, b.data + n, b.stride, count);
}

/* ---- the keys of a row and of a block ------------------------------------------------------------------------------
 */

/* A range of keys, [begin, end). */
struct keys {
    size_t begin, end;
};

/* The keys that the query at position sees. */
static struct keys visible_keys(const struct ash_attn_args *args, size_t position)
{
    struct keys keys = {.begin = 0, .end = position + 1};

    if (args->window != 0 && keys.end > args->window) keys.begin = keys.end - args->window;
    return keys;
}

/* The part of keys inside the block that starts at base, counted from base; empty: begin >= end. */
static struct keys in_block(struct keys keys, size_t base)
{
    struct keys part = {.begin = keys.begin > base ? keys.begin - base : 0,
                        .end = keys.end > base ? keys.end - base : 0};

    if (part.end > ASH_ATTN_BLOCK) part.end = ASH_ATTN_BLOCK;
    return part;
}

/* count rows of dim elements as padded float32 rows; where they lie if they are that already, else in copy. */
static struct rows padded_rows(const void *data, enum ash_dtype dtype, size_t stride, size_t count, size_t dim,
                               float *copy)
{
    size_t pad = attn_pad(dim);

    if (dtype == ASH_F32 && dim == pad) return (struct rows){data, stride};
    for (size_t r = 0; r < count; r++) {
        struct pack pack = {
            .data = pack_at(data, dtype, r * stride), .dtype = dtype, .line_stride = 1, .count = dim, .k_count = 1};

        pack_block(&pack, copy + r * pad, pad);
    }
    return (struct rows){copy, pad};
}

/* count rows of dim elements turned over: out[d * ASH_ATTN_BLOCK + r]. */
static struct rows turned_rows(const void *data, enum ash_dtype dtype, size_t stride, size_t count, size_t dim,
                               float *out)
{
    struct pack pack = {
        .data = data, .dtype = dtype, .line_stride = stride, .k_stride = 1, .count = count, .k_count = dim};

    pack_block(&pack, out, ASH_ATTN_BLOCK);
    return (struct rows){out, ASH_ATTN_BLOCK};
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* A unit is some query rows of one document, of all heads that share a kv head. */
struct attn_unit {
    const struct ash_attn_seq *seq;
    size_t first, rows; /* query rows of the document */
    size_t g;           /* kv head */
};

struct attn {
    struct ash_exec *exec;
    const struct ash_attn_args *args;
    size_t group;      /* query heads per kv head */
    size_t unit_rows;  /* query rows of a unit */
    size_t state_rows; /* group * unit_rows */
};

/* The unit of a number; units of a document follow each other. */
static struct attn_unit find_unit(const struct attn *op, size_t number)
{
    const struct ash_attn_seq *seq = op->args->seqs;
    struct attn_unit unit = {.g = number % op->args->kv_heads};
    size_t n = number / op->args->kv_heads;

    for (;; seq++) {
        size_t blocks = (seq->q_count + op->unit_rows - 1) / op->unit_rows;

        if (n < blocks) break;
        n -= blocks;
    }
    unit.seq = seq;
    unit.first = n * op->unit_rows;
    unit.rows = seq->q_count - unit.first < op->unit_rows ? seq->q_count - unit.first : op->unit_rows;
    return unit;
}

/* What the rows of a unit carry from block to block, in scratch. Row r of head h of the group has number h * unit rows
 * + r. */
struct attn_state {
    float *max, *sum;     /* [state rows] */
    float *acc;           /* [state rows, padded dim_v] */
    float *turned, *copy; /* a block's keys and values */
    size_t pad;           /* of dim_v */
};

static void attn_state_init(const struct attn *op, int worker, struct attn_state *state)
{
    size_t turned = ASH_ATTN_BLOCK * op->args->dim_k, pad = attn_pad(op->args->dim_v);
    size_t floats = op->state_rows * (2 + pad) + turned + ASH_ATTN_BLOCK * pad;

    state->pad = pad;
    state->acc = ash_exec_scratch(op->exec, worker, floats * sizeof(float));
    state->copy = state->acc + op->state_rows * pad;
    state->turned = state->copy + ASH_ATTN_BLOCK * pad;
    state->max = state->turned + turned;
    state->sum = state->max + op->state_rows;
}

/* Scaled scores of query q with the keys of a block, minus infinity where it does not see them. Returns how many are
 * set: a multiple of ATTN_ALIGN. */
static size_t score_row(const struct ash_attn_args *args, const float *q, struct rows keys, struct keys seen,
                        float *score)
{
    size_t width = attn_pad(seen.end);
    vf scale = vf_set(args->scale);

    memset(score, 0, width * sizeof(*score));
    chain_row(score, width, q, 1, keys, args->dim_k);
    for (size_t n = 0; n < width; n += VF_WIDTH)
        vf_store(score + n, vf_mul(vf_load(score + n), scale));
    for (size_t n = 0; n < seen.begin; n++)
        score[n] = -INFINITY;
    for (size_t n = seen.end; n < width; n++)
        score[n] = -INFINITY;
    return width;
}

/* The larger of max and the largest of x. */
static float max_row(const float *x, size_t width, float max)
{
    struct lanes lanes;

    UNROLL
    for (size_t v = 0; v < LANE_VECS; v++)
        lanes.part[v] = vf_set(max);
    for (size_t n = 0; n < width; n += ASH_LANES) {
        UNROLL
        for (size_t v = 0; v < LANE_VECS; v++)
            lanes.part[v] = vf_max(vf_load(x + n + v * VF_WIDTH), lanes.part[v]);
    }
    return lanes_max(&lanes);
}

/* x becomes exp(x - max); returns the sum. */
static float exp_row(float *x, size_t width, float max)
{
    struct lanes lanes;
    float part[ASH_LANES];
    vf top = vf_set(max);

    lanes_zero(&lanes);
    for (size_t n = 0; n < width; n += ASH_LANES) {
        UNROLL
        for (size_t v = 0; v < LANE_VECS; v++) {
            vf e = vf_exp(vf_sub(vf_load(x + n + v * VF_WIDTH), top));

            vf_store(x + n + v * VF_WIDTH, e);
            lanes.part[v] = vf_add(lanes.part[v], e);
        }
    }
    lanes_spill(&lanes, part);
    return ash_lanes_fold(part);
}

/* Fold the keys that row n sees in this block into its state. */
static void forward_row(const struct ash_attn_args *args, const float *q, struct rows keys, struct rows values,
                        struct keys seen, struct attn_state *state, size_t n)
{
    float score[ASH_ATTN_BLOCK], *acc = state->acc + n * state->pad;
    size_t width = score_row(args, q, keys, seen, score);
    float max = max_row(score, width, state->max[n]), alpha = ash_expf(state->max[n] - max);
    vf factor = vf_set(alpha);

    state->sum[n] = fmaf(state->sum[n], alpha, exp_row(score, width, max));
    state->max[n] = max;
    for (size_t d = 0; d < state->pad; d += VF_WIDTH)
        vf_store(acc + d, vf_mul(vf_load(acc + d), factor));
    values.data += seen.begin * values.stride;
    chain_row(acc, state->pad, score + seen.begin, 1, values, seen.end - seen.begin);
}

/* One block of keys for all rows of the unit. */
static void forward_block(const struct attn *op, const struct attn_unit *unit, size_t base, size_t count,
                          struct attn_state *state)
{
    const struct ash_attn_args *args = op->args;
    const struct ash_attn_seq *seq = unit->seq;
    const void *k = pack_at(seq->k, args->kv_dtype, base * args->k_stride + unit->g * args->dim_k);
    const void *v = pack_at(seq->v, args->kv_dtype, base * args->v_stride + unit->g * args->dim_v);
    struct rows keys = turned_rows(k, args->kv_dtype, args->k_stride, count, args->dim_k, state->turned);
    struct rows values = padded_rows(v, args->kv_dtype, args->v_stride, count, args->dim_v, state->copy);

    for (size_t n = 0; n < op->group * unit->rows; n++) {
        size_t h = unit->g * op->group + n / unit->rows, i = unit->first + n % unit->rows;
        struct keys seen = in_block(visible_keys(args, seq->pos + i), base);

        if (seen.begin < seen.end)
            forward_row(args, args->q + (seq->q_row + i) * args->q_stride + h * args->dim_k, keys, values, seen, state,
                        n);
    }
}

static void forward_finish(const struct attn *op, const struct attn_unit *unit, const struct attn_state *state)
{
    const struct ash_attn_args *args = op->args;

    for (size_t n = 0; n < op->group * unit->rows; n++) {
        size_t h = unit->g * op->group + n / unit->rows, row = unit->seq->q_row + unit->first + n % unit->rows;
        float *out = args->out + row * args->out_stride + h * args->dim_v;
        const float *acc = state->acc + n * state->pad;
        vf sum = vf_set(state->sum[n]);

        for (size_t d = 0; d < args->dim_v; d += VF_WIDTH)
            vf_store_n(out + d, vf_div(vf_load(acc + d), sum), args->dim_v - d);
        if (args->lse != NULL) args->lse[row * args->heads + h] = state->max[n] + ash_logf(state->sum[n]);
    }
}

static void forward_units(void *ctx, size_t begin, size_t end, int worker)
{
    const struct attn *op = ctx;
    const struct ash_attn_args *args = op->args;
    struct attn_state state;

    attn_state_init(op, worker, &state);
    for (size_t number = begin; number < end; number++) {
        struct attn_unit unit = find_unit(op, number);
        size_t first = visible_keys(args, unit.seq->pos + unit.first).begin / ASH_ATTN_BLOCK * ASH_ATTN_BLOCK;
        size_t last = unit.seq->pos + unit.first + unit.rows;

        for (size_t n = 0; n < op->group * unit.rows; n++) {
            state.max[n] = -INFINITY;
            state.sum[n] = 0.0f;
        }
        memset(state.acc, 0, op->group * unit.rows * state.pad * sizeof(float));
        for (size_t base = first; base < last; base += ASH_ATTN_BLOCK)
            forward_block(op, &unit, base, last - base < ASH_ATTN_BLOCK ? last - base : ASH_ATTN_BLOCK, &state);
        forward_finish(op, &unit, &state);
    }
}

static void attn_init(struct attn *op, struct ash_exec *exec, const struct ash_attn_args *args)
{
    ash_assert(args->dim_k <= ASH_ATTN_HEAD_MAX && args->dim_v <= ASH_ATTN_HEAD_MAX);
    ash_assert(args->kv_heads > 0 && args->heads % args->kv_heads == 0);
    op->exec = exec;
    op->args = args;
    op->group = args->heads / args->kv_heads;
    op->unit_rows = op->group < ATTN_ROWS ? ATTN_ROWS / op->group : 1;
    op->state_rows = op->group * op->unit_rows;
}

static void attn_forward(struct ash_exec *exec, const struct ash_attn_args *args)
{
    struct attn op;
    size_t units = 0;

    attn_init(&op, exec, args);
    for (size_t s = 0; s < args->seq_count; s++)
        units += (args->seqs[s].q_count + op.unit_rows - 1) / op.unit_rows * args->kv_heads;
    ash_workers_run(exec->workers, units, 1, forward_units, &op);
}

#endif
