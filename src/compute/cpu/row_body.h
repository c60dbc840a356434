/* row_body - embedding, rotary positions and row arithmetic of one instruction set. Include after pack_body.h. */
#ifndef ASH_COMPUTE_ROW_BODY_H
#define ASH_COMPUTE_ROW_BODY_H

#define ROW_MIN_COUNT 4096
#define ROW_MIN_ROWS 8
#define SCATTER_COLS 64 /* columns of a unit */

/* out = a + b over a row; out may be either. */
static void add_row(const float *a, const float *b, size_t count, float *out)
{
    for (size_t i = 0; i < count; i += VF_WIDTH)
        vf_store_n(out + i, vf_add(vf_load_n(a + i, count - i), vf_load_n(b + i, count - i)), count - i);
}

/* ---- embedding --------------------------------------------------------------------------------------------------- */

struct embed {
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
    const struct embed *op = ctx;
    float *wide = op->dtype == ASH_F32 ? NULL : ash_exec_scratch(op->exec, worker, op->cols * sizeof(*wide));

    for (size_t r = begin; r < end; r++) {
        const void *from = pack_at(op->table, op->dtype, (size_t)op->ids[r] * op->cols);
        float *out = op->out + r * op->cols;

        if (wide != NULL) {
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

static void embed_gather(struct ash_exec *exec, const void *table, enum ash_dtype dtype, size_t cols,
                         const int32_t *ids, size_t rows, bool add, float *out)
{
    struct embed op = {
        .exec = exec, .table = table, .dtype = dtype, .cols = cols, .ids = ids, .rows = rows, .add = add, .out = out};

    ash_workers_run(exec->workers, rows, ROW_MIN_ROWS, embed_gather_rows, &op);
}

/* A unit is some columns, so that one thread meets all rows of an id, in order. */
static void scatter_units(void *ctx, size_t begin, size_t end, int worker)
{
    const struct embed *op = ctx;
    size_t first = begin * SCATTER_COLS, last = end * SCATTER_COLS < op->cols ? end * SCATTER_COLS : op->cols;

    (void)worker;
    for (size_t r = 0; r < op->rows; r++) {
        float *to = op->dtable + (size_t)op->ids[r] * op->cols + first;

        add_row(to, op->grad + r * op->cols + first, last - first, to);
    }
}

static void scatter_add(struct ash_exec *exec, float *table, size_t cols, const int32_t *ids, size_t rows,
                        const float *grad)
{
    struct embed op = {.cols = cols, .rows = rows, .ids = ids, .grad = grad, .dtable = table};

    ash_workers_run(exec->workers, (cols + SCATTER_COLS - 1) / SCATTER_COLS, 1, scatter_units, &op);
}

static const struct ash_embed_ops vec_embed = {.gather = embed_gather, .scatter_add = scatter_add};

/* ---- rotary positions -------------------------------------------------------------------------------------------- */

struct rope {
    struct ash_exec *exec;
    const struct ash_rope_args *args;
};

/* Turn (a, b) by the angles of one position; a and b are the halves of a head. sign is -1 for the inverse. */
static void rope_halves(float *a, float *b, size_t half, const float *cosines, const float *sines, float sign)
{
    for (size_t i = 0; i < half; i += VF_WIDTH) {
        size_t left = half - i;
        vf x = vf_load_n(a + i, left), y = vf_load_n(b + i, left);
        vf cosine = vf_load_n(cosines + i, left), sine = vf_mul(vf_load_n(sines + i, left), vf_set(sign));

        vf_store_n(a + i, vf_fma(x, cosine, vf_neg(vf_mul(y, sine))), left);
        vf_store_n(b + i, vf_fma(y, cosine, vf_mul(x, sine)), left);
    }
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
    const struct rope *op = ctx;
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
    struct rope op = {.exec = exec, .args = args};

    ash_workers_run(exec->workers, args->rows, ROW_MIN_ROWS, rope_rows, &op);
}

static const struct ash_rope_ops vec_rope = {.apply = rope_apply};

/* ---- row arithmetic ---------------------------------------------------------------------------------------------- */

struct row {
    const float *a, *b;
    float *out;
    float factor;
    size_t cols, slots;
    const int32_t *index;
    const float *weight;
    bool add;
};

static void add_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct row *op = ctx;

    (void)worker;
    add_row(op->a + begin, op->b + begin, end - begin, op->out + begin);
}

static void row_add(struct ash_exec *exec, const float *a, const float *b, size_t count, float *out)
{
    struct row op = {.a = a, .b = b, .out = out};

    ash_workers_run(exec->workers, count, ROW_MIN_COUNT, add_range, &op);
}

static void scale_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct row *op = ctx;

    (void)worker;
    for (size_t i = begin; i < end; i += VF_WIDTH)
        vf_store_n(op->out + i, vf_mul(vf_load_n(op->out + i, end - i), vf_set(op->factor)), end - i);
}

static void row_scale(struct ash_exec *exec, float *x, float factor, size_t count)
{
    struct row op = {.out = x, .factor = factor};

    ash_workers_run(exec->workers, count, ROW_MIN_COUNT, scale_range, &op);
}

static void round_range(void *ctx, size_t begin, size_t end, int worker)
{
    const struct row *op = ctx;

    (void)worker;
    for (size_t i = begin; i < end; i += VF_WIDTH)
        vf_store_n(op->out + i, vf_from_bits(vf_bf16_bits(vf_load_n(op->a + i, end - i))), end - i);
}

static void row_round_bf16(struct ash_exec *exec, const float *x, size_t count, float *out)
{
    struct row op = {.a = x, .out = out};

    ash_workers_run(exec->workers, count, ROW_MIN_COUNT, round_range, &op);
}

static void gather_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct row *op = ctx;

