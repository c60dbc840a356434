/* attn_split_body - attention of few queries over many keys, cut so that all threads have a part: one new token of one
 * text, on more threads than it has key heads. The scores of a block of keys depend on nothing else, so blocks are
 * computed apart; the running softmax of a row is one chain over its blocks, and cheap; a column of the output is one
 * chain over the keys, so columns are computed apart. Every sum is made in the order of attn_body.h. */
#ifndef ASH_COMPUTE_ATTN_SPLIT_BODY_H
#define ASH_COMPUTE_ATTN_SPLIT_BODY_H

#ifndef ASH_COMPUTE_ATTN_BODY_H
#error "include attn_body.h first"
#endif

#define SPLIT_LEAST_BLOCKS 4 /* of a text: fewer are not worth the waiting for each other */
#define SPLIT_LEAST_COLS 16  /* that a thread sums; a multiple of 16 */

/* A text: one query row of each head, and its blocks of keys. */
struct split_seq {
    size_t first; /* block of keys that it sees */
    size_t blocks;
    size_t before; /* blocks of the texts before it */
};

struct attn_split {
    const struct attn_op *op;
    struct split_seq *seqs; /* [seq_count] */
    size_t blocks;          /* of all texts */
    size_t rows;            /* query heads of a key head, padded to whole tiles */
    float *scores;          /* [blocks, kv_heads, rows, ASH_ATTN_BLOCK]: then weights */
    float *alpha;           /* [blocks, kv_heads, rows] */
    float *max, *sum;       /* [seq_count, kv_heads, rows] */
    size_t cols, parts;     /* columns of a unit of the last loop; how many units a head has */
};

/* ---- places ------------------------------------------------------------------------------------------------------ */

/* Block b of text s, as key head g sees it. */
static size_t split_block(const struct attn_split *split, size_t s, size_t b, size_t g)
{
    return (split->seqs[s].before + b) * split->op->args->kv_heads + g;
}

static struct chain_range split_seen(const struct attn_split *split, size_t s, size_t b)
{
    const struct ash_attn_args *args = split->op->args;

    return attn_in_block(attn_visible_keys(args, args->seqs[s].pos), (split->seqs[s].first + b) * ASH_ATTN_BLOCK);
}

/* Keys that block b of text s has. */
static size_t split_keys(const struct attn_split *split, size_t s, size_t b)
{
    return ash_min(split->op->args->seqs[s].pos + 1 - (split->seqs[s].first + b) * ASH_ATTN_BLOCK, ASH_ATTN_BLOCK);
}

/* ---- scores: a unit is a block of keys of one head --------------------------------------------------------------- */

static void split_scores(void *ctx, size_t begin, size_t end, int worker)
{
    const struct attn_split *split = ctx;
    const struct ash_attn_args *args = split->op->args;
    size_t group = split->op->group, pad = attn_pad(args->dim_k);
    size_t floats = group * pad + CHAIN_SLACK_FLOATS + (args->dim_k + 1) * ASH_ATTN_BLOCK;
    float *q = ash_exec_scratch(split->op->exec, worker, floats * sizeof(*q));
    float *columns = q + group * pad + CHAIN_SLACK_FLOATS;

    for (size_t unit = begin; unit < end; unit++) {
        size_t g = unit % args->kv_heads, block = unit / args->kv_heads, s = 0, b;
        struct ash_attn_run run;
        struct chain_right keys;

        while (s + 1 < args->seq_count && block >= split->seqs[s + 1].before)
            s++;
        b = block - split->seqs[s].before;
        run = ash_attn_keys(args, &args->seqs[s], (split->seqs[s].first + b) * ASH_ATTN_BLOCK, g);
        keys = attn_key_columns(&run, args->kv_dtype, split_keys(split, s, b), args->dim_k, columns);
        attn_load_padded(q, pad, args->q + args->seqs[s].q_row * args->q_stride + g * group * args->dim_k, args->dim_k,
                         group, args->dim_k);
        for (size_t n = 0; n < group; n += CHAIN_ROWS)
            attn_dot_block(q + n * pad, pad, ash_min(group - n, CHAIN_ROWS), args->dim_k, keys,
                           attn_pad(split_seen(split, s, b).end),
                           split->scores + (unit * split->rows + n) * ASH_ATTN_BLOCK);
    }
}

