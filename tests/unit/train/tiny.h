/* tiny - sums of two digits as a data folder, and a job that trains a few thousand weights in milliseconds. */
#ifndef TEST_TRAIN_TINY_H
#define TEST_TRAIN_TINY_H

#include "unit/storage/scratch.h"

#include "base/rng.h"
#include "train/data/dataset_folder.h"
#include "train/job/job.h"

#define TINY_VOCAB 16
#define TINY_EOS 15

/* "a+b=c" with digits as ids 0..9, + as 10, = as 11: a document of 6 or 7 tokens. */
static inline size_t tiny_problem(uint64_t seed, uint64_t index, int32_t ids[8])
{
    int32_t a = (int32_t)ash_rng_below(seed, 0, index, 10), b = (int32_t)ash_rng_below(seed, 1, index, 10);
    size_t count = 0;

    ids[count++] = a;
    ids[count++] = 10;
    ids[count++] = b;
    ids[count++] = 11;
    if (a + b >= 10) ids[count++] = 1;
    ids[count++] = (a + b) % 10;
    ids[count++] = TINY_EOS;
    return count;
}

static inline void tiny_data(const char *dir, uint64_t seed, size_t problems)
{
    struct ash_folder *folder = NULL;
    json_t *key = json_pack("{s:I, s:I}", "seed", (json_int_t)seed, "problems", (json_int_t)problems), *saved = NULL;
    int32_t ids[8];

    assert_int_equal(ash_folder_open(dir, &folder, NULL), 0);
    assert_int_equal(ash_folder_claim(folder, key, true, &saved, NULL), 0);
    assert_int_equal(
        ash_folder_begin(folder,
                         &(struct ash_folder_opts){
                             .vocab_size = TINY_VOCAB, .tokenizer_hash = 5, .eos_id = TINY_EOS, .shard_tokens = 1000},
                         NULL),
        0);
    for (size_t i = 0; i < problems; i++)
        assert_true(ash_folder_add(folder, ids, tiny_problem(seed, i, ids), NULL) >= 0);
    assert_int_equal(ash_folder_finish(folder, NULL, NULL), 0);
    ash_folder_close(folder);
    json_decref(key);
}

/* A resolved job on scratch folders "train" and "valid", with key=value settings (NULL-terminated) on top. */
struct tiny {
    struct ash_job job;
    struct ash_opts *opts;
};

static inline int tiny_try(struct tiny *tiny, const char *const *settings, struct ash_err *err)
{
    const char *base[] = {"model.hidden=16",   "model.layers=2",      "model.heads=4",      "model.kv_heads=2",
                          "model.ffn=32",      "data.seq=16",         "train.steps=20",     "train.global_batch=12",
                          "train.grains=3",    "train.valid_every=5", "train.save_every=0", "train.hash_every=1",
                          "optimizer.lr=0.01", "schedule.warmup=3",   "runtime.threads=2",  NULL};
    struct ash_opt_binding bindings[ASH_JOB_SECTIONS];
    int rc;

    ash_job_bind(&tiny->job, bindings);
    assert_int_equal(ash_opts_open(bindings, ASH_JOB_SECTIONS, &tiny->opts, err), 0);
    assert_int_equal(ash_opts_set(tiny->opts, "data.train", scratch_path("train"), "test", err), 0);
    assert_int_equal(ash_opts_set(tiny->opts, "data.valid", scratch_path("valid"), "test", err), 0);
    for (int pass = 0; pass < 2; pass++) {
        const char *const *list = pass == 0 ? base : settings;
        for (; list != NULL && *list != NULL; list++) {
            char key[128];
            const char *equals = strchr(*list, '=');
            snprintf(key, sizeof(key), "%.*s", (int)(equals - *list), *list);
            assert_int_equal(ash_opts_set(tiny->opts, key, equals + 1, "test", err), 0);
        }
    }
    rc = ash_job_resolve(&tiny->job, err);
    if (rc < 0) ash_opts_close(tiny->opts);
    return rc;
}

static inline void tiny_open(struct tiny *tiny, const char *const *settings)
{
    struct ash_err err = {0};

    if (tiny_try(tiny, settings, &err) < 0) fail_msg("%s", err.text);
}

static inline void tiny_close(struct tiny *tiny)
{
    ash_opts_close(tiny->opts);
}

/* For cmocka groups: a scratch folder with both data folders in it. */
static inline int tiny_setup(void **state)
{
    if (scratch_open(state) != 0) return -1;
    ash_log_set_level(ASH_LOG_ERROR);
    tiny_data(scratch_path("train"), 1, 2000);
    tiny_data(scratch_path("valid"), 2, 200);
    return 0;
}

#define SETTINGS(...) ((const char *const[]){__VA_ARGS__, NULL})

#endif
