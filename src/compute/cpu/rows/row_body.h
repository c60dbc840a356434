/* row_body - embedding, rotary positions and row arithmetic of one instruction set. */
#ifndef ASH_COMPUTE_ROW_BODY_H
#define ASH_COMPUTE_ROW_BODY_H

#ifndef ASH_COMPUTE_PACK_BODY_H
#error "include pack_body.h first"
#endif

#define ROW_MIN_COUNT 4096
#define ROW_MIN_ROWS 8
#define SCATTER_COLS 64 /* columns of a unit */

/* ---- embedding --------------------------------------------------------------------------------------------------- */

struct embed_op {
    struct ash_exec *exec;
    const void *table;
    enum ash_dtype dtype;
    size_t cols, rows;
    const int32_t *ids;
    bool add;
    float *out;
    const float *grad;
    float *dtable;
};

/* A narrow row is widened first: it is one line of a packed block. */
static void embed_gather_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct embed_op *op = ctx;
    float *wide = op->dtype == ASH_F32 ? NULL : ash_exec_scratch(op->exec, worker, op->cols * sizeof(*wide));

    for (size_t r = begin; r < end; r++) {
        const void *from = (const char *)op->table + ash_dtype_size(op->dtype, (size_t)op->ids[r] * op->cols);
        float *out = op->out + r * op->cols;

        if (ash_dtype_block(op->dtype) > 1) {
            ash_quant_to_f32(from, op->dtype, op->cols, wide);
            from = wide;
        } else if (wide != NULL) {
            struct pack pack = {.data = from, .dtype = op->dtype, .line_stride = 1, .count = op->cols, .k_count = 1};

            pack_block(&pack, wide, op->cols);
            from = wide;
        }
        if (op->add)
            add_row(out, from, op->cols, out);
        else
            memcpy(out, from, op->cols * sizeof(*out));
    }
}

static void embed_gather(struct ash_exec *exec, const struct ash_embed_args *args)
{
    struct embed_op op = {.exec = exec,
                          .table = args->table,
                          .dtype = args->dtype,
                          .cols = args->cols,
                          .ids = args->ids,
                          .rows = args->rows,
                          .add = args->add,
                          .out = args->out};

    ash_assert(args->cols % ash_dtype_block(args->dtype) == 0);
    ash_workers_run(exec->workers, args->rows, ROW_MIN_ROWS, embed_gather_rows, &op);
}

/* A unit is some columns, so that one thread adds all rows of an id, in order. */
static void embed_scatter_units(void *ctx, size_t begin, size_t end, int worker)
{
    const struct embed_op *op = ctx;
    size_t first = begin * SCATTER_COLS, last = ash_min(end * SCATTER_COLS, op->cols);

    (void)worker;
    for (size_t r = 0; r < op->rows; r++) {
        float *to = op->dtable + (size_t)op->ids[r] * op->cols + first;

        add_row(to, op->grad + r * op->cols + first, last - first, to);
    }
}

static void embed_scatter_add(struct ash_exec *exec, float *table, size_t cols, const int32_t *ids, size_t rows,
                              const float *grad)
{
    struct embed_op op = {.cols = cols, .rows = rows, .ids = ids, .grad = grad, .dtable = table};

    ash_workers_run(exec->workers, ash_div_up(cols, SCATTER_COLS), 1, embed_scatter_units, &op);
}

static const struct ash_embed_ops vec_embed = {.gather = embed_gather, .scatter_add = embed_scatter_add};

/* ---- rotary positions -------------------------------------------------------------------------------------------- */

struct rope_op {
    struct ash_exec *exec;
    const struct ash_rope_args *args;
};

