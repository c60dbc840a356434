/* pass_infer: inference with a cache: layers, then logits, chosen tokens or states of some rows. */
#include <errno.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/math.h"
#include "model/load.h"
#include "model/pass/cache_step.h"
#include "model/pass/gather.h"
#include "model/pass/pass_priv.h"

/* Can the batch's step be recorded and replayed? Rows that decode in pages; layers that wait for nothing. */
static bool may_replay(const struct ash_pass *pass)
{
    const struct ash_pass_step *step = &pass->step;
    const struct ash_model_config *config = &pass->model->config;

    return step->cache != NULL && !step->has_adapters && !ash_gathers(step) && config->attn == ASH_ATTN_GROUPED &&
           config->expert.experts == 0 && config->state.heads == 0 && pass->opts.hooks.need == NULL &&
           step->batch->doc_count == step->rows;
}

/* Contents of a recorded step besides the batch's numbers: addresses. */
static uint64_t step_shape(const struct ash_pass *pass)
{
    uint64_t shape = ash_hash_mix((uintptr_t)pass->acts.final_in ^ pass->step.rows);

    shape = ash_hash_mix(shape ^ (uintptr_t)ash_rope_cos(&pass->rope, ASH_ROPE_AT_ALL));
    return ash_hash_mix(shape ^ (uintptr_t)ash_cache_data(pass->step.cache));
}

static void run_layers(struct ash_pass *pass)
{
    enum ash_step_way way = ASH_STEP_RUN;

    if (may_replay(pass)) {
        for (size_t i = 0; i < pass->step.rows; i++) {
            const struct ash_doc *doc = &pass->step.batch->docs[i];

            pass->seqs[i] =
                (struct ash_attn_seq){.q_row = doc->row, .q_count = 1, .pos = doc->pos, .pages = doc->pages};
        }
        way = ash_exec_step_begin(
            pass->exec,
            &(struct ash_exec_step){.shape = step_shape(pass), .seqs = pass->seqs, .seq_count = pass->step.rows});
    }
    if (way == ASH_STEP_REPLAYED) return;
    ash_pass_run_forward(&pass->step);
    if (!ash_exec_step_end(pass->exec, way)) ash_pass_run_forward(&pass->step);
}

int ash_pass_infer_layers(struct ash_pass *pass, const struct ash_batch *batch, struct ash_cache *cache,
                          struct ash_err *err)
{
    int rc;

    if (pass->axes.cp.size > 1 || pass->axes.tp.size > 1)
        return ash_err_set(err, -EINVAL, "a pass along cp or tp trains and evaluates; it does not infer");
    rc = ash_pass_begin(pass, batch, cache, err);
    if (rc < 0) return rc;
    run_layers(pass);
    rc = ash_axes_result(&pass->axes, err);
    if (rc < 0) return rc;
    return ash_load_check(pass->model->load, err);
}

/* How many of the rows from the first on follow each other. */
static size_t adjacent_rows(const size_t *rows, size_t count)
{
    size_t run = 1;

    while (run < count && rows[run] == rows[0] + run)
        run++;
    return ash_min(run, count);
}

/* Only the wanted rows go through the norm and the head; one row's result does not depend on the others. Rows that
 * follow each other are read where they are. Returns 0 and where all of them are, or a negative errno. */
static int gather_rows(struct ash_pass *pass, const size_t *rows, size_t count, const float **rows_out,
                       struct ash_err *err)
{
    size_t hidden = pass->model->config.hidden, run;
    float *out = pass->acts.scratch.residual;

    if (adjacent_rows(rows, count) == count) {
        *rows_out = pass->acts.final_in + (count > 0 ? rows[0] * hidden : 0);
        return 0;
    }
    for (size_t i = 0; i < count; i += run) {
        int rc;

        run = adjacent_rows(rows + i, count - i);
        ash_assert(rows[i] + run <= pass->step.batch->rows && (i == 0 || rows[i] > rows[i - 1]));
        rc = pass->exec->memory->copy(out + i * hidden, pass->acts.final_in + rows[i] * hidden,
                                      run * hidden * sizeof(float));
        if (rc < 0) return ash_err_set(err, rc, "cannot copy the wanted rows");
    }
    *rows_out = out;
    return 0;
}

/* Rows whose logits fit at once. */
static size_t most_rows(const struct ash_pass *pass, size_t count)
{
    size_t fit = ash_gathers(&pass->step) ? ash_gather_logit_rows(&pass->step) : count;

    return pass->exec->memory->host_visible ? fit : ash_min(fit, pass->acts.logit_rows);
}

