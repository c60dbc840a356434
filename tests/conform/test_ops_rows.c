/* Norms, rotary positions, embedding and row arithmetic on every backend: the reference's bits at awkward sizes. */
#define PRODUCTS_UNDER_TEST PRODUCTS_NONE
#include "conform/ops_harness.h"

/* ---- norms ------------------------------------------------------------------------------------------------------- */

/* Rows of sequences, of which the first may begin before them. */
static void draw_sequences(struct tape *tape, struct ash_norm_args *args)
{
    args->round_bf16 = draw_bool(tape);
    if (draw_bool(tape)) return;
    args->seq_rows = draw_size(tape, 100);
    args->seq_first = draw_below(tape, (args->seq_rows + ASH_K_GROUP - 1) / ASH_K_GROUP) * ASH_K_GROUP;
    args->rows = args->seq_rows * (1 + draw_below(tape, 3)) - args->seq_first;
}

/* Columns as models have them, or odd ones. */
static size_t draw_columns(struct tape *tape)
{
    static const size_t wide[] = {512, 768, 1024, 1028, 2048, 2060, 4096, 4100, 8192, 8196, 16384, 16388};

    if (draw_below(tape, 6) > 0) return draw_size(tape, 300);
    return wide[draw_below(tape, ASH_COUNT(wide))];
}

static void run_norm(struct ash_exec *exec, struct tape *tape, bool layer)
{
    struct ash_norm_args args = {
        .rows = draw_size(tape, 49), .groups = 1 + draw_below(tape, 3), .cols = draw_columns(tape)};

    draw_sequences(tape, &args);
    if (args.cols > 300) args.groups = 1;
    if (args.cols > 3000) args.rows = args.rows > 33 ? 33 : args.rows;
    size_t units = args.rows * args.groups, width = args.groups * args.cols;
    const struct ash_norm_ops *ops = exec->ops->norm;
    bool in_place = draw_bool(tape);
    float *y, *dx;

    args.x_stride = width + (draw_bool(tape) ? 4 : 1) * draw_below(tape, 4);
    args.y_stride = in_place ? args.x_stride : width + (draw_bool(tape) ? 4 : 1) * draw_below(tape, 4);
    args.eps = 1e-5f;
    args.x = draw_floats(tape, args.rows * args.x_stride, 2.0f);
    args.weight = draw_floats(tape, args.cols, 1.0f);
    args.bias = layer && draw_bool(tape) ? draw_floats(tape, args.cols, 1.0f) : NULL;
    args.y = y = draw_floats(tape, args.rows * args.y_stride, 1.0f);
    args.rstd = draw_floats(tape, units, 1.0f);
    args.mean = draw_floats(tape, units, 1.0f);
    (layer ? ops->layer_forward : ops->rms_forward)(exec, &args);
    tape_words(tape, y, args.rows * args.y_stride);
    tape_words(tape, args.rstd, units);
    dx = draw_floats(tape, args.rows * args.x_stride, 1.0f);
    args.dx = dx;
    args.dx_add = draw_bool(tape);
    args.dy = in_place ? dx : draw_floats(tape, args.rows * args.y_stride, 1.0f);
    args.dx_bf16 =
        exec->ops->takes_bf16 && draw_bool(tape) ? draw_dtype(tape, ASH_BF16, units * args.cols, 1.0f) : NULL;
    if (exec->ops->takes_bf16 && args.round_bf16 && !in_place && draw_bool(tape))
        args.dy_bf16 = draw_dtype(tape, ASH_BF16, args.rows * args.y_stride, 1.0f);
    args.dweight = draw_bool(tape) ? draw_floats(tape, args.cols, 1.0f) : NULL;
    args.dbias = layer && draw_bool(tape) ? draw_floats(tape, args.cols, 1.0f) : NULL;
    (layer ? ops->layer_backward : ops->rms_backward)(exec, &args);
    tape_words(tape, dx, args.rows * args.x_stride);
    if (args.dx_bf16 != NULL) tape_words(tape, args.dx_bf16, units * args.cols / 2);
    if (args.dweight != NULL) tape_words(tape, args.dweight, args.cols);
    if (args.dbias != NULL) tape_words(tape, args.dbias, args.cols);
}

static void scenario_rms(struct ash_exec *exec, struct tape *tape)
{
    run_norm(exec, tape, false);
}

static void scenario_layer(struct ash_exec *exec, struct tape *tape)
{
    run_norm(exec, tape, true);
}