/* Rotate count pairs (a, b) by their angles. sign is -1 for the inverse. */
INLINE void rope_step(float *a, float *b, const float *cosines, const float *sines, float sign, size_t count)
{
    struct wide x = wide_load_n(a, count), y = wide_load_n(b, count);
    struct wide cosine = wide_load_n(cosines, count), sine = wide_mul(wide_load_n(sines, count), wide_set(sign));

    wide_store_n(a, wide_fma(x, cosine, wide_neg(wide_mul(y, sine))), count);
    wide_store_n(b, wide_fma(y, cosine, wide_mul(x, sine)), count);
}

/* Rotate the halves a and b of a head by the angles of one position. */
static void rope_halves(float *a, float *b, size_t half, const float *cosines, const float *sines, float sign)
{
    size_t i = 0;

    for (; i + ASH_LANES <= half; i += ASH_LANES)
        rope_step(a + i, b + i, cosines + i, sines + i, sign, ASH_LANES);
    if (i < half) rope_step(a + i, b + i, cosines + i, sines + i, sign, half - i);
}

/* Interleaved pairs are sorted into halves before (forward) or back into pairs after (inverse). */
static void rope_head(const struct ash_rope_args *args, float *x, float *copy, const float *cosines, const float *sines)
{
    size_t half = args->dims / 2;

    if (!args->interleaved_in) {
        rope_halves(x, x + half, half, cosines, sines, args->inverse ? -1.0f : 1.0f);
        return;
    }
    if (args->inverse) {
        rope_halves(x, x + half, half, cosines, sines, -1.0f);
        memcpy(copy, x, args->dims * sizeof(*x));
        for (size_t i = 0; i < half; i++) {
            x[2 * i] = copy[i];
            x[2 * i + 1] = copy[i + half];
        }
        return;
    }
    memcpy(copy, x, args->dims * sizeof(*x));
    for (size_t i = 0; i < half; i++) {
        x[i] = copy[2 * i];
        x[i + half] = copy[2 * i + 1];
    }
    rope_halves(x, x + half, half, cosines, sines, 1.0f);
}

static void rope_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct rope_op *op = ctx;
    const struct ash_rope_args *args = op->args;
    float *copy = ash_exec_scratch(op->exec, worker, args->dims * sizeof(*copy));

    for (size_t r = begin; r < end; r++) {
        size_t angles = (size_t)args->positions[r] * (args->dims / 2);

        for (size_t h = 0; h < args->heads; h++)
            rope_head(args, args->x + r * args->row_stride + h * args->head_stride, copy, args->cos + angles,
                      args->sin + angles);
    }
}

static void rope_apply(struct ash_exec *exec, const struct ash_rope_args *args)
{
    struct rope_op op = {.exec = exec, .args = args};

    ash_assert(args->dims % 2 == 0 && (args->heads <= 1 || args->head_stride >= args->dims));
    ash_assert(args->rows == 0 || (args->positions != NULL && args->cos != NULL && args->sin != NULL));
    ash_workers_run(exec->workers, args->rows, ROW_MIN_ROWS, rope_rows, &op);
}

static const struct ash_rope_ops vec_rope = {.apply = rope_apply};

/* ---- row arithmetic ---------------------------------------------------------------------------------------------- */

struct row_op {
    const float *a, *b;
    float *out;
    float factor;
    size_t cols, slots;
    const int32_t *index;
    const float *weight;
    bool add;
};

static void row_add_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct row_op *op = ctx;

    (void)worker;
    add_row(op->a + begin, op->b + begin, end - begin, op->out + begin);
}

static void row_add(struct ash_exec *exec, const float *a, const float *b, size_t count, float *out)
{
    struct row_op op = {.a = a, .b = b, .out = out};

    ash_workers_run(exec->workers, count, ROW_MIN_COUNT, row_add_range, &op);
}

static void row_scale_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct row_op *op = ctx;

    (void)worker;
    scale_row(op->out + begin, end - begin, op->factor);
}

static void row_scale(struct ash_exec *exec, float *x, float factor, size_t count)
{
    struct row_op op = {.out = x, .factor = factor};

    ash_workers_run(exec->workers, count, ROW_MIN_COUNT, row_scale_range, &op);
}

