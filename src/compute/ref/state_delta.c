/* The gated delta rule in plain C: what a row of a scan does to a state, and back. */
#include "compute/ref/state_priv.h"

#include <math.h>
#include <string.h>

#include "compute/mathf.h"

#define LENGTH_EPS 1e-6f

/* to = from divided by its length, times factor. Returns the divisor's inverse. */
static float divide(const float *from, size_t count, float factor, float *to)
{
    float by = 1.0f / sqrtf(ash_ref_state_dot(from, from, count) + LENGTH_EPS);

    for (size_t n = 0; n < count; n++)
        to[n] = (from[n] * by) * factor;
    return by;
}

static float root_of(size_t size)
{
    return 1.0f / sqrtf((float)size);
}

void ash_ref_delta_row(const struct ash_scan_args *args, size_t head, size_t r, float *room, struct ash_state_row *row)
{
    row->b_factor = divide(row->b, args->size, 1.0f, room);
    row->c_factor = divide(row->c, args->size, root_of(args->size), room + args->size);
    row->b = room;
    row->c = room + args->size;
    row->beta = ash_sigmoidf(args->beta[r * args->raw_stride + head]);
}

void ash_ref_delta_advance(const struct ash_scan_args *args, const struct ash_state_row *row, const float *from,
                           float *to)
{
    size_t size = args->size;

    for (size_t d = 0; d < args->dims; d++, from += size, to += size) {
        float u;

        for (size_t n = 0; n < size; n++)
            to[n] = from[n] * row->a;
        u = (row->x[d] - ash_ref_state_dot(to, row->b, size)) * row->beta;
        for (size_t n = 0; n < size; n++)
            to[n] = fmaf(u, row->b[n], to[n]);
    }
}

/* A vector that was divided by its length: what that made of it, times root; the inverse of the length. */
struct divided {
    const float *y;
    float root, by;
};

/* Its gradient, from d, that of y. */
static void divide_backward(const struct divided *v, const float *d, size_t count, float *dx)
{
    float along = ash_ref_state_dot(v->y, d, count) / (v->root * v->root);

    for (size_t n = 0; n < count; n++)
        dx[n] = (v->by * v->root) * (d[n] - along * v->y[n]);
}

/* Gradients of a row, sums over its dims: of the divided B and C, of beta and of a. */
struct sums {
    float *db, *dc, dbeta, da;
};

/* Vectors of one of the dims: the state before and after, and its gradient. */
struct dim {
    const float *before, *state;
    float *ds;
};

/* Dim d: its gradient becomes that of the state before, sums get their terms. Returns dx. */
static float backward_dim(const struct ash_state_row *row, struct dim v, size_t size, float x, float dy,
                          struct sums *sums)
{
    float had = row->a * ash_ref_state_dot(v.before, row->b, size), rest = x - had, u = rest * row->beta, du, dx;

    for (size_t n = 0; n < size; n++) {
        sums->dc[n] = fmaf(dy, v.state[n], sums->dc[n]);
        v.ds[n] = fmaf(dy, row->c[n], v.ds[n]);
    }
    du = ash_ref_state_dot(v.ds, row->b, size);
    dx = du * row->beta;
    sums->dbeta = fmaf(du, rest, sums->dbeta);
    for (size_t n = 0; n < size; n++) {
        sums->db[n] = fmaf(v.ds[n], u, sums->db[n]);
        sums->db[n] = fmaf(-dx, row->a * v.before[n], sums->db[n]);
        v.ds[n] = fmaf(-dx, row->b[n], v.ds[n]);
    }
    sums->da = sums->da + ash_ref_state_dot(v.ds, v.before, size);
    for (size_t n = 0; n < size; n++)
        v.ds[n] = v.ds[n] * row->a;
    return dx;
}

void ash_ref_delta_backward(const struct ash_scan_args *args, const struct ash_state_row *row,
                            const struct ash_state_back *back)
{
    size_t size = args->size, r = back->r, head = back->head, at = r * args->draw_stride + head;
    const float *dy = args->dy + (r * args->heads + head) * args->dims;
    float *dx = args->dxbc + r * args->xbc_stride + args->x_at + head * args->dims;
    float *db = args->work + (2 * r * args->heads + head) * size;
    struct sums sums = {.db = back->room, .dc = back->room + size};
    struct divided b = {row->b, 1.0f, row->b_factor}, c = {row->c, root_of(size), row->c_factor};
    float dg;

    memset(back->room, 0, 2 * size * sizeof(float));
    for (size_t d = 0; d < args->dims; d++) {
        struct dim dim = {back->before + d * size, back->state + d * size, back->dstate + d * size};

        dx[d] = backward_dim(row, dim, size, row->x[d], dy[d], &sums);
    }
    divide_backward(&b, sums.db, size, db);
    divide_backward(&c, sums.dc, size, db + args->heads * size);
    dg = sums.da * row->a;
    args->dparams[2 * r * args->heads + head] = -(row->decay * row->step) * dg;
    args->draw[at] = -row->decay * dg * ash_sigmoidf(row->raw);
    args->dbeta[at] = sums.dbeta * (row->beta * (1.0f - row->beta));
}
