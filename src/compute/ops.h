/* ops - the operations a model is made of, as small tables that each backend fills (ref/, cpu/, cuda/).
 *
 * Every implementation keeps this contract to the bit; ref/ is the specification.
 *   - Matrix product: k ascends, acc = fma(a[k], b[k], acc), one chain per output element. A chain starts from 0 or
 *     from the value already in c. So M, N, tiles and threads do not matter, nor does cutting k into several
 *     accumulating calls.
 *   - Product of bf16 (round_bf16): may follow the arithmetic of an instruction made for it. Such a backend names
 *     another table as its reference: ref-bfmmla (4 k per step), ref-tdpbf16 (32 k) or ref-wgmma (16 k). Steps ascend,
 *     the last one is padded with zeros, one chain per output element. ref/bfmmla.h, ref/tdpbf16.h and ref/wgmma.h
 *     define a step. Again M, N, tiles and threads do not matter, but k may be cut only at multiples of the step.
 *     ASH_K_GROUP is a multiple of it on every backend. A product whose k is cut elsewhere sets cut_anywhere and keeps
 *     the fma chain. Sums over tokens (weight gradients) cut k at the ends of sequences, and inside one at multiples of
 *     ASH_K_GROUP.
 *   - Product of e4m3 (fp8): values are rounded to bf16. Those that share a scale are quantised: ASH_FP8_GROUP_K k of
 *     a line, or, where b is a weight, of as many lines (lines and k from 0 on). amax is the largest |value|, scale =
 *     amax / 448, code = value * (448 / amax) rounded to the nearest e4m3, ties to even. Where 448 / amax is infinite,
 *     codes and scale are 0; where a value is infinite or NaN, codes are 0 and the scale is NaN. A group of k is one
 *     chain from 0 by steps of 32 (ref/fp8.h; zeros after the last k). Then acc = fma(chain, scale of a * scale of b,
 *     acc), groups ascending. So k may be cut at multiples of the group. The same on every backend.
 *   - Product with a quantised matrix: goes by groups of k. A group is ASH_QUANT_BLOCK (ASH_Q8_0, ASH_Q4_1, ASH_Q5_0,
 *     ASH_Q5_1, ASH_IQ4_NL, ASH_MXFP4), or ASH_QUANT_GROUP, of which a row's last may be short (ASH_Q4_0, ASH_Q8_W).
 *       x: each group of a row is quantised. amax is the largest |x|, d = amax / 127, quant = x * (1 / d) rounded to
 *          nearest even. Where 1 / d is not finite (zeros, or nearly), quants and d are 0. Where x has an infinity or
 *          NaN, quants are 0 and d is NaN.
 *       w, ASH_Q8_0 and ASH_Q8_W: the group scale is the scale of the group's first block (all blocks of a group of
 *          ASH_Q8_W have the same). Sub-scales are 1.
 *       w, ASH_Q4_0: blocks have scales of their own. They become integer sub-scales of one group scale. With top the
 *          largest |scale|: group scale = top / S, sub-scale = scale * (S / top) rounded to nearest even. S is
 *          ASH_QUANT_SUBSCALE_SMALL_MAX where that is exact for all blocks (sub-scale * top == S * scale), else
 *          ASH_QUANT_SUBSCALE_MAX. Where top is 0 both are 0. Where a scale is infinite or NaN, sub-scales are 0 and
 *          the group scale is NaN.
 *       w, others: group scale, sub-scales, and where the type has them a group minimum and integer sub-minimums, as
 *          they are in the file (quant_open.h). Sub-blocks have 16 or 32 k.
 *       Groups ascend, one chain per output element: acc = fma((float)dot, d * group scale, acc), and then, with
 *       minimums, acc = fma((float)low, d * group minimum, acc). dot is the exact integer sum, over the sub-blocks of
 *       the group, of sub-scale times the dot product of quants; low that of sub-minimum times the sum of x's quants.
 *   - Sum over a row (norms, softmax): ASH_LANES interleaved partial sums. Lane l takes elements l, l + ASH_LANES, ...
 *     in ascending order; then halves are added pairwise (l with l + 8, then + 4, + 2, + 1).
 *     ref-wgmma adds rows of a bf16 model otherwise: by blocks of adjacent columns (compute/blocks.h).
 *   - Sum over tokens (weight gradients): tokens ascend, one chain, from the value already there. So gradients do not
 *     depend on how a grain is cut into micro-batches. In a bf16 model ref-wgmma adds weights of norms and biases by
 *     blocks of ASH_K_GROUP rows of a sequence: a chain from 0 in each, and these sums to the value already there.
 *   - Attention: keys in blocks of ASH_ATTN_BLOCK from position 0 of the document, one running maximum per row.
 *   - Every output element belongs to one unit of the parallel loop: no result depends on the number of threads.
 *
 * Pointers are to memory of exec->memory unless said otherwise. Strides and counts are in elements. Floats are float32
 * unless a dtype is given. Outputs do not overlap inputs unless said otherwise. The caller owns all memory and leaves
 * it alone until the op is done (ash_exec_wait). Ops of one exec are called by its owner thread. Misuse aborts. */
