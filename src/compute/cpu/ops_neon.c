/* The vectorised backends of arm64: the kernel bodies compiled for it, with and without BFMMLA for bf16 products. */
#if defined(__aarch64__)

#include "compute/cpu/vec/vec_neon.h"
#include "compute/cpu/gemm/tile_fmla.h"
#include "compute/cpu/attn/chain_fmla.h"

#define VEC_TILE tile_fmla
#define VEC_CHAIN_TILE chain_fmla
#include "compute/cpu/gemm/gemm_bf16.h"
#include "compute/cpu/ops_body.h"

_Static_assert(TILE_FMLA_SLACK_BYTES <= GEMM_SLACK_BYTES, "a tile reads so far after a panel");

const struct ash_ops ash_ops_neon = VEC_OPS("neon", &ash_ops_ref, &vec_matrix);

#define BF16_GEMM ash_gemm_bfmmla
#define BF16_SMALL_M ash_small_m_bfmmla
#include "compute/cpu/bf16_body.h"

const struct ash_ops ash_ops_neon_bf16 = VEC_OPS("neon-bf16", &ash_ops_ref_bfmmla, &bf16_matrix);

#endif
