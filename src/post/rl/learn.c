/* learn: the sequences that answers are packed into, and the scale of each token's gradient. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/range.h"
#include "post/objective/policy.h"
#include "post/rl/rl_priv.h"
#include "train/data/examples.h"

struct ash_rollout *ash_rl_rollout_of(struct ash_policy_run *rl, uint64_t step)
{
    return &rl->rollouts[step / ash_rl_steps_per_rollout(&rl->shape) % rl->rollout_count];
}

uint64_t ash_rl_steps_per_rollout(const struct ash_rl_shape *shape)
{
    return (uint64_t)shape->epochs * shape->minibatches;
}

/* The minibatch of a step, and its answers. */
static size_t minibatch_of(const struct ash_policy_run *rl, uint64_t step)
{
    return (size_t)(step % ash_rl_steps_per_rollout(&rl->shape)) % rl->shape.minibatches;
}

static struct ash_range answers_of(const struct ash_policy_run *rl, size_t minibatch)
{
    size_t count = rl->shape.answers / rl->shape.minibatches;

    ash_assert(minibatch < rl->shape.minibatches && rl->shape.answers % rl->shape.minibatches == 0);
    return (struct ash_range){minibatch * count, count};
}

/* ---- sequences --------------------------------------------------------------------------------------------------- */

/* Rows of an answer with its prompt: nothing follows the last token, so it needs no row. */
static size_t rows_of(const struct ash_rollout *rollout, const struct ash_answer_row *row)
{
    ash_assert(rollout->prompts[row->prompt].ids.count > 0); /* a prompt without tokens is refused */
    return rollout->prompts[row->prompt].ids.count + ash_max(row->count, 1) - 1;
}

/* Answers of full bins get bins of their own, until there are `least` of those. */
static ssize_t split_bins(size_t *bin_of, size_t count, size_t bins, size_t least)
{
    for (size_t a = 0; a < count && bins < least; a++)
        for (size_t b = a + 1; b < count; b++)
            if (bin_of[b] == bin_of[a]) { /* a has company */
                bin_of[a] = bins++;
                break;
            }
    return (ssize_t)bins;
}

/* Does an answer change anything? Where the loss is made of advantages alone, one without advantage does not. */
static bool teaches(const struct ash_policy_run *rl, const struct ash_answer_row *row)
{
    const struct ash_job_rl *opts = &rl->job->rl;
    bool has_more = opts->entropy > 0 || (opts->kl_coef > 0 && opts->kl_in == ASH_RL_KL_LOSS);

    return rl->shape.has_critic ||
           (ash_rl_counts(rl, row) && (has_more || rl->shape.has_teacher || row->advantage != 0.0));
}

/* Those answers of a minibatch that are learned from, and room to plan their sequences. */
struct lesson {
    size_t count, *list, *lengths, *bin_of; /* [answers] */
    uint64_t *order;
};

/* Where fewer are left than there are grains, all are taken: a grain has at least one. */
static void list_answers(const struct ash_policy_run *rl, const struct ash_rollout *rollout, struct ash_range answers,
                         struct lesson *lesson)
{
    for (size_t a = answers.first; a < ash_range_end(answers); a++)
        if (teaches(rl, &rollout->answers[a])) lesson->list[lesson->count++] = a;
    if (lesson->count < (size_t)rl->job->train.grains)
        for (lesson->count = 0; lesson->count < answers.count; lesson->count++)
            lesson->list[lesson->count] = answers.first + lesson->count;
    ash_assert(lesson->count <= answers.count);
    for (size_t i = 0; i < lesson->count; i++) {
        lesson->lengths[i] = rows_of(rollout, &rollout->answers[lesson->list[i]]);
        lesson->order[i] = i;
    }
}