#ifndef ASH_COMPUTE_OPS_H
#define ASH_COMPUTE_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/device_code.h"
#include "base/dtype.h"
#include "base/workers.h"
#include "compute/ops_act.h"
#include "compute/ops_attn.h"
#include "compute/ops_family.h"
#include "compute/ops_loss.h"
#include "compute/ops_optim.h"
#include "compute/ops_route.h"
#include "compute/ops_sample.h"
#include "infra/memory.h"

#define ASH_FP8_GROUP_K 128
#define ASH_K_GROUP 32 /* k of products may be cut at multiples of it: of what any bf16 instruction adds at once */
#define ASH_QUANT_BLOCK 32
#define ASH_QUANT_GROUP 256
#define ASH_QUANT_GROUP_BLOCKS (ASH_QUANT_GROUP / ASH_QUANT_BLOCK)
#define ASH_QUANT_SUBSCALE_MAX 127      /* largest |sub-scale|: rounding to it loses little compared with quantising */
#define ASH_QUANT_SUBSCALE_SMALL_MAX 15 /* largest |sub-scale| that times any quant of Q4_0 (-8 to 7) is a byte */
#define ASH_PACK_ROWS 16                /* packing starts at multiples of it: a multiple of any panel's rows */

struct ash_exec;
struct ash_cuda_backend;
struct ash_profile;

/* ---- matrix products --------------------------------------------------------------------------------------------- */

/* A strided matrix: element (r, c) is at data[r * row_stride + c * col_stride]. */
struct ash_mat {
    const void *data;
    enum ash_dtype dtype; /* F32, BF16 or F16 */
    size_t row_stride, col_stride;
};

/* Which values of a product of e4m3 share a scale: of both operands those of a group of a line, or of b, a weight,
 * those of a square. */
enum ash_fp8 { ASH_FP8_OFF, ASH_FP8_LINES, ASH_FP8_WEIGHT };

/* c[M,N] = a[M,K] b[K,N] (+ c) (+ bias) (+ add), in this order. M, N or K may be 0. */
struct ash_gemm_args {
    size_t M, N, K;
    struct ash_mat a, b;
    float *c;
    uint16_t *c_bf16;  /* instead of c, rounded to nearest even at the end; or NULL */
    size_t c_stride;   /* between rows of either; columns are adjacent */
    const float *bias; /* [N], added once after the last k; or NULL */
    const float *add;  /* [M, N], added once after that; or NULL */
    size_t add_stride; /* between rows of add; columns are adjacent */
    bool accumulate;   /* the chain starts from c instead of 0. Not with bias, add or c_bf16 */
    bool round_bf16;   /* a and b are rounded to bf16 as they are read; the sum stays float32 */
    enum ash_fp8 fp8;  /* a and b become e4m3. CPU tables only; not with cut_anywhere */
    bool cut_anywhere; /* other calls continue this chain at any k (tokens that chose an expert): always fma */
};

/* y[M,N] = x[M,K] w[N,K]^T (+ y) (+ bias), w quantised. Forward only: a quantised matrix is not trained. */
struct ash_quant_args {
    size_t M, N, K; /* K is whole blocks of dtype */
    const float *x;
    size_t x_stride;      /* between rows */
    const void *w;        /* rows of whole blocks, one after the other, at an even address */
    enum ash_dtype dtype; /* of w: one with blocks */
    float *y;
    size_t y_stride;
    const float *bias; /* [N], added once after the last block; or NULL. Not together with accumulate. */
    bool accumulate;   /* the chain starts from y instead of 0 */
};

