/* trainer: everything that a job needs, found and opened: data, tokenizer, mesh, model. */
#include "train/trainer_priv.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "base/cores.h"
#include "base/file.h"
#include "model/files/open.h"
#include "model/lora.h"
#include "storage/namespace/attach.h"
#include "text/tokenizer/tokenizer.h"
#include "train/job/agree.h"
#include "train/job/gpus.h"
#include "train/recover/shape.h"

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* Windows of data.train and data.valid. */
static int open_windows(struct ash_trainer *trainer, const struct ash_group *group, struct ash_err *err)
{
    const struct ash_job *job = trainer->job;
    size_t seq_tokens = (size_t)job->data.seq_tokens;
    int rc = ash_dataset_open(job->data.train, seq_tokens, (uint64_t)job->train.seed, &trainer->train_data, err);

    if (rc < 0) return ash_err_prefix(err, rc, "data.train");
    if (job->data.shuffle == ASH_JOB_SHUFFLE_BLOCK)
        ash_dataset_order_by_blocks(trainer->train_data, (size_t)job->data.block_tokens,
                                    (size_t)job->data.mixed_blocks);
    if (group != NULL && ash_group_here(group) < ash_group_size(group)) ash_dataset_share_blocks(trainer->train_data);
    trainer->train = ash_dataset_source(trainer->train_data);
    if (job->data.valid == NULL || job->train.valid_every == 0) return 0;
    rc = ash_dataset_open(job->data.valid, seq_tokens, 0, &trainer->valid_data, err);
    if (rc < 0) return ash_err_prefix(err, rc, "data.valid");
    trainer->valid = ash_dataset_source(trainer->valid_data);
    return 0;
}

static int open_data(struct ash_trainer *trainer, const struct ash_group *group, struct ash_err *err)
{
    const struct ash_job *job = trainer->job;
    size_t wanted;
    int rc = 0;

    if (trainer->parts.train != NULL) {
        trainer->train = *trainer->parts.train;
        if (trainer->parts.valid != NULL && job->train.valid_every > 0) trainer->valid = *trainer->parts.valid;
    } else {
        rc = open_windows(trainer, group, err);
    }
    if (rc < 0 || trainer->valid.ops == NULL) return rc;
    if (trainer->valid.tokenizer_hash != trainer->train.tokenizer_hash)
        return ash_err_set(err, -EINVAL,
                           "data.valid was made with another tokenizer than data.train: tokenize its text again");
    wanted = (size_t)job->train.valid_batches * (size_t)job->train.global_batch;
    trainer->valid_sequences = trainer->valid.windows;
    trainer->valid_sequences = ash_min(trainer->valid_sequences, wanted);
    return 0;
}

/* Fetch a setting's folder if it is in S3; its weights stay there until they are read. path NULL: it is not set. */
static int bring(const char *path, const char *setting, struct ash_str *here, struct ash_err *err)
{
    int rc;

    if (path == NULL) return 0;
    if (!ash_tier_is_url(path)) return ash_str_adds(here, path) < 0 ? ash_err_set(err, -ENOMEM, "out of memory") : 0;
    rc = ash_attach_url(path, NULL, here, err);
    return rc < 0 ? ash_err_prefix(err, rc, "%s", setting) : 0;
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
        if (try_tokenizer(trainer, trainer->named.data)) return 0;
        return ash_err_set(err, -ENOENT, "data.tokenizer: %s holds no tokenizer.json", job->data.tokenizer);
    }
    if (try_tokenizer(trainer, trainer->from.data) ||
        (trainer->train_data != NULL && try_tokenizer(trainer, ash_dataset_folder(trainer->train_data))))
        return 0;
    if (job->data.train != NULL && !ash_tier_is_url(job->data.train) && try_tokenizer_beside(trainer, job->data.train))
        return 0;
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
    rc = ash_tokenizer_open(trainer->tokenizer_dir, &tokenizer, err);
    if (rc < 0) return rc;
    trainer->tokenizer_vocab = ash_tokenizer_vocab_size(tokenizer);
    hash = ash_tokenizer_hash(tokenizer);
    ash_tokenizer_close(tokenizer);
    if (hash == trainer->train.tokenizer_hash) return 0;
    return ash_err_set(err, -EINVAL,
                       "data.train was not made with the tokenizer in %s: tokenize the text again with it",
                       trainer->tokenizer_dir);
}

/* Rows that a new model's embedding needs: every id of the data and of the tokenizer. */
static size_t needed_vocab(const struct ash_trainer *trainer)
{
    size_t vocab = trainer->train.vocab_size;

    return ash_max(trainer->tokenizer_vocab, vocab);
}

/* The job's model as a config: of a folder, or of the sizes in the job. */
static int find_config(struct ash_trainer *trainer, const char *dir, struct ash_model_config *config_out,
                       struct ash_err *err)
{
    const struct ash_job *job = trainer->job;
    json_t *json = NULL;
    size_t vocab = job->model.vocab > 0 ? (size_t)job->model.vocab : needed_vocab(trainer);
    char file[ASH_GGUF_PATH_BYTES];
    int rc;

