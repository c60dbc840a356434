/* Distances of logits. */
#include "model/pass/compare.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/math.h"
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

/* ---- on a text --------------------------------------------------------------------------------------------------- */

/* Both models over windows, and their logits. */
struct reading {
    struct ash_pass *passes[2];
    float *logits[2]; /* [ASH_PASS_TEXT_ROWS, vocab] */
    size_t vocab;
};

/* The logarithm of the sum of exp(row). */
static double log_sum(const float *row, size_t count)
{
    double top = -INFINITY, sum = 0.0;
    size_t at = 0;

    ash_assert(count > 0);
    for (size_t i = 0; i < count; i++)
        top = fmax(top, (double)row[i]);
    do
        sum += exp((double)row[at] - top);
    while (++at < count);
    return top + log(sum);
}

/* One position: what each expects, and the token that came. */
static void add_position(const struct reading *reading, size_t row, int32_t next, struct ash_pass_distance *distance)
{
    const float *a = reading->logits[0] + row * reading->vocab, *b = reading->logits[1] + row * reading->vocab;
    double sum_a = log_sum(a, reading->vocab), sum_b = log_sum(b, reading->vocab), divergence = 0.0;

    for (size_t i = 0; i < reading->vocab; i++) {
        double log_a = (double)a[i] - sum_a, log_b = (double)b[i] - sum_b;

        divergence += exp(log_a) * (log_a - log_b);
    }
    distance->loss_a += sum_a - (double)a[next];
    distance->loss_b += sum_b - (double)b[next];
    distance->divergence += divergence;
    distance->tokens++;
}

static int read_window(const struct reading *reading, const int32_t *ids, size_t count,
                       struct ash_pass_distance *distance, struct ash_err *err)
{
    struct ash_doc doc = {.count = count};
    struct ash_batch batch = {.rows = count, .ids = ids, .docs = &doc, .doc_count = 1};
    size_t wanted[ASH_PASS_TEXT_ROWS];

    ash_assert(count <= ASH_PASS_TEXT_ROWS);
    for (size_t i = 0; i < count; i++)
        wanted[i] = i;
    for (int i = 0; i < 2; i++) {
        int rc = ash_pass_infer(reading->passes[i], &batch, NULL, wanted, count, reading->logits[i], err);

        if (rc < 0) return rc;
    }
    for (size_t i = 0; i + 1 < count; i++)
        add_position(reading, i, ids[i + 1], distance);
    return 0;
}

static int open_reading(struct ash_model *const models[2], struct ash_exec *exec, struct reading *reading,
                        struct ash_err *err)
{
    const struct ash_pass_opts opts = {.max_rows = ASH_PASS_TEXT_ROWS};

    reading->vocab = ash_model_get_config(models[0])->vocab;
    for (int i = 0; i < 2; i++) {
        int rc = ash_pass_open(models[i], exec, &opts, &reading->passes[i], err);

        if (rc < 0) return rc;
        reading->logits[i] = calloc(ASH_PASS_TEXT_ROWS * reading->vocab, sizeof(float));
        if (reading->logits[i] == NULL) return ash_err_set(err, -ENOMEM, "out of memory for logits");
    }
    return 0;
}

static void close_reading(struct reading *reading)
{
    for (int i = 0; i < 2; i++) {
        ash_pass_close(reading->passes[i]);
        free(reading->logits[i]);
    }
}

int ash_pass_compare_text(struct ash_model *a, struct ash_model *b, const int32_t *ids, size_t count,
                          struct ash_pass_distance *distance_out, struct ash_err *err)
{
    struct ash_model *const models[2] = {a, b};
    size_t most = ash_min(ash_model_get_config(a)->max_positions, (size_t)ASH_PASS_TEXT_ROWS);
    struct ash_pass_distance distance = {0};
    struct reading reading = {0};
    struct ash_exec exec = {0};
    int rc;

    ash_assert(ash_model_get_config(a)->vocab == ash_model_get_config(b)->vocab);
    if (count < 2) return ash_err_set(err, -EINVAL, "the text has %zu tokens: two are needed", count);
    rc = ash_exec_init(&exec, NULL, 0, err);
    if (rc < 0) return rc;
    rc = open_reading(models, &exec, &reading, err);
    for (size_t at = 0; rc == 0 && at + 1 < count; at += most)
        rc = read_window(&reading, ids + at, ash_min(count - at, most), &distance, err);
    close_reading(&reading);
    ash_exec_fini(&exec);
    if (rc < 0) return rc;
    distance.loss_a /= (double)distance.tokens;
    distance.loss_b /= (double)distance.tokens;
    distance.divergence /= (double)distance.tokens;
    *distance_out = distance;
    return 0;
}