/* Put them together in sequences, at least `least` of those: every grain has one. */
static ssize_t pack(const struct ash_policy_run *rl, struct lesson *lesson)
{
    size_t size = (size_t)rl->job->data.seq_tokens, longest = 1, least = (size_t)rl->job->train.grains;
    size_t count = lesson->count, *bin_of = lesson->bin_of;
    ssize_t bins;

    for (size_t i = 0; i < count; i++)
        longest = ash_max(longest, lesson->lengths[i]);
    bins = ash_pack_plan(lesson->lengths, lesson->order, count, size, bin_of);
    while (bins > 0 && (size_t)bins < least && size > longest) {
        size = ash_max(size / 2, longest);
        bins = ash_pack_plan(lesson->lengths, lesson->order, count, size, bin_of);
    }
    for (size_t i = 0; bins > 0 && (size_t)bins < least && i < count; i++)
        bin_of[i] = i; /* one each */
    if (bins > 0 && (size_t)bins < least) bins = (ssize_t)count;
    if (bins <= (ssize_t)rl->job->train.global_batch) return bins;
    bins = ash_pack_plan(lesson->lengths, lesson->order, count, (size_t)rl->job->data.seq_tokens, bin_of);
    return bins > 0 && (size_t)bins < least ? split_bins(bin_of, count, (size_t)bins, least) : bins;
}

/* The bins and rows of a minibatch's answers; of those that are not learned from, none. Returns 0 or -ENOMEM. */
static int place_answers(struct ash_rollout *rollout, struct ash_range answers, const struct lesson *lesson,
                         size_t bins)
{
    size_t *used = calloc(bins, sizeof(*used));

    if (used == NULL) return -ENOMEM;
    for (size_t a = answers.first; a < ash_range_end(answers); a++)
        rollout->bin_of[a] = SIZE_MAX;
    for (size_t i = 0; i < lesson->count; i++) {
        ash_assert(lesson->bin_of[i] < bins);
        rollout->bin_of[lesson->list[i]] = lesson->bin_of[i];
        rollout->row_of[lesson->list[i]] = used[lesson->bin_of[i]];
        used[lesson->bin_of[i]] += lesson->lengths[i];
    }
    free(used);
    return 0;
}

static int arrange_minibatch(struct ash_policy_run *rl, struct ash_rollout *rollout, size_t minibatch,
                             struct ash_err *err)
{
    struct ash_range answers = answers_of(rl, minibatch);
    struct lesson lesson = {.list = calloc(answers.count, sizeof(size_t)),
                            .lengths = calloc(answers.count, sizeof(size_t)),
                            .bin_of = calloc(answers.count, sizeof(size_t)),
                            .order = calloc(answers.count, sizeof(uint64_t))};
    ssize_t bins = -ENOMEM;
    int rc = -ENOMEM;

    if (lesson.list != NULL && lesson.lengths != NULL && lesson.bin_of != NULL && lesson.order != NULL) {
        list_answers(rl, rollout, answers, &lesson);
        bins = pack(rl, &lesson);
    }
    if (bins > 0) rc = place_answers(rollout, answers, &lesson, (size_t)bins);
    free(lesson.list);
    free(lesson.lengths);
    free(lesson.bin_of);
    free(lesson.order);
    if (rc < 0) return ash_err_set(err, -ENOMEM, "out of memory for the sequences of a step");
    if (bins > (ssize_t)rl->job->train.global_batch)
        return ash_err_set(err, -EOVERFLOW, "the answers of a step fill %zd sequences, and there is room for %lld",
                           bins, (long long)rl->job->train.global_batch);
    rollout->bin_counts[minibatch] = (size_t)bins;
    return 0;
}

int ash_rl_arrange(struct ash_policy_run *rl, struct ash_rollout *rollout, struct ash_err *err)
{
    int rc = 0;

    for (size_t m = 0; rc == 0 && m < rl->shape.minibatches; m++)
        rc = arrange_minibatch(rl, rollout, m, err);
    return rc;
}

/* Grains get bins in turn, so each has its share, filled ones first. */
size_t ash_rl_bin_of_slot(const struct ash_policy_run *rl, uint64_t slot)
{
    size_t grains = (size_t)rl->job->train.grains, per_grain = (size_t)rl->job->train.global_batch / grains;

    ash_assert(slot < (uint64_t)rl->job->train.global_batch);
    return (size_t)slot % per_grain * grains + (size_t)slot / per_grain;
}

static void add_answer(const struct ash_policy_run *rl, const struct ash_rollout *rollout, size_t a,
                       struct ash_sample *sample)
{
    const struct ash_answer_row *row = &rollout->answers[a];
    const struct ash_ids *prompt = &rollout->prompts[row->prompt].ids;
    size_t first = rollout->row_of[a], count = rows_of(rollout, row);

