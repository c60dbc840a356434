/* post: pairs of answers, as a loss of their log-probabilities. Every pair lies in one sequence, so an objective needs
 * nothing of other sequences but how many pairs the step has. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "post/objective/pairs.h"
#include "post/post_priv.h"
#include "post/reference.h"

/* Sum of minus the losses of a side's rows, and how many rows have a target. */
static struct ash_pair_side side_of(const struct ash_objective_rows *rows, size_t first, size_t count)
{
    struct ash_pair_side side = {0};

    for (size_t r = first; r < first + count; r++) {
        if (rows->targets[r] < 0) continue;
        side.logp -= (double)rows->losses[r];
        side.count += 1;
    }
    return side;
}

static void scale_side(const struct ash_objective_rows *rows, size_t first, size_t count, double scale)
{
    for (size_t r = first; r < first + count; r++)
        if (rows->targets[r] >= 0) rows->scales[r] = (float)scale;
}

/* Are both answers the same? Then nothing can be learned from them. */
static bool is_same(const struct ash_post *post, size_t pair)
{
    struct ash_example chosen = ash_examples_at(post->train, 2 * pair),
                       rejected = ash_examples_at(post->train, 2 * pair + 1);

    return chosen.count == rejected.count && memcmp(chosen.ids, rejected.ids, chosen.count * sizeof(int32_t)) == 0;
}

/* Denominators of a step: its pairs, and the targets of its chosen answers. */
static void count_step(struct ash_post *post, uint64_t step)
{
    uint64_t slots = (uint64_t)post->job->train.global_batch;

    if (post->weighed_step == step) return;
    post->weighed_step = step;
    post->step_units = 0;
    post->step_targets = 0;
    for (uint64_t slot = 0; slot < slots; slot++) {
        size_t count =
            ash_packed_units(post->packed, step, slot, slots, post->units, ash_packed_units_max(post->packed));

        post->step_units += count;
        for (size_t u = 0; u < count; u++)
            post->step_targets += post->targets[2 * post->units[u].unit];
    }
}

static int weigh_pairs(void *ctx, const struct ash_objective_rows *rows, double *loss_out, struct ash_err *err)
{
    struct ash_post *post = ctx;
    const struct ash_job_dpo *dpo = &post->job->dpo;
    size_t count;

    (void)err;
    count_step(post, rows->step);
    count = ash_packed_units(post->packed, rows->step, rows->slot, (uint64_t)post->job->train.global_batch, post->units,
                             ash_packed_units_max(post->packed));
    for (size_t u = 0; u < count; u++) {
        const struct ash_packed_unit *unit = &post->units[u];
        size_t second = unit->row + unit->count[0];
        struct ash_pair_side chosen = side_of(rows, unit->row, unit->count[0]),
                             rejected = side_of(rows, second, unit->count[1]);
        struct ash_pair_value value;

        if (chosen.count == 0 || rejected.count == 0 || is_same(post, unit->unit)) continue;
        if (post->reference != NULL) {
            chosen.reference = post->reference[2 * unit->unit];
            rejected.reference = post->reference[2 * unit->unit + 1];
        }
        value = post->kto != NULL ? ash_pair_kto_loss(dpo, &chosen, &rejected, ash_kto_baseline(post->kto))
                                  : ash_pair_loss(dpo, &chosen, &rejected);
        *loss_out += value.loss / (double)post->step_units - dpo->sft_weight * chosen.logp / post->step_targets;
        scale_side(rows, unit->row, unit->count[0],
                   -value.chosen / (double)post->step_units + dpo->sft_weight / post->step_targets);
        scale_side(rows, second, unit->count[1], -value.rejected / (double)post->step_units);
    }
    return 0;
}