/* ---- weights: a unit is a tile of rows --------------------------------------------------------------------------- */

static void split_weights(void *ctx, size_t begin, size_t end, int worker)
{
    const struct attn_split *split = ctx;
    const struct ash_attn_args *args = split->op->args;
    size_t tiles = split->rows / CHAIN_ROWS;

    (void)worker;
    for (size_t unit = begin; unit < end; unit++) {
        size_t n = unit % tiles * CHAIN_ROWS, head = unit / tiles, g = head % args->kv_heads, s = head / args->kv_heads;
        struct soft soft = {0};

        for (size_t r = 0; r < CHAIN_ROWS; r++)
            soft.max[r] = -INFINITY;
        for (size_t b = 0; b < split->seqs[s].blocks; b++) {
            size_t at = split_block(split, s, b, g) * split->rows + n;
            struct chain_range range = split_seen(split, s, b), seen[CHAIN_ROWS] = {range, range, range, range};

            soft_rows(split->scores + at * ASH_ATTN_BLOCK, attn_pad(range.end), args->scale, seen, &soft,
                      split->alpha + at);
        }
        memcpy(split->max + head * split->rows + n, soft.max, sizeof(soft.max));
        memcpy(split->sum + head * split->rows + n, soft.sum, sizeof(soft.sum));
    }
}

/* ---- output: a unit is some columns of one head ------------------------------------------------------------------ */

/* cols columns of count values, from column first on, as float32 rows; zeros past the last column. */
static void split_load_values(const struct ash_attn_args *args, const struct ash_attn_run *run, size_t count,
                              size_t first, size_t cols, float *to)
{
    size_t real = args->dim_v > first ? ash_min(args->dim_v - first, cols) : 0;

    for (size_t r = 0; r < count; r++, to += cols) {
        const void *from = pack_at(run->data, args->kv_dtype, r * run->token_stride + first);

        if (args->kv_dtype == ASH_BF16)
            attn_widen(from, real, to);
        else
            memcpy(to, from, real * sizeof(*to));
        if (cols > real) memset(to + real, 0, (cols - real) * sizeof(*to));
    }
}

static void split_store(const struct attn_split *split, size_t head, size_t first, size_t cols, const float *acc)
{
    const struct ash_attn_args *args = split->op->args;
    size_t g = head % args->kv_heads, row = args->seqs[head / args->kv_heads].q_row;

    for (size_t r = 0; r < split->op->group; r++) {
        float sum = split->sum[head * split->rows + r], *out = args->out + row * args->out_stride;

        out += (g * split->op->group + r) * args->dim_v;
        for (size_t d = first; d < ash_min(first + cols, args->dim_v); d += ASH_LANES)
            wide_store_n(out + d, wide_div(wide_load(acc + r * cols + d - first), wide_set(sum)),
                         ash_min(args->dim_v, first + cols) - d);
        if (args->lse != NULL && first == 0)
            args->lse[row * args->heads + g * split->op->group + r] =
                split->max[head * split->rows + r] + ash_logf(sum);
    }
}

