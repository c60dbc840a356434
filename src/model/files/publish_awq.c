/* Factors of AWQ: inputs of linear layers that are large get finer weights. A factor multiplies a column of a layer and
 * divides what makes the input: a norm's weight, or a row of the layer before. So the model stays what it is, but for
 * the rounding. Factors are sizes of inputs to a power between 0 and 1, the one that loses least. */
#include "model/files/publish_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "model/model_priv.h"
#include "model/weight.h"

#define POWERS 20        /* candidates */
#define SAMPLED_ROWS 512 /* of a layer, at most, for choosing */
#define MEMBERS_MAX 3    /* layers that read the same */
#define FACTOR_MIN 1e-4  /* before all are divided by their middle */

/* Layers that read the same inputs, and what makes these. */
struct group {
    int32_t members[MEMBERS_MAX];
    size_t member_count, inputs;
    int32_t maker, maker_bias;
};

struct search {
    const struct ash_model *model;
    const struct ash_encoding *encoding;
    const struct ash_inputs *inputs;
    struct ash_publish_factors *factors;
    struct ash_workers *workers;
    const struct group *group;
    const struct ash_inputs *read;
    double losses[POWERS];
    bool lacks_memory;
};

/* ---- one candidate ----------------------------------------------------------------------------------------------- */

static bool make_factors(const struct ash_inputs *read, size_t power, float *factors)
{
    double low = INFINITY, high = 0.0, middle;

    for (size_t c = 0; c < read->count; c++) {
        double factor = fmax(pow(read->sizes[c], (double)power / POWERS), FACTOR_MIN);

        factors[c] = (float)factor;
        low = fmin(low, factor);
        high = fmax(high, factor);
    }
    middle = sqrt(low * high);
    for (size_t c = 0; c < read->count; c++)
        factors[c] = (float)((double)factors[c] / middle);
    return isfinite(middle) && middle > 0;
}

/* The squared error of sampled rows of a layer, weighed by the squares of its inputs. */
static double layer_loss(const struct search *search, size_t index, const float *factors, float *x,
                         const struct ash_encoded_row *row)
{
    const struct ash_param *param = &search->model->params[index];
    size_t step = ash_div_up(param->dims[0], SAMPLED_ROWS), cols = param->dims[1];
    double loss = 0.0;

    for (size_t r = 0; r < param->dims[0]; r += step) {
        ash_publish_read(search->model, search->factors, index, r * cols, cols, x);
        for (size_t c = 0; c < cols; c++)
            x[c] *= factors[c];
        search->encoding->row(search->encoding, x, cols, 1.0f, row);
        for (size_t c = 0; c < cols; c++) {
            double error = (double)(x[c] - row->decoded[c]) / (double)factors[c];

            loss += error * error * search->read->squares[c];
        }
    }
    return loss;
}

