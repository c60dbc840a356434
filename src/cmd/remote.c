/* Models at s3://: fetched into the cache before they are opened. */
#include "cmd/remote.h"

#include <errno.h>

#include "base/log.h"
#include "cmd/progress_bar.h"
#include "cmd/units.h"
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
