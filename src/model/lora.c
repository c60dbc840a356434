/* lora: adapters as the parameters of a model whose base follows them. */
#include "model/lora_priv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/math.h"
#include "base/rng.h"
#include "model/weight.h"

#define A_NAME ".lora_A.weight"
#define B_NAME ".lora_B.weight"
#define BIAS ".bias"
#define BASE_LAYER ".base_layer" /* PEFT's name of what an adapter wraps */

const char *const ash_lora_bias_names[] = {"none", "lora_only", "all", NULL};

const struct ash_adapter *ash_model_adapter(const struct ash_model *model, int32_t weight)
{
    const struct ash_adapter *adapter;

    if (model->adapters == NULL || weight < 0 || (size_t)weight < model->param_count) return NULL;
    adapter = &model->adapters[(size_t)weight - model->param_count];
    return adapter->rank > 0 ? adapter : NULL;
}

void ash_lora_close(struct ash_lora *lora)
{
    if (lora == NULL) return;
    free(lora->base_dir);
    free(lora->modules);
    json_decref(lora->config);
    free(lora);
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

/* The module of a weight or a bias (end), or NULL. */
static const struct ash_lora_module *find_module(const struct ash_lora *lora, const char *name, const char *end)
{
    const char *dot = strrchr(name, '.');
    size_t length = dot != NULL ? (size_t)(dot - name) : 0;

    if (dot == NULL || strcmp(dot, end) != 0) return NULL;
    for (size_t i = 0; i < lora->count; i++)
        if (strlen(lora->modules[i].name) == length && strncmp(lora->modules[i].name, name, length) == 0)
            return &lora->modules[i];
    return NULL;
}

/* What PEFT calls a parameter of the base that is trained whole, after its module's name; NULL: it is not. */
static const char *whole_suffix(const struct ash_lora *lora, const char *name)
{
    const struct ash_lora_module *module = find_module(lora, name, ".weight");
    const char *dot = strrchr(name, '.');

    if (module != NULL) return module->rank == 0 ? ".weight" : NULL;
    if (dot == NULL || strcmp(dot, BIAS) != 0) return NULL;
    module = find_module(lora, name, BIAS);
    if (module != NULL && module->rank > 0) return lora->bias != ASH_LORA_BIAS_NONE ? BASE_LAYER BIAS : NULL;
    return module != NULL || lora->bias == ASH_LORA_BIAS_ALL ? BIAS : NULL;
}

/* The local part of a tensor, and its whole size. */
struct part {
    size_t dims[2], full[2];
    int cut; /* as in struct ash_param; its runs are those of the base's matrix */
};

/* One parameter of an adapter, at the end of the list so far. */
static void add_param(struct ash_model *model, const struct ash_param *base, const char *suffix,
                      const struct part *part)
{
    struct ash_param *param = &model->params[model->param_count++];
    int module = (int)(strrchr(base->name, '.') - base->name);

    *param = *base;
    snprintf(param->name, sizeof(param->name), "%s%.*s%s", ASH_LORA_PREFIX, module, base->name, suffix);
    memcpy(param->dims, part->dims, sizeof(param->dims));
    memcpy(param->full, part->full, sizeof(param->full));
    param->count = part->dims[0] * (base->dim_count == 2 ? part->dims[1] : 1);
    param->cut = part->cut;
    if (part->cut < 0) param->run_count = 0;
    param->is_counted = part->cut >= 0 || model->slice.tp_rank == 0;
    param->is_adapter = strcmp(suffix, A_NAME) == 0 || strcmp(suffix, B_NAME) == 0;
    if (param->is_adapter) param->is_transposed = false; /* factors are [out, in] whatever their base is */
    param->is_trained = true;
    param->data = NULL;
    param->dtype = ASH_F32;
    param->offset = param->grad_offset = model->size;
    model->size += ash_round_up(param->count, ASH_PARAM_ALIGN);
    model->weight_count += param->count;
}

/* The base's matrix (before it was moved) gets an adapter. */
static void adapt(struct ash_model *model, const struct ash_param *base, struct ash_adapter *adapter,
                  const struct ash_lora_module *module)
{
    int in = base->is_transposed ? 0 : 1, out = 1 - in;
    size_t rank = module->rank;
    struct part a = {{rank, base->dims[in]}, {rank, base->full[in]}, base->cut == in ? 1 : -1};
    struct part b = {{base->dims[out], rank}, {base->full[out], rank}, base->cut == out ? 0 : -1};

    *adapter =
        (struct ash_adapter){(int32_t)model->param_count, (int32_t)model->param_count + 1, module->scale, module->rank};
    add_param(model, base, A_NAME, &a);
    add_param(model, base, B_NAME, &b);
}

/* Trained whole, or with an adapter, or frozen. Returns the index of the parameter that takes the base's place; -1: it
 * stays. */
static int32_t add_trained(struct ash_model *model, const struct ash_param *base, struct ash_adapter *adapter)
{
    const struct ash_lora *lora = model->config.lora;
    const struct ash_lora_module *module = find_module(lora, base->name, ".weight");
    const char *suffix = whole_suffix(lora, base->name);
    struct part whole = {{base->dims[0], base->dims[1]}, {base->full[0], base->full[1]}, base->cut};

    if (suffix != NULL) {
        add_param(model, base, suffix, &whole);
        return (int32_t)model->param_count - 1;
    }
    if (module != NULL) adapt(model, base, adapter, module);
    return -1;
}

/* Roles point behind the adapters, except those of modules that are trained whole. */
static void move_roles(struct ash_model *model, struct ash_layer *layer, const int32_t *saved_as)
{
    for (int role = 0; role < ASH_ROLE_COUNT; role++) {
        int32_t index = layer->param[role];

        if (index == ASH_NO_PARAM) continue;
        layer->param[role] = saved_as[index] >= 0 ? saved_as[index] : index + (int32_t)model->param_count;
    }
}

int ash_lora_list_params(struct ash_model *model, struct ash_err *err)
{
    const struct ash_lora *lora = model->config.lora;
    size_t base_count = model->param_count, capacity = 2 * lora->count + 2 * base_count;
    struct ash_param *base = model->params;
    int32_t *saved_as;

    if (model->slice.tp_size > 1 && model->config.attn == ASH_ATTN_LATENT && model->config.q_rank == 0)
        return ash_err_set(err, -ENOTSUP,
                           "adapters of latent attention with plain queries cannot be cut: set mesh.tp=1");
    saved_as = calloc(base_count, sizeof(*saved_as));
    model->params = calloc(capacity, sizeof(*model->params));
    model->adapters = calloc(base_count, sizeof(*model->adapters));
    if (saved_as == NULL || model->params == NULL || model->adapters == NULL) {
        free(saved_as);
        free(base);
        return ash_err_set(err, -ENOMEM, "out of memory for the adapters of %zu modules", lora->count);
    }
    model->param_capacity = capacity;
    model->param_count = model->size = model->weight_count = 0;
    for (size_t i = 0; i < base_count; i++)
        saved_as[i] = add_trained(model, &base[i], &model->adapters[i]);
    memcpy(model->params + model->param_count, base, base_count * sizeof(*base));
    model->base_count = base_count;
    model->dense_size = model->size;
    model->expert_size = 0;
    model->tied_grad_offset = model->size;
    move_roles(model, &model->top, saved_as);
    for (size_t l = 0; l < model->config.layers; l++)
        move_roles(model, &model->layers[l], saved_as);
    free(saved_as);
    free(base);
    return 0;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

int ash_lora_reserve(struct ash_model *model, const struct ash_exec *exec, size_t max_rows, struct ash_err *err)
{
    size_t rank = 0, bytes;

    if (model->adapters == NULL) return 0;
    for (size_t i = 0; i < model->config.lora->count; i++)
        rank = ash_max(rank, model->config.lora->modules[i].rank);
    bytes = ASH_ADAPTER_SLOTS * max_rows * rank * sizeof(float);
    if (bytes <= model->adapter_scratch.size_bytes) return 0;
    ash_buffer_fini(&model->adapter_scratch);
    return ash_buffer_init(&model->adapter_scratch, exec->memory, bytes, "adapters' products", err);
}

bool ash_lora_drops(const struct ash_model *model)
{
    return model->config.lora != NULL && model->config.lora->dropout > 0.0;
}

int ash_lora_reserve_dropout(struct ash_model *model, const struct ash_exec *exec, size_t max_rows, struct ash_err *err)
{
    size_t cols = 0, bytes;

    if (!ash_lora_drops(model)) return 0;
    for (size_t i = 0; i < model->base_count; i++)
        if (model->adapters[i].rank > 0) cols = ash_max(cols, model->params[model->adapters[i].a].dims[1]);
    bytes = max_rows * cols * sizeof(float);
    if (bytes <= model->dropout_scratch.size_bytes) return 0;
    ash_buffer_fini(&model->dropout_scratch);
    return ash_buffer_init(&model->dropout_scratch, exec->memory, bytes, "inputs of adapters", err);
}

void ash_lora_base_name(const struct ash_param *param, char name[96])
{
    static const char wrapped[] = BASE_LAYER BIAS;
    size_t length;

    snprintf(name, 96, "%s", param->name + strlen(ASH_LORA_PREFIX));
    length = strlen(name);
    if (length > strlen(wrapped) && strcmp(name + length - strlen(wrapped), wrapped) == 0)
        snprintf(name + length - strlen(wrapped), sizeof(wrapped), "%s", BIAS);
}

int ash_lora_take_base(struct ash_model *model, const struct ash_param *param, struct ash_err *err)
{
    const struct ash_param *base;
    char name[96];

    ash_lora_base_name(param, name);
    base = ash_model_find(model->base, name);
    if (base == NULL || ash_dtype_block(base->dtype) > 1)
        return ash_err_set(err, -ENOTSUP, "'%s' cannot be trained whole: the base is quantised", param->name);
    ash_param_take(param, base->data, base->dtype, (float *)model->values.data + param->offset);
    return 0;
}

void ash_param_take(const struct ash_param *param, const void *data, enum ash_dtype dtype, float *values)
{
    for (size_t i = 0; i < ash_param_piece_count(param); i++) {
        struct ash_piece piece = ash_param_piece(param, i);

        ash_weights_to_f32(data, dtype, piece.full, piece.count, values + piece.local);
    }
}

/* New values of A, of which each rank of tp may have a part: functions of the place in the whole of it. */
static void draw_a(const struct ash_param *param, uint64_t seed, float *values)
{
    uint64_t stream = ash_hash_str(param->name);
    double bound = 1.0 / sqrt((double)param->full[1]);

    for (size_t i = 0; i < ash_param_piece_count(param); i++) {
        struct ash_piece piece = ash_param_piece(param, i);

        for (size_t k = 0; k < piece.count; k++)
            values[piece.local + k] = (float)((2.0 * ash_rng_uniform(seed, stream, piece.full + k) - 1.0) * bound);
    }
}

int ash_lora_init(struct ash_model *model, uint64_t seed, struct ash_err *err)
{
    for (size_t i = 0; i < model->param_count; i++) {
        const struct ash_param *param = &model->params[i];
        float *values = (float *)model->values.data + param->offset;
        int rc;

        if (param->is_adapter) {
            memset(values, 0, param->count * sizeof(*values));
            if (strstr(param->name, A_NAME) != NULL) draw_a(param, seed, values);
            continue;
        }
        rc = ash_lora_take_base(model, param, err);
        if (rc < 0) return rc;
    }
    ash_model_refresh(model);
    return 0;
}

/* values += scale * B A, in float64, as the base's tensor lies in memory. */
static void add_product(const struct ash_model *model, const struct ash_adapter *adapter, const struct ash_param *base,
                        float *values)
{
    const float *all = model->values.data, *a = all + model->params[adapter->a].offset,
                *b = all + model->params[adapter->b].offset;
    bool transposed = base->is_transposed;
    size_t in = model->params[adapter->a].dims[1], out = model->params[adapter->b].dims[0];

    for (size_t o = 0; o < out; o++)
        for (size_t i = 0; i < in; i++) {
            double sum = 0.0;
            float *value = &values[transposed ? i * out + o : o * in + i];

            for (size_t r = 0; r < adapter->rank; r++)
                sum += (double)b[o * adapter->rank + r] * (double)a[r * in + i];
            *value = (float)((double)*value + (double)adapter->scale * sum);
        }
}

void ash_lora_merge(const struct ash_model *adapted, const char *name, float *values)
{
    for (size_t i = 0; i < adapted->base_count; i++) {
        const struct ash_param *base = &adapted->params[adapted->param_count + i];

        if (strcmp(base->name, name) == 0 && adapted->adapters[i].rank > 0)
            add_product(adapted, &adapted->adapters[i], base, values);
    }
    for (size_t i = 0; i < adapted->param_count; i++) {
        const struct ash_param *param = &adapted->params[i];
        char whole[96];

        ash_lora_base_name(param, whole);
        if (!param->is_adapter && strcmp(whole, name) == 0)
            memcpy(values, (const float *)adapted->values.data + param->offset, param->count * sizeof(float));
    }
}