INLINE void row_round_step(const struct row_op *op, size_t i, size_t count)
{
    wide_store_n(op->out + i, wide_round_bf16(wide_load_n(op->a + i, count)), count);
}

static void row_round_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct row_op op = *(const struct row_op *)ctx;
    size_t i = begin;

    (void)worker;
    for (; i + ASH_LANES <= end; i += ASH_LANES)
        row_round_step(&op, i, ASH_LANES);
    if (i < end) row_round_step(&op, i, end - i);
}

static void row_round_bf16(struct ash_exec *exec, const float *x, size_t count, float *out)
{
    struct row_op op = {.a = x, .out = out};

    ash_workers_run(exec->workers, count, ROW_MIN_COUNT, row_round_range, &op);
}

static void row_gather_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct row_op *op = ctx;

    (void)worker;
    for (size_t r = begin; r < end; r++)
        memcpy(op->out + r * op->cols, op->a + (size_t)op->index[r] * op->cols, op->cols * sizeof(float));
}

static void row_gather(struct ash_exec *exec, const float *x, size_t cols, const int32_t *index, size_t rows,
                       float *out)
{
    struct row_op op = {.a = x, .out = out, .cols = cols, .index = index};

    ash_workers_run(exec->workers, rows, ROW_MIN_ROWS, row_gather_rows, &op);
}

/* count columns from c on of row t. */
INLINE void row_combine_step(const struct row_op *op, size_t t, size_t c, size_t count)
{
    float *out = op->out + t * op->cols + c;
    struct wide acc = op->add ? wide_load_n(out, count) : wide_set(0.0f);

    for (size_t s = t * op->slots; s < (t + 1) * op->slots; s++) {
        struct wide y = wide_load_n(op->a + (size_t)op->index[s] * op->cols + c, count);
        acc = op->weight != NULL ? wide_fma(wide_set(op->weight[s]), y, acc) : wide_add(acc, y);
    }
    wide_store_n(out, acc, count);
}

static void row_combine_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct row_op op = *(const struct row_op *)ctx;

    (void)worker;
    for (size_t t = begin; t < end; t++) {
        size_t c = 0;

        for (; c + ASH_LANES <= op.cols; c += ASH_LANES)
            row_combine_step(&op, t, c, ASH_LANES);
        if (c < op.cols) row_combine_step(&op, t, c, op.cols - c);
    }
}

static void row_combine(struct ash_exec *exec, const struct ash_slots_args *args)
{
    struct row_op op = {.a = args->y,
                        .out = args->out,
                        .cols = args->cols,
                        .slots = args->slots,
                        .index = args->where,
                        .weight = args->weight,
                        .add = args->add};

    ash_workers_run(exec->workers, args->rows, ROW_MIN_ROWS, row_combine_rows, &op);
}

static void row_slot_dot_units(void *ctx, size_t begin, size_t end, int worker)
{
    const struct row_op *op = ctx;

    (void)worker;
    for (size_t unit = begin; unit < end; unit++)
        op->out[unit] =
            dot_row(op->a + unit / op->slots * op->cols, op->b + (size_t)op->index[unit] * op->cols, op->cols);
}

static void row_slot_dot(struct ash_exec *exec, const struct ash_slots_args *args)
{
    struct row_op op = {
        .a = args->x, .b = args->y, .out = args->out, .cols = args->cols, .slots = args->slots, .index = args->where};

    ash_workers_run(exec->workers, args->rows * args->slots, ROW_MIN_ROWS, row_slot_dot_units, &op);
}

static const struct ash_row_ops vec_row = {
    .copy = ash_ref_copy,
    .add = row_add,
    .scale = row_scale,
    .round_bf16 = row_round_bf16,
    .gather = row_gather,
    .combine = row_combine,
    .slot_dot = row_slot_dot,
    .drop = ash_ref_drop,
};

#endif
