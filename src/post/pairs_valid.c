/* post: a validation on held-out pairs: their loss, how many are ranked right, and the rewards of both answers. */
#include <errno.h>
#include <stdlib.h>

#include "post/post_priv.h"

/* Sums over pairs. */
struct tally {
    double loss, right, chosen, rejected; /* right: of equal rewards half */
    double logp, targets;                 /* of chosen answers */
    size_t count;
};

static void free_sample(struct ash_sample *sample)
{
    free(sample->ids);
    free(sample->targets);
    free(sample->docs);
}

/* Memory of a sequence; its targets mark the rows with losses. */
static int open_sample(size_t seq_tokens, struct ash_sample *sample_out, struct ash_err *err)
{
    struct ash_sample sample = {.ids = calloc(seq_tokens, sizeof(*sample.ids)),
                                .targets = calloc(seq_tokens, sizeof(*sample.targets)),
                                .docs = calloc(seq_tokens, sizeof(*sample.docs))};

    if (sample.ids == NULL || sample.targets == NULL || sample.docs == NULL) {
        free_sample(&sample);
        return ash_err_set(err, -ENOMEM, "out of memory for a sequence of %zu tokens", seq_tokens);
    }
    *sample_out = sample;
    return 0;
}

/* As TRL's rewards: beta times the gain over the reference; without one, of the mean log-probability. */
static double reward_of(const struct ash_post *post, const struct ash_pair_side *side)
{
    double gain =
        ash_pair_loss_has_reference(post->job->dpo.loss) ? side->logp - side->reference : side->logp / side->count;

    return post->job->dpo.beta * gain;
}

static void count_rewards(struct tally *tally, double loss, double chosen, double rejected)
{
    tally->loss += loss;
    tally->chosen += chosen;
    tally->rejected += rejected;
    tally->right += chosen > rejected ? 1 : chosen == rejected ? 0.5 : 0;
    tally->count++;
}

static void count_pair(const struct ash_post *post, const struct ash_packed_unit *unit,
                       const struct ash_objective_rows *rows, struct tally *tally)
{
    const double *reference = post->valid_pairs.reference;
    struct ash_pair_side chosen = ash_pair_side_of(rows, unit->row, unit->count[0]),
                         rejected = ash_pair_side_of(rows, unit->row + unit->count[0], unit->count[1]);

    if (chosen.count == 0 || rejected.count == 0 || ash_pair_is_same(&post->valid_pairs, unit->unit)) return;
    if (reference != NULL) {
        chosen.reference = reference[2 * unit->unit];
        rejected.reference = reference[2 * unit->unit + 1];
    }
    tally->logp += chosen.logp;
    tally->targets += chosen.count;
    count_rewards(tally, ash_post_pair_loss(post, &chosen, &rejected).loss, reward_of(post, &chosen),
                  reward_of(post, &rejected));
}

static void count_scores(const struct ash_post *post, const struct ash_packed_unit *unit,
                         const struct ash_objective_rows *rows, struct tally *tally)
{
    size_t at = unit->row + unit->count[0] - 1;
    double chosen = (double)rows->losses[at], rejected = (double)rows->losses[at + unit->count[1]];
    double margin = (double)ash_examples_margin(post->valid, unit->unit);

    if (ash_pair_is_same(&post->valid_pairs, unit->unit)) return;
    count_rewards(tally, ash_pair_reward_loss(chosen, rejected, margin, post->job->reward.center).loss, chosen,
                  rejected);
}

int ash_post_weigh_valid(void *ctx, const float *rows, size_t sequences, double *loss_out,
                         struct ash_pair_figures *figures_out, struct ash_err *err)
{
    struct ash_post *post = ctx;
    struct ash_pair_set *set = &post->valid_pairs;
    bool has_scores = post->job->train.method == ASH_METHOD_REWARD;
    struct tally tally = {0};
    struct ash_sample sample;
    int rc = open_sample(set->seq_tokens, &sample, err);

    if (rc < 0) return rc;
    for (size_t s = 0; rc == 0 && s < sequences; s++) {
        struct ash_objective_rows at = {
            .rows = set->seq_tokens, .targets = sample.targets, .losses = rows + s * set->seq_tokens};
        size_t count = ash_packed_units(set->packed, 0, s, sequences, set->units, ash_packed_units_max(set->packed));

        rc = post->valid_source.ops->read(post->valid_source.ctx, 0, s, sequences, &sample, err);
        for (size_t u = 0; rc == 0 && u < count; u++)
            (has_scores ? count_scores : count_pair)(post, &set->units[u], &at, &tally);
    }
    free_sample(&sample);
    if (rc < 0) return rc;
    if (tally.count == 0) return ash_err_set(err, -EINVAL, "data.valid: both answers of every pair are the same");
    *loss_out = tally.loss / (double)tally.count;
    if (!has_scores && tally.targets > 0) *loss_out -= post->job->dpo.sft_weight * tally.logp / tally.targets;
    *figures_out = (struct ash_pair_figures){tally.right / (double)tally.count, tally.chosen / (double)tally.count,
                                             tally.rejected / (double)tally.count};
    return 0;
}
