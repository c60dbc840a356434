/* post: pairs of answers, as a loss of their log-probabilities. Every pair lies in one sequence, so an objective needs
 * nothing of other sequences but how many pairs the step has. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "post/objective/pairs.h"
#include "post/post_priv.h"
#include "post/reference.h"

static void scale_side(const struct ash_objective_rows *rows, size_t first, size_t count, double scale)
{
    ash_assert(first + count <= rows->rows);
    for (size_t r = first; r < first + count; r++)
        if (rows->targets[r] >= 0) rows->scales[r] = (float)scale;
}

/* The pairs of a sequence of step, in set->units. */
static size_t units_of(const struct ash_pair_set *set, uint64_t step, uint64_t slot, uint64_t slots)
{
    return ash_packed_units(set->packed, step, slot, slots, set->units, ash_packed_units_max(set->packed));
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
        size_t count = units_of(&post->pairs, step, slot, slots);

        post->step_units += count;
        for (size_t u = 0; u < count; u++)
            post->step_targets += post->targets[2 * post->pairs.units[u].unit];
    }
}

static int weigh_pairs(void *ctx, const struct ash_objective_rows *rows, double *loss_out, struct ash_err *err)
{
    struct ash_post *post = ctx;
    const struct ash_job_dpo *dpo = &post->job->dpo;
    size_t count;

    (void)err;
    count_step(post, rows->step);
    count = units_of(&post->pairs, rows->step, rows->slot, (uint64_t)post->job->train.global_batch);
    for (size_t u = 0; u < count; u++) {
        const struct ash_packed_unit *unit = &post->pairs.units[u];
        size_t second = unit->row + unit->count[0];
        struct ash_pair_side chosen = ash_pair_side_of(rows, unit->row, unit->count[0]),
                             rejected = ash_pair_side_of(rows, second, unit->count[1]);
        struct ash_pair_value value;

        ash_assert(post->step_units >= count); /* count_step() counted this slot's, too */
        if (chosen.count == 0 || rejected.count == 0 || ash_pair_is_same(&post->pairs, unit->unit)) continue;
        if (post->pairs.reference != NULL) {
            chosen.reference = post->pairs.reference[2 * unit->unit];
            rejected.reference = post->pairs.reference[2 * unit->unit + 1];
        }
        value = ash_post_pair_loss(post, &chosen, &rejected);
        *loss_out += value.loss / (double)post->step_units - dpo->sft_weight * chosen.logp / post->step_targets;
        scale_side(rows, unit->row, unit->count[0],
                   -value.chosen / (double)post->step_units + dpo->sft_weight / post->step_targets);
        scale_side(rows, second, unit->count[1], -value.rejected / (double)post->step_units);
    }
    return 0;
}

/* Scratch for the sequences of a set. */
static int open_set(struct ash_pair_set *set, struct ash_examples *examples, struct ash_packed *packed,
                    const struct ash_job *job, struct ash_err *err)
{
    *set = (struct ash_pair_set){.examples = examples, .packed = packed, .seq_tokens = (size_t)job->data.seq_tokens};
    set->units = calloc(ash_packed_units_max(packed), sizeof(*set->units));
    return set->units != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory for pairs");
}

static int open_counts(struct ash_post *post, struct ash_err *err)
{
    size_t count = ash_examples_count(post->train);
    int rc = open_set(&post->pairs, post->train, post->packed, post->job, err);

    if (rc == 0 && post->valid != NULL)
        rc = open_set(&post->valid_pairs, post->valid, post->valid_packed, post->job, err);
    if (rc < 0) return rc;
    if (post->valid != NULL) post->parts.weigh_valid = ash_post_weigh_valid;
    post->parts.ctx = post;
    post->targets = calloc(count, sizeof(*post->targets));
    if (post->targets == NULL) return ash_err_set(err, -ENOMEM, "out of memory for %zu pairs", count / 2);
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
    struct ash_pair_set *set = ctx;
    size_t count = units_of(set, 0, slot, ash_packed_source(set->packed).windows);

    for (size_t u = 0; u < count; u++) {
        const struct ash_packed_unit *unit = &set->units[u];

        parts[2 * u] = (struct ash_reference_part){2 * unit->unit, unit->row, unit->count[0]};
        parts[2 * u + 1] = (struct ash_reference_part){2 * unit->unit + 1, unit->row + unit->count[0], unit->count[1]};
    }
    return 2 * count;
}

