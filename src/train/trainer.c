/* trainer: grains of micro-batches through the model, a fixed tree of sums, the guard, and AdamW. */
#include "train/trainer.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cores.h"
#include "base/file.h"
#include "model/tokenizer.h"
#include "train/data/dataset.h"
#include "train/feed.h"
#include "train/grains.h"
#include "train/optimizer.h"

/* Version of the order in which bf16 weight gradients sum over tokens, where it is not that of "ref". 2: in groups of
 * four that start anew with each sequence; before that, one chain of fused multiply-adds. */
#define TOKEN_ORDER "/2"
#define ARITHMETIC_BYTES 64

struct ash_trainer {
    const struct ash_job *job;
    struct ash_schedule schedule;
    struct ash_guard_opts guard;
    struct ash_exec exec;
    struct ash_group *group; /* who shares each step; NULL: nobody */
    struct ash_dataset *train, *valid;
    size_t valid_sequences;
    char tokenizer_dir[PATH_MAX]; /* empty: none */
    size_t tokenizer_vocab;
    struct ash_state state;
    struct ash_pass *pass;
    struct ash_feed feed;
    struct ash_grains grains;
    struct ash_optimizer optimizer;
    char arithmetic[ARITHMETIC_BYTES];
    struct ash_train_memory memory;
};

/* Of a validation sequence. */
struct sequence_loss {
    double sum;
    uint64_t targets;
};

static size_t group_rank(const struct ash_trainer *trainer)
{
    return trainer->group != NULL ? ash_group_rank(trainer->group) : 0;
}

