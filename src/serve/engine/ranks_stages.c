/* ranks: stages. The stream goes from stage to stage through memory that all ranks share, and rows of logits or states
 * from the last stage to the first rank. Barriers of all ranks keep the order: one batch is on its way at a time. Ranks
 * on several nodes send these instead: each to the rank in its place of the next stage. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "model/pass/pass.h"
#include "serve/engine/ranks_priv.h"

#define ROWS_FLOATS ((size_t)1 << 21) /* of logits at once, if a row is no longer */

static size_t stage_of(const struct ash_ranks *ranks)
{
    return ash_group_rank(ranks->group) / ranks->parts.tp;
}

/* The one that speaks for its stage. */
static bool is_first_of_stage(const struct ash_ranks *ranks)
{
    return ash_group_rank(ranks->group) % ranks->parts.tp == 0;
}

int ash_ranks_open_stages(struct ash_ranks *ranks, const struct ash_model *model, size_t max_rows, struct ash_err *err)
{
    const struct ash_model_config *config = ash_model_get_config(model);
    struct ash_axis axis;

    if (ranks == NULL || ranks->parts.stages == 1) return 0;
    ash_assert(ranks->stream.data == NULL);
    axis = ash_axis_link_axis(&ranks->link, 0);
    ranks->hidden = config->hidden;
    ranks->vocab = config->vocab;
    ranks->stream_floats = max_rows * config->hidden;
    ranks->rows_floats = ash_max(ROWS_FLOATS, config->vocab);
    if (!ash_group_is_on_one_node(ranks->group)) {
        ranks->sent_rows = malloc(ranks->rows_floats * sizeof(*ranks->sent_rows));
        return ranks->sent_rows != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory for rows of the last stage");
    }
    return axis.ops->shared_open(axis.ctx, ranks->stream_floats + 2 * ranks->rows_floats, &ranks->stream, err);
}

void ash_ranks_close_stages(struct ash_ranks *ranks)
{
    struct ash_axis axis;

    if (ranks != NULL) free(ranks->sent_rows);
    if (ranks != NULL) ranks->sent_rows = NULL;
    if (ranks == NULL || ranks->stream.data == NULL) return;
    axis = ash_axis_link_axis(&ranks->link, 0);
    axis.ops->shared_close(axis.ctx, &ranks->stream);
}

/* ---- layers ------------------------------------------------------------------------------------------------------ */

static int run_stage(struct ash_ranks *ranks, struct ash_pass *pass, const struct ash_batch *batch,
                     struct ash_cache *cache, struct ash_err *err)
{
    size_t bytes = batch->rows * ranks->hidden * sizeof(float);
    int rc = 0;

    ash_assert(batch->rows * ranks->hidden <= ranks->stream_floats);
    if (stage_of(ranks) > 0) rc = ranks->memory->copy(ash_pass_input(pass), ranks->stream.data, bytes);
    if (rc < 0) return ash_err_set(err, rc, "the stream cannot be copied to where this stage computes");
    rc = ash_pass_infer_layers(pass, batch, cache, err);
    if (rc < 0) return rc;
    /* the other ranks of the stage have read it: they were at the barriers of its layers */
    if (is_first_of_stage(ranks)) rc = ranks->memory->copy(ranks->stream.data, ash_pass_output(pass), bytes);
    return rc < 0 ? ash_err_set(err, rc, "the stream cannot be copied to the next stage") : 0;
}

/* The same between nodes. Every rank of a stage has the whole stream. */
static int run_sent_stage(struct ash_ranks *ranks, struct ash_pass *pass, const struct ash_batch *batch,
                          struct ash_cache *cache, struct ash_err *err)
{
    size_t bytes = batch->rows * ranks->hidden * sizeof(float), rank = ash_group_rank(ranks->group);
    size_t tp = ranks->parts.tp;
    int rc = 0;

    if (stage_of(ranks) > 0) rc = ash_group_recv(ranks->group, rank - tp, ash_pass_input(pass), bytes, err);
    if (rc == 0) rc = ash_pass_infer_layers(pass, batch, cache, err);
    if (rc == 0 && stage_of(ranks) + 1 < ranks->parts.stages)
        rc = ash_group_send(ranks->group, rank + tp, ash_pass_output(pass), bytes, err);
    return rc;
}

int ash_ranks_run_layers(struct ash_ranks *ranks, struct ash_pass *pass, const struct ash_batch *batch,
                         struct ash_cache *cache, struct ash_err *err)
{
    int rc = 0;

    if (ranks->parts.stages == 1) return ash_pass_infer_layers(pass, batch, cache, err);
    if (!ash_group_is_on_one_node(ranks->group)) return run_sent_stage(ranks, pass, batch, cache, err);
    for (size_t stage = 0; stage < ranks->parts.stages && rc == 0; stage++) {
        if (stage == stage_of(ranks)) rc = run_stage(ranks, pass, batch, cache, err);
        if (rc == 0) rc = ash_group_barrier(ranks->group, err);
    }
    return rc;
}

