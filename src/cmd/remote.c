/* Paths at s3://: folders that are fetched into the cache before they are opened, or written here and sent. */
#include "cmd/remote.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cache_dir.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "cmd/progress_bar.h"
#include "cmd/units.h"
#include "storage/namespace/attach.h"
#include "storage/namespace/settings.h"

static int show(void *ctx, const char *key, uint64_t done_bytes, uint64_t total_bytes, struct ash_err *err)
{
    struct ash_progress_bar *bar = ctx;
    char done[ASH_UNITS_BYTES], total[ASH_UNITS_BYTES], left[32];

    (void)err;
    if (!ash_progress_bar_due(bar)) return 0;
    ash_progress_bar_say(
        bar, "fetching %.60s: %s of %s, %s left", key, ash_units_bytes(done_bytes, done, sizeof(done)),
        ash_units_bytes(total_bytes, total, sizeof(total)),
        ash_progress_bar_left(bar, (double)done_bytes, (double)total_bytes - (double)done_bytes, left, sizeof(left)));
    return 0;
}

static void tell_retry(void *ctx, const char *why, double wait_s)
{
    struct ash_progress_bar *bar = ctx;

    if (!ash_progress_bar_due(bar)) return;
    ash_progress_bar_clear(bar);
    ash_log(ASH_LOG_WARN, "%s; trying again in %.1f s", why, wait_s);
}

int ash_cmd_fetch(const char *word, struct ash_str *path, struct ash_err *err)
{
    struct ash_progress_bar bar;
    struct ash_namespace_settings settings = {0};
    const struct ash_namespace_watch watch = {show, &bar};
    int rc;

    if (!ash_tier_is_url(word)) return ash_str_adds(path, word) < 0 ? ash_err_set(err, -ENOMEM, "out of memory") : 0;
    rc = ash_namespace_settings_init(&settings, err);
    ash_progress_bar_init(&bar);
    settings.s3.on_retry = tell_retry;
    settings.s3.on_retry_ctx = &bar;
    if (rc == 0) rc = ash_namespace_fetch_url(word, &settings.cache, &settings.s3, &watch, path, err);
    ash_progress_bar_clear(&bar);
    ash_namespace_settings_fini(&settings);
    return rc;
}

int ash_cmd_attach(const char *word, struct ash_str *path, struct ash_err *err)
{
    struct ash_progress_bar bar;
    const struct ash_namespace_watch watch = {show, &bar};
    int rc;

    if (!ash_tier_is_url(word)) return ash_str_adds(path, word) < 0 ? ash_err_set(err, -ENOMEM, "out of memory") : 0;
    ash_progress_bar_init(&bar);
    rc = ash_attach_url(word, &watch, path, err);
    ash_progress_bar_clear(&bar);
    return rc;
}

int ash_cmd_stage(const char *url, struct ash_str *path, struct ash_err *err)
{
    struct ash_namespace_settings settings = {0};
    int rc = ash_namespace_settings_init(&settings, err);

    if (rc == 0) rc = settings.cache.dir != NULL ? ash_str_adds(path, settings.cache.dir) : ash_cache_dir(path, err);
    if (rc == 0) rc = ash_str_addf(path, "/staging/%016" PRIx64, ash_hash_str(url));
    if (rc == 0) rc = ash_dir_make(path->data, err);
    ash_namespace_settings_fini(&settings);
    return rc;
}

/* ---- sending a folder -------------------------------------------------------------------------------------------- */

struct sending {
    struct ash_tier *from, *to;
    struct ash_tier_write *write;
    struct ash_progress_bar bar;
    const char *key, *last;
    uint64_t done_bytes, total_bytes;
    bool wants_last;
    struct ash_err *err;
};

static int send_bytes(void *ctx, const void *data, size_t size_bytes, struct ash_err *err)
{
    struct sending *sending = ctx;
    char done[ASH_UNITS_BYTES], total[ASH_UNITS_BYTES];

    sending->done_bytes += size_bytes;
    if (ash_interrupt_requested()) return ash_err_set(err, -EINTR, "stopped");
    if (ash_progress_bar_due(&sending->bar))
        ash_progress_bar_say(&sending->bar, "sending %.60s: %s of %s", sending->key,
                             ash_units_bytes((size_t)sending->done_bytes, done, sizeof(done)),
                             ash_units_bytes((size_t)sending->total_bytes, total, sizeof(total)));
    return ash_tier_write_add(sending->to, sending->write, data, size_bytes, err);
}

static int send_one(void *ctx, const char *key, const struct ash_tier_object *object)
{
    struct sending *sending = ctx;
    const struct ash_s3_sink sink = {send_bytes, sending};
    int rc;

    if ((sending->last != NULL && strcmp(key, sending->last) == 0) != sending->wants_last) return 0;
    sending->key = key;
    rc = ash_tier_write_open(sending->to, key, object->size_bytes, true, &sending->write, sending->err);
    if (rc < 0) return rc;
    rc = ash_tier_stream(sending->from, key, &sink, sending->err);
    if (rc >= 0) rc = ash_tier_write_finish(sending->to, sending->write, sending->err);
    ash_tier_write_close(sending->to, sending->write, rc < 0);
    return rc < 0 ? rc : 0;
}

static int count_one(void *ctx, const char *key, const struct ash_tier_object *object)
{
    struct sending *sending = ctx;

    (void)key;
    sending->total_bytes += object->size_bytes;
    return 0;
}

int ash_cmd_send_folder(const char *folder, const char *url, const char *last, struct ash_err *err)
{
    struct ash_namespace_settings settings = {0};
    struct sending sending = {.last = last, .err = err};
    int rc = ash_namespace_settings_init(&settings, err);

    ash_progress_bar_init(&sending.bar);
    if (rc == 0) rc = ash_tier_open(folder, &settings.s3, &sending.from, err);
    if (rc == 0) rc = ash_tier_open(url, &settings.s3, &sending.to, err);
    if (rc == 0) rc = ash_tier_list(sending.from, "", true, count_one, &sending, err);
    if (rc == 0) rc = ash_tier_list(sending.from, "", true, send_one, &sending, err);
    sending.wants_last = true;
    if (rc == 0 && last != NULL) rc = ash_tier_list(sending.from, "", true, send_one, &sending, err);
    ash_progress_bar_clear(&sending.bar);
    ash_tier_close(sending.from);
    ash_tier_close(sending.to);
    ash_namespace_settings_fini(&settings);
    return rc < 0 ? rc : ash_dir_remove(folder, err);
}

int ash_cmd_is_there(const char *url, const char *name, struct ash_err *err)
{
    struct ash_namespace_settings settings = {0};
    struct ash_tier_object object;
    struct ash_tier *tier = NULL;
    int rc = ash_namespace_settings_init(&settings, err);

    if (rc == 0) rc = ash_tier_open(url, &settings.s3, &tier, err);
    if (rc == 0) rc = ash_tier_stat(tier, name, &object, err);
    ash_tier_close(tier);
    ash_namespace_settings_fini(&settings);
    return rc == -ENOENT && (err == NULL || strstr(err->text, "no bucket") == NULL) ? 0 : rc < 0 ? rc : 1;
}