static size_t group_size(const struct ash_trainer *trainer)
{
    return trainer->group != NULL ? ash_group_size(trainer->group) : 1;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static int open_data(struct ash_trainer *trainer, struct ash_err *err)
{
    const struct ash_job *job = trainer->job;
    size_t seq_tokens = (size_t)job->data.seq_tokens, wanted;
    int rc = ash_dataset_open(job->data.train, seq_tokens, (uint64_t)job->train.seed, &trainer->train, err);

    if (rc < 0) return ash_err_prefix(err, rc, "data.train");
    if (job->data.valid == NULL || job->train.valid_every == 0) return 0;
    rc = ash_dataset_open(job->data.valid, seq_tokens, 0, &trainer->valid, err);
    if (rc < 0) return ash_err_prefix(err, rc, "data.valid");
    wanted = (size_t)job->train.valid_batches * (size_t)job->train.global_batch;
    trainer->valid_sequences = ash_dataset_windows(trainer->valid);
    if (trainer->valid_sequences > wanted) trainer->valid_sequences = wanted;
    return 0;
}

/* Does dir hold a tokenizer? Then remember it. */
static bool try_tokenizer(struct ash_trainer *trainer, const char *dir)
{
    char path[PATH_MAX];

    if (dir == NULL || ash_path_join(path, sizeof(path), dir, "tokenizer.json") < 0 || !ash_path_exists(path))
        return false;
    snprintf(trainer->tokenizer_dir, sizeof(trainer->tokenizer_dir), "%s", dir);
    return true;
}

/* The folder that path is, or that it lies in. */
static bool try_tokenizer_beside(struct ash_trainer *trainer, const char *path)
{
    char dir[PATH_MAX];

    if (try_tokenizer(trainer, path)) return true;
    snprintf(dir, sizeof(dir), "%s", path);
    char *slash = strrchr(dir, '/');
    if (slash != NULL) *slash = '\0';
    return try_tokenizer(trainer, slash == NULL ? "." : slash == dir ? "/" : dir);
}

static int find_tokenizer(struct ash_trainer *trainer, const char *weights_dir, struct ash_err *err)
{
    const struct ash_job *job = trainer->job;

    if (job->data.tokenizer != NULL) {
        if (try_tokenizer(trainer, job->data.tokenizer)) return 0;
        return ash_err_set(err, -ENOENT, "data.tokenizer: %s holds no tokenizer.json", job->data.tokenizer);
    }
    if (!try_tokenizer(trainer, job->model.from) && !try_tokenizer_beside(trainer, job->data.train))
        try_tokenizer(trainer, weights_dir);
    return 0;
}

/* The tokenizer that travels with the model must be the one that made the data, or the model would read other text than
 * it learned. Its ids count for the vocabulary of a new model. */
static int check_tokenizer(struct ash_trainer *trainer, struct ash_err *err)
{
    struct ash_tokenizer *tokenizer = NULL;
    uint64_t hash;
    int rc;

    if (trainer->tokenizer_dir[0] == '\0') return 0;
    if ((rc = ash_tokenizer_open(trainer->tokenizer_dir, &tokenizer, err)) < 0) return rc;
    trainer->tokenizer_vocab = ash_tokenizer_vocab_size(tokenizer);
    hash = ash_tokenizer_hash(tokenizer);
    ash_tokenizer_close(tokenizer);
    if (hash == ash_dataset_tokenizer_hash(trainer->train)) return 0;
    return ash_err_set(err, -EINVAL,
                       "data.train was not made with the tokenizer in %s: tokenize the text again with it",
                       trainer->tokenizer_dir);
}

/* Rows that a new model's embedding needs: every id of the data and of the tokenizer. */
static size_t needed_vocab(const struct ash_trainer *trainer)
{
    size_t vocab = ash_dataset_vocab_size(trainer->train);

    return trainer->tokenizer_vocab > vocab ? trainer->tokenizer_vocab : vocab;
}

static int create_model(struct ash_trainer *trainer, struct ash_model **model_out, struct ash_err *err)
{
    const struct ash_job *job = trainer->job;
    struct ash_model_config config;
    json_t *json = NULL;
    size_t vocab = job->model.vocab > 0 ? (size_t)job->model.vocab : needed_vocab(trainer);
    int rc;

    rc = ash_job_config(&job->model, vocab, ash_dataset_eos_id(trainer->train), &json, err);
    if (rc < 0) return rc;
    rc = ash_model_config_parse(json, &config, err);
    json_decref(json);
    if (rc < 0) return ash_err_prefix(err, rc, "model");
    rc = ash_model_create(&config, (uint64_t)job->train.seed, model_out, err);
    if (rc < 0) ash_model_config_fini(&config);
    return rc;
}

static int load_model(const char *dir, struct ash_model **model_out, struct ash_err *err)
{
    struct ash_model *model = NULL;
    int rc = ash_model_open(dir, &model, err);

    if (rc < 0) return rc;
    rc = ash_model_own(model, err);
    if (rc < 0) {
        ash_model_close(model);
        return rc;
    }
    *model_out = model;
    return 0;
}

/* Do the data fit the model? */
static int check_fit(const struct ash_trainer *trainer, const struct ash_model *model, struct ash_err *err)
{
    const struct ash_model_config *config = ash_model_config(model);
    size_t data_vocab = ash_dataset_vocab_size(trainer->train);

    if (trainer->valid != NULL && ash_dataset_vocab_size(trainer->valid) > data_vocab)
        data_vocab = ash_dataset_vocab_size(trainer->valid);
    if (data_vocab > config->vocab)
        return ash_err_set(
            err, -EINVAL,
            "the data hold token ids up to %zu but the model's vocabulary has only %zu: set model.vocab=0, or "
            "tokenize with the model's own tokenizer",
            data_vocab - 1, config->vocab);
    if ((size_t)trainer->job->data.seq_tokens > config->max_positions)
        return ash_err_set(err, -EINVAL, "data.seq=%lld is longer than the model's %zu positions",
                           (long long)trainer->job->data.seq_tokens, config->max_positions);
    return 0;
}

static int open_state(struct ash_trainer *trainer, const char *weights_dir, struct ash_err *err)
{
    const char *from = weights_dir != NULL ? weights_dir : trainer->job->model.from;
    bool bf16 = trainer->job->train.precision == ASH_PRECISION_BF16;
    struct ash_model *model = NULL;
    int rc = from != NULL ? load_model(from, &model, err) : create_model(trainer, &model, err);

    if (rc < 0) return rc;
    rc = check_fit(trainer, model, err);
    if (rc == 0) rc = ash_state_init(&trainer->state, &trainer->exec, model, bf16, NULL, err);
    if (rc < 0) ash_model_close(model);
    return rc;
}

static int open_step(struct ash_trainer *trainer, struct ash_err *err)
{
    const struct ash_job *job = trainer->job;
    struct ash_model *model = trainer->state.model;
    size_t micro_batch = (size_t)job->train.micro_batch, seq_tokens = (size_t)job->data.seq_tokens;
    struct ash_pass_opts pass_opts = ash_job_pass_opts(job);
    int rc = ash_feed_init(&trainer->feed, seq_tokens, micro_batch, err);

    if (rc < 0) return rc;
    rc = ash_train_memory(model, job, ash_workers_count(trainer->exec.workers), group_rank(trainer),
                          group_size(trainer), &trainer->memory, err);
    if (rc < 0) return rc;
    if ((rc = ash_pass_open(model, &trainer->exec, &pass_opts, &trainer->pass, err)) < 0) return rc;
    rc = ash_grains_init(&trainer->grains, &trainer->exec, trainer->group, ash_model_grad_size(model),
                         ash_model_size(model), (size_t)job->train.grains, err);
    if (rc < 0) return rc;
    ash_optimizer_init(&trainer->optimizer, &job->optimizer, &trainer->state);
    return 0;
}

/* What a resume must share to go on with the same bits. */
static void name_arithmetic(struct ash_trainer *trainer)
{
    const struct ash_ops *reference = trainer->exec.ops->reference;
    bool plain = trainer->job->train.precision != ASH_PRECISION_BF16 || reference == &ash_ops_ref;

    snprintf(trainer->arithmetic, sizeof(trainer->arithmetic), "%s%s", plain ? ash_ops_ref.name : reference->name,
             plain ? "" : TOKEN_ORDER);
}

/* Threads of this process: as told, or its share of the machine. */
static int thread_count(const struct ash_trainer *trainer)
{
    int64_t threads = trainer->job->runtime.threads;
    size_t here = trainer->group != NULL ? ash_group_here(trainer->group) : 1, cores = (size_t)ash_cores_usable();

    return threads > 0 || here == 1 ? (int)threads : cores / here > 1 ? (int)(cores / here) : 1;
}

int ash_trainer_open(const struct ash_job *job, const char *weights_dir, struct ash_group *group,
                     struct ash_trainer **trainer_out, struct ash_err *err)
{
    struct ash_trainer *trainer = calloc(1, sizeof(*trainer));
    int rc;

    if (trainer == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    trainer->job = job;
    trainer->group = group;
    trainer->schedule = ash_job_schedule(job);
    trainer->guard = ash_job_guard(job);
    if ((rc = ash_exec_init(&trainer->exec, job->runtime.backend, thread_count(trainer), err)) < 0) goto fail;
    if ((rc = ash_workers_pin(trainer->exec.workers, (enum ash_pin)job->runtime.pin, err)) < 0) goto fail;
    name_arithmetic(trainer);
    if ((rc = open_data(trainer, err)) < 0) goto fail;
    if ((rc = find_tokenizer(trainer, weights_dir, err)) < 0) goto fail;
    if ((rc = check_tokenizer(trainer, err)) < 0) goto fail;
    if ((rc = open_state(trainer, weights_dir, err)) < 0) goto fail;
    if ((rc = open_step(trainer, err)) < 0) goto fail;
    *trainer_out = trainer;
    return 0;

fail:
    ash_trainer_close(trainer);
    return rc;
}

void ash_trainer_close(struct ash_trainer *trainer)
{
    if (trainer == NULL) return;
    ash_grains_fini(&trainer->grains);
    ash_pass_close(trainer->pass);
    ash_feed_fini(&trainer->feed);
    ash_state_fini(&trainer->state);
    ash_dataset_close(trainer->valid);
    ash_dataset_close(trainer->train);
    ash_exec_fini(&trainer->exec);
    free(trainer);
}

/* ---- stepping ---------------------------------------------------------------------------------------------------- */

/* Forward and backward of one grain into the next leaf of the tree. */
static int run_grain(struct ash_trainer *trainer, uint64_t grain, float scale, struct ash_err *err)
{
    const struct ash_job_train *train = &trainer->job->train;
    uint64_t grain_slots = (uint64_t)(train->global_batch / train->grains), micro_batch = (uint64_t)train->micro_batch;
    struct ash_feed_slice slice = {.dataset = trainer->train,
                                   .step = trainer->state.step,
                                   .slots_per_step = (uint64_t)train->global_batch,
                                   .count = micro_batch};
    float *leaf = ash_grains_begin(&trainer->grains);
    double loss = 0.0;
    int rc;

    for (uint64_t slot = 0; slot < grain_slots; slot += micro_batch) {
        slice.first_slot = grain * grain_slots + slot;
        if ((rc = ash_feed_read(&trainer->feed, &slice, err)) < 0) return rc;
        rc = ash_pass_train(trainer->pass, &trainer->feed.batch, scale, leaf, trainer->feed.losses, err);
        if (rc < 0) return rc;
        for (size_t s = 0; s < micro_batch; s++)
            loss += ash_feed_loss(&trainer->feed, s);
    }
    ash_model_grad_fold(trainer->state.model, &trainer->exec, leaf);
    ash_grains_end(&trainer->grains, loss);
    return 0;
}

/* Sum of losses and of gradients (scaled to the mean over targets) of the whole step. */
static int run_grains(struct ash_trainer *trainer, uint64_t targets, double *loss_out, float **grads_out,
                      struct ash_err *err)
{
    float scale = targets > 0 ? (float)(1.0 / (double)targets) : 0.0f;
    struct ash_span own = ash_grains_own(&trainer->grains);

    ash_grains_reset(&trainer->grains);
    for (uint64_t i = 0; i < own.count; i++) {
        int rc = run_grain(trainer, own.first + i, scale, err);
        if (rc < 0) return rc;
    }
    return ash_grains_finish(&trainer->grains, grads_out, loss_out, err);
}

int ash_trainer_step(struct ash_trainer *trainer, struct ash_step *step_out, struct ash_err *err)
{
    const struct ash_job *job = trainer->job;
    struct ash_state *state = &trainer->state;
    uint64_t slots = (uint64_t)job->train.global_batch;
    struct ash_feed_slice whole = {
        .dataset = trainer->train, .step = state->step, .slots_per_step = slots, .count = slots};
    struct ash_step step = {.step = state->step + 1, .tokens = slots * (uint64_t)job->data.seq_tokens};
    double loss_sum;
    float *grads;
    int rc;

    if ((rc = ash_feed_count(&trainer->feed, &whole, &step.targets, err)) < 0) return rc;
    if ((rc = run_grains(trainer, step.targets, &loss_sum, &grads, err)) < 0) return rc;
    step.loss = step.targets > 0 ? loss_sum / (double)step.targets : 0.0;
    if ((rc = ash_optimizer_norm(&trainer->optimizer, grads, NULL, &step.norm, err)) < 0) return rc;
    step.lr = ash_schedule_lr(&trainer->schedule, state->step);
    step.verdict = ash_guard_check(&trainer->guard, &state->guard, step.targets, step.loss, step.norm);
    ash_guard_describe(step.verdict, &state->guard, step.loss, step.norm, step.reason, sizeof(step.reason));
    if (step.verdict == ASH_GUARD_OK) ash_optimizer_update(&trainer->optimizer, grads, step.norm, step.lr);
    state->step++;
    *step_out = step;
    return 0;
}

/* Losses and targets of validation sequences first ... first + count - 1, one after the other. */
static int validate_some(struct ash_trainer *trainer, size_t first, size_t count, struct sequence_loss *losses,
                         struct ash_err *err)
{
    struct ash_feed *feed = &trainer->feed;
    struct ash_feed_slice slice = {.dataset = trainer->valid, .slots_per_step = trainer->valid_sequences};

    for (size_t done = 0; done < count; done += slice.count) {
        int rc;

        slice.first_slot = first + done;
        slice.count = count - done < feed->max_sequences ? count - done : feed->max_sequences;
        if ((rc = ash_feed_read(feed, &slice, err)) < 0) return rc;
        if ((rc = ash_pass_eval(trainer->pass, &feed->batch, feed->losses, err)) < 0) return rc;
        for (size_t s = 0; s < slice.count; s++) {
            losses[done + s] = (struct sequence_loss){.sum = ash_feed_loss(feed, s)};
            for (size_t r = s * feed->seq_tokens; r < (s + 1) * feed->seq_tokens; r++)
                losses[done + s].targets += feed->targets[r] >= 0;
        }
    }
    return 0;
}

/* Each rank takes equally many sequences (the last fewer); all add them up in one order. */
int ash_trainer_validate(struct ash_trainer *trainer, double *loss_out, struct ash_err *err)
{
    size_t size = group_size(trainer), rank = group_rank(trainer);
    size_t sequences = trainer->valid_sequences, share = (sequences + size - 1) / size;
    size_t first = share * rank < sequences ? share * rank : sequences, left = sequences - first;
    struct sequence_loss *losses = calloc(share * size, sizeof(*losses));
    uint64_t targets = 0;
    double sum = 0.0;
    int rc;

    if (losses == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the losses of %zu sequences", sequences);
    rc = validate_some(trainer, first, left < share ? left : share, losses + share * rank, err);
    if (rc == 0 && trainer->group != NULL)
        rc = ash_group_all_gather(trainer->group, losses + share * rank, losses, share * sizeof(*losses), err);
    for (size_t s = 0; s < sequences; s++) {
        sum += losses[s].sum;
        targets += losses[s].targets;
    }
    free(losses);
    if (rc < 0) return rc;
    *loss_out = targets > 0 ? sum / (double)targets : 0.0;
    return 0;
}

struct ash_state *ash_trainer_state(struct ash_trainer *trainer)
{
    return &trainer->state;
}

struct ash_trainer_facts ash_trainer_facts(const struct ash_trainer *trainer)
{
    const struct ash_model_config *config = ash_model_config(trainer->state.model);
    const json_t *type = json_object_get(config->source, "model_type");

    return (struct ash_trainer_facts){
        .family = json_is_string(type) ? json_string_value(type) : "model",
        .backend = trainer->exec.ops->name,
        .tokenizer_dir = trainer->tokenizer_dir[0] != '\0' ? trainer->tokenizer_dir : NULL,
        .threads = ash_workers_count(trainer->exec.workers),
        .weights = ash_model_weight_count(trainer->state.model),
        .layers = config->layers,
        .hidden = config->hidden,
        .heads = config->heads,
        .vocab = config->vocab,
        .train_tokens = ash_dataset_tokens(trainer->train),
        .train_windows = ash_dataset_windows(trainer->train),
        .valid_tokens = trainer->valid != NULL ? ash_dataset_tokens(trainer->valid) : 0,
        .valid_sequences = trainer->valid_sequences,
        .memory = trainer->memory,
        .data_hash = ash_dataset_hash(trainer->train),
        .arithmetic = trainer->arithmetic,
    };
}
