/* Measures multiply-add peaks. Written in assembly, because a compiler would be right to remove such loops; 24
 * accumulators (12 where there are 16 registers) in an aligned loop, because fewer run at half or full speed by chance.
 * Operands are small ordinary numbers. On arm64 the newer instructions are spelt as words: not every assembler of today
 * knows their names. */
#include "lib/peak.h"

#include <stddef.h>
#include <stdint.h>

#include "infra/cpu.h"
#include "lib/team.h"

#define ROUNDS 4000000u

struct loop {
    const char *instruction;
    void (*run)(uint64_t rounds);
    double ops_per_round;
};

/* Bytes 0x3c: 0.0115 as float32 and bf16, 60 as int8. */
#define B8 0x3c3c3c3c3c3c3c3cull
static const uint64_t operands[16]
    __attribute__((aligned(64), unused)) = {B8, B8, B8, B8, B8, B8, B8, B8, B8, B8, B8, B8, B8, B8, B8, B8};

#define TIMES_12(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define TIMES_24(X) TIMES_12(X) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23)

#if defined(__aarch64__)

#define ZERO(i) "movi v" #i ".4s, #0\n"
#define CLOBBERS                                                                                                       \
    "cc", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14",     \
        "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v30", "v31"
#define LOOP(name, STEP)                                                                                               \
    static void name(uint64_t rounds)                                                                                  \
    {                                                                                                                  \
        __asm__ volatile("ld1 {v30.16b, v31.16b}, [%1]\n" TIMES_24(ZERO) ".p2align 6\n1:\n" TIMES_24(                  \
                             STEP) "subs %0, %0, #1\nb.ne 1b\n"                                                        \
                         : "+r"(rounds)                                                                                \
                         : "r"(operands)                                                                               \
                         : CLOBBERS);                                                                                  \
    }
#define FMLA(i) "fmla v" #i ".4s, v30.4s, v31.4s\n"
#define BFMMLA(i) ".inst 0x6e40ec00 | 31 << 16 | 30 << 5 | " #i "\n"
#define SMMLA(i) ".inst 0x4e80a400 | 31 << 16 | 30 << 5 | " #i "\n"
#define SDOT(i) ".inst 0x4e809400 | 31 << 16 | 30 << 5 | " #i "\n"
LOOP(run_fmla, FMLA)
LOOP(run_bfmmla, BFMMLA)
LOOP(run_smmla, SMMLA)
LOOP(run_sdot, SDOT)

static struct loop pick(enum bench_peak kind)
{
    const struct ash_cpu *cpu = ash_cpu_get();

    if (kind == BENCH_PEAK_F32) return (struct loop){"fmla.4s", run_fmla, 24 * 8};
    if (kind == BENCH_PEAK_BF16 && cpu->bf16) return (struct loop){"bfmmla", run_bfmmla, 24 * 32};
    if (kind == BENCH_PEAK_INT8 && cpu->i8mm) return (struct loop){"smmla", run_smmla, 24 * 64};
    if (kind == BENCH_PEAK_INT8 && cpu->dotprod) return (struct loop){"sdot", run_sdot, 24 * 32};
    return (struct loop){0};
}

#elif defined(__x86_64__)

#define CLOBBERS_16                                                                                                    \
    "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",  \
        "xmm14", "xmm15"
#define CLOBBERS_32                                                                                                    \
    CLOBBERS_16, "xmm12", "xmm13", "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm30",    \
        "xmm31"
#define LOOP(name, isa, TIMES, ZERO, STEP, reg, a, b, ...)                                                             \
    __attribute__((target(isa))) static void name(uint64_t rounds)                                                     \
    {                                                                                                                  \
        __asm__ volatile("vmovups (%1), %%" reg a "\nvmovups (%1), %%" reg b                                           \
                         "\n" TIMES(ZERO) ".p2align 6\n1:\n" TIMES(STEP) "dec %0\njnz 1b\nvzeroupper\n"                \
                         : "+r"(rounds)                                                                                \
                         : "r"(operands)                                                                               \
                         : __VA_ARGS__);                                                                               \
    }
