/* run_curves - the curves of a run from its log.jsonl, read as it grows, in a bounded number of points. */
#ifndef ASH_OBSERVE_PAGE_RUN_CURVES_H
#define ASH_OBSERVE_PAGE_RUN_CURVES_H

#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/json.h"

#define ASH_CURVE_POINTS 1000
#define ASH_CURVES 5

/* Points of one curve: every stride-th of its values, and the last. */
struct ash_curve {
    double x[ASH_CURVE_POINTS], y[ASH_CURVE_POINTS];
    double last_x, last_y;
    size_t count, stride;
    uint64_t seen;
};

struct ash_run_curves {
    char dir[4096];
    uint64_t offset;                     /* of the read part */
    struct ash_str rest;                 /* a line that has no end yet */
    struct ash_curve curves[ASH_CURVES]; /* loss, valid, tokens_s, norm, lr */
    double parts[4], time_s;             /* seconds of computing, data, communication, idle; of all */
    uint64_t step, skipped;
    json_t *ledger; /* of ledger.json, owned; NULL: there is none */
};

/* A zeroed struct becomes that of a run's folder. */
void ash_run_curves_init(struct ash_run_curves *run, const char *dir);
/* Free it. A zeroed struct is fine. */
void ash_run_curves_fini(struct ash_run_curves *run);
/* Read lines appended since the last time; a truncated log is read from its beginning. Returns 0 or a negative
 * errno. */
int ash_run_curves_read(struct ash_run_curves *run, struct ash_err *err);
/* Take lines of a log: for the reader above, and for tests. */
void ash_run_curves_take(struct ash_run_curves *run, const char *text, size_t size_bytes);
/* Data of the page. The caller owns it; NULL: no memory. */
json_t *ash_run_curves_json(const struct ash_run_curves *run);

#endif
