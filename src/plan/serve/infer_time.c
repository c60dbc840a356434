/* Passes of a serving replica, part by part: matrix products and memory traffic of weights, caches and experts, links,
 * and time that does not shrink with the work. One pipeline stage is predicted; its micro-batches fill the others. */
#include "plan/serve/infer_time.h"

#include <limits.h>
#include <math.h>

#include "base/assert.h"

static const double weight_bytes[ASH_GPU_PRECISIONS] = {2, 1, 0.5625}; /* fp4: a scale of 8 bits per 16 */
static const double cache_element_bytes[ASH_GPU_PRECISIONS] = {2, 1, 0.5625};

/* How a replica is cut. */
struct cut {
    double ranks;   /* GPUs of a stage */
    double groups;  /* that attention's requests are split among */
    double split;   /* GPUs that share one attention group */
    double experts; /* GPUs that share all routed experts */
};

static struct cut cut_of(const struct ash_infer *infer)
{
    struct cut cut = {.groups = fmax(1, infer->attn_dp)};

    cut.ranks = fmax(fmax(infer->tp, infer->attn_dp), infer->ep);
    cut.split = fmax(1, cut.ranks / cut.groups);
    cut.experts = cut.ranks;
    return cut;
}

int ash_infer_gpus(const struct ash_infer *infer)
{
    return (int)fmin(cut_of(infer).ranks * infer->pp, INT_MAX);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Attention of a model with 4-bit experts stays as it was. */
static enum ash_gpu_precision attn_precision(const struct ash_infer *infer)
{
    return infer->shape.sparse_layers > 0 && infer->weights == ASH_GPU_FP4 ? ASH_GPU_BF16 : infer->weights;
}

/* Parameters of the plain parts of a layer's worth of passes, over all layers: dense MLPs, shared experts, state
 * spaces. */
static double plain_params(const struct ash_shape *shape)
{
    return shape->dense_layers * ash_shape_dense_params(shape) + shape->sparse_layers * ash_shape_shared_params(shape) +
           shape->ssm_layers * ash_shape_ssm_params(shape);
}

static double attn_params(const struct ash_shape *shape)
{
    return shape->attn_layers * ash_shape_attn_params(shape);
}

static double expert_params(const struct ash_shape *shape)
{
    return shape->sparse_layers > 0 ? shape->sparse_layers * shape->experts * ash_shape_expert_params(shape) : 0;
}

double ash_infer_weight_bytes(const struct ash_infer *infer)
{
    const struct ash_shape *shape = &infer->shape;
    struct cut cut = cut_of(infer);
    double bytes = attn_params(shape) * weight_bytes[attn_precision(infer)] / cut.split;

    bytes += plain_params(shape) * weight_bytes[infer->weights] / cut.split;
    bytes += (ash_shape_embed_params(shape) + ash_shape_head_params(shape)) * 2 / cut.split;
    bytes += expert_params(shape) * weight_bytes[infer->weights] / cut.experts;
    return bytes / infer->pp;
}

/* Bytes of cache per token on one GPU of the group that holds it. Latent caches are not cut. */
static double cache_bytes(const struct ash_infer *infer)
{
    const struct ash_shape *shape = &infer->shape;
    double share = shape->kv_rank > 0 ? 1 : fmin(cut_of(infer).split, shape->kv_heads);

    return ash_shape_cache_bytes(shape, cache_element_bytes[infer->cache]) / share / infer->pp;
}

double ash_infer_usable_bytes(const struct ash_consts *consts, const struct ash_gpu *gpu)
{
    return gpu->memory_bytes * consts->memory_usable - consts->memory_buffers;
}

double ash_infer_requests(const struct ash_consts *consts, const struct ash_infer *infer, double context_tokens)
{
    double workspace = infer->shape.sparse_layers > 0 ? consts->infer_workspace_sparse_gb : consts->infer_workspace_gb;
    double left = infer->cluster.machine.gpu->memory_bytes - ash_infer_weight_bytes(infer);
    double usable = ash_infer_usable_bytes(consts, infer->cluster.machine.gpu) - ash_infer_weight_bytes(infer);
    double free_bytes = fmax(left - workspace * 1e9, usable * consts->infer_cache_min);

    if (usable <= 0) return 0;
    return consts->infer_reserve * free_bytes / cache_bytes(infer) / context_tokens * cut_of(infer).groups;
}

/* ---- one pass of one stage --------------------------------------------------------------------------------------- */

struct pass {
    const struct ash_consts *consts;
    const struct ash_infer *infer;
    const struct ash_gpu *gpu;
    struct cut cut;
    double sequences, tokens;    /* of the micro-batch */
    double mine, mine_sequences; /* of one attention group */
    double new_tokens, context;
    struct ash_infer_time time;
};

/* What the best measured product promises at a precision: measured, or as much of its peak as in bf16; 0: unknown. */
static double best_product(const struct ash_gpu *gpu, enum ash_gpu_precision precision)
{
    if (gpu->gemm_flops[precision] > 0) return gpu->gemm_flops[precision];
    return gpu->gemm_flops[ASH_GPU_BF16] * gpu->flops[precision] / gpu->flops[ASH_GPU_BF16];
}

/* FLOP/s of matrix products; a precision that the GPU lacks is widened. In fp4 the board's power ends before the
 * arithmetic does. */
static double rate(const struct pass *pass, enum ash_gpu_precision precision)
{
    const struct ash_consts *consts = pass->consts;
    const struct ash_gpu *gpu = pass->gpu;
    double flops, best;

    while (precision > ASH_GPU_BF16 && gpu->flops[precision] <= 0)
        precision--;
    flops = gpu->flops[precision] * (precision == ASH_GPU_BF16 ? consts->infer_gemm_bf16 : consts->infer_gemm_fp8);
    best = best_product(gpu, precision) * consts->gemm_measured;
    if (best > 0) flops = fmin(flops, best);
    if (precision == ASH_GPU_FP4 && gpu->watts > 0) flops = fmin(flops, gpu->watts * consts->infer_fp4_tflops_w * 1e12);
    return flops;
}

/* Work that computes and reads at once: the two overlap, but not wholly. */
static void add_work(struct pass *pass, double compute_s, double memory_s)
{
    double total = hypot(compute_s, memory_s), sum = compute_s + memory_s;

    if (sum <= 0) return;
    pass->time.compute += total * compute_s / sum;
    pass->time.memory += total * memory_s / sum;
}

/* Products of `rows` tokens with params parameters, cut over `split` GPUs. */
static void add_product(struct pass *pass, double rows, double params, double split, enum ash_gpu_precision weights,
                        enum ash_gpu_precision compute)
{
    double bandwidth = pass->gpu->memory_bandwidth * pass->consts->infer_weights;

    add_work(pass, 2 * params * rows / split / rate(pass, compute), params * weight_bytes[weights] / split / bandwidth);
}

/* The experts that at least one token chose are read; the rows of each are filled up to whole tiles. */
static void add_experts(struct pass *pass)
{
    const struct ash_shape *shape = &pass->infer->shape;
    const struct ash_consts *consts = pass->consts;
    double all = expert_params(shape), chosen, rows, speed = rate(pass, pass->infer->compute) * consts->infer_experts;
    double bandwidth = pass->gpu->memory_bandwidth * consts->infer_weights, cut = pass->cut.experts;

    if (all <= 0) return;
    chosen = -expm1(pass->tokens * log1p(-fmin(shape->choices / shape->experts, 1 - 1e-9)));
    rows = pass->tokens * shape->choices / shape->experts / chosen;
    rows += fmin(consts->infer_expert_pad, consts->infer_expert_pad_ratio * rows);
    if (pass->infer->weights == ASH_GPU_FP4 && pass->infer->compute != ASH_GPU_FP4) speed *= consts->infer_dequant;
    add_work(pass, 2 * all * chosen * rows / cut / speed,
             all * chosen * weight_bytes[pass->infer->weights] / cut / bandwidth);
    pass->time.memory += pass->tokens * shape->choices / cut * shape->sparse_layers * shape->hidden *
                         consts->infer_expert_bytes / bandwidth;
}

/* Keys that a token sees, summed over layers. */
static double keys_seen(const struct ash_shape *shape, double keys)
{
    double full = shape->attn_layers - shape->window_layers;

    return full * keys + shape->window_layers * (shape->window > 0 ? fmin(keys, shape->window) : keys);
}

/* While decoding, latent attention multiplies with the compressed cache itself. */
static double attention_flops(const struct pass *pass)
{
    const struct ash_shape *s = &pass->infer->shape;

    if (s->kv_rank > 0 && pass->new_tokens <= 1) return 2 * s->heads * (2 * s->kv_rank + s->rope_dim);
    if (s->kv_rank > 0) return 2 * s->heads * (s->nope_dim + s->rope_dim + s->v_dim);
    return 4 * s->heads * s->head_dim;
}

static void add_attention(struct pass *pass)
{
    const struct ash_infer *infer = pass->infer;
    const struct ash_shape *shape = &infer->shape;
    enum ash_gpu_precision precision = infer->cache == ASH_GPU_FP4 ? ASH_GPU_FP8 : infer->cache;
    double keys = keys_seen(shape, pass->context + (pass->new_tokens > 1 ? pass->new_tokens / 2 : 0));
    double speed = pass->gpu->flops[ASH_GPU_BF16] * pass->consts->infer_latent, read;

    if (shape->attn_layers <= 0) return;
    if (pass->new_tokens > 1 || shape->kv_rank == 0) {
        if (pass->gpu->flops[precision] <= 0) precision = ASH_GPU_BF16;
        speed = pass->gpu->flops[precision] * pass->consts->infer_attention;
    }
    read = pass->mine_sequences * keys_seen(shape, pass->context) / shape->attn_layers * cache_bytes(infer) *
           infer->pp / (pass->gpu->memory_bandwidth * pass->consts->infer_cache);
    speed = attention_flops(pass) * pass->mine * keys / pass->cut.split / speed;
    pass->time.compute += speed > read ? speed : 0;
    pass->time.memory += speed > read ? 0 : read;
}

/* Bytes/s between GPUs of one stage, and whether NVLink carries them. */
static double link_bandwidth(const struct pass *pass, bool *network_out)
{
    const struct ash_machine *machine = &pass->infer->cluster.machine;
    double host = pass->gpu->host_bandwidth > 0 ? pass->gpu->host_bandwidth : pass->consts->infer_host_gb_s * 1e9;
    double network = machine->gpus > 0 ? machine->net_bandwidth / machine->gpus : 0;

    *network_out = pass->cut.ranks > fmax(machine->domain_gpus, machine->gpus) && network > 0;
    if (*network_out) return network;
    return pass->gpu->nvlink_bandwidth > 0 ? pass->gpu->nvlink_bandwidth : host;
}

static void add_link(struct pass *pass, double messages, double bytes)
{
    bool network;
    double bandwidth = link_bandwidth(pass, &network) * pass->consts->infer_reduce;
    double latency = pass->consts->infer_reduce_us * 1e-6 * (pass->gpu->nvlink_bandwidth > 0 && !network ? 1 : 3);
    double seconds = messages * latency + bytes / bandwidth;

    pass->time.nvlink += network ? 0 : seconds;
    pass->time.network += network ? seconds : 0;
}

/* Two sums per layer if attention is cut; else tokens sent to their experts and back. */
static void add_links(struct pass *pass)
{
    const struct ash_shape *shape = &pass->infer->shape;
    double split = pass->cut.split, ranks = pass->cut.ranks, width = shape->hidden * 2, copies;

    if (split > 1) add_link(pass, 2 * shape->layers, 2 * shape->layers * 2 * (split - 1) / split * pass->mine * width);
    if (pass->cut.groups <= 1 || shape->sparse_layers <= 0) return;
    copies = fmin(shape->choices, ranks) * (ranks - 1) / ranks;
    add_link(pass, 2 * shape->sparse_layers, /* there in one byte, back in two */
             shape->sparse_layers * pass->mine * copies * shape->hidden * 3);
}

/* All layers; the caller takes its share of them. */
static void add_layers(struct pass *pass)
{
    const struct ash_infer *infer = pass->infer;
    const struct ash_shape *shape = &infer->shape;
    const struct ash_consts *consts = pass->consts;
    enum ash_gpu_precision attn = attn_precision(infer), compute = infer->compute < attn ? infer->compute : attn;
    double bandwidth = pass->gpu->memory_bandwidth * consts->infer_weights;

    if (attn == infer->weights) {
        add_product(pass, pass->mine, attn_params(shape) + plain_params(shape), pass->cut.split, attn, infer->compute);
    } else {
        add_product(pass, pass->mine, attn_params(shape), pass->cut.split, attn, compute);
        add_product(pass, pass->mine, plain_params(shape), pass->cut.split, infer->weights, infer->compute);
    }
    add_product(pass, pass->mine_sequences, shape->hidden * shape->vocab, pass->cut.split, infer->weights,
                infer->compute);
    add_experts(pass);
    add_attention(pass);
    pass->time.memory += pass->mine * shape->layers * shape->hidden * consts->infer_act_bytes / bandwidth;
    pass->time.memory +=
        pass->mine_sequences * shape->vocab * 4 * consts->infer_logit_passes / pass->cut.split / bandwidth;
    add_links(pass);
    pass->time.host += (shape->layers * consts->infer_layer_us + shape->sparse_layers * consts->infer_sparse_us) * 1e-6;
}

static double sum(const struct ash_infer_time *time)
{
    return time->compute + time->memory + time->nvlink + time->network + time->host;
}

static void scale(struct ash_infer_time *time, double factor)
{
    time->compute *= factor;
    time->memory *= factor;
    time->nvlink *= factor;
    time->network *= factor;
    time->host *= factor;
}

void ash_infer_pass(const struct ash_consts *consts, const struct ash_infer *infer, double batch, double new_tokens,
                    double context_tokens, struct ash_infer_time *time_out)
{
    double stages = infer->pp, launched;
    struct pass pass = {
        .consts = consts,
        .infer = infer,
        .gpu = infer->cluster.machine.gpu,
        .cut = cut_of(infer),
        .sequences = batch / stages,
        .new_tokens = new_tokens,
        .context = context_tokens,
    };

    ash_assert(infer->pp >= 1 && infer->cluster.machine.gpu != NULL);
    if (new_tokens <= 1) pass.sequences = fmax(1, pass.sequences);
    pass.tokens = pass.sequences * new_tokens;
    pass.mine_sequences = pass.sequences / pass.cut.groups;
    if (new_tokens <= consts->infer_chunk) /* a prompt that is not cut into chunks stays whole in one group */
        pass.mine_sequences = fmax(pass.mine_sequences, fmin(1, pass.sequences));
    pass.mine = pass.mine_sequences * new_tokens;
    add_layers(&pass);
    scale(&pass.time, 1 / stages);
    launched = infer->shape.layers / stages * consts->infer_launch_us * 1e-6;
    if (new_tokens > 1 && sum(&pass.time) < launched) pass.time.host += launched - sum(&pass.time);
    if (stages > 1) add_link(&pass, 1, pass.tokens * infer->shape.hidden * 2);
    pass.time.host += consts->infer_pass_us * 1e-6;
    if (new_tokens <= 1) pass.time.host += pass.mine_sequences * consts->infer_sequence_us * 1e-6;
    scale(&pass.time, stages);
    pass.time.total = sum(&pass.time);
    *time_out = pass.time;
}