/* Inference asks for no statistics. */
static void scenario_norm_bare(struct ash_exec *exec, struct tape *tape)
{
    struct ash_norm_args args = {.rows = draw_size(tape, 17), .groups = 1, .cols = draw_size(tape, 129), .eps = 1e-6f};
    float *y;

    args.round_bf16 = draw_bool(tape);

    args.x_stride = args.y_stride = args.cols;
    args.x = draw_floats(tape, args.rows * args.cols, 1.0f);
    args.weight = draw_floats(tape, args.cols, 1.0f);
    args.y = y = draw_floats(tape, args.rows * args.cols, 1.0f);
    exec->ops->norm->rms_forward(exec, &args);
    tape_words(tape, y, args.rows * args.cols);
    exec->ops->norm->layer_forward(exec, &args);
    tape_words(tape, y, args.rows * args.cols);
}

/* ---- rotary positions -------------------------------------------------------------------------------------------- */

static void scenario_rope(struct ash_exec *exec, struct tape *tape)
{
    struct ash_rope_args args = {.rows = draw_size(tape, 33), .heads = 1 + draw_below(tape, 4)};
    size_t count, half = draw_size(tape, 65), positions = 50;
    float *x;

    args.dims = 2 * half;
    args.head_stride = args.dims + draw_below(tape, 5);
    args.row_stride = args.heads * args.head_stride + draw_below(tape, 5);
    args.interleaved_in = draw_bool(tape);
    args.inverse = draw_bool(tape);
    args.positions = draw_ids(tape, args.rows, positions);
    args.cos = draw_floats(tape, positions * half, 1.0f);
    args.sin = draw_floats(tape, positions * half, 1.0f);
    count = args.rows * args.row_stride;
    args.x = x = draw_floats(tape, count, 1.0f);
    exec->ops->rope->apply(exec, &args);
    tape_words(tape, x, count);
}

/* ---- embedding --------------------------------------------------------------------------------------------------- */

static void scenario_embed(struct ash_exec *exec, struct tape *tape)
{
    size_t vocab = draw_size(tape, 65), cols = draw_size(tape, 300), rows = draw_size(tape, 129);
    enum ash_dtype dtype = (enum ash_dtype)draw_below(tape, 3);
    void *table = draw_dtype(tape, dtype, vocab * cols, 1.0f);
    const int32_t *ids = draw_ids(tape, rows, vocab);
    float *out = draw_floats(tape, rows * cols, 1.0f), *dtable = draw_floats(tape, vocab * cols, 1.0f);

    exec->ops->embed->gather(exec, &(struct ash_embed_args){.table = table,
                                                            .dtype = dtype,
                                                            .cols = cols,
                                                            .rows = rows,
                                                            .ids = ids,
                                                            .add = draw_bool(tape),
                                                            .out = out});
    tape_words(tape, out, rows * cols);
    exec->ops->embed->scatter_add(exec, dtable, cols, ids, rows, out);
    tape_words(tape, dtable, vocab * cols);
}

/* Many rows of few ids or of many, and ids of up to 18 bits: what takes several digits and turns to sort. */
static void scenario_embed_grad(struct ash_exec *exec, struct tape *tape)
{
    size_t bits = 1 + draw_below(tape, 18), vocab = ((size_t)1 << bits) - draw_below(tape, 2);
    size_t cols = 1 + draw_below(tape, 5) * draw_below(tape, 40), rows = draw_below(tape, 2600);
    const int32_t *ids = draw_ids(tape, rows + 1, vocab);
    const float *grad = draw_floats(tape, (rows + 1) * cols, 1.0f);
    float *table = tape_alloc(tape, vocab * cols * sizeof(*table));
    uint32_t sum = 0;

    for (size_t i = 0; i < vocab * cols; i++)
        table[i] = (float)(i % 7);
    exec->ops->embed->scatter_add(exec, table, cols, ids, rows, grad);
    tape_wait(tape);
    for (size_t r = 0; r < rows; r++)
        tape_words(tape, table + (size_t)ids[r] * cols, cols);
    for (size_t i = 0; i < vocab * cols; i++)
        sum = sum * 31 + ash_f32_bits(table[i]); /* the other rows */
    tape_words(tape, &sum, 1);
}

/* ---- row arithmetic ---------------------------------------------------------------------------------------------- */

static void scenario_elements(struct ash_exec *exec, struct tape *tape)
{
    size_t count = draw_size(tape, 400) * draw_size(tape, 65);
    float *a = draw_floats(tape, count, 1.0f), *b = draw_floats(tape, count, 1.0f),
          *out = draw_floats(tape, count, 1.0f);

    a[draw_below(tape, count)] = 0x1p-140f;
    a[draw_below(tape, count)] = 1.0f / 0.0f;
    a[draw_below(tape, count)] = 3.4e38f;
    a[draw_below(tape, count)] = -0.0f;
    exec->ops->row->add(exec, a, b, count, out);
    tape_words(tape, out, count);
    exec->ops->row->round_bf16(exec, a, count, out);
    tape_words(tape, out, count);
    exec->ops->row->scale(exec, a, 0.37f, count);
    tape_words(tape, a, count);
    exec->ops->row->add(exec, a, b, count, a);
    tape_words(tape, a, count);
}