    ash_assert(first + count <= (size_t)rl->job->data.seq_tokens); /* the plan made room */
    for (size_t i = 0; i < count; i++) {
        size_t next = i + 1;

        sample->ids[first + i] = i < prompt->count ? prompt->data[i] : row->ids[i - prompt->count];
        sample->targets[first + i] = next >= prompt->count && next - prompt->count < row->count &&
                                             ash_rl_counts(rl, row) && !ash_rl_is_given(row, next - prompt->count)
                                         ? row->ids[next - prompt->count]
                                         : -1;
        if (sample->kept != NULL && sample->targets[first + i] >= 0)
            sample->kept[first + i] = ash_rl_kept_get(row, next - prompt->count);
    }
    sample->docs[sample->doc_count++] = (struct ash_doc){.row = first, .count = count};
}

static int compare_rows(const void *a, const void *b)
{
    const struct ash_doc *x = a, *y = b;

    return x->row < y->row ? -1 : x->row > y->row;
}

void ash_rl_read_bin(struct ash_policy_run *rl, uint64_t step, size_t bin, struct ash_sample *sample)
{
    const struct ash_rollout *rollout = ash_rl_rollout_of(rl, step);
    size_t end = 0, seq = (size_t)rl->job->data.seq_tokens, minibatch = minibatch_of(rl, step);
    struct ash_range answers = answers_of(rl, minibatch);

    sample->doc_count = 0;
    if (bin >= rollout->bin_counts[minibatch]) return;
    for (size_t a = answers.first; a < ash_range_end(answers); a++) {
        if (rollout->bin_of[a] != bin) continue;
        add_answer(rl, rollout, a, sample);
        end = ash_max(end, rollout->row_of[a] + rows_of(rollout, &rollout->answers[a]));
    }
    qsort(sample->docs, sample->doc_count, sizeof(*sample->docs), compare_rows);
    for (size_t r = end; r < seq; r++) {
        sample->ids[r] = 0;
        sample->targets[r] = -1;
    }
    if (end < seq) sample->docs[sample->doc_count++] = (struct ash_doc){.row = end, .count = seq - end};
}

static int read_answers(const void *ctx, uint64_t step, uint64_t slot, uint64_t slots_per_step,
                        struct ash_sample *sample, struct ash_err *err)
{
    struct ash_policy_run *rl = (struct ash_policy_run *)(uintptr_t)ctx;

    (void)slots_per_step;
    (void)err;
    ash_rl_read_bin(rl, step, ash_rl_bin_of_slot(rl, slot), sample);
    return 0;
}

static uint64_t count_answers(const void *ctx, uint64_t step, uint64_t slot, uint64_t slots_per_step)
{
    struct ash_policy_run *rl = (struct ash_policy_run *)(uintptr_t)ctx;
    const struct ash_rollout *rollout = ash_rl_rollout_of(rl, step);
    struct ash_range answers = answers_of(rl, minibatch_of(rl, step));
    size_t bin = ash_rl_bin_of_slot(rl, slot);
    uint64_t count = 0;

    (void)slots_per_step;
    for (size_t a = answers.first; a < ash_range_end(answers); a++)
        if (rollout->bin_of[a] == bin && ash_rl_counts(rl, &rollout->answers[a]))
            count += ash_rl_own_count(&rollout->answers[a]);
    return count;
}

static const struct ash_source_ops answer_ops = {.read = read_answers, .count = count_answers};

/* ---- the objective ----------------------------------------------------------------------------------------------- */

static double token_weight(const struct ash_policy_run *rl, const struct ash_rollout *rollout,
                           const struct ash_answer_row *row, size_t minibatch)
{
    double answers = (double)(rl->shape.answers / rl->shape.minibatches);

    switch ((enum ash_rl_loss)rl->job->rl.loss) {
    case ASH_RL_TOKEN_MEAN:
        return 1.0 / rollout->weight_tokens[minibatch];
    case ASH_RL_SEQ_MEAN_TOKEN_MEAN:
        return 1.0 / (answers * (double)ash_rl_own_count(row));
    case ASH_RL_SEQ_MEAN_TOKEN_SUM_NORM:
        break;
    }
    return 1.0 / (answers * (double)rl->shape.max_tokens);
}

