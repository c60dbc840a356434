/* ashlar store: objects in folders and in S3. What its subcommands share: flags, progress, lists of keys. */
#include "cmd/store_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "cmd/units.h"

static const struct ash_cmd *const commands[] = {
    &ash_cmd_store_ls,     &ash_cmd_store_stat, &ash_cmd_store_put, &ash_cmd_store_get,     &ash_cmd_store_rm,
    &ash_cmd_store_verify, &ash_cmd_store_gc,   &ash_cmd_store_pin, &ash_cmd_store_release, &ash_cmd_store_status,
};

static int run(int argc, char **argv)
{
    return ash_cmd_dispatch("ashlar store", commands, ASH_COUNT(commands), argc, argv);
}

const struct ash_cmd ash_cmd_store = {"store", "objects in folders and in S3: list, copy, check, keep, remove", run};

/* ---- flags and words --------------------------------------------------------------------------------------------- */

#define WORDS_MAX 2

/* Report periodically that a server is waited for. */
static void tell_retry(void *ctx, const char *why, double wait_s)
{
    struct ash_progress_bar *bar = ctx;

    if (!ash_progress_bar_due(bar)) return;
    ash_progress_bar_clear(bar);
    ash_log(ASH_LOG_WARN, "%s; trying again in %.1f s", why, wait_s);
}

static int respond(const struct ash_store_form *form, const struct ash_store_flags *flags, const struct ash_s3_opts *s3,
                   const char *const *words)
{
    struct ash_s3_opts told = *s3; /* for this call: it speaks to the bar below */
    struct ash_progress_bar bar;
    struct ash_err err = {0};
    int rc;

    ash_interrupt_install();
    ash_progress_bar_init(&bar);
    bar.next_ns = 0; /* the first retry is reported at once */
    told.on_retry = tell_retry;
    told.on_retry_ctx = &bar;
    rc = form->respond(flags, &told, words, &err);
    if (rc == -EINTR && ash_interrupt_requested()) {
        ash_log(ASH_LOG_ERROR, "%s", err.text);
        return ash_cmd_stopped();
    }
    return rc < 0 ? ash_cmd_fail(&err) : rc;
}

int ash_store_run(const struct ash_store_form *form, int argc, char **argv)
{
    const struct ash_opt_table table = {"", "options", form->opts, form->opt_count};
    struct ash_store_flags flags = {0};
    struct ash_s3_opts s3 = {0};
    const struct ash_opt_binding bindings[] = {
        {&table, &flags}, {&ash_s3_table, &s3}, {&ash_cache_table, &flags.cache}};
    const char *words[WORDS_MAX] = {0};
    struct ash_opts *opts = NULL;
    struct ash_err err = {0};
    size_t count = 0;
    int code;

    ash_assert(form->word_count <= WORDS_MAX);
    if (ash_opts_open(bindings, ASH_COUNT(bindings), &opts, &err) < 0) return ash_cmd_fail(&err);
    code = ash_cmd_parse(form->usage, opts, argc, argv, words, form->word_count, &count);
    if (code == ASH_CMD_GO && count < form->word_count) {
        ash_log(ASH_LOG_ERROR, "%s (`ashlar store %s --help` explains)", form->missing_word, argv[0]);
        code = 2;
    }
    if (code == ASH_CMD_GO) code = respond(form, &flags, &s3, words);
    ash_opts_close(opts);
    return code;
}

/* ---- progress ---------------------------------------------------------------------------------------------------- */

int ash_store_progress_add(struct ash_store_progress *progress, uint64_t bytes, struct ash_err *err)
{
    char done[ASH_UNITS_BYTES], total[ASH_UNITS_BYTES], left[32];

    progress->done_bytes += bytes;
    if (ash_interrupt_requested()) return ash_err_set(err, -EINTR, "stopped");
    if (!ash_progress_bar_due(&progress->bar)) return 0;
    if (progress->total_bytes < progress->done_bytes) progress->total_bytes = progress->done_bytes;
    ash_progress_bar_say(
        &progress->bar, "%s of %s, %.0f MB/s, %s left", ash_units_bytes(progress->done_bytes, done, sizeof(done)),
        ash_units_bytes(progress->total_bytes, total, sizeof(total)),
        (double)progress->done_bytes / 1e6 / (ash_progress_bar_seconds(&progress->bar) + 1e-9),
        ash_progress_bar_left(&progress->bar, (double)progress->done_bytes,
                              (double)(progress->total_bytes - progress->done_bytes), left, sizeof(left)));
    return 0;
}

int ash_store_progress_watch(void *ctx, const char *key, uint64_t done_bytes, uint64_t total_bytes, struct ash_err *err)
{
    struct ash_store_progress *progress = ctx;

    (void)key;
    progress->total_bytes = total_bytes;
    progress->done_bytes = done_bytes;
    return ash_store_progress_add(progress, 0, err);
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

int ash_store_keys_add(struct ash_store_keys *keys, const char *key, uint64_t size_bytes)
{
    size_t capacity = keys->capacity; /* of both arrays */

    if (ash_array_reserve(&keys->sizes, &capacity, keys->count + 1, sizeof(*keys->sizes)) < 0 ||
        ash_array_reserve(&keys->keys, &keys->capacity, keys->count + 1, sizeof(char *)) < 0)
        return -ENOMEM;
    keys->keys[keys->count] = strdup(key);
    if (keys->keys[keys->count] == NULL) return -ENOMEM;
    keys->sizes[keys->count++] = size_bytes;
    keys->total_bytes += size_bytes;
    return 0;
}

bool ash_store_is_below(const char *key, const char *name)
{
    size_t length = strlen(name);
    bool begins_so = length > 0 && name[length - 1] == '*';

    if (strncmp(key, name, length - begins_so) != 0) return false;
    return begins_so || length == 0 || name[length - 1] == '/' || key[length] == '\0' || key[length] == '/';
}

/* A listing by prefix, of which only keys below the folder are wanted. */
struct folder {
    struct ash_store_keys *keys;
    const char *name;
};

static int add_key(void *ctx, const char *key, const struct ash_tier_object *object)
{
    const struct folder *folder = ctx;

    return ash_store_is_below(key, folder->name) ? ash_store_keys_add(folder->keys, key, object->size_bytes) : 0;
}

int ash_store_keys_read(struct ash_tier *tier, const char *name, struct ash_store_keys *keys, struct ash_err *err)
{
    size_t length = strlen(name);
    struct folder folder = {keys, name};
    char prefix[ASH_TIER_KEY_BYTES];
    int rc;

    snprintf(prefix, sizeof(prefix), "%.*s", (int)(length - (length > 0 && name[length - 1] == '*')), name);
    rc = ash_tier_list(tier, prefix, true, add_key, &folder, err);
    return rc == -ENOMEM ? ash_err_set(err, rc, "out of memory") : rc;
}

void ash_store_keys_fini(struct ash_store_keys *keys)
{
    for (size_t i = 0; i < keys->count; i++)
        free(keys->keys[i]);
    free(keys->keys);
    free(keys->sizes);
    *keys = (struct ash_store_keys){0};
}
