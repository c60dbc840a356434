/* rope: tables for as many positions as the documents so far had, and their use on rows of heads. */
#include "model/pass/rope.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "model/rope_freq.h"

#define POSITIONS_MIN 256

static bool has_layers(const struct ash_model_config *config, enum ash_rope_at at)
{
    return memchr(config->rope_at, at, config->layers) != NULL;
}

/* How many pairs of tables the layers need. */
static size_t count_kinds(const struct ash_model_config *config)
{
    if (has_layers(config, ASH_ROPE_AT_TEMPERED)) return 3;
    return has_layers(config, ASH_ROPE_AT_LOCAL) ? 2 : 1;
}

/* A rotation by nothing, times the factor of queries. */
static void fill_tempered(const struct ash_model_config *config, size_t dims, size_t count, float *factors,
                          float *zeros)
{
    for (size_t i = 0; i < count * (dims / 2); i++) {
        double position = (double)(i / (dims / 2)) + 1;

        factors[i] = (float)(1 + config->temper_scale * log1p(floor(position / config->temper_floor)));
        zeros[i] = 0;
    }
}

int ash_rope_reserve(struct ash_rope *rope, const struct ash_model *model, const struct ash_exec *exec, size_t count,
                     struct ash_err *err)
{
    const struct ash_model_config *c = &model->config;
    size_t dims = c->attn == ASH_ATTN_LATENT ? c->rope_dim : c->rotary_dims, kinds = count_kinds(c);
    size_t positions = rope->positions == 0 ? POSITIONS_MIN : rope->positions, elements;
    struct ash_buffer tables = {0};
    float *host = NULL;
    int rc;

    if (c->rope.kind == ASH_ROPE_NONE || count <= rope->positions) return 0;
    while (positions < count)
        positions *= 2;
    elements = positions * (dims / 2);
    rc = ash_buffer_init(&tables, exec->memory, kinds * 2 * elements * sizeof(float), "rotary tables", err);
    if (rc < 0) return rc;
    host = malloc(kinds * 2 * elements * sizeof(float));
    if (host == NULL) {
        rc = ash_err_set(err, -ENOMEM, "out of memory for rotary tables of %zu positions", positions);
        goto fail;
    }
    ash_rope_fill_tables(&c->rope, dims, positions, host, host + elements);
    if (kinds > 1) ash_rope_fill_tables(&c->local_rope, dims, positions, host + 2 * elements, host + 3 * elements);
    if (kinds > 2) fill_tempered(c, dims, positions, host + 4 * elements, host + 5 * elements);
    rc = exec->memory->copy(tables.data, host, kinds * 2 * elements * sizeof(float));
    if (rc < 0) {
        ash_err_set(err, rc, "cannot copy the rotary tables");
        goto fail;
    }
    free(host);
    ash_buffer_fini(&rope->tables);
    *rope = (struct ash_rope){.tables = tables, .positions = positions, .dims = dims};
    return 0;

fail:
    free(host);
    ash_buffer_fini(&tables);
    return rc;
}

void ash_rope_fini(struct ash_rope *rope)
{
    ash_buffer_fini(&rope->tables);
    *rope = (struct ash_rope){0};
}

/* Table number of those that are there; a half is dims / 2 wide. */
static const float *table(const struct ash_rope *rope, size_t number)
{
    return rope->positions > 0 ? (const float *)rope->tables.data + number * rope->positions * (rope->dims / 2) : NULL;
}

const float *ash_rope_cos(const struct ash_rope *rope, enum ash_rope_at at)
{
    return table(rope, at == ASH_ROPE_AT_TEMPERED ? 4 : at == ASH_ROPE_AT_LOCAL ? 2 : 0);
}

const float *ash_rope_sin(const struct ash_rope *rope, enum ash_rope_at at)
{
    return table(rope, at == ASH_ROPE_AT_TEMPERED ? 5 : at == ASH_ROPE_AT_LOCAL ? 3 : 1);
}

bool ash_rope_is_in(const struct ash_model *model, size_t layer)
{
    return model->config.rope.kind != ASH_ROPE_NONE && model->config.rope_at[layer] < ASH_ROPE_AT_NONE;
}

/* Rows that are not rotated are only rounded, if that is wanted. */
static void round_rows(const struct ash_pass_step *step, const float *x, struct ash_rope_heads heads)
{
    if (heads.rounded == NULL) return;
    step->exec->ops->row->copy(step->exec, &(struct ash_copy_args){.rows = step->rows,
                                                                   .blocks = 1,
                                                                   .cols = heads.row_stride,
                                                                   .src = x,
                                                                   .src_row = heads.row_stride,
                                                                   .dst = heads.rounded,
                                                                   .dst_dtype = ASH_BF16,
                                                                   .dst_row = heads.row_stride});
}

static struct ash_rope_args args_of(const struct ash_pass_step *step, struct ash_rope_heads heads)
{
    const struct ash_rope *rope = step->rope;
    enum ash_rope_at at = (enum ash_rope_at)step->model->config.rope_at[heads.layer];

    ash_assert(rope->positions > 0 && heads.head_stride >= rope->dims);
    return (struct ash_rope_args){.rows = step->rows,
                                  .heads = heads.heads,
                                  .head_stride = heads.head_stride,
                                  .row_stride = heads.row_stride,
                                  .dims = rope->dims,
                                  .interleaved_in = step->model->config.rope.interleaved,
                                  .positions = step->acts->block.positions,
                                  .cos = ash_rope_cos(rope, at),
                                  .sin = ash_rope_sin(rope, at)};
}

struct ash_rope_args ash_rope_args_of(const struct ash_pass_step *step, float *x, struct ash_rope_heads heads,
                                      bool inverse)
{
    struct ash_rope_args args = args_of(step, heads);

    args.x = x;
    args.out_bf16 = heads.rounded;
    args.out_cols = heads.row_stride;
    args.inverse = inverse;
    args.round_bf16 = step->model->round_bf16 && !inverse;
    return args;
}

void ash_rope_apply(const struct ash_pass_step *step, float *x, struct ash_rope_heads heads, bool inverse)
{
    struct ash_rope_args args;

    if (!ash_rope_is_in(step->model, heads.layer)) {
        round_rows(step, x, heads);
        return;
    }
    args = ash_rope_args_of(step, x, heads, inverse);
    step->exec->ops->rope->apply(step->exec, &args);
}

void ash_rope_apply_bf16(const struct ash_pass_step *step, uint16_t *x, struct ash_rope_heads heads)
{
    if (!ash_rope_is_in(step->model, heads.layer)) return;
    struct ash_rope_args args = args_of(step, heads);
    args.x_bf16 = x;
    args.round_bf16 = true;
    step->exec->ops->rope->apply(step->exec, &args);
}

void ash_rope_temper(const struct ash_pass_step *step, float *x, struct ash_rope_heads heads, bool inverse)
{
    struct ash_rope_args args;

    if (step->model->config.rope_at[heads.layer] != ASH_ROPE_AT_TEMPERED) return;
    ash_assert(x != NULL && step->rope->dims == heads.head_stride);
    heads.heads = step->model->config.heads;
    args = ash_rope_args_of(step, x, heads, inverse);
    args.interleaved_in = false;
    step->exec->ops->rope->apply(step->exec, &args);
}
