/* post: KTO's baseline. It compares what an answer gained over the reference with what answers gain that do not belong
 * to their prompts: each prompt is joined with the answers of the pair before it. The reference sees those once; the
 * policy sees the ones of a step's pairs before that step. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/math.h"
#include "post/post_priv.h"
#include "post/reference.h"

/* Some of those examples, in sequences. */
struct ash_kto {
    struct ash_post *post;
    size_t count, *list;           /* [count]: numbers of examples */
    size_t *bin_of, *row_of, bins; /* [examples] */
    size_t *lengths;               /* [examples]: scratch, and so is rank */
    uint64_t *rank;
    double *reference; /* [examples]: log-probabilities under the reference */
    double baseline;   /* of the step */
};

static size_t first_target(const struct ash_example *example)
{
    size_t first = 0;

    while (first < example->count && example->targets[first] == 0)
        first++;
    return first;
}

/* Example e: the prompt of its pair, and the answer of the pair before. */
struct joined {
    struct ash_example prompt, answer; /* answer: from its first target on */
    size_t count;                      /* of tokens that are used */
};

static struct joined join(const struct ash_kto *kto, size_t e)
{
    const struct ash_examples *examples = kto->post->train;
    size_t pairs = ash_examples_count(examples) / 2, other = 2 * ((e / 2 + pairs - 1) % pairs) + e % 2, first;
    struct joined joined = {.prompt = ash_examples_at(examples, e), .answer = ash_examples_at(examples, other)};

    joined.prompt.count = first_target(&joined.prompt);
    first = first_target(&joined.answer);
    joined.answer.ids += first;
    joined.answer.targets += first;
    joined.answer.count -= first;
    joined.count = ash_min(joined.prompt.count + joined.answer.count, (size_t)kto->post->job->data.seq_tokens);
    return joined;
}

/* Token t of it, and is it a target? */
static int32_t token_of(const struct joined *joined, size_t t, bool *is_target_out)
{
    bool is_answer = t >= joined->prompt.count;

    ash_assert(t < joined->count);
    *is_target_out = is_answer && joined->answer.targets[t - joined->prompt.count] != 0;
    return is_answer ? joined->answer.ids[t - joined->prompt.count] : joined->prompt.ids[t];
}

static int arrange(struct ash_kto *kto, struct ash_err *err)
{
    size_t seq = (size_t)kto->post->job->data.seq_tokens, *used;
    ssize_t bins;

    for (size_t i = 0; i < kto->count; i++) {
        kto->lengths[i] = join(kto, kto->list[i]).count;
        kto->rank[i] = i;
    }
    bins = ash_pack_plan(kto->lengths, kto->rank, kto->count, seq, kto->bin_of);
    used = bins > 0 ? calloc((size_t)bins, sizeof(*used)) : NULL;
    if (used == NULL) return ash_err_set(err, -ENOMEM, "out of memory for KTO's sequences");
    for (size_t i = 0; i < kto->count; i++) {
        ash_assert(kto->bin_of[i] < (size_t)bins);
        kto->row_of[i] = used[kto->bin_of[i]];
        used[kto->bin_of[i]] += kto->lengths[i];
        ash_assert(used[kto->bin_of[i]] <= seq); /* the plan fills no sequence beyond its end */
    }
    free(used);
    kto->bins = (size_t)bins;
    return 0;
}

static void add_joined(const struct ash_kto *kto, size_t i, struct ash_sample *sample)
{
    struct joined joined = join(kto, kto->list[i]);
    size_t row = kto->row_of[i];

    ash_assert(row + joined.count <= (size_t)kto->post->job->data.seq_tokens);
    for (size_t t = 0; t < joined.count; t++) {
        bool is_target = false, next_is_target = false;
        int32_t next = t + 1 < joined.count ? token_of(&joined, t + 1, &next_is_target) : -1;

        sample->ids[row + t] = token_of(&joined, t, &is_target);
        sample->targets[row + t] = next_is_target ? next : -1;
    }
    sample->docs[sample->doc_count++] = (struct ash_doc){.row = row, .count = joined.count};
}

static int read_joined(const void *ctx, uint64_t step, uint64_t slot, uint64_t slots_per_step,
                       struct ash_sample *sample, struct ash_err *err)
{
    const struct ash_kto *kto = ctx;
    size_t end = 0, seq = (size_t)kto->post->job->data.seq_tokens;

    (void)step;
    (void)slots_per_step;
    (void)err;
    sample->doc_count = 0;
    for (size_t i = 0; i < kto->count; i++) { /* rows ascend with i inside a sequence */
        if (kto->bin_of[i] != slot) continue;
        add_joined(kto, i, sample);
        end = kto->row_of[i] + join(kto, kto->list[i]).count;
    }
    for (size_t r = end; r < seq; r++) {
        sample->ids[r] = 0;
        sample->targets[r] = -1;
    }
    if (end < seq) sample->docs[sample->doc_count++] = (struct ash_doc){.row = end, .count = seq - end};
    return 0;
}

