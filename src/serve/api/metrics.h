/* metrics - the server's figures for Prometheus, under vLLM's names where they mean the same. */
#ifndef ASH_SERVE_API_METRICS_H
#define ASH_SERVE_API_METRICS_H

#include "serve/api/call.h"

struct ash_api_metrics;

/* The instruments of a model. The caller owns *metrics_out. */
int ash_api_metrics_open(const char *model, struct ash_api_metrics **metrics_out, struct ash_err *err);
/* NULL is a no-op. Instruments stay: they belong to the process. */
void ash_api_metrics_close(struct ash_api_metrics *metrics);
/* A token of a choice came. On the engine's thread. */
void ash_api_metrics_token(struct ash_api_metrics *metrics, struct ash_api_choice *choice);
/* A choice is done. On the engine's thread. */
void ash_api_metrics_done(struct ash_api_metrics *metrics, const struct ash_api_choice *choice);
/* A call was submitted. */
void ash_api_metrics_call(struct ash_api_metrics *metrics, const struct ash_api_call *call);
/* Take over the engine's figures. */
void ash_api_metrics_engine(struct ash_api_metrics *metrics, const struct ash_core_stats *stats);

#endif