static void try_powers(void *ctx, size_t begin, size_t end, int worker)
{
    struct search *search = ctx;
    size_t cols = search->group->inputs;
    float *x = malloc(3 * cols * sizeof(*x));
    uint8_t *bytes = malloc(4 * cols);

    (void)worker;
    for (size_t power = begin; power < end && x != NULL && bytes != NULL; power++) {
        const struct ash_encoded_row row = {bytes, bytes + cols, bytes + 3 * cols, x + cols};
        bool is_finite = make_factors(search->read, power, x + 2 * cols);

        search->losses[power] = is_finite ? 0.0 : INFINITY;
        for (size_t i = 0; i < search->group->member_count && is_finite; i++)
            search->losses[power] += layer_loss(search, (size_t)search->group->members[i], x + 2 * cols, x, &row);
    }
    if (x == NULL || bytes == NULL) search->lacks_memory = true;
    free(x);
    free(bytes);
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

static int set_factors(float **slot, const float *factors, size_t count)
{
    *slot = malloc(count * sizeof(**slot));
    if (*slot == NULL) return -ENOMEM;
    memcpy(*slot, factors, count * sizeof(**slot));
    return 0;
}

static int settle(struct search *search, size_t power)
{
    const struct group *group = search->group;
    float *factors = malloc(group->inputs * sizeof(*factors));
    int rc = factors != NULL ? 0 : -ENOMEM;

    if (rc == 0) make_factors(search->read, power, factors);
    for (size_t i = 0; rc == 0 && i < group->member_count; i++)
        rc = set_factors(&search->factors->ins[group->members[i]], factors, group->inputs);
    if (rc == 0) rc = set_factors(&search->factors->outs[group->maker], factors, group->inputs);
    if (rc == 0 && group->maker_bias != ASH_NO_PARAM)
        rc = set_factors(&search->factors->outs[group->maker_bias], factors, group->inputs);
    free(factors);
    return rc;
}

/* Members that are there are at the front. Groups of which a layer is not quantised, or that nothing read, are left. */
static int find_group(struct search *search, struct group group)
{
    size_t best = 0, count = 0;

    for (size_t i = 0; i < MEMBERS_MAX; i++)
        if (group.members[i] != ASH_NO_PARAM) group.members[count++] = group.members[i];
    group.member_count = count;
    if (count == 0 || group.maker == ASH_NO_PARAM) return 0;
    search->group = &group;
    search->read = NULL;
    group.inputs = search->model->params[group.members[0]].dims[1];
    for (size_t i = 0; i < count; i++) {
        size_t index = (size_t)group.members[i];

        if (!ash_publish_is_quantised(search->model, search->encoding, index)) return 0;
        if (search->read == NULL && search->inputs[index].sizes != NULL) search->read = &search->inputs[index];
    }
    if (search->read == NULL || search->model->params[group.maker].dims[0] != group.inputs) return 0;
    ash_workers_run(search->workers, POWERS, 1, try_powers, search);
    if (search->lacks_memory) return -ENOMEM;
    for (size_t i = 1; i < POWERS; i++)
        if (search->losses[i] < search->losses[best]) best = i;
    return best > 0 ? settle(search, best) : 0;
}

/* What a layer's factors divide is settled before its own are chosen. */
static int find_layer(struct search *search, size_t layer)
{
    const struct ash_model_config *c = &search->model->config;
    const int32_t *p = search->model->layers[layer].param;
    bool is_dense = p[ASH_ROLE_ROUTER] == ASH_NO_PARAM,
         has_own_norm = !c->form.parallel || p[ASH_ROLE_NORM2] != ASH_NO_PARAM;
    bool multiplies = c->form.mlp == ASH_MLP_GATED || c->form.mlp == ASH_MLP_GATED_TANH;
    const struct group down = {.members = {p[ASH_ROLE_DOWN], ASH_NO_PARAM, ASH_NO_PARAM},
                               .maker = is_dense && multiplies ? p[ASH_ROLE_UP] : ASH_NO_PARAM,
                               .maker_bias = p[ASH_ROLE_UP_BIAS]};
    const struct group out = {.members = {p[ASH_ROLE_OUT], ASH_NO_PARAM, ASH_NO_PARAM},
                              .maker = c->heads == c->kv_heads ? p[ASH_ROLE_V] : ASH_NO_PARAM,
                              .maker_bias = p[ASH_ROLE_V_BIAS]};
    const struct group up = {.members = {p[ASH_ROLE_GATE_UP], p[ASH_ROLE_GATE], p[ASH_ROLE_UP]},
                             .maker = is_dense && has_own_norm ? p[ASH_ROLE_NORM2] : ASH_NO_PARAM,
                             .maker_bias = p[ASH_ROLE_NORM2_BIAS]};
    struct group qkv = {.members = {p[ASH_ROLE_Q], p[ASH_ROLE_K], p[ASH_ROLE_V]},
                        .maker = has_own_norm && c->attn == ASH_ATTN_GROUPED ? p[ASH_ROLE_NORM1] : ASH_NO_PARAM,
                        .maker_bias = p[ASH_ROLE_NORM1_BIAS]};
    int rc;

    if (p[ASH_ROLE_QKV] != ASH_NO_PARAM) qkv.members[0] = p[ASH_ROLE_QKV];
    rc = find_group(search, down);
    if (rc == 0) rc = find_group(search, out);
    if (rc == 0) rc = find_group(search, up);
    return rc == 0 ? find_group(search, qkv) : rc;
}

int ash_publish_find_factors(const struct ash_model *model, const struct ash_encoding *encoding,
                             const struct ash_inputs *inputs, struct ash_workers *workers,
                             struct ash_publish_factors *factors, struct ash_err *err)
{
    struct search search = {
        .model = model, .encoding = encoding, .inputs = inputs, .factors = factors, .workers = workers};
    int rc = 0;

    factors->count = model->param_count;
    factors->ins = calloc(model->param_count, sizeof(*factors->ins));
    factors->outs = calloc(model->param_count, sizeof(*factors->outs));
    if (factors->ins == NULL || factors->outs == NULL) rc = -ENOMEM;
    for (size_t layer = 0; rc == 0 && inputs != NULL && layer < model->config.layers; layer++)
        rc = find_layer(&search, layer);
    return rc < 0 ? ash_err_set(err, rc, "out of memory for the factors of layers") : 0;
}

void ash_publish_factors_fini(struct ash_publish_factors *factors)
{
    for (size_t i = 0; i < factors->count; i++) {
        if (factors->ins != NULL) free(factors->ins[i]);
        if (factors->outs != NULL) free(factors->outs[i]);
    }
    free(factors->ins);
    free(factors->outs);
}

/* ---- using them -------------------------------------------------------------------------------------------------- */

void ash_publish_read(const struct ash_model *model, const struct ash_publish_factors *factors, size_t index,
                      size_t first, size_t count, float *out)
{
    const struct ash_param *param = &model->params[index];
    const float *ins = factors->ins[index], *outs = factors->outs[index];
    size_t cols = param->dim_count == 2 ? param->dims[1] : 1;

    ash_weights_to_f32(param->data, param->dtype, first, count, out);
    for (size_t i = 0; i < count && (ins != NULL || outs != NULL); i++) {
        if (ins != NULL) out[i] *= ins[(first + i) % cols];
        if (outs == NULL) continue;
        out[i] = param->has_one ? (1.0f + out[i]) / outs[(first + i) / cols] - 1.0f : out[i] / outs[(first + i) / cols];
    }
}
