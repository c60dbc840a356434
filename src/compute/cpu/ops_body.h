/* ops_body - the whole backend of one instruction set: each ops_<isa>.c includes its vec_<isa>.h, then this. The bodies
 * are templates over the vectors of vec_<isa>.h; each says which ones it needs before it. Their order here is part of
 * that. */
#ifndef ASH_COMPUTE_OPS_BODY_H
#define ASH_COMPUTE_OPS_BODY_H

#include "base/bf16.h"
#include "compute/ref/ref.h"
#include "compute/quant_open.h"
#include "compute/cpu/quant/quant_priv.h"
#include "compute/cpu/vec/prefetch.h"
#include "compute/cpu/vec/wide.h"
#include "compute/cpu/gemm/pack_body.h"
#include "compute/cpu/gemm/gemv_body.h"
#include "compute/cpu/gemm/matrix_body.h"
#include "compute/cpu/gemm/gemm_small_m_body.h"
#include "compute/cpu/rows/norm_body.h"
#include "compute/cpu/rows/point_body.h"
#include "compute/cpu/rows/distill_body.h"
#include "compute/cpu/rows/loss_body.h"
#include "compute/cpu/quant/quant_body.h"
#include "compute/cpu/project_body.h"
#include "compute/cpu/rows/row_body.h"
#include "compute/cpu/attn/chain_body.h"
#include "compute/cpu/attn/softmax_body.h"
#include "compute/cpu/attn/attn_body.h"
#include "compute/cpu/attn/attn_split_body.h"
#include "compute/cpu/attn/attn_shared_body.h"
#include "compute/cpu/attn/attn_back_body.h"
#include "compute/cpu/attn/kv_write_body.h"
#include "compute/cpu.h"

/* MATRIX is &vec_matrix, or a table with other products; REFERENCE is what the backend is held to. */
#define VEC_OPS(NAME, REFERENCE, MATRIX)                                                                               \
    {                                                                                                                  \
        .name = NAME, .reference = REFERENCE, .matrix = MATRIX, .embed = &vec_embed, .norm = &vec_norm,                \
        .rope = &vec_rope, .attn = &vec_attn, .act = &vec_act, .row = &vec_row, .loss = &vec_loss,                     \
        .route = &ash_ref_route, .optim = &vec_optim, .family = &ash_ref_family, .sample = &ash_cpu_sample             \
    }

#endif