static void split_output(void *ctx, size_t begin, size_t end, int worker)
{
    const struct attn_split *split = ctx;
    const struct ash_attn_args *args = split->op->args;
    size_t group = split->op->group, pad = attn_pad(args->dim_v);
    float *acc =
        ash_exec_scratch(split->op->exec, worker, (split->rows + ASH_ATTN_BLOCK + 1) * split->cols * sizeof(*acc));

    for (size_t unit = begin; unit < end; unit++) {
        size_t head = unit / split->parts, g = head % args->kv_heads, s = head / args->kv_heads;
        size_t first = unit % split->parts * split->cols, cols = ash_min(pad - first, split->cols);
        float *values = acc + split->rows * cols;

        memset(acc, 0, split->rows * cols * sizeof(*acc));
        for (size_t b = 0; b < split->seqs[s].blocks; b++) {
            struct chain_range range = split_seen(split, s, b), seen[CHAIN_ROWS] = {range, range, range, range};
            size_t at = split_block(split, s, b, g) * split->rows;
            struct ash_attn_run run =
                ash_attn_values(args, &args->seqs[s], (split->seqs[s].first + b) * ASH_ATTN_BLOCK, g);

            split_load_values(args, &run, split_keys(split, s, b), first, cols, values);
            for (size_t r = 0; r < group; r++)
                if (split->alpha[at + r] != 1.0f) scale_row(acc + r * cols, cols, split->alpha[at + r]);
            for (size_t n = 0; n < group; n += CHAIN_ROWS)
                chain_rows(acc + n * cols, cols, cols,
                           (struct chain_left){split->scores + (at + n) * ASH_ATTN_BLOCK, ASH_ATTN_BLOCK, 1},
                           (struct chain_right){values, cols}, seen, ash_min(group - n, CHAIN_ROWS));
        }
        split_store(split, head, first, cols, acc);
    }
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* Is it worth it? One query row per text, long texts, and fewer heads than would keep all threads busy. */
static bool split_pays(const struct ash_exec *exec, const struct ash_attn_args *args)
{
    size_t threads = (size_t)ash_workers_count(exec->workers), blocks = 0;

    if (args->seq_count == 0 || args->seq_count * args->kv_heads >= 2 * threads) return false;
    for (size_t s = 0; s < args->seq_count; s++) {
        struct chain_range keys = attn_visible_keys(args, args->seqs[s].pos);

        if (args->seqs[s].q_count != 1 || args->seqs[s].pages == NULL) return false;
        blocks += (keys.end - keys.begin) / ASH_ATTN_BLOCK;
    }
    return blocks >= SPLIT_LEAST_BLOCKS * args->seq_count && threads > 1;
}

/* Memory for the scores, and where each text's blocks are. */
static void split_init(struct attn_split *split, const struct attn_op *op)
{
    const struct ash_attn_args *args = op->args;
    size_t threads = (size_t)ash_workers_count(op->exec->workers), heads = args->seq_count * args->kv_heads, tiles;
    size_t blocks = 0;
    char *memory;

    for (size_t s = 0; s < args->seq_count; s++)
        blocks += args->seqs[s].pos / ASH_ATTN_BLOCK + 1;
    *split = (struct attn_split){.op = op, .rows = ash_round_up(op->group, CHAIN_ROWS), .cols = attn_pad(args->dim_v)};
    tiles = blocks * args->kv_heads * split->rows;
    memory = ash_exec_shared(op->exec, (tiles * (ASH_ATTN_BLOCK + 1) + CHAIN_SLACK_FLOATS + 2 * heads * split->rows) *
                                               sizeof(float) +
                                           args->seq_count * sizeof(struct split_seq));
    split->seqs = (struct split_seq *)(void *)memory;
    split->scores = (float *)(void *)(split->seqs + args->seq_count);
    split->alpha = split->scores + tiles * ASH_ATTN_BLOCK + CHAIN_SLACK_FLOATS;
    split->max = split->alpha + tiles;
    split->sum = split->max + heads * split->rows;
    for (size_t s = 0; s < args->seq_count; s++) {
        struct chain_range keys = attn_visible_keys(args, args->seqs[s].pos);
        size_t first = keys.begin / ASH_ATTN_BLOCK;

        split->seqs[s] = (struct split_seq){first, ash_div_up(keys.end, ASH_ATTN_BLOCK) - first, split->blocks};
        split->blocks += split->seqs[s].blocks;
    }
    while (split->cols > SPLIT_LEAST_COLS && heads * ash_div_up(attn_pad(args->dim_v), split->cols) < 2 * threads)
        split->cols = ash_round_up(split->cols / 2, SPLIT_LEAST_COLS);
    split->parts = ash_div_up(attn_pad(args->dim_v), split->cols);
}

static void attn_split_forward(struct attn_op *op)
{
    const struct ash_attn_args *args = op->args;
    struct ash_workers *workers = op->exec->workers;
    size_t heads = args->seq_count * args->kv_heads;
    struct attn_split split;

    split_init(&split, op);
    ash_workers_run(workers, split.blocks * args->kv_heads, 1, split_scores, &split);
    ash_workers_run(workers, heads * (split.rows / CHAIN_ROWS), 1, split_weights, &split);
    ash_workers_run(workers, heads * split.parts, 1, split_output, &split);
}

#endif
