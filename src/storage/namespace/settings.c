/* Settings of remote places from the environment. */
#include "storage/namespace/settings.h"

#include <stdatomic.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"

#define WARN_NS ((uint64_t)10 * 1000 * 1000 * 1000)

static void warn_retry(void *ctx, const char *why, double wait_s)
{
    struct ash_namespace_settings *settings = ctx;
    uint64_t now_ns = ash_clock_ns();

    uint64_t warned_ns = atomic_load(&settings->warned_ns);

    if (warned_ns != 0 && now_ns - warned_ns < WARN_NS) return;
    if (!atomic_compare_exchange_strong(&settings->warned_ns, &warned_ns, now_ns)) return; /* another reports it */
    ash_log(ASH_LOG_WARN, "%s; trying again in %.1f s, for %.0f s at most", why, wait_s, settings->s3.retry_s);
}

int ash_namespace_settings_init(struct ash_namespace_settings *settings, struct ash_err *err)
{
    const struct ash_opt_binding bindings[] = {{&ash_s3_table, &settings->s3}, {&ash_cache_table, &settings->cache}};
    int rc = ash_opts_open(bindings, ASH_COUNT(bindings), &settings->opts, err);

    if (rc == 0) rc = ash_opts_set_env(settings->opts, err);
    settings->s3.on_retry = warn_retry;
    settings->s3.on_retry_ctx = settings;
    return rc;
}

void ash_namespace_settings_fini(struct ash_namespace_settings *settings)
{
    ash_opts_close(settings->opts);
    *settings = (struct ash_namespace_settings){0};
}
