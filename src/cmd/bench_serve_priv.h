/* bench_serve_priv - measurements and reports of `ashlar bench serve`. */
#ifndef ASH_CMD_BENCH_SERVE_PRIV_H
#define ASH_CMD_BENCH_SERVE_PRIV_H

#include "base/json.h"
#include "serve/client/load.h"

/* What an answer must keep to count for goodput, in milliseconds; 0: no limit. */
struct ash_bench_limits {
    double ttft_ms, tpot_ms, e2e_ms;
};

/* The figures of a run as JSON: counts, rates, percentiles, goodput, a row for each request. NULL: no memory. The
 * caller owns it. */
json_t *ash_bench_serve_figures(const struct ash_load_results *results, const struct ash_bench_limits *limits);
/* Print the same figures, without the rows, for people. */
void ash_bench_serve_print(const json_t *figures);

#endif