/* Logits of rows of the stream, on the device; logits_out is the host's. Of several ranks only the first has it. */
static int logits_of(struct ash_pass *pass, const float *rows, size_t count, float *logits_out)
{
    const struct ash_memory_ops *memory = pass->exec->memory;
    size_t hidden = pass->model->config.hidden, vocab = pass->model->config.vocab, some, most = most_rows(pass, count);

    for (size_t first = 0; first < count; first += some) {
        float *out = logits_out != NULL ? logits_out + first * vocab : NULL;
        bool copies = out != NULL && !memory->host_visible;
        int rc;

        some = ash_min(count - first, most);
        ash_pass_run_logits(&pass->step, rows + first * hidden, some, copies ? pass->acts.scratch.logits : out);
        rc = copies ? memory->copy(out, pass->acts.scratch.logits, some * vocab * sizeof(float)) : 0;
        if (rc < 0) return rc;
    }
    return pass->axes.failed;
}

int ash_pass_infer_logits(struct ash_pass *pass, const size_t *rows, size_t count, float *logits_out,
                          struct ash_err *err)
{
    const float *gathered;
    int rc = ash_pass_check_logits(pass->model, err);

    if (rc < 0) return rc;
    rc = gather_rows(pass, rows, count, &gathered, err);
    if (rc < 0) return rc;
    rc = count > 0 ? logits_of(pass, gathered, count, logits_out) : 0;
    if (pass->axes.failed < 0) return ash_axes_result(&pass->axes, err);
    if (rc < 0) return ash_err_set(err, rc, "cannot copy the logits");
    return ash_load_check(pass->model->load, err);
}

int ash_pass_choose(struct ash_pass *pass, const size_t *rows, size_t count, const struct ash_pass_choice *choice,
                    unsigned fetch, struct ash_err *err)
{
    size_t hidden = pass->model->config.hidden, some;
    int32_t *ids = pass->acts.block.targets; /* there are none in inference */
    const float *gathered;
    int rc = gather_rows(pass, rows, count, &gathered, err);

    if (rc < 0) return rc;
    ash_assert(choice->vocab <= pass->model->config.vocab && count <= pass->opts.max_rows);
    for (size_t first = 0; first < count; first += some) {
        some = ash_min(count - first, most_rows(pass, count));
        ash_pass_run_logits(&pass->step, gathered + first * hidden, some, pass->acts.scratch.logits);
        pass->exec->ops->sample->choose(pass->exec, &(struct ash_sample_args){.rows = some,
                                                                              .vocab = choice->vocab,
                                                                              .logits = pass->acts.scratch.logits,
                                                                              .stride = pass->model->config.vocab,
                                                                              .row = choice->row + first,
                                                                              .ids = ids + first,
                                                                              .next = pass->acts.block.ids + first});
    }
    rc = ash_exec_fetch(pass->exec, fetch, ids, count * sizeof(*ids));
    if (pass->axes.failed < 0) return ash_axes_result(&pass->axes, err);
    return rc < 0 ? ash_err_set(err, rc, "cannot fetch the chosen tokens") : 0;
}

int ash_pass_chosen(struct ash_pass *pass, unsigned fetch, size_t count, int32_t *ids_out, struct ash_err *err)
{
    int rc = ash_exec_fetched(pass->exec, fetch, ids_out, count * sizeof(*ids_out), err);

    return rc < 0 ? rc : ash_load_check(pass->model->load, err);
}

int ash_pass_infer_states(struct ash_pass *pass, const size_t *rows, size_t count, float *states_out,
                          struct ash_err *err)
{
    const float *gathered, *normed;
    int rc = gather_rows(pass, rows, count, &gathered, err);

    if (rc < 0 || count == 0) return rc;
    normed = ash_pass_run_states(&pass->step, gathered, count);
    rc = pass->exec->memory->copy(states_out, normed, count * pass->model->config.hidden * sizeof(float));
    return rc < 0 ? ash_err_set(err, rc, "cannot copy the wanted states") : 0;
}

int ash_pass_infer(struct ash_pass *pass, const struct ash_batch *batch, struct ash_cache *cache, const size_t *wanted,
                   size_t wanted_count, float *logits_out, struct ash_err *err)
{
    int rc = ash_pass_infer_layers(pass, batch, cache, err);

    return rc < 0 ? rc : ash_pass_infer_logits(pass, wanted, wanted_count, logits_out, err);
}