#define ZERO_YMM(i) "vxorps %%ymm" #i ", %%ymm" #i ", %%ymm" #i "\n"
#define ZERO_ZMM(i) "vpxord %%zmm" #i ", %%zmm" #i ", %%zmm" #i "\n"
#define FMA_YMM(i) "vfmadd231ps %%ymm14, %%ymm15, %%ymm" #i "\n"
#define FMA_ZMM(i) "vfmadd231ps %%zmm30, %%zmm31, %%zmm" #i "\n"
#define BF16_ZMM(i) "vdpbf16ps %%zmm30, %%zmm31, %%zmm" #i "\n"
#define VNNI_ZMM(i) "vpdpbusd %%zmm30, %%zmm31, %%zmm" #i "\n"
LOOP(run_fma_ymm, "avx2,fma", TIMES_12, ZERO_YMM, FMA_YMM, "ymm", "14", "15", CLOBBERS_16)
LOOP(run_fma_zmm, "avx512f", TIMES_24, ZERO_ZMM, FMA_ZMM, "zmm", "30", "31", CLOBBERS_32)
LOOP(run_bf16_zmm, "avx512f", TIMES_24, ZERO_ZMM, BF16_ZMM, "zmm", "30", "31", CLOBBERS_32)
LOOP(run_vnni_zmm, "avx512f", TIMES_24, ZERO_ZMM, VNNI_ZMM, "zmm", "30", "31", CLOBBERS_32)

/* Whole tiles: 16 x 16 sums, 16 rows of 64 bytes on either side. Four sums in flight hide the latency. */
struct tiles {
    uint8_t palette, start_row, zero[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
static const struct tiles whole_tiles = {
    .palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16}};
#define TILES_SHARE 16 /* rounds of the other loops for one of these: they take as long */
#define TILES(name, isa, step)                                                                                         \
    __attribute__((target(isa))) static void name(uint64_t rounds)                                                     \
    {                                                                                                                  \
        rounds = rounds / TILES_SHARE;                                                                                 \
        __asm__ volatile("ldtilecfg %1\ntilezero %%tmm0\ntilezero %%tmm1\ntilezero %%tmm2\ntilezero %%tmm3\n"          \
                         "tileloadd (%2,%3,1), %%tmm4\ntileloadd (%2,%3,1), %%tmm5\n.p2align 6\n1:\n" step             \
                         " %%tmm5, %%tmm4, %%tmm0\n" step " %%tmm5, %%tmm4, %%tmm1\n" step                             \
                         " %%tmm5, %%tmm4, %%tmm2\n" step " %%tmm5, %%tmm4, %%tmm3\ndec %0\njnz 1b\ntilerelease\n"     \
                         : "+r"(rounds)                                                                                \
                         : "m"(whole_tiles), "r"(operands), "r"((uint64_t)0)                                           \
                         : "cc", "memory");                                                                            \
    }
TILES(run_bf16_tiles, "amx-tile,amx-bf16", "tdpbf16ps")
TILES(run_int8_tiles, "amx-tile,amx-int8", "tdpbssd")

static struct loop pick(enum bench_peak kind)
{
    const struct ash_cpu *cpu = ash_cpu_get();

    if (kind == BENCH_PEAK_BF16 && cpu->amx_tile && cpu->amx_bf16)
        return (struct loop){"tdpbf16ps", run_bf16_tiles, 4.0 * 16 * 16 * 32 * 2 / TILES_SHARE};
    if (kind == BENCH_PEAK_INT8 && cpu->amx_tile && cpu->amx_int8)
        return (struct loop){"tdpbssd", run_int8_tiles, 4.0 * 16 * 16 * 64 * 2 / TILES_SHARE};
    if (kind == BENCH_PEAK_F32 && cpu->avx512f) return (struct loop){"vfmadd231ps zmm", run_fma_zmm, 24 * 32};
    if (kind == BENCH_PEAK_F32 && cpu->avx2 && cpu->fma) return (struct loop){"vfmadd231ps ymm", run_fma_ymm, 12 * 16};
    if (kind == BENCH_PEAK_BF16 && cpu->avx512_bf16) return (struct loop){"vdpbf16ps zmm", run_bf16_zmm, 24 * 64};
    if (kind == BENCH_PEAK_INT8 && cpu->avx512_vnni) return (struct loop){"vpdpbusd zmm", run_vnni_zmm, 24 * 128};
    return (struct loop){0};
}

#else

static struct loop pick(enum bench_peak kind)
{
    (void)kind;
    return (struct loop){0};
}

#endif

const char *bench_peak_instruction(enum bench_peak kind)
{
    return pick(kind).instruction;
}

static void run_loop(void *ctx, int thread)
{
    const struct loop *loop = ctx;

    (void)thread;
    loop->run(ROUNDS);
}

double bench_peak_gops(enum bench_peak kind, int thread_count)
{
    struct loop loop = pick(kind);
    double seconds;

    if (loop.run == NULL) return 0;
    seconds = bench_team_run(thread_count, run_loop, &loop);
    return seconds > 0 ? loop.ops_per_round * ROUNDS * thread_count / seconds * 1e-9 : 0;
}
