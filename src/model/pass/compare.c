/* Distances of logits. */
#include "model/pass/compare.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/rng.h"
#include "model/pass/pass.h"

#define ROWS ASH_PASS_COMPARED

static int logits_of(struct ash_model *model, struct ash_exec *exec, float *logits, struct ash_err *err)
{
    struct ash_pass_opts opts = {.max_rows = ROWS};
    struct ash_pass *pass = NULL;
    struct ash_doc doc = {.count = ROWS};
    size_t wanted[ROWS];
    int32_t ids[ROWS];
    struct ash_batch batch = {.rows = ROWS, .ids = ids, .docs = &doc, .doc_count = 1};
    int rc;

    for (size_t i = 0; i < ROWS; i++) {
        ids[i] = (int32_t)ash_rng_below(1, 2, i, ash_model_get_config(model)->vocab);
        wanted[i] = i;
    }
    rc = ash_pass_open(model, exec, &opts, &pass, err);
    if (rc == 0) rc = ash_pass_infer(pass, &batch, NULL, wanted, ROWS, logits, err);
    ash_pass_close(pass);
    return rc;
}

int ash_pass_compare(struct ash_model *a, struct ash_model *b, double *far_out, struct ash_err *err)
{
    size_t count = ROWS * ash_model_get_config(a)->vocab;
    float *logits = calloc(2 * count, sizeof(*logits));
    struct ash_exec exec = {0};
    double far = 0.0;
    int rc =
        logits != NULL ? ash_exec_init(&exec, NULL, 0, err) : ash_err_set(err, -ENOMEM, "out of memory for logits");

    ash_assert(ash_model_get_config(a)->vocab == ash_model_get_config(b)->vocab);
    if (rc == 0) rc = logits_of(a, &exec, logits, err);
    if (rc == 0) rc = logits_of(b, &exec, logits + count, err);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        double one = fabs((double)logits[i] - (double)logits[count + i]);

        if (!(one <= far)) far = one;
    }
    if (rc == 0) *far_out = far;
    free(logits);
    ash_exec_fini(&exec);
    return rc;
}
