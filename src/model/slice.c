/* slice: how the sizes of a model are split. */
#include "model/slice.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "compute/quant.h"
#include "model/family.h"
#include "model/lora.h"

struct ash_slice ash_slice_whole(const struct ash_model_config *config)
{
    struct ash_slice slice = {.tp_size = 1, .expert_size = 1, .embed = true, .head = true};

    memset(slice.layers, 1, config->layers);
    return slice;
}

struct ash_range ash_slice_kv_heads(const struct ash_model_config *config, const struct ash_slice *slice)
{
    return ash_range_split(config->kv_heads, 1, slice->tp_rank, slice->tp_size);
}

size_t ash_lora_group(const struct ash_lora *lora)
{
    if (lora->base_is_gguf) return ASH_QUANT_GROUP; /* of any type that it may have */
    return lora->quant != ASH_F32 ? ash_max(ash_quant_group(lora->quant), ASH_K_GROUP) : ASH_K_GROUP;
}

struct ash_range ash_slice_columns(const struct ash_model_config *config, size_t ffn, const struct ash_slice *slice)
{
    size_t group = config->lora != NULL ? ash_lora_group(config->lora) : ASH_K_GROUP;

    return ash_range_split(ffn, group, slice->tp_rank, slice->tp_size);
}

struct ash_range ash_slice_hidden(const struct ash_model_config *config, const struct ash_slice *slice)
{
    return ash_range_split(config->hidden, ASH_K_GROUP, slice->tp_rank, slice->tp_size);
}

struct ash_range ash_slice_vocab(const struct ash_model_config *config, const struct ash_slice *slice)
{
    return ash_range_split(config->vocab, ASH_K_GROUP, slice->tp_rank, slice->tp_size);
}

struct ash_range ash_slice_experts(const struct ash_model_config *config, const struct ash_slice *slice)
{
    return ash_range_split(config->expert.experts, 1, slice->expert_rank, slice->expert_size);
}

static int check_columns(const char *what, size_t ffn, const struct ash_slice *slice, bool rounded, struct ash_err *err)
{
    if (slice->tp_size == 1 || ffn == 0 || ffn >= slice->tp_size * ASH_K_GROUP || (!rounded && ffn >= slice->tp_size))
        return 0;
    return ash_err_set(err, -EINVAL,
                       "%zu %s cannot be cut into %zu parts: in bf16 each needs %d, so mesh.tp can be at most %zu", ffn,
                       what, slice->tp_size, ASH_K_GROUP, ffn / ASH_K_GROUP > 0 ? ffn / ASH_K_GROUP : 1);
}

/* Sums over heads' columns that are cut where a rank's key-value heads end: attention's output, and in the backward
 * pass q, k and v. In one matrix (gpt2) k and v follow q in the same sum. */
static int check_heads(const struct ash_model_config *config, const struct ash_slice *slice, struct ash_err *err)
{
    bool latent = config->attn == ASH_ATTN_LATENT;
    bool fused = config->family->names[ASH_ROLE_QKV] != NULL && !config->form.qkv_by_head;
    size_t group = config->heads / config->kv_heads, q = config->heads * config->head_dim;
    size_t widths[3] = {group * config->head_dim, latent ? config->nope_dim + config->v_dim : config->head_dim,
                        latent ? config->v_dim : config->head_dim};

    for (size_t i = 0; i < 3; i++)
        for (size_t r = 1; r < slice->tp_size; r++) {
            size_t cut = ash_range_split(config->kv_heads, 1, r, slice->tp_size).first * widths[i];

            if (cut % ASH_K_GROUP != 0 || (fused && q % ASH_K_GROUP != 0))
                return ash_err_set(
                    err, -EINVAL,
                    "mesh.tp=%zu would cut a sum over heads (%zu values a key-value head) inside a group of %d, which "
                    "bf16 does not allow: choose another mesh.tp, or train.precision=fp32",
                    slice->tp_size, widths[i], ASH_K_GROUP);
        }
    return 0;
}

int ash_slice_check(const struct ash_model_config *config, const struct ash_slice *slice, bool rounded,
                    struct ash_err *err)
{
    int rc;

    if (slice->tp_size > 1 && config->state.heads > 0)
        return ash_err_set(err, -ENOTSUP, "mesh.tp=%zu does not cut the recurrent states of %s: choose mesh.tp=1",
                           slice->tp_size, config->family->type);
    if (slice->tp_size > config->kv_heads)
        return ash_err_set(err, -EINVAL, "mesh.tp=%zu wants more parts than there are key-value heads (%zu)",
                           slice->tp_size, config->kv_heads);
    if (slice->tp_size > 1 && config->form.qk_norm == ASH_QK_NORM_ALL)
        return ash_err_set(err, -ENOTSUP,
                           "mesh.tp=%zu would cut the norms that %s has over all heads: choose mesh.tp=1",
                           slice->tp_size, config->family->type);
    rc = rounded ? check_heads(config, slice, err) : 0;
    if (rc < 0) return rc;
    rc = check_columns("columns of the feed-forward", config->ffn, slice, rounded, err);
    if (rc < 0) return rc;
    rc = check_columns("columns of the shared experts", config->expert.shared_ffn, slice, rounded, err);
    if (rc < 0) return rc;
    if (slice->tp_size > 1 && config->vocab < slice->tp_size * ASH_K_GROUP)
        return ash_err_set(err, -EINVAL, "a vocabulary of %zu cannot be cut into %zu parts of at least %d",
                           config->vocab, slice->tp_size, ASH_K_GROUP);
    if (config->expert.experts > 0 && slice->expert_size > config->expert.experts)
        return ash_err_set(err, -EINVAL, "%zu experts cannot be split over %zu ranks", config->expert.experts,
                           slice->expert_size);
    return 0;
}