/* Where sampler and trainer have the same weights, they have the same bits: a ratio other than 1 ends the run. */
static int check_bits(struct ash_policy_run *rl, const struct ash_rollout *rollout, size_t a, const float *losses,
                      struct ash_err *err)
{
    const struct ash_answer_row *row = &rollout->answers[a];

    for (size_t t = 0; t < row->count; t++) {
        float trained = -losses[t];

        if (ash_rl_is_given(row, t)) continue;
        if (memcmp(&trained, &row->logps[t], sizeof(trained)) != 0 && !(trained == 0.0f && row->logps[t] == 0.0f))
            return ash_err_set(err, -EBADMSG,
                               "rollout %" PRIu64 ", answer %zu, token %zu (id %d): the sampler's log-probability is "
                               "%.9g and the trainer's %.9g, with the same weights",
                               rollout->number, a, t, row->ids[t], (double)row->logps[t], (double)trained);
        rl->counts[ASH_RL_CHECKED]++;
    }
    return 0;
}

#define CISPO_RATIO_MAX 5.0 /* where the job names none: what published runs take */

static struct ash_policy_opts policy_opts(const struct ash_policy_run *rl)
{
    const struct ash_job_rl *opts = &rl->job->rl;
    bool is_cispo = opts->policy_loss == ASH_RL_CISPO;

    return (struct ash_policy_opts){.clip_low = opts->clip,
                                    .clip_high = opts->clip_high > 0 ? opts->clip_high
                                                 : is_cispo          ? CISPO_RATIO_MAX
                                                                     : opts->clip,
                                    .most = opts->delta,
                                    .dual = opts->dual_clip,
                                    .is_cispo = is_cispo,
                                    .is_sequence = opts->ratio == ASH_RL_RATIO_SEQUENCE,
                                    .kl_coef = opts->kl_in == ASH_RL_KL_LOSS ? opts->kl_coef : 0.0,
                                    .kl_estimator = (enum ash_kl_estimator)opts->kl_estimator};
}

/* Values of the policy's own tokens, one after the other: log-probabilities now and at sampling, advantages, the
 * reference's, and memory for slopes. all: [5 * own]. */
static struct ash_policy_answer gather_own(const struct ash_policy_run *rl, const struct ash_answer_row *row,
                                           const float *losses, size_t own, double *all)
{
    struct ash_policy_answer answer = {.count = own,
                                       .logps = all,
                                       .old = all + own,
                                       .advantages = all + 2 * own,
                                       .reference = row->reference != NULL ? all + 3 * own : NULL};

    for (size_t t = 0, i = 0; t < row->count; t++) {
        if (ash_rl_is_given(row, t)) continue;
        all[i] = losses != NULL ? -(double)losses[t] : (double)row->logps[t];
        all[own + i] = (double)row->logps[t];
        all[2 * own + i] =
            (row->advantages != NULL ? row->advantages[t] : row->advantage) * ash_external_weight(rl, row, t);
        if (row->reference != NULL) all[3 * own + i] = row->reference[t];
        i++;
    }
    return answer;
}