static int open_counts(struct ash_post *post, struct ash_err *err)
{
    size_t count = ash_examples_count(post->train);

    post->units = calloc(ash_packed_units_max(post->packed), sizeof(*post->units));
    post->targets = calloc(count, sizeof(*post->targets));
    if (post->units == NULL || post->targets == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory for %zu pairs", count / 2);
    for (size_t i = 0; i < count; i++) {
        struct ash_example example = ash_examples_at(post->train, i);

        for (size_t t = 1; t < example.count; t++)
            post->targets[i] += example.targets[t];
    }
    return 0;
}

/* Both answers of each pair in a sequence. */
static size_t list_sides(void *ctx, uint64_t slot, struct ash_reference_part *parts)
{
    struct ash_post *post = ctx;
    size_t windows = ash_packed_source(post->packed).windows;
    size_t count = ash_packed_units(post->packed, 0, slot, windows, post->units, ash_packed_units_max(post->packed));

    for (size_t u = 0; u < count; u++) {
        const struct ash_packed_unit *unit = &post->units[u];

        parts[2 * u] = (struct ash_reference_part){2 * unit->unit, unit->row, unit->count[0]};
        parts[2 * u + 1] = (struct ash_reference_part){2 * unit->unit + 1, unit->row + unit->count[0], unit->count[1]};
    }
    return 2 * count;
}

static int open_reference(struct ash_post *post, struct ash_err *err)
{
    const struct ash_job *job = post->job;
    struct ash_train_source source;
    const char *dir = job->dpo.reference != NULL ? job->dpo.reference : job->model.from;
    bool was_cached = false;
    int rc;

    if (!ash_pair_loss_has_reference(job->dpo.loss)) return 0;
    if (dir == NULL)
        return ash_err_set(err, -EINVAL,
                           "which reference? give model.from, or dpo.reference (dpo.loss=orpo and simpo need none)");
    post->reference = calloc(ash_examples_count(post->train), sizeof(*post->reference));
    if (post->reference == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the reference");
    source = ash_packed_source(post->packed);
    rc = ash_reference_logps(
        &(struct ash_reference_opts){.job = job,
                                     .model_dir = dir,
                                     .lora = ash_post_reference_lora(post, post->job->dpo.reference),
                                     .source = &source,
                                     .list = list_sides,
                                     .ctx = post,
                                     .count = ash_examples_count(post->train),
                                     .hash = ash_examples_hash(post->train),
                                     .cache_dir = job->data.train,
                                     .group = post->group},
        post->reference, &was_cached, err);
    if (rc == 0 && job->dpo.loss == ASH_DPO_KTO) rc = ash_kto_open(post, dir, err);
    if (rc < 0) return ash_err_prefix(err, rc, "the reference %s", dir);
    if (post->screen != NULL)
        fprintf(post->screen, "reference %s, %s\n", dir, was_cached ? "log-probabilities known" : "computed once");
    return 0;
}

int ash_post_open_dpo(struct ash_post *post, struct ash_err *err)
{
    int rc = ash_post_open_examples(post, ASH_EXAMPLES_PAIRS, err);

    if (rc == 0) rc = open_counts(post, err);
    if (rc == 0) rc = open_reference(post, err);
    if (rc < 0) return rc;
    post->parts.valid = NULL;
    post->objective = (struct ash_objective){.weigh = weigh_pairs, .ctx = post, .needs_losses = true};
    post->parts.objective = &post->objective;
    return 0;
}

/* ---- a reward model ---------------------------------------------------------------------------------------------- */

/* The packed examples with one target each: the row of the last token, where the score is. */
static int read_scores(const void *ctx, uint64_t step, uint64_t slot, uint64_t slots_per_step,
                       struct ash_sample *sample, struct ash_err *err)
{
    struct ash_post *post = (struct ash_post *)(uintptr_t)ctx;
    struct ash_train_source inner = ash_packed_source(post->packed);
    int rc = inner.ops->read(inner.ctx, step, slot, slots_per_step, sample, err);
    size_t count;

    if (rc < 0) return rc;
    for (size_t r = 0; r < (size_t)post->job->data.seq_tokens; r++)
        sample->targets[r] = -1;
    count = ash_packed_units(post->packed, step, slot, slots_per_step, post->units, ash_packed_units_max(post->packed));
    for (size_t u = 0; u < count; u++) {
        const struct ash_packed_unit *unit = &post->units[u];

        sample->targets[unit->row + unit->count[0] - 1] = 0;
        sample->targets[unit->row + unit->count[0] + unit->count[1] - 1] = 0;
    }
    return 0;
}

static uint64_t count_scores(const void *ctx, uint64_t step, uint64_t slot, uint64_t slots_per_step)
{
    struct ash_post *post = (struct ash_post *)(uintptr_t)ctx;

    return 2 *
           ash_packed_units(post->packed, step, slot, slots_per_step, post->units, ash_packed_units_max(post->packed));
}

static const struct ash_source_ops score_ops = {.read = read_scores, .count = count_scores};

static int weigh_scores(void *ctx, const struct ash_objective_rows *rows, double *loss_out, struct ash_err *err)
{
    struct ash_post *post = ctx;
    size_t count;

    (void)err;
    count_step(post, rows->step);
    count = ash_packed_units(post->packed, rows->step, rows->slot, (uint64_t)post->job->train.global_batch, post->units,
                             ash_packed_units_max(post->packed));
    for (size_t u = 0; u < count; u++) {
        const struct ash_packed_unit *unit = &post->units[u];
        size_t chosen = unit->row + unit->count[0] - 1, rejected = chosen + unit->count[1];
        struct ash_pair_value value;

        if (is_same(post, unit->unit)) continue;
        value = ash_pair_reward_loss((double)rows->losses[chosen], (double)rows->losses[rejected],
                                     (double)ash_examples_margin(post->train, unit->unit), post->job->reward.center);
        *loss_out += value.loss / (double)post->step_units;
        rows->scales[chosen] = (float)(value.chosen / (double)post->step_units);
        rows->scales[rejected] = (float)(value.rejected / (double)post->step_units);
    }
    return 0;
}

int ash_post_open_reward(struct ash_post *post, struct ash_err *err)
{
    int rc;

    if (post->job->model.from == NULL) return ash_err_set(err, -EINVAL, "a reward model of what? give model.from");
    rc = ash_post_open_examples(post, ASH_EXAMPLES_PAIRS, err);
    if (rc == 0) rc = open_counts(post, err);
    if (rc < 0) return rc;
    post->source.ops = &score_ops;
    post->source.ctx = post;
    post->parts.valid = NULL;
    post->parts.wants_scores = true;
    post->objective = (struct ash_objective){.weigh = weigh_scores, .ctx = post, .needs_losses = true};
    post->parts.objective = &post->objective;
    return 0;
}