/* A weight w[N, K] as products of inference read it: y = x w^T. */
struct ash_weight {
    size_t N;
    struct ash_mat mat; /* [K, N] as in ash_gemm_args.b; a quantised one (ASH_Q8_0, ...) has rows of K and strides 0 */
    bool packed;        /* mat.data was written by pack() of the table that reads it; strides mean nothing */
};

#define ASH_PROJECT_OUTS_MAX 3

struct ash_project_out {
    struct ash_weight w;
    const float *bias; /* [N] or NULL */
    float *y;
    size_t y_stride;  /* between rows */
    uint16_t *y_bf16; /* instead of y, rounded to bf16; or NULL. Not with residual or swiglu, nor in tables of CPU
                         paths */
};

/* Several products that share their input, as a layer of inference needs them, with prologue and epilogue.
 * Prologue: x is normed (RMS) if norm is not NULL. For each out, sum = x w^T + bias. Epilogue: y = sum; with residual
 * y = y + sum; with swiglu the two outs are gate and up and give one y (outs[0]'s), silu(gate) * up.
 * To the bit what the separate ops give: norm->rms_forward, gemm or quant_gemm, act->swiglu_forward, row->add.
 * Forward only. No y overlaps x, unless it is x and residual is set. */
struct ash_project_args {
    size_t M, K;
    const float *x;
    const uint16_t *x_bf16; /* instead of x, rounded to bf16 already; or NULL. Not with norm or quantised weights */
    size_t x_stride;
    const float *norm; /* [K] weights of an RMS norm, or NULL */
    float norm_eps;
    bool round_bf16;                                   /* as in ash_gemm_args; quantised weights ignore it */
    bool residual, swiglu;                             /* not both */
    size_t out_count;                                  /* 1 to ASH_PROJECT_OUTS_MAX; 2 with swiglu, of the same N */
    struct ash_project_out outs[ASH_PROJECT_OUTS_MAX]; /* weights all of one dtype, all packed or none */
};

/* sum[c] += sum over rows r of x[r * stride + c], rows ascending. */
struct ash_column_sum_args {
    size_t rows, cols;
    const float *x;
    size_t stride;   /* between rows of x */
    size_t seq_rows; /* of a bf16 model: rows are whole sequences of this many, added by blocks; 0: one chain */
    float *sum;
};

struct ash_matrix_ops {
    /* c = a b (+ c) (+ bias) (+ add): see ash_gemm_args. */
    void (*gemm)(struct ash_exec *exec, const struct ash_gemm_args *args);
    /* y = x w^T (+ y) (+ bias) with a quantised w that is not packed: see ash_quant_args. */
    void (*quant_gemm)(struct ash_exec *exec, const struct ash_quant_args *args);
    /* Fused products of one input: see ash_project_args. Weights of any dtype, packed or not. */
    void (*project)(struct ash_exec *exec, const struct ash_project_args *args);
    /* Bytes that pack() needs for a weight [N, K] of dtype (64-byte aligned), or 0 where the plain layout is as fast.
     * NULL: this table packs nothing. */
    size_t (*packed_bytes)(enum ash_dtype dtype, size_t N, size_t K);
    /* Lay a weight out so that project() reads memory in order: rows first ... first + count - 1 of w (plain, [N, K] of
     * dtype) go to their place in packed, which has packed_bytes(dtype, N, K). first is a multiple of ASH_PACK_ROWS; so
     * is count, unless the rows end there. Several calls may pack one weight piece by piece. NULL likewise. */
    void (*pack)(struct ash_exec *exec, const struct ash_weight *w, size_t K, size_t first, size_t count, void *packed);
    /* The gradient of a bias: see ash_column_sum_args. */
    void (*column_sum)(struct ash_exec *exec, const struct ash_column_sum_args *args);
};

/* ---- embedding --------------------------------------------------------------------------------------------------- */

/* Rows of a table by their ids. */
struct ash_embed_args {
    const void *table; /* [vocab, cols] of any dtype, quantised ones too */
    enum ash_dtype dtype;
    size_t cols, rows;
    const int32_t *ids; /* [rows], below vocab */
    float *out;         /* [rows, cols] */
    bool add;           /* to out; else it is written */
};

