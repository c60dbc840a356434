/* attn_body - attention of one instruction set. Keys of a block are packed side by side, so that a query's scores with
 * them, and the weighted sum of their values, are chains over rows of a matrix. */
#ifndef ASH_COMPUTE_ATTN_BODY_H
#define ASH_COMPUTE_ATTN_BODY_H

#if !defined(ASH_COMPUTE_PACK_BODY_H) || !defined(ASH_COMPUTE_SOFTMAX_BODY_H)
#error "include pack_body.h and softmax_body.h first"
#endif

#include "base/math.h"
#include "base/range.h"
#include "compute/attn_pages.h"

#define ATTN_ROWS 128 /* query rows, over all heads of a group, that share a packed block of keys */
#define ATTN_ALIGN 16 /* rows of scratch matrices are padded to a multiple of this */

struct attn_op {
    struct ash_exec *exec;
    const struct ash_attn_args *args;
    size_t group;      /* query heads per kv head */
    size_t unit_rows;  /* query rows of a unit of forward */
    size_t state_rows; /* group * unit_rows */
    /* Documents whose query is computed elsewhere (attn_shared_body.h); NULL: none. */
    const bool *is_elsewhere; /* [seq_count] */
};

static size_t attn_pad(size_t dim)
{
    return ash_round_up(dim, ATTN_ALIGN);
}

/* ---- the keys of a row and of a block ---------------------------------------------------------------------------- */

/* The keys that the query at position sees. */
static struct chain_range attn_visible_keys(const struct ash_attn_args *args, size_t position)
{
    struct chain_range keys = {.begin = 0, .end = position + 1};

    if (args->window != 0 && keys.end > args->window) keys.begin = keys.end - args->window;
    return keys;
}

/* The keys that query row i of a document sees. */
static struct chain_range attn_seen_keys(const struct ash_attn_args *args, const struct ash_attn_seq *seq, size_t i)
{
    struct chain_range keys = {.begin = 0, .end = seq->q_count};

    if (!args->both_ways) return attn_visible_keys(args, seq->pos + i);
    if (args->window != 0 && i > args->window) keys.begin = i - args->window;
    if (args->window != 0) keys.end = ash_min(keys.end, i + args->window + 1);
    return keys;
}

/* The part of keys inside the block that starts at base, counted from base; empty: begin >= end. */
static struct chain_range attn_in_block(struct chain_range keys, size_t base)
{
    struct chain_range part = {.begin = keys.begin > base ? keys.begin - base : 0,
                               .end = keys.end > base ? keys.end - base : 0};

    if (part.end > ASH_ATTN_BLOCK) part.end = ASH_ATTN_BLOCK;
    return part;
}

/* Copy count rows of dim floats between a tensor and padded scratch rows. */
static void attn_load_padded(float *to, size_t pad, const float *from, size_t stride, size_t count, size_t dim)
{
    for (size_t r = 0; r < count; r++) {
        memcpy(to + r * pad, from + r * stride, dim * sizeof(*to));
        if (pad > dim) memset(to + r * pad + dim, 0, (pad - dim) * sizeof(*to));
    }
}

static void attn_store_padded(const float *from, size_t pad, float *to, size_t stride, size_t count, size_t dim)
{
    for (size_t r = 0; r < count; r++)
        memcpy(to + r * stride, from + r * pad, dim * sizeof(*to));
}

typedef uint16_t attn_u16x8 __attribute__((vector_size(16), aligned(2)));
typedef uint32_t attn_u32x8 __attribute__((vector_size(32), aligned(4)));

/* count bf16 as float32. */
static void attn_widen(const uint16_t *from, size_t count, float *to)
{
    size_t i = 0;

    for (; i + 8 <= count; i += 8) {
        attn_u32x8 wide = __builtin_convertvector(*(const attn_u16x8 *)(from + i), attn_u32x8) << 16;

        memcpy(to + i, &wide, sizeof(wide));
    }
    for (; i < count; i++)
        to[i] = ash_bf16_to_f32(from[i]);
}

/* count rows of dim elements as padded float32 rows in copy. Rows of a tensor are far apart, often by nearly a multiple
 * of the size of a way of L1, so that few of them stay there; a copy does. */
