/* figures - what a load test found, as JSON. */
#ifndef ASH_SERVE_CLIENT_FIGURES_H
#define ASH_SERVE_CLIENT_FIGURES_H

#include "base/json.h"
#include "serve/client/load.h"

/* Limits of an answer that counts for goodput, in milliseconds; 0: no limit. */
struct ash_load_limits {
    double ttft_ms, tpot_ms, e2e_ms;
};

/* The figures of a run: counts, rates, goodput, the mean and percentiles (p50 to p99, max) of ttft_ms, tpot_ms, itl_ms,
 * e2e_ms and lateness_ms (null without values), and `each`, an object for each request. NULL: no memory. The caller
 * owns it. */
json_t *ash_load_figures(const struct ash_load_results *results, const struct ash_load_limits *limits);

#endif