/* The reference's log-probabilities of a set's answers; stored next to them. */
static int ask_reference(struct ash_post *post, struct ash_pair_set *set, const char *model_dir, const char *cache_dir,
                         bool *was_cached_out, struct ash_err *err)
{
    struct ash_train_source source = ash_packed_source(set->packed);

    set->reference = calloc(ash_examples_count(set->examples), sizeof(*set->reference));
    if (set->reference == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the reference");
    return ash_reference_logps(
        &(struct ash_reference_opts){.job = post->job,
                                     .model_dir = model_dir,
                                     .lora = ash_post_reference_lora(post, post->job->dpo.reference),
                                     .source = &source,
                                     .list = list_sides,
                                     .ctx = set,
                                     .count = ash_examples_count(set->examples),
                                     .hash = ash_examples_hash(set->examples),
                                     .cache_dir = cache_dir,
                                     .group = post->group},
        set->reference, was_cached_out, err);
}

static int open_reference(struct ash_post *post, struct ash_err *err)
{
    const struct ash_job *job = post->job;
    const char *dir = job->dpo.reference != NULL ? job->dpo.reference : job->model.from;
    bool was_cached = false, was_valid_cached = true;
    int rc;

    if (!ash_pair_loss_has_reference(job->dpo.loss)) return 0;
    if (dir == NULL)
        return ash_err_set(err, -EINVAL,
                           "which reference? give model.from, or dpo.reference (dpo.loss=orpo and simpo need none)");
    rc = ask_reference(post, &post->pairs, dir, job->data.train, &was_cached, err);
    if (rc == 0 && post->valid != NULL)
        rc = ask_reference(post, &post->valid_pairs, dir, job->data.valid, &was_valid_cached, err);
    if (rc == 0 && job->dpo.loss == ASH_DPO_KTO) rc = ash_kto_open(post, dir, err);
    if (rc < 0) return ash_err_prefix(err, rc, "the reference %s", dir);
    if (post->screen != NULL)
        fprintf(post->screen, "reference %s, %s\n", dir,
                was_cached && was_valid_cached ? "log-probabilities known" : "computed once");
    return 0;
}

int ash_post_open_dpo(struct ash_post *post, struct ash_err *err)
{
    int rc = ash_post_open_examples(post, ASH_EXAMPLES_PAIRS, err);

    if (rc == 0) rc = open_counts(post, err);
    if (rc == 0) rc = open_reference(post, err);
    if (rc < 0) return rc;
    post->objective = (struct ash_objective){.weigh = weigh_pairs, .ctx = post, .needs_losses = true};
    post->parts.objective = &post->objective;
    return 0;
}

/* ---- a reward model ---------------------------------------------------------------------------------------------- */

/* The packed examples with one target each: the row of the last token, where the score is. */
static int read_scores(const void *ctx, uint64_t step, uint64_t slot, uint64_t slots_per_step,
                       struct ash_sample *sample, struct ash_err *err)
{
    const struct ash_pair_set *set = ctx;
    struct ash_train_source inner = ash_packed_source(set->packed);
    int rc = inner.ops->read(inner.ctx, step, slot, slots_per_step, sample, err);
    size_t count;

    if (rc < 0) return rc;
    for (size_t r = 0; r < set->seq_tokens; r++)
        sample->targets[r] = -1;
    count = units_of(set, step, slot, slots_per_step);
    for (size_t u = 0; u < count; u++) {
        const struct ash_packed_unit *unit = &set->units[u];

        sample->targets[unit->row + unit->count[0] - 1] = 0;
        sample->targets[unit->row + unit->count[0] + unit->count[1] - 1] = 0;
    }
    return 0;
}

static uint64_t count_scores(const void *ctx, uint64_t step, uint64_t slot, uint64_t slots_per_step)
{
    return 2 * units_of(ctx, step, slot, slots_per_step);
}

static const struct ash_source_ops score_ops = {.read = read_scores, .count = count_scores};

static int weigh_scores(void *ctx, const struct ash_objective_rows *rows, double *loss_out, struct ash_err *err)
{
    struct ash_post *post = ctx;
    size_t count;

    (void)err;
    count_step(post, rows->step);
    count = units_of(&post->pairs, rows->step, rows->slot, (uint64_t)post->job->train.global_batch);
    for (size_t u = 0; u < count; u++) {
        const struct ash_packed_unit *unit = &post->pairs.units[u];
        size_t chosen = unit->row + unit->count[0] - 1, rejected = chosen + unit->count[1];
        struct ash_pair_value value;

        if (ash_pair_is_same(&post->pairs, unit->unit)) continue;
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
    post->source.ctx = &post->pairs;
    post->valid_source.ops = &score_ops;
    post->valid_source.ctx = &post->valid_pairs;
    post->parts.wants_scores = true;
    post->objective = (struct ash_objective){.weigh = weigh_scores, .ctx = post, .needs_losses = true};
    post->parts.objective = &post->objective;
    return 0;
}