static struct chain_right attn_padded_rows(const void *data, enum ash_dtype dtype, size_t stride, size_t count,
                                           size_t dim, float *copy)
{
    size_t pad = attn_pad(dim);

    if (dtype == ASH_BF16 && stride == dim && pad == dim) {
        attn_widen(data, count * dim, copy);
        return (struct chain_right){copy, pad};
    }
    if (dtype == ASH_F32) attn_load_padded(copy, pad, data, stride, count, dim);
    for (size_t r = 0; r < count && dtype != ASH_F32; r++) {
        struct pack pack = {
            .data = pack_at(data, dtype, r * stride), .dtype = dtype, .line_stride = 1, .count = dim, .k_count = 1};

        pack_block(&pack, copy + r * pad, pad);
    }
    return (struct chain_right){copy, pad};
}

/* count keys of dim elements as columns: element d of key r is out[d * ASH_ATTN_BLOCK + r]. */
static struct chain_right attn_key_columns(const struct ash_attn_run *run, enum ash_dtype dtype, size_t count,
                                           size_t dim, float *out)
{
    struct pack pack = {.data = run->data,
                        .dtype = dtype,
                        .line_stride = run->token_stride,
                        .k_stride = run->dim_stride,
                        .count = count,
                        .k_count = dim};

    if (dtype == ASH_BF16 && count == ASH_ATTN_BLOCK && run->token_stride == 1 && run->dim_stride == ASH_ATTN_BLOCK)
        attn_widen(run->data, ASH_ATTN_BLOCK * dim, out); /* a page has them as columns already */
    else
        pack_block(&pack, out, ASH_ATTN_BLOCK);
    return (struct chain_right){out, ASH_ATTN_BLOCK};
}

static struct chain_right attn_transposed_rows(const float *data, size_t stride, size_t count, size_t dim, float *out)
{
    struct ash_attn_run run = {(void *)data, stride, 1};

    return attn_key_columns(&run, ASH_F32, count, dim, out);
}

/* dots[r * ASH_ATTN_BLOCK + n] = row r of x (count of them, dim wide) times column n < width of the transposed rows.
 * Columns up to a multiple of CHAIN_COLS are computed too, which is faster than rows alone; rows from count to
 * CHAIN_ROWS are 0. */
