/* law: Levenberg-Marquardt steps on Huber-weighted residuals, from the best points of a grid. The valley of this law is
 * long and flat: second-order steps follow it where plain gradients stop early. */
#include "post/scaling/law.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/rng.h"

#define HUBER_DEFAULT 1e-3
#define FLOPS_MAX 1e40
#define UNKNOWNS 5
#define STARTS 24       /* grid points that are followed */
#define ITERATIONS 2000 /* of one start */
#define ENOUGH 1e-11    /* relative fall of the objective in STALL steps: the end */
#define STALL 25
#define DAMPING_MOST 1e12
#define STREAM_BOOTSTRAP 1
#define GRID_POINTS (6 * 6 * 5 * 5 * 5)

struct problem {
    const struct ash_scaling_run *runs;
    const uint32_t *weights; /* how often each run counts; NULL: once */
    size_t count;
    double huber;
    bool is_tied;
};

/* Unknowns: a, b, e, alpha, beta. */
static struct ash_scaling_law law_of(const double x[UNKNOWNS])
{
    return (struct ash_scaling_law){.a = x[0], .b = x[1], .e = x[2], .alpha = x[3], .beta = x[4]};
}

/* ln loss, and its derivatives by a, b and e in share (a softmax). */
static double log_loss(const struct ash_scaling_law *law, double log_params, double log_tokens, double share[3])
{
    double terms[3] = {law->a - law->alpha * log_params, law->b - law->beta * log_tokens, law->e};
    double most = fmax(terms[0], fmax(terms[1], terms[2])), sum = 0.0;

    for (size_t i = 0; i < 3; i++) {
        share[i] = exp(terms[i] - most);
        sum += share[i];
    }
    for (size_t i = 0; i < 3; i++)
        share[i] /= sum;
    return most + log(sum);
}

static double huber_loss(double residual, double huber)
{
    double size = fabs(residual);

    return size <= huber ? 0.5 * residual * residual : huber * (size - 0.5 * huber);
}

static double objective(const struct problem *problem, const double x[UNKNOWNS])
{
    struct ash_scaling_law law = law_of(x);
    double sum = 0.0, share[3];

    for (size_t i = 0; i < problem->count; i++) {
        const struct ash_scaling_run *run = &problem->runs[i];
        double weight = problem->weights != NULL ? problem->weights[i] : 1.0;

        if (weight > 0)
            sum += weight * huber_loss(log_loss(&law, log(run->params), log(run->tokens), share) - log(run->loss),
                                       problem->huber);
    }
    return sum;
}

/* Weighted normal equations at x: matrix and right side. */
static void normal_equations(const struct problem *problem, const double x[UNKNOWNS], double matrix[UNKNOWNS][UNKNOWNS],
                             double side[UNKNOWNS])
{
    struct ash_scaling_law law = law_of(x);

    memset(matrix, 0, sizeof(double[UNKNOWNS][UNKNOWNS]));
    memset(side, 0, sizeof(double[UNKNOWNS]));
    for (size_t i = 0; i < problem->count; i++) {
        const struct ash_scaling_run *run = &problem->runs[i];
        double log_params = log(run->params), log_tokens = log(run->tokens), share[3];
        double residual = log_loss(&law, log_params, log_tokens, share) - log(run->loss), size = fabs(residual);
        double weight = (problem->weights != NULL ? problem->weights[i] : 1.0) *
                        (size > problem->huber ? problem->huber / size : 1.0);
        double slope[UNKNOWNS] = {share[0], share[1], share[2], -share[0] * log_params, -share[1] * log_tokens};

        if (problem->is_tied) {
            slope[3] += slope[4];
            slope[4] = 0.0;
        }
        for (size_t r = 0; r < UNKNOWNS; r++) {
            for (size_t c = 0; c < UNKNOWNS; c++)
                matrix[r][c] += weight * slope[r] * slope[c];
            side[r] -= weight * slope[r] * residual;
        }
    }
}