struct ash_embed_ops {
    /* out[r, :] = table[ids[r], :] (add: out += instead), r < rows. */
    void (*gather)(struct ash_exec *exec, const struct ash_embed_args *args);
    /* table[ids[r], :] += grad[r, :], r ascending; table is float32 [vocab, cols]. The gradient of gather. */
    void (*scatter_add)(struct ash_exec *exec, float *table, size_t cols, const int32_t *ids, size_t rows,
                        const float *grad);
};

/* ---- normalisation ----------------------------------------------------------------------------------------------- */

/* Rows of cols elements; row (r, g) of group g < groups starts at r * stride + g * cols (per-head norms have groups >
 * 1). */
struct ash_norm_args {
    size_t rows, groups, cols;
    size_t x_stride, y_stride;
    const float *x, *weight; /* weight [cols] */
    const float *bias;       /* [cols]; layer norm only, may be NULL */
    float eps;
    float *y;
    uint16_t *y_bf16; /* instead of y, rounded to bf16; or NULL */
    float *rstd;      /* [rows * groups], written by forward, read by backward; NULL when no backward follows */
    float *mean;      /* likewise, layer norm only */
    bool round_bf16;  /* of a bf16 model: ref-wgmma adds by blocks, and rounds dy as it is read; others ignore it */
    /* backward: */
    const float *dy;         /* strides like y */
    const uint16_t *dy_bf16; /* instead of dy, rounded to bf16 already; or NULL. With round_bf16 only */
    float *dx;               /* strides like x; dx += when dx_add, else written. May be the same memory as dy. */
    bool dx_add;
    uint16_t *dx_bf16;      /* what dx becomes, rounded to bf16, dense rows of cols * groups; NULL: not wanted */
    float *dweight, *dbias; /* += over (row, group) ascending; NULL to skip */
    /* With round_bf16, for dweight and dbias: */
    size_t seq_rows;  /* rows of a sequence; 0: all are of one */
    size_t seq_first; /* the first row's place in its sequence, a multiple of ASH_K_GROUP */
};

struct ash_norm_ops {
    /* y = weight * (x / sqrt(mean(x^2) + eps)); writes rstd if asked. */
    void (*rms_forward)(struct ash_exec *exec, const struct ash_norm_args *args);
    /* dx, and dweight if asked, from x, dy, weight and rstd. */
    void (*rms_backward)(struct ash_exec *exec, const struct ash_norm_args *args);
    /* y = weight * (x - mean) / sqrt(var + eps) + bias, with the biased variance, as torch; writes rstd and mean if
     * asked. */
    void (*layer_forward)(struct ash_exec *exec, const struct ash_norm_args *args);
    /* dx, and dweight and dbias if asked, from x, dy, weight, mean and rstd. */
    void (*layer_backward)(struct ash_exec *exec, const struct ash_norm_args *args);
};

/* ---- row arithmetic ---------------------------------------------------------------------------------------------- */

/* Blocks of cols elements moved between strided places: element (r, b, c) from src[r * src_row + b * src_block + c] to
 * dst[r * dst_row + b * dst_block + c]. A src_block of 0 repeats a block; with add, a dst_block of 0 sums blocks, b
 * ascending. */
struct ash_copy_args {
    size_t rows, blocks, cols;
    const float *src;
    size_t src_row, src_block;
    void *dst;
    enum ash_dtype dst_dtype; /* F32, or BF16 (rounded; not with add) */
    size_t dst_row, dst_block;
    bool add;
};

/* Rows of y that tokens have in slots: a token's weighted sum of them, and that sum's gradient. */
struct ash_slots_args {
    size_t rows, slots, cols;
    const float *y;       /* rows of cols elements */
    const int32_t *where; /* [rows, slots]: which row of y */
    float *out;           /* combine: [rows, cols]; slot_dot: [rows, slots] */
    /* combine: */
    const float *weight; /* [rows, slots]; NULL: all 1 */
    bool add;            /* to out; else it is written */
    /* slot_dot: */
    const float *x; /* [rows, cols] */
};

/* Rows times a factor each. */
struct ash_scale_rows_args {
    size_t rows, cols;
    const float *x;       /* [rows, cols] */
    const float *factors; /* [rows] */
    float *out;           /* [rows, cols]; may be x */
    uint16_t *out_bf16;   /* instead of out, rounded to bf16; or NULL */
};

/* Rows with values left out, and the others scaled: dropout. A value's fate is a function of the seed, its sequence's
 * number, its row in that and its column (compute/drop.h), so neither batches nor ranks matter. */
