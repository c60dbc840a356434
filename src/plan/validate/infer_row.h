/* infer_row - one line of a table of published inference measurements, read as a replica under a load, and predicted.
 * The columns are those of tests/plan/inference.csv. */
#ifndef ASH_PLAN_INFER_ROW_H
#define ASH_PLAN_INFER_ROW_H

#include "base/csv.h"
#include "plan/serve/infer_time.h"

enum ash_infer_metric { ASH_INFER_TOKENS_S, ASH_INFER_TTFT_S, ASH_INFER_TPOT_S };

struct ash_infer_row {
    struct ash_infer infer;
    struct ash_infer_load load;
    enum ash_infer_metric metric; /* the measurement: output tokens/s of the replica if given, else latency */
    double measured;
};

/* Read a row. -EINVAL (a sentence says which column) if it cannot be predicted: no measurement, an unknown GPU, a
 * model without sizes, a load without lengths. */
int ash_infer_row_read(const struct ash_catalog *catalog, const struct ash_csv *csv, size_t row,
                       struct ash_infer_row *row_out, struct ash_err *err);
/* What the row's metric should be; 0 where the model does not fit into the memory. */
double ash_infer_row_predict(const struct ash_consts *consts, const struct ash_infer_row *row);

#endif