    if (trainer->parts.lora != NULL) {
        rc = ash_model_config_load(trainer->parts.lora->base_dir, config_out, err);
        if (rc == 0) config_out->lora = trainer->parts.lora;
        return rc;
    }
    if (dir != NULL && ash_gguf_locate(dir, file))
        return ash_err_set(err, -ENOTSUP, "model.from: '%s' is a GGUF file: training starts from a Hugging Face folder",
                           file);
    if (dir != NULL) {
        rc = ash_model_config_load(dir, config_out, err);
        if (rc < 0 || !trainer->parts.wants_scores) return rc;
        return ash_model_config_score(config_out, err);
    }
    rc = ash_job_config(&job->model, vocab, trainer->train.eos_id, &json, err);
    if (rc < 0) return rc;
    rc = ash_model_config_parse(json, config_out, err);
    json_decref(json);
    return rc < 0 ? ash_err_prefix(err, rc, "model") : 0;
}

/* Do the data fit the model? */
static int check_fit(const struct ash_trainer *trainer, const struct ash_model_config *config, struct ash_err *err)
{
    size_t data_vocab = trainer->train.vocab_size;

    if (trainer->valid.vocab_size > data_vocab) data_vocab = trainer->valid.vocab_size;
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

/* The job's mesh; ranks beyond it are spares (recover.spares). If it does not fit the model, each rank detects that by
 * itself, as with different jobs: no message is needed. */
static int resolve_mesh(struct ash_trainer *trainer, size_t ranks, struct ash_err *err)
{
    size_t spares = (size_t)trainer->job->recover.spares;
    int rc;

    if (spares >= ranks && spares > 0)
        return ash_err_set(err, -EBADE, "recover.spares=%zu leaves none of %zu ranks to train", spares, ranks);
    rc = ash_mesh_resolve(&trainer->asked.mesh, ranks - spares, err);
    if (rc == 0) rc = ash_shape_check(trainer->job, &trainer->config, &trainer->asked.mesh, err);
    return rc == -EINVAL ? -EBADE : rc;
}

/* The model's shape, without its values. */
static int open_outline(struct ash_trainer *trainer, const char *dir, struct ash_err *err)
{
    int rc = find_config(trainer, dir, &trainer->config, err);

    if (rc < 0) return rc;
    rc = check_fit(trainer, &trainer->config, err);
    if (rc < 0) return rc;
    rc = ash_model_outline(&trainer->config, &trainer->outline, err);
    if (rc < 0) return rc;
    trainer->weights = ash_model_weight_count(trainer->outline);
    return 0;
}

static int open_epoch(struct ash_trainer *trainer, const char *weights_dir, struct ash_group *group,
                      struct ash_err *err)
{
    const char *dir = weights_dir != NULL ? weights_dir : trainer->from.data;
    struct ash_stages_source source = {.dir = dir, .config = &trainer->config, .is_blank = weights_dir != NULL};
    int rc = open_outline(trainer, dir, err);

    if (rc < 0) return rc;
    rc = resolve_mesh(trainer, ash_group_size(group), err);
    if (rc < 0) return rc;
    trainer->now->job = trainer->asked;
    trainer->now->place = ash_group_rank(group);
    rc = ash_trainer_begin_epoch(trainer, group, &source, err);
    trainer->now->has_values = rc == 0;
    return rc;
}

int ash_trainer_check_agreement(const struct ash_trainer *trainer, struct ash_group *group, const char *name,
                                const char *dir, struct ash_err *err)
{
    struct ash_str lines = {0};
    uint64_t weights = 0;
    int rc = 0;

    if (group == NULL) return 0;
    if (dir != NULL) rc = ash_agree_hash_model(dir, false, &weights, err);
    if (rc < 0) return rc;
    if (ash_agree_add_job(&lines, trainer->job) < 0 ||
        ash_agree_add_hash(&lines, "data.train", trainer->train.hash) < 0 ||
        ash_agree_add_hash(&lines, "data.valid", trainer->valid.hash) < 0 ||
        ash_agree_add_hash(&lines, name, weights) < 0 ||
        ash_str_addf(&lines, "arithmetic %s\nmemory %s\n", trainer->arithmetic, trainer->exec.memory->name) < 0)
        rc = ash_err_set(err, -ENOMEM, "out of memory for the settings that ranks compare");
    else
        rc = ash_agree_check(group, &lines, err);
    ash_str_fini(&lines);
    return rc;
}

/* Threads of this process: as set, or its share of the machine. here: processes of the job on it. */
static int thread_count(const struct ash_trainer *trainer, size_t here)
{
    int64_t threads = trainer->job->runtime.threads;
    size_t cores = (size_t)ash_cores_usable();

    return threads > 0 || here == 1 ? (int)threads : (int)ash_max(cores / here, 1);
}

/* Threads and kernels. */
static int open_exec(struct ash_trainer *trainer, struct ash_group *group, size_t here, struct ash_err *err)
{
    const struct ash_job *job = trainer->job;
    int rc = 0;

    if (trainer->is_joining)
        ash_gpus_choose_joining(job, here, &trainer->choice);
    else
        rc = ash_gpus_choose(job, group, trainer->parts.cpu_reason, &trainer->choice, err);
    trainer->parts.cpu_reason = NULL; /* the caller's, and reported */
    if (rc < 0) return rc;
    rc = ash_backend_start(&trainer->exec, &trainer->choice, thread_count(trainer, here), err);
    if (rc < 0) return rc;
    rc = ash_workers_pin(trainer->exec.workers, (enum ash_pin)job->runtime.pin, err);
    return rc;
}

/* Everything that needs no other rank: threads, data, tokenizer. On error *trainer is for ash_trainer_close. */
static int prepare(struct ash_trainer *trainer, const char *weights_dir, struct ash_group *group, size_t here,
                   struct ash_err *err)
{
    const struct ash_job *job = trainer->job;
    int rc;

    trainer->schedule = ash_job_get_schedule(job);
    trainer->guard = ash_job_get_guard(job);
    trainer->losses = calloc((size_t)job->train.grains, sizeof(*trainer->losses));
    if (trainer->losses == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory for the losses of %lld grains", (long long)job->train.grains);
    rc = open_exec(trainer, group, here, err);
    if (rc < 0) return rc;
    ash_agree_name_arithmetic(job, &trainer->exec, trainer->arithmetic);
    rc = open_data(trainer, group, err);
    if (rc < 0) return rc;
    rc = bring(job->model.from, "model.from", &trainer->from, err);
    if (rc < 0) return rc;
    rc = bring(job->data.tokenizer, "data.tokenizer", &trainer->named, err);
    if (rc < 0) return rc;
    rc = find_tokenizer(trainer, weights_dir, err);
    return rc < 0 ? rc : check_tokenizer(trainer, err);
}

static struct ash_trainer *new_trainer(const struct ash_job *job, const struct ash_trainer_parts *parts,
                                       struct ash_err *err)
{
    struct ash_trainer *trainer = calloc(1, sizeof(*trainer));

    if (trainer == NULL) {
        ash_err_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    trainer->asked = *job;
    trainer->job = &trainer->asked;
    trainer->epochs[0].job = trainer->epochs[1].job = *job;
    trainer->now = &trainer->epochs[0];
    if (parts != NULL) trainer->parts = *parts;
    return trainer;
}

int ash_trainer_open(const struct ash_job *job, const char *weights_dir, struct ash_group *group,
                     const struct ash_trainer_parts *parts, struct ash_trainer **trainer_out, struct ash_err *err)
{
    struct ash_trainer *trainer = new_trainer(job, parts, err);
    int rc;

    if (trainer == NULL) return -ENOMEM;
    rc = prepare(trainer, weights_dir, group, ash_group_here(group), err);
    if (rc < 0) goto fail;
    rc = ash_trainer_check_agreement(trainer, group, weights_dir != NULL ? "checkpoint" : "model.from",
                                     weights_dir != NULL ? weights_dir : trainer->from.data, err);
    if (rc < 0) goto fail;
    rc = open_epoch(trainer, weights_dir, group, err);
    if (rc < 0) goto fail;
    *trainer_out = trainer;
    return 0;

fail:
    rc = ash_backend_outcome(&trainer->exec, rc, err);
    ash_trainer_close(trainer);
    return rc;
}

int ash_trainer_open_joining(const struct ash_job *job, size_t here, const struct ash_trainer_parts *parts,
                             struct ash_trainer **trainer_out, struct ash_err *err)
{
    struct ash_trainer *trainer = new_trainer(job, parts, err);
    int rc;

    if (trainer == NULL) return -ENOMEM;
    trainer->is_joining = true;
    rc = prepare(trainer, NULL, NULL, here, err);
    if (rc < 0) goto fail;
    rc = open_outline(trainer, trainer->from.data, err);
    if (rc < 0) goto fail;
    trainer->now->job = trainer->asked;
    *trainer_out = trainer;
    return 0;

fail:
    ash_trainer_close(trainer);
    return rc;
}

void ash_trainer_close(struct ash_trainer *trainer)
{
    if (trainer == NULL) return;
    ash_trainer_end_epoch(trainer, false);
    ash_trainer_drop_kept(trainer);
    ash_seals_fini(&trainer->seals);
    ash_trainer_free_sums(trainer);
    ash_model_close(trainer->outline);
    ash_model_config_fini(&trainer->config);
    ash_dataset_close(trainer->valid_data);
    ash_dataset_close(trainer->train_data);
    ash_exec_fini(&trainer->exec);
    ash_str_fini(&trainer->from);
    ash_str_fini(&trainer->named);
    free(trainer->losses);
    free(trainer);
}