struct ash_drop_args {
    size_t rows, cols;
    const float *x; /* rows of cols values, x_stride apart */
    size_t x_stride;
    float *out; /* rows of cols values, out_stride apart; may be x */
    size_t out_stride;
    uint64_t seed;              /* of the matrix that reads them */
    const uint64_t *sequences;  /* numbers of the batch's sequences */
    size_t seq_rows, first_row; /* rows of a sequence; the first row's place in the batch */
    size_t all_cols, first_col; /* columns of all ranks; the first one's place among them */
    uint16_t threshold;         /* draws of 16 bits below it leave a value out */
    bool add;                   /* to out; else it is written */
    float scale;                /* of the others */
};

struct ash_row_ops {
    /* Move blocks between strided places: see ash_copy_args. */
    void (*copy)(struct ash_exec *exec, const struct ash_copy_args *args);
    /* out = a + b; out may be a or b. */
    void (*add)(struct ash_exec *exec, const float *a, const float *b, size_t count, float *out);
    /* x = x * factor. */
    void (*scale)(struct ash_exec *exec, float *x, float factor, size_t count);
    /* out[r, :] = x[r, :] * factors[r]. NULL in tables of CPU paths. */
    void (*scale_rows)(struct ash_exec *exec, const struct ash_scale_rows_args *args);
    /* out = x rounded to bf16 (nearest even), as float32; out may be x. */
    void (*round_bf16)(struct ash_exec *exec, const float *x, size_t count, float *out);
    /* out[r, :] = x[index[r], :] */
    void (*gather)(struct ash_exec *exec, const float *x, size_t cols, const int32_t *index, size_t rows, float *out);
    /* out[t, :] = (add ? out : 0) + sum over s < slots, ascending, of weight[t, s] * y[where[t, s], :]. */
    void (*combine)(struct ash_exec *exec, const struct ash_slots_args *args);
    /* out[t, s] = dot(x[t, :], y[where[t, s], :]), a row sum: the gradient of combine's weights. */
    void (*slot_dot)(struct ash_exec *exec, const struct ash_slots_args *args);
    /* out = (add ? out : 0) + (left out ? 0 : x * scale). */
    void (*drop)(struct ash_exec *exec, const struct ash_drop_args *args);
};

/* ---- backends ---------------------------------------------------------------------------------------------------- */

struct ash_ops {
    const char *name;
    const struct ash_ops *reference; /* the plain table that computes the same bits; a reference names itself */
    bool takes_bf16;                 /* may activations be rounded to bf16 where they are stored (x_bf16, ...)? */
    /* Give a buffer of exec other memory, of size_bytes (above 0), once no op uses what it has; contents undefined.
     * Never NULL: where the memory is full, the next wait says so. NULL if ops are done when they return. */
    void *(*grow)(struct ash_exec *exec, struct ash_buffer *buffer, size_t size_bytes);
    const struct ash_matrix_ops *matrix;
    const struct ash_embed_ops *embed;
    const struct ash_norm_ops *norm;
    const struct ash_rope_ops *rope;
    const struct ash_attn_ops *attn;
    const struct ash_act_ops *act;
    const struct ash_row_ops *row;
    const struct ash_loss_ops *loss;
    const struct ash_route_ops *route;
    const struct ash_optim_ops *optim;
    const struct ash_family_ops *family; /* NULL: and none of attention with a cap */
    const struct ash_sample_ops *sample; /* NULL: the host chooses, from a copy of the logits */
};

extern const struct ash_ops ash_ops_ref;         /* the specification */
extern const struct ash_ops ash_ops_ref_bfmmla;  /* with bf16 products as BFMMLA computes them */
extern const struct ash_ops ash_ops_ref_tdpbf16; /* with bf16 products as TDPBF16PS computes them */
extern const struct ash_ops ash_ops_ref_wgmma;   /* with bf16 products as Hopper's tensor cores compute them */

#define ASH_EXEC_FETCHES 2 /* copies for the host that may be under way */

/* What an op runs on. One owner thread. */
struct ash_exec {
    const struct ash_ops *ops;
    const struct ash_memory_ops *memory;
    struct ash_workers *workers;
    struct ash_buffer *scratch;                  /* one per worker, grown on demand; see ash_exec_scratch */
    struct ash_buffer shared;                    /* grown on demand; see ash_exec_shared */
    struct ash_buffer broadcast;                 /* likewise; see ash_exec_broadcast */
    size_t broadcast_at;                         /* where the next slot begins */
    struct ash_buffer fetches[ASH_EXEC_FETCHES]; /* of ash_exec_fetch, without a GPU */
    struct ash_cuda_backend *cuda;               /* the GPU, its queue and kernels; NULL on the CPU */
    struct ash_profile *profile;                 /* measures its ops; NULL: none (compute/profile/profile.h) */
};