static uint64_t count_joined(const void *ctx, uint64_t step, uint64_t slot, uint64_t slots_per_step)
{
    (void)ctx;
    (void)step;
    (void)slot;
    (void)slots_per_step;
    return 1; /* of no consequence: nothing is learned */
}

static const struct ash_source_ops joined_ops = {.read = read_joined, .count = count_joined};

static struct ash_train_source source_of(struct ash_kto *kto)
{
    return (struct ash_train_source){.ops = &joined_ops, .ctx = kto, .windows = kto->bins, .eos_id = -1};
}

static size_t list_parts(void *ctx, uint64_t slot, struct ash_reference_part *parts)
{
    const struct ash_kto *kto = ctx;
    size_t count = 0;

    for (size_t i = 0; i < kto->count; i++)
        if (kto->bin_of[i] == slot)
            parts[count++] = (struct ash_reference_part){kto->list[i], kto->row_of[i], join(kto, kto->list[i]).count};
    return count;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

/* Before a step: what its prompts' wrong answers have gained. */
static int prepare(void *ctx, struct ash_trainer *trainer, uint64_t step, struct ash_err *err)
{
    struct ash_post *post = ctx;
    struct ash_kto *kto = post->kto;
    uint64_t slots = (uint64_t)post->job->train.global_batch;
    struct ash_train_source source;
    double *losses, sum = 0.0;
    int rc;

    kto->count = 0;
    for (uint64_t slot = 0; slot < slots; slot++) {
        size_t units =
            ash_packed_units(post->packed, step, slot, slots, post->pairs.units, ash_packed_units_max(post->packed));

        for (size_t u = 0; u < 2 * units; u++)
            kto->list[kto->count++] = 2 * post->pairs.units[u / 2].unit + u % 2;
    }
    rc = arrange(kto, err);
    losses = rc == 0 ? calloc(kto->bins, sizeof(*losses)) : NULL;
    if (rc == 0 && losses == NULL) rc = ash_err_set(err, -ENOMEM, "out of memory for KTO's baseline");
    source = source_of(kto);
    if (rc == 0) rc = ash_stages_eval(ash_trainer_stages(trainer), &source, kto->bins, losses, err);
    for (size_t b = 0; rc == 0 && b < kto->bins; b++)
        sum -= losses[b];
    for (size_t i = 0; rc == 0 && i < kto->count; i++)
        sum -= kto->reference[kto->list[i]];
    free(losses);
    kto->baseline = fmax(sum / (double)kto->count, 0.0);
    return rc;
}

static int open_reference(struct ash_kto *kto, const char *dir, struct ash_err *err)
{
    struct ash_post *post = kto->post;
    struct ash_train_source source;
    bool was_cached = false;
    int rc;

    for (size_t e = 0; e < ash_examples_count(post->train); e++)
        kto->list[kto->count++] = e;
    rc = arrange(kto, err);
    source = source_of(kto);
    if (rc < 0) return rc;
    return ash_reference_logps(
        &(struct ash_reference_opts){.job = post->job,
                                     .model_dir = dir,
                                     .lora = ash_post_reference_lora(post, post->job->dpo.reference),
                                     .source = &source,
                                     .list = list_parts,
                                     .ctx = kto,
                                     .count = kto->count,
                                     .hash = ash_hash_mix(ash_examples_hash(post->train)),
                                     .cache_dir = post->job->data.train,
                                     .group = post->group},
        kto->reference, &was_cached, err);
}

int ash_kto_open(struct ash_post *post, const char *reference_dir, struct ash_err *err)
{
    /* a step may come around to examples that it has already */
    size_t examples = ash_examples_count(post->train),
           most = examples + 2 * (size_t)post->job->train.global_batch * ash_packed_units_max(post->packed);
    struct ash_kto *kto = calloc(1, sizeof(*kto));

    if (examples < 4) {
        free(kto);
        return ash_err_set(err, -EINVAL,
                           "dpo.loss=kto joins prompts with answers of other pairs: it needs two or more");
    }
    post->kto = kto;
    if (kto != NULL) {
        kto->post = post;
        kto->list = calloc(most, sizeof(*kto->list));
        kto->bin_of = calloc(most, sizeof(*kto->bin_of));
        kto->row_of = calloc(most, sizeof(*kto->row_of));
        kto->lengths = calloc(most, sizeof(*kto->lengths));
        kto->rank = calloc(most, sizeof(*kto->rank));
        kto->reference = calloc(examples, sizeof(*kto->reference));
    }
    if (kto == NULL || kto->list == NULL || kto->bin_of == NULL || kto->row_of == NULL || kto->lengths == NULL ||
        kto->rank == NULL || kto->reference == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory for %zu pairs", examples / 2);
    post->parts.prepare = prepare;
    post->parts.ctx = post;
    return open_reference(kto, reference_dir, err);
}

void ash_kto_close(struct ash_kto *kto)
{
    if (kto == NULL) return;
    free(kto->list);
    free(kto->bin_of);
    free(kto->row_of);
    free(kto->lengths);
    free(kto->rank);
    free(kto->reference);
    free(kto);
}

double ash_kto_baseline(const struct ash_kto *kto)
{
    return kto->baseline;
}