/* Gauss with pivots; false where the matrix is singular. */
static bool solve(double matrix[UNKNOWNS][UNKNOWNS], double side[UNKNOWNS])
{
    for (size_t k = 0; k < UNKNOWNS; k++) {
        size_t best = k;

        for (size_t r = k + 1; r < UNKNOWNS; r++)
            if (fabs(matrix[r][k]) > fabs(matrix[best][k])) best = r;
        if (!(fabs(matrix[best][k]) > 0)) return false;
        for (size_t c = 0; c < UNKNOWNS; c++) {
            double kept = matrix[k][c];

            matrix[k][c] = matrix[best][c];
            matrix[best][c] = kept;
        }
        double kept = side[k];

        side[k] = side[best];
        side[best] = kept;
        for (size_t r = 0; r < UNKNOWNS; r++) {
            double factor = matrix[r][k] / matrix[k][k];

            if (r == k) continue;
            for (size_t c = k; c < UNKNOWNS; c++)
                matrix[r][c] -= factor * matrix[k][c];
            side[r] -= factor * side[k];
        }
    }
    for (size_t k = 0; k < UNKNOWNS; k++)
        side[k] /= matrix[k][k];
    return true;
}

/* One damped step from x to next. */
static bool damped_step(const struct problem *problem, const double x[UNKNOWNS], double damping, double next[UNKNOWNS])
{
    double matrix[UNKNOWNS][UNKNOWNS], side[UNKNOWNS];

    normal_equations(problem, x, matrix, side);
    for (size_t k = 0; k < UNKNOWNS; k++)
        matrix[k][k] += damping * (matrix[k][k] + 1e-12);
    if (problem->is_tied) matrix[4][4] = 1.0;
    if (!solve(matrix, side)) return false;
    if (problem->is_tied) side[4] = side[3];
    for (size_t k = 0; k < UNKNOWNS; k++)
        next[k] = x[k] + side[k];
    return true;
}

/* Follow the objective down from x. */
static double descend(const struct problem *problem, double x[UNKNOWNS])
{
    double value = objective(problem, x), damping = 1e-3, before = value;

    for (size_t i = 0; i < ITERATIONS && damping < DAMPING_MOST; i++) {
        double next[UNKNOWNS], found;

        found = damped_step(problem, x, damping, next) ? objective(problem, next) : INFINITY;
        if (found < value) {
            memcpy(x, next, sizeof(next));
            value = found;
            damping = fmax(damping * 0.3, 1e-15);
        } else {
            damping *= 4.0;
        }
        if (i % STALL == STALL - 1) {
            if (before - value <= ENOUGH * value) break;
            before = value;
        }
    }
    return value;
}

/* ---- starts ------------------------------------------------------------------------------------------------------ */

struct start {
    double x[UNKNOWNS], value;
};

static int compare_starts(const void *a, const void *b)
{
    const struct start *x = a, *y = b;

    return x->value < y->value ? -1 : x->value > y->value;
}

/* The grid of Hoffmann et al., its best points first. */
static size_t make_starts(const struct problem *problem, struct start *starts)
{
    size_t count = 0;

    for (double a = 0; a <= 25; a += 5)
        for (double b = 0; b <= 25; b += 5)
            for (double e = -1; e <= 1; e += 0.5)
                for (double alpha = 0.25; alpha <= 1.25; alpha += 0.25)
                    for (double beta = 0.25; beta <= 1.25; beta += 0.25) {
                        struct start *start = &starts[count];

                        if (problem->is_tied && alpha != beta) continue;
                        *start = (struct start){.x = {a, b, e, alpha, beta}};
                        start->value = objective(problem, start->x);
                        count++;
                    }
    ash_assert(count > 0 && count <= GRID_POINTS);
    qsort(starts, count, sizeof(*starts), compare_starts);
    return count;
}

static int check_runs(const struct ash_scaling_run *runs, size_t count, struct ash_err *err)
{
    if (count < ASH_SCALING_RUNS_LEAST)
        return ash_err_set(err, -EINVAL, "%zu runs are too few for a law of five numbers: at least %d", count,
                           ASH_SCALING_RUNS_LEAST);
    for (size_t i = 0; i < count; i++)
        if (!(runs[i].params >= 1 && isfinite(runs[i].params) && runs[i].tokens >= 1 && isfinite(runs[i].tokens) &&
              runs[i].loss > 0 && isfinite(runs[i].loss)))
            return ash_err_set(err, -EINVAL, "run %zu: parameters, tokens and loss must be positive numbers", i + 1);
    return 0;
}

