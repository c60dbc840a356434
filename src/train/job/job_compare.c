/* job: what changed since a checkpoint, and what ranks must share. */
#include "train/job/job.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ashlar/ashlar.h"
#include "base/assert.h"
#include "base/number.h"
#include "train/job/agree.h"

#define KEY_BYTES 128
#define VALUE_BYTES 64

/* Which settings a comparison leaves out: names, or a whole section ("mesh."). Paths are always among them, because the
 * hashes of their files are compared instead. */
struct exceptions {
    const char *const *keys;
    size_t count;
};

/* Between two parts of one run: settings that move work or files around, not bits. train.tokens, because train.steps is
 * compared. */
static const char *const free_on_resume[] = {
    "model.from",
    "data.train",
    "data.valid",
    "data.tokenizer",
    "train.tokens",
    "train.micro_batch",
    "train.recompute",
    "train.valid_every",
    "train.valid_batches",
    "train.save_every",
    "train.keep",
    "train.save_wait",
    "train.hash_every",
    "train.trace",
    "schedule.decay_share",
    "mesh.",
    "recover.",
    "runtime.",
    "save.",
    "log.",
    "dpo.reference",
    "rl.reference",
    "rl.min_entropy",
    "rl.min_length",
    "rl.max_length",
    "rl.max_kl",
    "rl.on_collapse",
    "rl.max_backs",
    "lora.adapter",
    "rollout.eval_every",
    "rollout.eval_count",
    "rollout.keep_best",
    "rollout.mode",
    "rollout.procs",
    "rollout.silence",
    "rollout.patience",
    "rollout.url_requests",
    "rollout.url_tries",
    "rollout.url_timeout",
};

/* Between the ranks of a job: settings of a process. All others decide results or the order of collectives. */
static const char *const free_per_rank[] = {"model.from",     "data.train",  "data.valid",
                                            "data.tokenizer", "save.memory", "runtime."};

static const struct exceptions on_resume = {free_on_resume, ASH_COUNT(free_on_resume)},
                               per_rank = {free_per_rank, ASH_COUNT(free_per_rank)};

static bool is_free(const struct exceptions *exceptions, const char *key)
{
    for (size_t i = 0; i < exceptions->count; i++) {
        const char *name = exceptions->keys[i];
        size_t length = strlen(name);

        if (name[length - 1] == '.' ? strncmp(key, name, length) == 0 : strcmp(key, name) == 0) return true;
    }
    return false;
}

/* A value as text. Strings and lists are not compared, so they have none. */
static void format_value(const struct ash_opt *opt, const void *object, char *buf, size_t buf_bytes)
{
    const char *field = (const char *)object + opt->offset;
    int64_t whole;
    double number;
    char text[ASH_NUMBER_BYTES];
    int choice;

    switch (opt->type) {
    case ASH_OPT_INT:
        memcpy(&whole, field, sizeof(whole));
        snprintf(buf, buf_bytes, "%lld", (long long)whole);
        return;
    case ASH_OPT_DOUBLE:
        memcpy(&number, field, sizeof(number));
        snprintf(buf, buf_bytes, "%s", ash_number_format(number, text));
        return;
    case ASH_OPT_BOOL:
        snprintf(buf, buf_bytes, "%s", *field ? "true" : "false");
        return;
    case ASH_OPT_CHOICE:
        memcpy(&choice, field, sizeof(choice));
        ash_assert(choice >= 0);
        snprintf(buf, buf_bytes, "%s", opt->choices[choice]);
        return;
    case ASH_OPT_STRING:
    case ASH_OPT_LIST:
    case ASH_OPT_TEXTS:
        break;
    }
    buf[0] = '\0';
}

/* The name and the value of setting i of a section. Returns false where the comparison leaves it out. */
static bool describe(const struct ash_opt_binding *section, size_t i, const struct exceptions *exceptions,
                     char key[KEY_BYTES], char value[VALUE_BYTES])
{
    const struct ash_opt *opt = &section->table->opts[i];

    snprintf(key, KEY_BYTES, "%s.%s", section->table->section, opt->name);
    if (is_free(exceptions, key)) return false;
    format_value(opt, section->object, value, VALUE_BYTES);
    return true;
}

static int compare_section(const struct ash_opt_binding *before, const struct ash_opt_binding *now, struct ash_err *err)
{
    char key[KEY_BYTES], old_value[VALUE_BYTES], new_value[VALUE_BYTES];

    for (size_t i = 0; i < before->table->count; i++) {
        if (!describe(before, i, &on_resume, key, old_value)) continue;
        describe(now, i, &on_resume, key, new_value);
        if (strcmp(old_value, new_value) != 0)
            return ash_err_set(err, -EINVAL, "%s was %s when the checkpoint was made and is %s now", key, old_value,
                               new_value);
    }
    return 0;
}

int ash_job_compare(const struct ash_job *before, const struct ash_job *now, struct ash_err *err)
{
    struct ash_job copies[2] = {*before, *now}; /* bindings want writable objects */
    struct ash_opt_binding old_parts[ASH_JOB_SECTIONS], new_parts[ASH_JOB_SECTIONS];

    ash_job_bind(&copies[0], old_parts);
    ash_job_bind(&copies[1], new_parts);
    for (size_t i = 0; i < ASH_JOB_SECTIONS; i++) {
        int rc = compare_section(&old_parts[i], &new_parts[i], err);
        if (rc < 0) return rc;
    }
    return 0;
}

int ash_agree_add_job(struct ash_str *lines, const struct ash_job *job)
{
    struct ash_job copy = *job;
    struct ash_opt_binding sections[ASH_JOB_SECTIONS];
    char key[KEY_BYTES], value[VALUE_BYTES];
    int rc = ash_str_addf(lines, "version %s\n", ASHLAR_VERSION);

    ash_job_bind(&copy, sections);
    for (size_t s = 0; s < ASH_JOB_SECTIONS; s++)
        for (size_t i = 0; i < sections[s].table->count && rc == 0; i++)
            if (describe(&sections[s], i, &per_rank, key, value)) rc = ash_str_addf(lines, "%s %s\n", key, value);
    return rc;
}

const char *ash_job_unused(const struct ash_job *job, char *buf, size_t buf_bytes)
{
    struct ash_job copy, defaults;
    struct ash_opt_binding sections[ASH_JOB_SECTIONS], unset[ASH_JOB_SECTIONS];
    struct ash_opts *opts = NULL;
    char key[KEY_BYTES], value[VALUE_BYTES], usual[VALUE_BYTES];
    size_t used = 0;

    buf[0] = '\0';
    if (job->model.from == NULL) return buf;
    ash_job_bind(&defaults, unset);
    if (ash_opts_open(unset, ASH_JOB_SECTIONS, &opts, NULL) < 0) return buf; /* fills in the defaults */
    copy = *job;
    ash_job_bind(&copy, sections);
    for (size_t i = 0; i < sections[0].table->count && used < buf_bytes; i++) {
        if (!describe(&sections[0], i, &per_rank, key, value) || strcmp(key, "model.quant") == 0) continue;
        describe(&unset[0], i, &per_rank, key, usual);
        if (strcmp(value, usual) != 0)
            used += (size_t)snprintf(buf + used, buf_bytes - used, "%s%s=%s", used > 0 ? ", " : "", key, value);
    }
    ash_opts_close(opts);
    return buf;
}
