/* metrics_tiers - figures of the tiers below the cache, for Prometheus. */
#ifndef ASH_SERVE_API_METRICS_TIERS_H
#define ASH_SERVE_API_METRICS_TIERS_H

#include "serve/kv/kv.h"

/* Bring the figures of a model's tiers up to date: seen are those of the last call. */
void ash_api_metrics_tiers(const char *model, const struct ash_kv_stats *now, const struct ash_kv_stats *seen);

#endif