/* Has a feed-forward, if there is one, fewer columns than ranks? */
static bool is_narrow(size_t ffn, size_t tp_size)
{
    return ffn > 0 && ffn < tp_size;
}

int ash_slice_check_gathers(const struct ash_model_config *config, const struct ash_slice_parts *parts,
                            struct ash_err *err)
{
    size_t tp = parts->tp;

    if ((tp > 1 || parts->stages > 1) && config->state.heads > 0)
        return ash_err_set(err, -ENOTSUP, "--tp and --pp do not cut the recurrent states of %s: leave them out",
                           config->family->type);
    if (tp > config->kv_heads)
        return ash_err_set(
            err, -EINVAL, "--tp %zu wants more ranks than the model has key-value heads (%zu): choose --tp %zu or less",
            tp, config->kv_heads, config->kv_heads);
    if (config->hidden < tp || config->vocab < tp || is_narrow(config->ffn, tp) || is_narrow(config->expert.ffn, tp) ||
        is_narrow(config->expert.shared_ffn, tp))
        return ash_err_set(err, -EINVAL, "--tp %zu: the model is too small to be cut into that many parts", tp);
    if (parts->stages > config->layers)
        return ash_err_set(err, -EINVAL, "--pp %zu wants more stages than the model has layers (%zu)", parts->stages,
                           config->layers);
    if (parts->whole_experts && config->expert.experts < tp)
        return ash_err_set(err, -EINVAL, "--ep %zu wants more ranks than the model has experts (%zu)%s", tp,
                           config->expert.experts, config->expert.experts == 0 ? ": choose --tp" : "");
    return 0;
}

struct ash_slice ash_slice_gathered(const struct ash_model_config *config, const struct ash_slice_parts *parts,
                                    size_t rank)
{
    struct ash_slice slice = ash_slice_whole(config);
    size_t stage = rank / parts->tp;
    struct ash_range layers = ash_range_split(config->layers, 1, stage, parts->stages);

    ash_assert(stage < parts->stages);
    slice.gathers = true;
    slice.tp_rank = rank % parts->tp;
    slice.tp_size = parts->tp;
    if (parts->whole_experts) {
        slice.expert_rank = slice.tp_rank;
        slice.expert_size = parts->tp;
    }
    slice.embed = stage == 0;
    slice.head = stage + 1 == parts->stages;
    for (size_t i = 0; i < config->layers; i++)
        slice.layers[i] = i >= layers.first && i < ash_range_end(layers);
    return slice;
}

void ash_slice_config(const struct ash_model_config *whole, const struct ash_slice *slice,
                      struct ash_model_config *config_out, uint32_t *layer_ids_out)
{
    size_t group = whole->heads / whole->kv_heads, kept = 0;

    *config_out = *whole;
    config_out->kv_heads = ash_slice_kv_heads(whole, slice).count;
    config_out->heads = config_out->kv_heads * group;
    config_out->ffn = ash_slice_columns(whole, whole->ffn, slice).count;
    if (slice->gathers && slice->expert_size == 1) /* else experts are whole */
        config_out->expert.ffn = ash_slice_columns(whole, whole->expert.ffn, slice).count;
    config_out->expert.shared_ffn = ash_slice_columns(whole, whole->expert.shared_ffn, slice).count;
    for (size_t i = 0; i < whole->layers; i++) {
        if (!slice->layers[i]) continue;
        config_out->sparse[kept] = whole->sparse[i];
        config_out->window[kept] = whole->window[i];
        config_out->rope_at[kept] = whole->rope_at[i];
        config_out->mixer[kept] = whole->mixer[i];
        layer_ids_out[kept++] = (uint32_t)i;
    }
    config_out->layers = kept;
}

bool ash_slice_same(const struct ash_slice *a, const struct ash_slice *b)
{
    return a->tp_rank == b->tp_rank && a->tp_size == b->tp_size && a->gathers == b->gathers &&
           a->expert_rank == b->expert_rank && a->expert_size == b->expert_size && a->embed == b->embed &&
           a->head == b->head && memcmp(a->layers, b->layers, sizeof(a->layers)) == 0 &&
           a->shard_rank == b->shard_rank && a->shard_size == b->shard_size && a->shard_weights == b->shard_weights;
}
