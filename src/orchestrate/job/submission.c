/* The words that start a node's processes are the same on every back end. */
#include "orchestrate/job/submission.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"

static void add(struct ash_submission_words *words, const char *word)
{
    if (words->count < ASH_SUBMISSION_WORDS_MAX) words->items[words->count] = word;
    words->count++;
}

static void add_number(struct ash_submission_words *words, const char *flag, size_t value)
{
    char *text = words->numbers[words->number_count++];

    ash_assert(words->number_count <= ASH_COUNT(words->numbers));
    snprintf(text, sizeof(words->numbers[0]), "%zu", value);
    add(words, flag);
    add(words, text);
}

/* A setting of the run derived from the job section; 0: the job file's. The user's arguments come after it. */
static void add_setting(struct ash_submission_words *words, const char *key, int64_t value)
{
    char *text = words->numbers[words->number_count];

    if (value == 0) return;
    words->number_count++;
    ash_assert(words->number_count <= ASH_COUNT(words->numbers));
    snprintf(text, sizeof(words->numbers[0]), "%s=%lld", key, (long long)value);
    add(words, text);
}

/* A node's price as that of each of its processes. */
static void add_price(struct ash_submission_words *words, const struct ash_spec *spec)
{
    char *text = words->numbers[words->number_count];

    if (spec->price <= 0.0) return;
    words->number_count++;
    ash_assert(words->number_count <= ASH_COUNT(words->numbers));
    snprintf(text, sizeof(words->numbers[0]), "log.price=%.6g", spec->price / (double)spec->procs);
    add(words, text);
}

/* Commands that keep a folder of the run and continue from it. */
static bool has_run(const char *command)
{
    static const char *const names[] = {"train", "sft", "dpo", "reward", "distill", "rl"};

    for (size_t i = 0; i < ASH_COUNT(names); i++)
        if (strcmp(command, names[i]) == 0) return true;
    return false;
}

/* Where the node stands among others; runs have a folder by which ranks that are lost come back. */
static void add_place(const struct ash_submission *submission, const struct ash_submission_place *place,
                      struct ash_submission_words *words)
{
    add(words, "--node-rank");
    add(words, place->node_rank);
    add(words, "--master");
    add(words, place->master);
    if (!has_run(submission->spec->command)) return;
    add(words, "--job-dir");
    add(words, submission->out);
}

int ash_submission_list_words(const struct ash_submission *submission, const struct ash_submission_place *place,
                              struct ash_submission_words *words_out, struct ash_err *err)
{
    const struct ash_spec *spec = submission->spec;
    size_t nodes = ash_spec_all_nodes(spec);

    *words_out = (struct ash_submission_words){0};
    add(words_out, submission->program);
    add(words_out, "launch");
    add_number(words_out, "--procs", nodes * (size_t)spec->procs);
    add_number(words_out, "--nodes", nodes);
    if (place->node_rank != NULL) add_place(submission, place, words_out);
    add_number(words_out, "--restarts", (size_t)spec->restarts);
    add_number(words_out, "--elastic", spec->min_ranks > 0 ? (size_t)spec->min_ranks : 1);
    add_number(words_out, "--grace", (size_t)spec->notice_s);
    add_number(words_out, "--notice", (size_t)ceil(spec->notice_s));
    if (spec->check != ASH_SPEC_CHECK_NONE && !place->is_looked_at) {
        add(words_out, "--check");
        add(words_out, spec->check == ASH_SPEC_CHECK_QUICK ? "quick" : "deep");
    }
    add(words_out, spec->command);
    if (strcmp(spec->command, "serve") != 0) add(words_out, submission->job_file);
    if (has_run(spec->command)) {
        add(words_out, "--out");
        add(words_out, submission->out);
        add(words_out, "--resume");
        if (submission->allow_change) add(words_out, "--allow-change");
        add_setting(words_out, "recover.min_ranks", spec->min_ranks);
        add_setting(words_out, "recover.spares", spec->spares * spec->procs);
        add_price(words_out, spec);
    }
    for (size_t i = 0; i < submission->setting_count; i++)
        add(words_out, submission->settings[i]);
    if (place->node_rank == NULL && spec->elastic.max > 0)
        return ash_err_set(err, -EINVAL, "job.elastic is for Slurm: on this machine there is `ashlar run resize`");
    if (words_out->count > ASH_SUBMISSION_WORDS_MAX)
        return ash_err_set(err, -E2BIG, "more than %d words of settings: write them into the job file",
                           ASH_SUBMISSION_WORDS_MAX);
    return 0;
}
