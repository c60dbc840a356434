/* Figures of the tiers below the cache, each with the tier's label; of tiers in use alone. */
#include <stdlib.h>
#include <string.h>

#include "record/metrics.h"
#include "serve/api/metrics_tiers.h"

ASH_COUNTER(tier_hits, "ashlar_kv_tier_hit_tokens_total", "Tokens that a tier below the cache had.");
ASH_COUNTER(tier_read, "ashlar_kv_tier_read_bytes_total", "Bytes read from a tier below the cache.");
ASH_COUNTER(tier_written, "ashlar_kv_tier_written_bytes_total", "Bytes written to a tier below the cache.");
ASH_COUNTER(tier_evictions, "ashlar_kv_tier_evictions_total", "Pages that a tier removed for others.");
ASH_COUNTER(tier_damaged, "ashlar_kv_tier_damaged_total", "Pages that were torn or of other weights, and computed.");
ASH_COUNTER(tier_failures, "ashlar_kv_tier_failures_total", "Pages that could not be written or read.");
ASH_COUNTER(tier_skipped, "ashlar_kv_tier_skipped_total", "Pages not taken: too many were on their way.");
ASH_COUNTER(tier_declined, "ashlar_kv_tier_declined_total", "Prefixes that were computed, as that was faster.");
ASH_GAUGE(tier_bytes, "ashlar_kv_tier_bytes", "Bytes of the pages that a tier has.");
ASH_GAUGE(tier_pages, "ashlar_kv_tier_pages", "Pages that a tier has.");

struct figure {
    struct ash_metric *family;
    double value;
};

#define FIGURES 10

static void list_figures(const struct ash_kv_tier_stats *now, const struct ash_kv_tier_stats *seen,
                         struct figure figures[FIGURES])
{
    const struct figure all[FIGURES] = {
        {&tier_bytes, (double)now->bytes},
        {&tier_pages, (double)now->pages},
        {&tier_hits, (double)(now->pages_read - seen->pages_read) * ASH_CACHE_PAGE_TOKENS},
        {&tier_read, (double)(now->bytes_read - seen->bytes_read)},
        {&tier_written, (double)(now->bytes_written - seen->bytes_written)},
        {&tier_evictions, (double)(now->evictions - seen->evictions)},
        {&tier_damaged, (double)(now->damaged - seen->damaged)},
        {&tier_failures,
         (double)(now->write_failures + now->read_failures - seen->write_failures - seen->read_failures)},
        {&tier_skipped, (double)(now->skipped - seen->skipped)},
        {&tier_declined, (double)(now->declined - seen->declined)},
    };

    memcpy(figures, all, sizeof(all));
}

void ash_api_metrics_tiers(const char *model, const struct ash_kv_stats *now, const struct ash_kv_stats *seen)
{
    static const struct ash_kv_tier_stats unused;

    for (size_t tier = 0; tier < ASH_KV_TIERS; tier++) {
        const struct ash_kv_tier_stats *stats = &now->tiers[tier];
        struct figure figures[FIGURES];
        struct ash_str labels = {0};
        int rc;

        if (memcmp(stats, &unused, sizeof(unused)) == 0) continue;
        list_figures(stats, &seen->tiers[tier], figures);
        rc = ash_metric_add_label(&labels, "model_name", model);
        if (rc == 0) rc = ash_metric_add_label(&labels, "tier", ash_kv_tier_name((enum ash_kv_tier)tier));
        for (size_t i = 0; i < FIGURES && rc == 0; i++) {
            struct ash_metric *metric = ash_metric_with(figures[i].family, labels.data);

            if (metric == NULL) continue;
            if (i < 2)
                ash_metric_set(metric, figures[i].value);
            else
                ash_metric_add(metric, figures[i].value);
        }
        ash_str_fini(&labels);
    }
}