/* Bind a backend to its memory and thread_count threads (as in ash_workers_open). backend: "ref", "cpu" (the best path
 * this machine can run), a path by name ("neon-bf16", "neon", "avx2", ...), a GPU ("cuda", "cuda:1"), or NULL for the
 * best path of the CPU. Returns 0 (release it with ash_exec_fini), -ENOMEM, an error of ash_workers_open, -ENODEV
 * without such a GPU, or -EINVAL where the backend is unknown or cannot run here; err then lists what can. *exec
 * changes only on success. */
int ash_exec_init(struct ash_exec *exec, const char *backend, int thread_count, struct ash_err *err);
/* Stop the threads and free all scratch memory. A zeroed exec is fine. */
void ash_exec_fini(struct ash_exec *exec);
/* Wait until all ops are done and their results can be read. Returns 0, or -EIO naming the op that failed. The CPU's
 * ops are done when they return. */
int ash_exec_wait(struct ash_exec *exec, struct ash_err *err);
/* Enqueue a copy of a host array to exec's memory; the array may change when this returns. Returns 0 or -EIO. */
int ash_exec_upload(struct ash_exec *exec, void *dst, const void *src, size_t size_bytes);

/* Enqueue a copy of exec's memory for the host, number `index` (below ASH_EXEC_FETCHES). Returns 0, -ENOMEM or -EIO. */
int ash_exec_fetch(struct ash_exec *exec, unsigned index, const void *src, size_t size_bytes);
/* Wait for that copy, and for nothing that was enqueued after it; it comes to dst. Returns 0, or -EIO naming the op
 * that failed. */
int ash_exec_fetched(struct ash_exec *exec, unsigned index, void *dst, size_t size_bytes, struct ash_err *err);

/* A decode step whose ops come again with other numbers in the same places. */
struct ash_exec_step {
    uint64_t shape;                  /* tells it from steps with other ops or other places */
    const struct ash_attn_seq *seqs; /* the batch's documents: one row each, in pages */
    size_t seq_count;
};
enum ash_step_way { ASH_STEP_RUN, ASH_STEP_RECORD, ASH_STEP_REPLAYED };
/* Before the ops of a step. ASH_STEP_REPLAYED: they are enqueued already. Otherwise the caller enqueues them now. */
enum ash_step_way ash_exec_step_begin(struct ash_exec *exec, const struct ash_exec_step *step);
/* After them, with what begin said. Returns false where they must be enqueued once more. */
bool ash_exec_step_end(struct ash_exec *exec, enum ash_step_way way);
/* Memory of at least size_bytes that only this worker uses, valid until its next call; contents undefined. Aborts when
 * the system is out of memory: sizes are bounded by tile sizes, not by input. */
void *ash_exec_scratch(struct ash_exec *exec, int worker, size_t size_bytes);
/* Memory of at least size_bytes that all workers of a composed op share; the ops it is composed of do not use it. Valid
 * until the next call; contents undefined. Aborts like ash_exec_scratch. */
void *ash_exec_shared(struct ash_exec *exec, size_t size_bytes);
/* Broadcast buffer: memory of at least size_bytes that workers write for all the others to read. Valid until the next
 * call; contents undefined. Each call gives the next slot of a ring, and none comes again while caches may still hold
 * it: a core that writes lines which every other one has read waits for all of them. Aborts like ash_exec_scratch. */
void *ash_exec_broadcast(struct ash_exec *exec, size_t size_bytes);
/* Bytes of the whole ring, if no slot is larger: what it costs beyond scratch. 0 where threads are few and share one
 * slot. */
size_t ash_exec_broadcast_bytes(const struct ash_exec *exec);
/* Zero memory of exec->memory with all workers: one thread alone does not use the whole memory bandwidth. */
void ash_exec_zero(struct ash_exec *exec, void *data, size_t size_bytes);
/* Names of the backends this machine can run, best first, NULL-terminated. Static. */
const char *const *ash_exec_backends(void);

#endif