/* One answer. rows: of its sequence; first: of its first token's loss. */
static int weigh_answer(struct ash_policy_run *rl, struct ash_rollout *rollout, size_t a,
                        const struct ash_objective_rows *rows, size_t first, double *loss_out, struct ash_err *err)
{
    struct ash_answer_row *row = &rollout->answers[a];
    struct ash_policy_opts opts = policy_opts(rl);
    struct ash_policy_value value;
    size_t minibatch = minibatch_of(rl, rows->step), own = ash_rl_own_count(row);
    double entropy = rl->job->rl.entropy / rollout->weight_tokens[minibatch];
    double *wide = calloc(5 * own + 1, sizeof(*wide)), *slopes;
    const float *losses = rows->losses != NULL ? rows->losses + first : NULL;
    struct ash_policy_answer answer;
    int rc = 0;

    if (wide == NULL) return ash_err_set(err, -ENOMEM, "out of memory for an answer");
    slopes = wide + 4 * own;
    answer = gather_own(rl, row, losses, own, wide);
    answer.weight = token_weight(rl, rollout, row, minibatch);
    if (losses != NULL && rollout->version == rows->step) rc = check_bits(rl, rollout, a, losses, err);
    value = ash_policy_loss(&opts, &answer, slopes);
    *loss_out += value.loss;
    rl->counts[ASH_RL_CLIPPED_LOW] += (double)value.clipped_low;
    rl->counts[ASH_RL_CLIPPED_HIGH] += (double)value.clipped_high;
    rl->counts[ASH_RL_WEIGHED] += (double)own;
    for (size_t t = 0, i = 0; t < row->count; t++) {
        if (ash_rl_is_given(row, t)) continue;
        rows->scales[first + t] = (float)-slopes[i++];
        if (rows->entropy_scales == NULL) continue;
        rows->entropy_scales[first + t] = (float)-entropy;
        *loss_out -= entropy * (double)rows->entropies[first + t];
    }
    free(wide);
    return rc;
}

static int weigh(void *ctx, const struct ash_objective_rows *rows, double *loss_out, struct ash_err *err)
{
    struct ash_policy_run *rl = ctx;
    struct ash_rollout *rollout = ash_rl_rollout_of(rl, rows->step);
    struct ash_range answers = answers_of(rl, minibatch_of(rl, rows->step));
    size_t bin = ash_rl_bin_of_slot(rl, rows->slot);
    int rc = 0;

    for (size_t a = answers.first; rc == 0 && a < ash_range_end(answers); a++) {
        const struct ash_answer_row *row = &rollout->answers[a];

        if (rollout->bin_of[a] != bin || !ash_rl_counts(rl, row)) continue;
        rc = weigh_answer(rl, rollout, a, rows, rollout->row_of[a] + rollout->prompts[row->prompt].ids.count - 1,
                          loss_out, err);
    }
    return rc;
}

/* After a backward pass that did not need the losses before it. */
static int look(void *ctx, const struct ash_objective_rows *rows, struct ash_err *err)
{
    struct ash_policy_run *rl = ctx;
    struct ash_rollout *rollout = ash_rl_rollout_of(rl, rows->step);
    struct ash_range answers = answers_of(rl, minibatch_of(rl, rows->step));
    size_t bin = ash_rl_bin_of_slot(rl, rows->slot);
    int rc = 0;

    if (rollout->version != rows->step || rl->objective.needs_losses || rl->objective.has_entropy) return 0;
    for (size_t a = answers.first; rc == 0 && a < ash_range_end(answers); a++) {
        const struct ash_answer_row *row = &rollout->answers[a];
        size_t first = rollout->row_of[a] + rollout->prompts[row->prompt].ids.count - 1;

        if (rollout->bin_of[a] == bin && ash_rl_counts(rl, row))
            rc = check_bits(rl, rollout, a, rows->losses + first, err);
    }
    return rc;
}

void ash_rl_set_parts(struct ash_policy_run *rl)
{
    const struct ash_job *job = rl->job;

    rl->source = (struct ash_train_source){.ops = &answer_ops,
                                           .ctx = rl,
                                           .tokens = rl->shape.answers * rl->shape.max_tokens,
                                           .windows = (size_t)job->train.global_batch,
                                           .vocab_size = ash_tokenizer_vocab_size(rl->text.tokenizer),
                                           .hash = ash_prompts_hash(rl->prompts),
                                           .tokenizer_hash = ash_tokenizer_hash(rl->text.tokenizer),
                                           .eos_id = rl->text.eos_count > 0 ? rl->text.eos[0] : -1,
                                           .has_kept = rl->shape.has_kept};
    rl->objective =
        (struct ash_objective){.weigh = weigh,
                               .look = look,
                               .ctx = rl,
                               .needs_losses = ash_rl_steps_per_rollout(&rl->shape) > 1 || job->rollout.lag > 0 ||
                                               (job->rl.kl_coef > 0 && job->rl.kl_in == ASH_RL_KL_LOSS),
                               .has_entropy = job->rl.entropy > 0,
                               .sharpness = (float)(1.0 / job->rollout.temperature)};
}