int ash_ranks_infer_layers(struct ash_ranks *ranks, struct ash_pass *pass, const struct ash_batch *batch,
                           struct ash_cache *cache, struct ash_err *err)
{
    int rc;

    if (ranks == NULL) return ash_pass_infer_layers(pass, batch, cache, err);
    rc = ash_ranks_send_layers(ranks, batch, err);
    return rc < 0 ? rc : ash_ranks_run_layers(ranks, pass, batch, cache, err);
}

/* ---- rows of the last stage -------------------------------------------------------------------------------------- */

static int infer_rows(struct ash_pass *pass, const struct ash_ranks_rows *wanted, struct ash_err *err)
{
    if (wanted->kind == ASH_RANKS_LOGITS)
        return ash_pass_infer_logits(pass, wanted->rows, wanted->count, wanted->out, err);
    if (wanted->out == NULL) return 0; /* the ranks of a stage have whole states */
    return ash_pass_infer_states(pass, wanted->rows, wanted->count, wanted->out, err);
}

/* Some of them, from the first rank of the last stage to the first of all. */
static int run_sent_rows(struct ash_ranks *ranks, struct ash_pass *pass, const struct ash_ranks_rows *part,
                         size_t width, struct ash_err *err)
{
    size_t from = ranks->parts.tp * (ranks->parts.stages - 1), bytes = part->count * width * sizeof(float);
    struct ash_ranks_rows own = {part->kind, part->rows, part->count,
                                 is_first_of_stage(ranks) ? ranks->sent_rows : NULL};
    int rc;

    if (part->out != NULL) return ash_group_recv(ranks->group, from, part->out, bytes, err);
    if (stage_of(ranks) + 1 < ranks->parts.stages) return 0;
    rc = infer_rows(pass, &own, err);
    return rc == 0 && own.out != NULL ? ash_group_send(ranks->group, 0, own.out, bytes, err) : rc;
}

/* The same through memory that all share; two buffers in turn. */
static int run_shared_rows(struct ash_ranks *ranks, struct ash_pass *pass, const struct ash_ranks_rows *part,
                           size_t width, struct ash_err *err)
{
    float *shared = ranks->stream.data + ranks->stream_floats + ranks->turns++ % 2 * ranks->rows_floats;
    struct ash_ranks_rows own = {part->kind, part->rows, part->count, is_first_of_stage(ranks) ? shared : NULL};
    int rc = 0;

    if (stage_of(ranks) + 1 == ranks->parts.stages) rc = infer_rows(pass, &own, err);
    if (rc == 0) rc = ash_group_barrier(ranks->group, err);
    if (rc == 0 && part->out != NULL) memcpy(part->out, shared, part->count * width * sizeof(float));
    return rc;
}

int ash_ranks_run_rows(struct ash_ranks *ranks, struct ash_pass *pass, const struct ash_ranks_rows *wanted,
                       struct ash_err *err)
{
    size_t width = wanted->kind == ASH_RANKS_LOGITS ? ranks->vocab : ranks->hidden, most, some;
    int rc = 0;

    if (ranks->parts.stages == 1) return infer_rows(pass, wanted, err);
    most = ranks->rows_floats / width;
    for (size_t first = 0; first < wanted->count && rc == 0; first += some) {
        struct ash_ranks_rows part = {wanted->kind, wanted->rows + first, ash_min(wanted->count - first, most),
                                      wanted->out != NULL ? wanted->out + first * width : NULL};

        some = part.count;
        rc = ash_group_is_on_one_node(ranks->group) ? run_shared_rows(ranks, pass, &part, width, err)
                                                    : run_sent_rows(ranks, pass, &part, width, err);
    }
    return rc;
}

static int lead_rows(struct ash_ranks *ranks, struct ash_pass *pass, const struct ash_ranks_rows *wanted,
                     struct ash_err *err)
{
    int rc;

    if (ranks == NULL) return infer_rows(pass, wanted, err);
    rc = ash_ranks_send_rows(ranks, wanted->kind, wanted->rows, wanted->count, err);
    return rc < 0 ? rc : ash_ranks_run_rows(ranks, pass, wanted, err);
}

int ash_ranks_infer_logits(struct ash_ranks *ranks, struct ash_pass *pass, const size_t *rows, size_t count,
                           float *logits_out, struct ash_err *err)
{
    return lead_rows(ranks, pass, &(struct ash_ranks_rows){ASH_RANKS_LOGITS, rows, count, logits_out}, err);
}

int ash_ranks_infer_states(struct ash_ranks *ranks, struct ash_pass *pass, const size_t *rows, size_t count,
                           float *states_out, struct ash_err *err)
{
    if (ranks != NULL && ranks->parts.stages == 1) ranks = NULL; /* the first rank has them itself */
    return lead_rows(ranks, pass, &(struct ash_ranks_rows){ASH_RANKS_STATES, rows, count, states_out}, err);
}
