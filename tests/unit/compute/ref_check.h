/* What the tests of the reference ops share: formulas in double are held against its forward, and their central
 * differences against its backward. */
#ifndef TEST_REF_CHECK_H
#define TEST_REF_CHECK_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/assert.h"
#include "base/rng.h"
#include "compute/ops.h"

/* A scalar function of count inputs. */
typedef double (*scalar_fn)(const void *ctx, const double *x);

static inline void fill(float *x, size_t count, uint64_t stream, float scale)
{
    for (size_t i = 0; i < count; i++)
        x[i] = scale * (float)ash_rng_normal(11, stream, i);
}

static inline void widen(const float *x, size_t count, double *out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (double)x[i];
}

static inline void check_close(double got, double want, double tolerance, const char *what, size_t i)
{
    if (fabs(got - want) <= tolerance * (1.0 + fabs(want))) return;
    fail_msg("%s[%zu] is %.9g, want %.9g", what, i, got, want);
}

static inline void check_all(const float *got, const double *want, size_t count, double tolerance, const char *what)
{
    for (size_t i = 0; i < count; i++)
        check_close((double)got[i], want[i], tolerance, what, i);
}

/* got[i] must be df/dx[i] of the double function at x (float32, count of them). */
static inline void check_gradient(scalar_fn f, const void *ctx, const float *x, size_t count, const float *got,
                                  const char *what)
{
    const double step = 1e-5;
    double *at = calloc(count, sizeof(*at));

    assert_non_null(at);
    widen(x, count, at);
    for (size_t i = 0; i < count; i++) {
        double here = at[i], up, down;

        at[i] = here + step;
        up = f(ctx, at);
        at[i] = here - step;
        down = f(ctx, at);
        at[i] = here;
        check_close((double)got[i], (up - down) / (2 * step), 2e-5, what, i);
    }
    free(at);
}

static inline void ref_init(struct ash_exec *exec)
{
    struct ash_err err = {0};

    if (ash_exec_init(exec, "ref", 2, &err) != 0) fail_msg("%s", err.text);
}

#endif
