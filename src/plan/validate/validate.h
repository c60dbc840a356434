/* validate - predict every row of a file of published measurements and see how far off the model is. Two forms of file
 * are known by their columns: training (tokens_s_gpu) and inference (out_tok_s_total). A prediction uses only columns
 * that were known before the run. */
#ifndef ASH_PLAN_VALIDATE_H
#define ASH_PLAN_VALIDATE_H

#include <stdbool.h>
#include <stddef.h>
#include "infra/catalog.h"
#include "plan/consts.h"

struct ash_validate_row {
    char number[32];                              /* "row 7": the id where the file gives none */
    const char *id, *source, *model, *gpu, *arch; /* borrowed from the validation */
    const char *kind;          /* of the model: "dense", "moe" or "hybrid"; NULL where its sizes are not known */
    bool primary;              /* the column says 1, or there is none */
    bool predicted;            /* else reason says why not */
    double measured, expected; /* tokens per second: of a GPU in training, of a replica in serving; latencies as 1/s */
    double error;              /* expected / measured - 1 */
    bool fits;                 /* does the run fit by the planner's own account of memory? It ran, so it did. */
    char reason[160];
};

struct ash_validate_group {
    char name[96]; /* "all", "primary dense", "source mosaic-llm-foundry", "gpu H100-80GB", ... */
    size_t rows;   /* that were predicted */
    double median_abs_err, p90_abs_err, median_err;
};

struct ash_validate; /* owns rows and groups */

/* Returns 0 or a negative errno: the file cannot be read, or has neither form's columns. */
int ash_validate_open(const struct ash_consts *consts, const struct ash_catalog *catalog, const char *path,
                      struct ash_validate **validate_out, struct ash_err *err);
/* Frees rows and groups, too. NULL is a no-op. */
void ash_validate_close(struct ash_validate *validate);
/* Rows of the file, in its order, whether or not they could be predicted. */
size_t ash_validate_row_count(const struct ash_validate *validate);
/* One of them, borrowed; NULL from the count on. */
const struct ash_validate_row *ash_validate_row_at(const struct ash_validate *validate, size_t index);
/* Groups of rows: all, primary, by kind, source and GPU. */
size_t ash_validate_group_count(const struct ash_validate *validate);
/* One of them, borrowed; NULL from the count on. */
const struct ash_validate_group *ash_validate_group_at(const struct ash_validate *validate, size_t index);

#endif