int ash_scaling_fit(const struct ash_scaling_run *runs, size_t count, const struct ash_scaling_opts *opts,
                    struct ash_scaling_fitted *fit_out, struct ash_err *err)
{
    struct problem problem = {
        .runs = runs, .count = count, .huber = opts->huber > 0 ? opts->huber : HUBER_DEFAULT, .is_tied = opts->is_tied};
    struct ash_scaling_fitted best = {.objective = INFINITY};
    struct start *starts;
    size_t start_count;
    int rc = check_runs(runs, count, err);

    if (rc < 0) return rc;
    starts = calloc(GRID_POINTS, sizeof(*starts));
    if (starts == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a fit");
    start_count = make_starts(&problem, starts);
    for (size_t i = 0; i < ash_min(start_count, STARTS); i++) {
        double value = descend(&problem, starts[i].x);

        if (value < best.objective) best = (struct ash_scaling_fitted){law_of(starts[i].x), value};
    }
    free(starts);
    *fit_out = best;
    return 0;
}

int ash_scaling_bootstrap(const struct ash_scaling_run *runs, size_t run_count, const struct ash_scaling_opts *opts,
                          const struct ash_scaling_fitted *fit, struct ash_scaling_law *laws, size_t count)
{
    uint32_t *weights = calloc(run_count, sizeof(*weights));
    struct problem problem = {.runs = runs,
                              .weights = weights,
                              .count = run_count,
                              .huber = opts->huber > 0 ? opts->huber : HUBER_DEFAULT,
                              .is_tied = opts->is_tied};

    if (weights == NULL) return -ENOMEM;
    for (size_t s = 0; s < count; s++) {
        double x[UNKNOWNS] = {fit->law.a, fit->law.b, fit->law.e, fit->law.alpha, fit->law.beta};

        memset(weights, 0, run_count * sizeof(*weights));
        for (size_t i = 0; i < run_count; i++)
            weights[ash_rng_below(opts->seed, STREAM_BOOTSTRAP, s * run_count + i, run_count)]++;
        descend(&problem, x);
        laws[s] = law_of(x);
    }
    free(weights);
    return 0;
}

/* ---- predictions ------------------------------------------------------------------------------------------------- */

double ash_scaling_loss(const struct ash_scaling_law *law, double params, double tokens)
{
    double share[3];

    return exp(log_loss(law, log(params), log(tokens), share));
}

void ash_scaling_optimum(const struct ash_scaling_law *law, double flops, double *params_out, double *tokens_out)
{
    /* d loss / d ln params = 0 with tokens = flops / (6 params) */
    double log_ratio = law->a + log(law->alpha) - law->b - log(law->beta), log_c = log(flops / 6.0);
    double log_params = (log_ratio + law->beta * log_c) / (law->alpha + law->beta);

    *params_out = exp(log_params);
    *tokens_out = exp(log_c - log_params);
}

static double loss_of_flops(const struct ash_scaling_law *law, double flops)
{
    double params, tokens;

    ash_scaling_optimum(law, flops, &params, &tokens);
    return ash_scaling_loss(law, params, tokens);
}

double ash_scaling_flops(const struct ash_scaling_law *law, double loss)
{
    double low = 0, high = log(FLOPS_MAX); /* of ln flops: the loss falls with them */

    if (loss_of_flops(law, FLOPS_MAX) > loss) return INFINITY;
    while (high - low > 1e-9) {
        double middle = 0.5 * (low + high);

        if (loss_of_flops(law, exp(middle)) > loss)
            low = middle;
        else
            high = middle;
    }
    return exp(high);
}

double ash_scaling_tokens(const struct ash_scaling_law *law, double params, double loss)
{
    double rest = loss - exp(law->e) - exp(law->a - law->alpha * log(params));

    return rest > 0 ? exp((law->b - log(rest)) / law->beta) : INFINITY;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

struct ash_scaling_interval ash_scaling_middle(double *values, size_t count, double share)
{
    size_t out = (size_t)(0.5 * (1.0 - share) * (double)count);

    ash_assert(share > 0 && share <= 1 && out < count);
    qsort(values, count, sizeof(*values), compare_doubles);
    return (struct ash_scaling_interval){values[out], values[count - 1 - out]};
}