static void scenario_experts(struct ash_exec *exec, struct tape *tape)
{
    size_t from = draw_size(tape, 65), rows = draw_size(tape, 49), cols = draw_size(tape, 300),
           slots = 1 + draw_below(tape, 5);
    float *y = draw_floats(tape, from * cols, 1.0f), *x = draw_floats(tape, rows * cols, 1.0f);
    float *out = draw_floats(tape, rows * cols, 1.0f), *dots = draw_floats(tape, rows * slots, 1.0f);
    const int32_t *index = draw_ids(tape, rows, from), *where = draw_ids(tape, rows * slots, from);
    const float *weight = draw_bool(tape) ? draw_floats(tape, rows * slots, 1.0f) : NULL;

    exec->ops->row->gather(exec, y, cols, index, rows, out);
    tape_words(tape, out, rows * cols);
    exec->ops->row->combine(exec, &(struct ash_slots_args){.rows = rows,
                                                           .slots = slots,
                                                           .cols = cols,
                                                           .y = y,
                                                           .where = where,
                                                           .weight = weight,
                                                           .add = draw_bool(tape),
                                                           .out = out});
    tape_words(tape, out, rows * cols);
    exec->ops->row->slot_dot(
        exec, &(struct ash_slots_args){
                  .rows = rows, .slots = slots, .cols = cols, .x = x, .y = y, .where = where, .out = dots});
    tape_words(tape, dots, rows * slots);
}

/* Values left out of some columns of a matrix, from some row of a batch on. */
static void scenario_drop(struct ash_exec *exec, struct tape *tape)
{
    size_t rows = draw_size(tape, 33), cols = draw_size(tape, 129), seq_rows = draw_size(tape, 20),
           first_row = draw_below(tape, 3 * seq_rows), stride = cols + draw_below(tape, 3),
           sequences = (first_row + rows - 1) / seq_rows + 1;
    float *x = draw_floats(tape, rows * stride, 1.0f), *out = draw_floats(tape, rows * stride, 1.0f);
    struct ash_drop_args args = {.rows = rows,
                                 .cols = cols,
                                 .x = x,
                                 .x_stride = stride,
                                 .out = out,
                                 .out_stride = stride,
                                 .add = draw_bool(tape),
                                 .seed = draw_below(tape, 1000000),
                                 .sequences = (const uint64_t *)(void *)draw_ids(tape, 2 * sequences, INT32_MAX),
                                 .seq_rows = seq_rows,
                                 .first_row = first_row,
                                 .first_col = draw_below(tape, 40),
                                 .threshold = (uint16_t)draw_below(tape, 65536),
                                 .scale = 1.25f};

    args.all_cols = args.first_col + cols + draw_below(tape, 20);
    exec->ops->row->drop(exec, &args);
    args.out = x; /* in place */
    args.add = false;
    exec->ops->row->drop(exec, &args);
    tape_words(tape, out, rows * stride);
    tape_words(tape, x, rows * stride);
}

/* Blocks repeated, summed, narrowed or just moved. */
static void scenario_copy(struct ash_exec *exec, struct tape *tape)
{
    struct ash_copy_args args = {
        .rows = draw_size(tape, 33), .blocks = 1 + draw_below(tape, 4), .cols = draw_size(tape, 129)};
    size_t mode = draw_below(tape, 4), width = args.blocks * (args.cols + 3), words = args.rows * width;
    float *dst = draw_floats(tape, words, 1.0f);

    args.src = draw_floats(tape, words, 1.0f);
    args.src_row = args.dst_row = width;
    args.src_block = mode == 0 ? 0 : args.cols + 3;
    args.dst_block = mode == 1 ? 0 : args.cols + 2;
    args.add = mode == 1 || draw_bool(tape);
    args.dst_dtype = mode == 2 ? ASH_BF16 : ASH_F32;
    if (mode == 2) args.add = false;
    args.dst = dst;
    exec->ops->row->copy(exec, &args);
    tape_words(tape, dst, words);
}

static void test_norms(void **state)
{
    (void)state;
    check_scenario(scenario_rms, 120);
    check_scenario(scenario_layer, 120);
    check_scenario(scenario_norm_bare, 40);
}

static void test_rope(void **state)
{
    (void)state;
    check_scenario(scenario_rope, 80);
}

static void test_embed(void **state)
{
    (void)state;
    check_scenario(scenario_embed, 60);
    check_scenario(scenario_embed_grad, 24);
}

static void test_rows(void **state)
{
    (void)state;
    check_scenario(scenario_elements, 60);
    check_scenario(scenario_experts, 80);
    check_scenario(scenario_copy, 80);
    check_scenario(scenario_drop, 80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norms),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_embed),
        cmocka_unit_test(test_rows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