    (void)worker;
    for (size_t r = begin; r < end; r++)
        memcpy(op->out + r * op->cols, op->a + (size_t)op->index[r] * op->cols, op->cols * sizeof(float));
}

static void row_gather(struct ash_exec *exec, const float *x, size_t cols, const int32_t *index, size_t rows,
                       float *out)
{
    struct row op = {.a = x, .out = out, .cols = cols, .index = index};

    ash_workers_run(exec->workers, rows, ROW_MIN_ROWS, gather_rows, &op);
}

static void combine_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const struct row *op = ctx;

    (void)worker;
    for (size_t t = begin; t < end; t++)
        for (size_t c = 0; c < op->cols; c += VF_WIDTH) {
            size_t left = op->cols - c;
            vf acc = op->add ? vf_load_n(op->out + t * op->cols + c, left) : vf_set(0.0f);

            for (size_t s = t * op->slots; s < (t + 1) * op->slots; s++) {
                vf y = vf_load_n(op->a + (size_t)op->index[s] * op->cols + c, left);
                acc = op->weight != NULL ? vf_fma(vf_set(op->weight[s]), y, acc) : vf_add(acc, y);
            }
            vf_store_n(op->out + t * op->cols + c, acc, left);
        }
}

static void row_combine(struct ash_exec *exec, const float *y, size_t cols, const int32_t *where, const float *weight,
                        size_t slots, size_t rows, bool add, float *out)
{
    struct row op = {.a = y, .out = out, .cols = cols, .slots = slots, .index = where, .weight = weight, .add = add};

    ash_workers_run(exec->workers, rows, ROW_MIN_ROWS, combine_rows, &op);
}

/* Row sum of x * y. */
static float dot_row(const float *x, const float *y, size_t count)
{
    struct lanes lanes;
    float part[ASH_LANES];
    size_t i = 0;

    lanes_zero(&lanes);
    for (; i + ASH_LANES <= count; i += ASH_LANES) {
        UNROLL
        for (size_t v = 0; v < LANE_VECS; v++)
            lanes.part[v] = vf_fma(vf_load(x + i + v * VF_WIDTH), vf_load(y + i + v * VF_WIDTH), lanes.part[v]);
    }
    lanes_spill(&lanes, part);
    for (; i < count; i++)
        part[i % ASH_LANES] = fmaf(x[i], y[i], part[i % ASH_LANES]);
    return ash_lanes_fold(part);
}

static void slot_dot_units(void *ctx, size_t begin, size_t end, int worker)
{
    const struct row *op = ctx;

    (void)worker;
    for (size_t unit = begin; unit < end; unit++)
        op->out[unit] =
            dot_row(op->a + unit / op->slots * op->cols, op->b + (size_t)op->index[unit] * op->cols, op->cols);
}

static void row_slot_dot(struct ash_exec *exec, const float *x, const float *y, size_t cols, const int32_t *where,
                         size_t slots, size_t rows, float *out)
{
    struct row op = {.a = x, .b = y, .out = out, .cols = cols, .slots = slots, .index = where};

    ash_workers_run(exec->workers, rows * slots, ROW_MIN_ROWS, slot_dot_units, &op);
}

static const struct ash_row_ops vec_row = {
    .copy = ash_ref_copy,
    .add = row_add,
    .scale = row_scale,
    .round_bf16 = row_round_bf16,
    .gather = row_gather,
    .combine = row_combine,
    .slot_dot = row_slot_dot,
};

#endif
