/* The shape of a model that does not exist yet, from its number of parameters. */
#include "plan/shape.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

#define ASPECT 128.0      /* width to depth; large models are between 100 and 130 */
#define ASPECT_WEIGHT 0.1 /* of a wrong aspect beside a wrong size, both as logarithms */
#define WIDE_STEP (KV_HEADS * 128.0)
#define WIDTH_MAX 65536.0
#define LAYERS_MAX 256.0
#define NARROW 2048.0   /* up to here heads of 64, above of 128 */
#define TIED_PARAMS 3e9 /* smaller ones share the embedding */
#define KV_HEADS 8.0    /* wide models have a multiple of this number of heads */
#define NARROW_STEP 128.0
#define OFF_MAX 0.2 /* of the size that was asked for */

static struct ash_shape shape_of(double layers, double hidden, double vocab, bool tied)
{
    double head_dim = hidden <= NARROW ? 64 : 128, heads = hidden / head_dim;

    return (struct ash_shape){.layers = layers,
                              .hidden = hidden,
                              .heads = heads,
                              .kv_heads = fmod(heads, KV_HEADS) == 0 ? KV_HEADS : heads,
                              .head_dim = head_dim,
                              .ffn = 3.5 * hidden,
                              .gated = true,
                              .vocab = vocab,
                              .tied = tied,
                              .attn_layers = layers,
                              .dense_layers = layers};
}

int ash_shape_sized(double params, double vocab, struct ash_shape *shape_out, struct ash_err *err)
{
    double best = INFINITY, off;

    for (double hidden = NARROW_STEP; hidden <= WIDTH_MAX; hidden += hidden < NARROW ? NARROW_STEP : WIDE_STEP)
        for (double layers = 2; layers <= LAYERS_MAX; layers++) {
            struct ash_shape shape = shape_of(layers, hidden, vocab, params < TIED_PARAMS);
            double wrong =
                fabs(log(ash_shape_params(&shape) / params)) + ASPECT_WEIGHT * fabs(log(hidden / layers / ASPECT));

            if (!(wrong < best)) continue;
            best = wrong;
            *shape_out = shape;
        }
    off = fabs(ash_shape_params(shape_out) / params - 1);
    if (!(off <= OFF_MAX))
        return ash_err_set(err, -EINVAL, "no dense model with a vocabulary of %.0f has about %.3g parameters", vocab,
                           params);
    snprintf(shape_out->name, sizeof(shape_out->name), params >= 1e9 ? "dense-%.0fb" : "dense-%.0fm",
             params * (params >= 1e9 ? 1e-9 : 1e-6));
    return ash_shape_complete(shape_out, err);
}
