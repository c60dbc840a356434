/* words: small jobs, put together. */
#include "chaos/words.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/own_dir.h"
#include "cmd/chaos_job.h"

#define DATA_LIMIT_S 120.0
#define JOB_YAML                                                                                                       \
    "data: {train: %s/data, seq: 64}\n"                                                                                \
    "train: {global_batch: 8, grains: 8, valid_every: 0, hash_every: 10, save_every: 0}\n"                             \
    "optimizer: {lr: 0.003}\n"                                                                                         \
    "schedule: {warmup: 5}\n"

void ash_chaos_add(struct ash_chaos_words *words, const char *fmt, ...)
{
    va_list args;

    ash_assert(words->count < ASH_CHAOS_WORDS_MAX);
    va_start(args, fmt);
    vsnprintf(words->text[words->count], ASH_CHAOS_WORD_BYTES, fmt, args);
    va_end(args);
    words->list[words->count] = words->text[words->count];
    words->list[++words->count] = NULL;
}

void ash_chaos_add_all(struct ash_chaos_words *words, const char *text)
{
    while (*text != '\0') {
        size_t length = strcspn(text, " ");

        ash_chaos_add(words, "%.*s", (int)length, text);
        text += length + (text[length] == ' ');
    }
}

int ash_chaos_scratch(const char *wanted, const char *kind, char path[ASH_CHAOS_SCRATCH_BYTES], struct ash_err *err)
{
    return ash_own_dir_new(wanted != NULL ? wanted : "/tmp", kind, path, ASH_CHAOS_SCRATCH_BYTES, NULL, err);
}

int ash_chaos_prepare(const char *scratch, struct ash_err *err)
{
    struct ash_chaos_words words = {0};
    struct ash_chaos_job job;
    char path[PATH_MAX], yaml[PATH_MAX + 512];
    int rc = ash_dir_make(scratch, err);

    if (rc < 0) return rc;
    snprintf(path, sizeof(path), "%s/job.yaml", scratch);
    snprintf(yaml, sizeof(yaml), JOB_YAML, scratch);
    rc = ash_file_replace(path, yaml, strlen(yaml), err);
    if (rc < 0) return rc;
    ash_chaos_add(&words, ASHLAR_PROGRAM);
    ash_chaos_add_all(&words, "data arithmetic --count 2000 --out");
    ash_chaos_add(&words, "%s/data", scratch);
    snprintf(path, sizeof(path), "%s/data.txt", scratch);
    rc = ash_chaos_job_start(&job, words.list, path, err);
    if (rc == 0) rc = ash_chaos_job_wait(&job, DATA_LIMIT_S);
    if (rc == 0 && job.code != 0) rc = -EIO;
    return rc < 0 ? ash_err_set(err, rc, "no data can be made: see %s", path) : 0;
}