static void attn_dot_block(const float *x, size_t stride, size_t count, size_t dim, struct chain_right transposed,
                           size_t width, float *dots)
{
    struct chain_left left = {x, stride, 1};

    width = ash_round_up(width, CHAIN_COLS);
    if (count == CHAIN_ROWS) {
        chain_tile(dots, ASH_ATTN_BLOCK, width, left, transposed, (struct chain_range){0, dim}, false);
        return;
    }
    memset(dots, 0, CHAIN_ROWS * ASH_ATTN_BLOCK * sizeof(*dots));
    for (size_t r = 0; r < count; r++)
        chain_row(dots + r * ASH_ATTN_BLOCK, width, left, r, transposed, (struct chain_range){0, dim});
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* A unit is some query rows of one document, of all heads that share a kv head. */
struct attn_unit {
    const struct ash_attn_seq *seq;
    size_t first, rows; /* query rows of the document */
    size_t g;           /* kv head */
};

/* Units of a document, of one kv head. */
static size_t attn_unit_count(const struct attn_op *op, const struct ash_attn_seq *seq)
{
    if (op->is_elsewhere != NULL && op->is_elsewhere[seq - op->args->seqs]) return 0;
    return ash_div_up(seq->q_count, op->unit_rows);
}

/* The unit of a number; units of a document follow each other, the last rows, which see most keys, first: threads
 * that have only short units left end at the same time. */
static struct attn_unit attn_find_unit(const struct attn_op *op, size_t number)
{
    const struct ash_attn_seq *seq = op->args->seqs;
    struct attn_unit unit = {.g = number % op->args->kv_heads};
    size_t n = number / op->args->kv_heads, blocks;

    for (;; seq++) {
        ash_assert(seq < op->args->seqs + op->args->seq_count);
        blocks = attn_unit_count(op, seq);
        if (n < blocks) break;
        n -= blocks;
    }
    unit.seq = seq;
    unit.first = (blocks - 1 - n) * op->unit_rows;
    unit.rows = ash_min(seq->q_count - unit.first, op->unit_rows);
    return unit;
}

/* What the rows of a unit carry from block to block, in scratch. Row r of head h of the group has number r * group + h:
 * heads of one position are neighbours, and see the same keys. */
struct attn_state {
    float *max, *sum;         /* [state rows] */
    float *acc;               /* [state rows, padded dim_v] */
    float *q;                 /* [state rows, padded dim_k] */
    float *transposed, *copy; /* a block's keys and values */
    size_t pad, pad_k;        /* of dim_v, dim_k */
    /* of query r of the unit; rows of the state r * group to (r + 1) * group: */
    size_t positions[ATTN_ROWS];
    size_t out_rows[ATTN_ROWS]; /* of q and out */
};

static void attn_state_init(const struct attn_op *op, int worker, struct attn_state *state)
{
    size_t transposed = ASH_ATTN_BLOCK * op->args->dim_k, pad = attn_pad(op->args->dim_v),
           pad_k = attn_pad(op->args->dim_k);
    size_t floats = op->state_rows * (2 + pad + pad_k) + transposed + ASH_ATTN_BLOCK * pad;

    state->pad = pad;
    state->pad_k = pad_k;
    state->q = ash_exec_scratch(op->exec, worker, floats * sizeof(float));
    state->acc = state->q + op->state_rows * pad_k;
    state->copy = state->acc + op->state_rows * pad;
    state->transposed = state->copy + ASH_ATTN_BLOCK * pad;
    state->max = state->transposed + transposed;
    state->sum = state->max + op->state_rows;
    ash_assert(state->sum + op->state_rows == state->q + floats);
    ash_assert(2 * op->state_rows >= ASH_ATTN_BLOCK); /* chains read a row after transposed, and do not use it */
}

/* The state of `count` queries whose positions and rows were filled in, before the first key. */
static void attn_state_reset(const struct attn_op *op, size_t g, size_t count, struct attn_state *state)
{
    const struct ash_attn_args *args = op->args;

    for (size_t r = 0; r < count; r++)
        attn_load_padded(state->q + r * op->group * state->pad_k, state->pad_k,
                         args->q + state->out_rows[r] * args->q_stride + g * op->group * args->dim_k, args->dim_k,
                         op->group, args->dim_k);
    for (size_t n = 0; n < op->group * count; n++) {
        state->max[n] = -INFINITY;
        state->sum[n] = 0.0f;
    }
    memset(state->acc, 0, op->group * count * state->pad * sizeof(*state->acc));
}

/* Fold the keys that rows n to n + count of the state see in this block into them. seen has CHAIN_ROWS entries: those
 * from count on repeat the last row, and are not used. */
static void attn_forward_rows(const struct ash_attn_args *args, struct chain_right keys, struct chain_right values,
                              const struct chain_range *seen, size_t count, struct attn_state *state, size_t n)
{
    float score[CHAIN_ROWS * ASH_ATTN_BLOCK + CHAIN_SLACK_FLOATS], alpha[CHAIN_ROWS],
        *acc = state->acc + n * state->pad;
    size_t last = seen[0].end, width;
    struct soft soft = {0};

    for (size_t r = 1; r < count; r++)
        last = ash_max(last, seen[r].end);
    width = attn_pad(last);
    attn_dot_block(state->q + n * state->pad_k, state->pad_k, count, args->dim_k, keys, width, score);
    for (size_t r = 0; r < count; r++) {
        soft.max[r] = state->max[n + r];
        soft.sum[r] = state->sum[n + r];
    }
    soft_rows(score, width, args->scale, seen, &soft, alpha);
    for (size_t r = 0; r < count; r++) {
        state->max[n + r] = soft.max[r];
        state->sum[n + r] = soft.sum[r];
        if (alpha[r] != 1.0f) scale_row(acc + r * state->pad, state->pad, alpha[r]);
    }
    chain_rows(acc, state->pad, state->pad, (struct chain_left){score, ASH_ATTN_BLOCK, 1}, values, seen, count);
}

/* One block of keys of a document, count of them from base on, for those of the state's queries that see any. */
static void attn_forward_block(const struct attn_op *op, const struct ash_attn_seq *seq, size_t g,
                               struct ash_range block, struct ash_range queries, struct attn_state *state)
{
    const struct ash_attn_args *args = op->args;
    struct ash_attn_run k = ash_attn_keys(args, seq, block.first, g), v = ash_attn_values(args, seq, block.first, g);
    struct chain_right keys = attn_key_columns(&k, args->kv_dtype, block.count, args->dim_k, state->transposed);
    struct chain_right values =
        attn_padded_rows(v.data, args->kv_dtype, v.token_stride, block.count, args->dim_v, state->copy);
    size_t end = op->group * (queries.first + queries.count);

    for (size_t n = op->group * queries.first; n < end;) {
        struct chain_range seen[CHAIN_ROWS];
        size_t rows = 0;

        for (; rows < CHAIN_ROWS && n + rows < end; rows++) {
            seen[rows] = attn_in_block(attn_seen_keys(args, seq, state->positions[(n + rows) / op->group] - seq->pos),
                                       block.first);
            if (seen[rows].begin >= seen[rows].end) break;
        }
        for (size_t r = rows; rows > 0 && r < CHAIN_ROWS; r++)
            seen[r] = seen[rows - 1];
        if (rows > 0) attn_forward_rows(args, keys, values, seen, rows, state, n);
        n += rows > 0 ? rows : 1;
    }
}

static void attn_forward_finish(const struct attn_op *op, size_t g, size_t count, const struct attn_state *state)
{
    const struct ash_attn_args *args = op->args;

    for (size_t n = 0; n < op->group * count; n++) {
        size_t h = g * op->group + n % op->group, row = state->out_rows[n / op->group];
        float *out = args->out + row * args->out_stride + h * args->dim_v;
        const float *acc = state->acc + n * state->pad;

        for (size_t d = 0; d < args->dim_v; d += ASH_LANES)
            wide_store_n(out + d, wide_div(wide_load(acc + d), wide_set(state->sum[n])), args->dim_v - d);
        if (args->lse != NULL) args->lse[row * args->heads + h] = state->max[n] + ash_logf(state->sum[n]);
    }
}

/* The queries of a unit over all keys that they see. */
static void attn_forward_unit(const struct attn_op *op, const struct attn_unit *unit, struct attn_state *state)
{
    const struct ash_attn_seq *seq = unit->seq;
    size_t base = attn_seen_keys(op->args, seq, unit->first).begin / ASH_ATTN_BLOCK * ASH_ATTN_BLOCK;
    size_t last = attn_seen_keys(op->args, seq, unit->first + unit->rows - 1).end;

    for (size_t r = 0; r < unit->rows; r++) {
        state->positions[r] = seq->pos + unit->first + r;
        state->out_rows[r] = seq->q_row + unit->first + r;
    }
    attn_state_reset(op, unit->g, unit->rows, state);
    for (; base < last; base += ASH_ATTN_BLOCK)
        attn_forward_block(op, seq, unit->g, (struct ash_range){base, ash_min(last - base, ASH_ATTN_BLOCK)},
                           (struct ash_range){0, unit->rows}, state);
    attn_forward_finish(op, unit->g, unit->rows, state);
}

static void attn_forward_units(void *ctx, size_t begin, size_t end, int worker)
{
    const struct attn_op *op = ctx;
    struct attn_state state;

    attn_state_init(op, worker, &state);
    for (size_t number = begin; number < end; number++) {
        struct attn_unit unit = attn_find_unit(op, number);

        attn_forward_unit(op, &unit, &state);
    }
}

static void attn_init(struct attn_op *op, struct ash_exec *exec, const struct ash_attn_args *args)
{
    ash_assert(args->dim_k <= ASH_ATTN_HEAD_MAX && args->dim_v <= ASH_ATTN_HEAD_MAX);
    ash_assert(args->dim_k > 0 && args->dim_v > 0);
    ash_assert(args->kv_heads > 0 && args->heads > 0 && args->heads % args->kv_heads == 0);
    ash_assert(args->kv_dtype == ASH_F32 || args->kv_dtype == ASH_BF16);
    ash_assert(args->q_stride >= args->heads * args->dim_k && args->out_stride >= args->heads * args->dim_v);
    *op = (struct attn_op){.exec = exec, .args = args};
    op->group = args->heads / args->kv_heads;
    op->unit_rows = op->group < ATTN_ROWS ? ATTN_ROWS / op->group : 1;
    op->state_rows = op->group * op->unit_rows;
}

#endif
