/* Kernels: the larger of arithmetic and memory time. Products lose to unfilled tiles, to an unfilled last wave of tiles
 * over the multiprocessors and to a short inner length; nothing else about them is modelled. */
#include "plan/train/kernel.h"

#include <math.h>
#include <stdint.h>

#include "base/assert.h"
#include "plan/number.h"

#define SMS_UNKNOWN 128

double ash_gpu_precision_bytes(enum ash_gpu_precision precision)
{
    static const double bytes[ASH_GPU_PRECISIONS] = {2, 1, 0.5};

    ash_assert(precision < ASH_GPU_PRECISIONS);
    return bytes[precision];
}

double ash_kernel_gemm_rate(const struct ash_consts *consts, const struct ash_gpu *gpu,
                            enum ash_gpu_precision precision)
{
    const double shares[] = {[ASH_GENERATION_OTHER] = consts->gemm_hopper,
                             [ASH_GENERATION_AMPERE] = consts->gemm_ampere,
                             [ASH_GENERATION_HOPPER] = consts->gemm_hopper,
                             [ASH_GENERATION_BLACKWELL] = consts->gemm_blackwell,
                             [ASH_GENERATION_ULTRA] = consts->gemm_ultra};
    double share = shares[gpu->generation];

    if (gpu->generation == ASH_GENERATION_OTHER && gpu->gemm_flops[precision] > 0)
        return gpu->gemm_flops[precision] * consts->gemm_measured;
    if (precision == ASH_GPU_FP8 && gpu->flops[precision] > 0) return gpu->flops[precision] * share * consts->gemm_fp8;
    if (precision == ASH_GPU_FP4 && gpu->flops[precision] > 0) return gpu->flops[precision] * share * consts->gemm_fp4;
    if (precision == ASH_GPU_FP4 && gpu->flops[ASH_GPU_FP8] > 0)
        return gpu->flops[ASH_GPU_FP8] * share * consts->gemm_fp8;
    return gpu->flops[ASH_GPU_BF16] * share;
}

/* ceil of a value above 0 and not huge: searches ask a million times, and the library's is a call. */
static double up(double value)
{
    double whole = (double)(int64_t)value;

    return whole < value ? whole + 1 : whole;
}

/* What an unfilled last wave costs. */
static double wave_loss(double waves, double exponent)
{
    double loss = up(waves) / waves;

    return exponent == 0.5 ? sqrt(loss) : pow(loss, exponent);
}

double ash_kernel_gemm(const struct ash_consts *consts, const struct ash_gpu *gpu, enum ash_gpu_precision precision,
                       double groups, double at_once, double m, double n, double k)
{
    double tile_m = 128, tile_n = gpu->generation == ASH_GENERATION_AMPERE ? 128 : 256,
           sms = gpu->sms > 0 ? gpu->sms : SMS_UNKNOWN;
    double tiles, waves, filled, depth, bytes, arithmetic;

    if (groups <= 0 || m <= 0 || n <= 0 || k <= 0) return 0;
    if (m <= 64) tile_m = 64;
    tiles = groups * up(m / tile_m) * up(n / tile_n);
    waves = tiles / ash_larger(1, groups / at_once) / sms;
    filled = groups * m * n / (tiles * tile_m * tile_n); /* of the tiles' area */
    depth = consts->gemm_depth * (2 / ash_gpu_precision_bytes(precision));
    arithmetic = 2 * groups * m * n * k / ash_kernel_gemm_rate(consts, gpu, precision) / filled * (1 + depth / k) *
                 wave_loss(waves, consts->gemm_wave);
    bytes = groups * (ash_gpu_precision_bytes(precision) * (m * k + k * n) + 2 * m * n);
    return ash_larger(arithmetic, ash_kernel_memory(consts, gpu, bytes));
}

double ash_kernel_attention(const struct ash_consts *consts, const struct ash_gpu *gpu, bool new_attention,
                            double flops, double seq_tokens, double head_dim)
{
    /* time of a score's exponential over that of its products with heads of 128: 16 of them per clock and
     * multiprocessor, while tensor cores doubled twice; Blackwell Ultra doubled the exponentials, too */
    static const double ratios[] = {[ASH_GENERATION_OTHER] = 0.5,
                                    [ASH_GENERATION_AMPERE] = 0.25,
                                    [ASH_GENERATION_HOPPER] = 0.5,
                                    [ASH_GENERATION_BLACKWELL] = 1,
                                    [ASH_GENERATION_ULTRA] = 0.5};
    double share = new_attention ? consts->attn_ampere : consts->attn_ampere_old;
    double exponentials = ratios[new_attention ? gpu->generation : ASH_GENERATION_AMPERE];

    if (gpu->generation == ASH_GENERATION_HOPPER || gpu->generation == ASH_GENERATION_OTHER)
        share = new_attention ? consts->attn_hopper : consts->attn_hopper_old;
    if (gpu->generation == ASH_GENERATION_BLACKWELL || gpu->generation == ASH_GENERATION_ULTRA)
        share = consts->attn_blackwell;
    if (head_dim < 128) share *= (1 + exponentials) / (1 + exponentials * 128 / head_dim);
    share *= seq_tokens / (seq_tokens + 256); /* blocks on the diagonal are half empty */
    return flops / (gpu->flops[ASH_GPU_BF16] * share);
}

double ash_kernel_memory(const struct ash_consts *consts, const struct ash_gpu *gpu, double bytes)
{
    return bytes / (gpu->memory_bandwidth * consts->memory_share);
}
