/* ops - the operations a model is made of, as small tables that each backend fills (ref/, cpu/, later cuda/).
 *
 * The contract that every implementation keeps, to the bit (ref/ is the specification):
 *   - A matrix product walks k in ascending order: acc = fma(a[k], b[k], acc), one chain per output element, starting
 *     from 0 or from the value already in c. So the result depends neither on M, N, tiles and threads nor on how a
 *     longer k is cut into several accumulating calls.
 *   - Products of bf16 (round_bf16) may instead follow the arithmetic of an instruction made for them. Such a backend
 *     names another table as its reference: ref-bfmmla (steps of 4 k), ref-tdpbf16 (steps of 32 k) or
 *     ref-wgmma (steps of 16 k). Steps ascend,
 *     the last one is filled up with zeros, one chain per output element, each step added as ref/bfmmla.h or
 *     ref/tdpbf16.h says. Again nothing depends on M, N, tiles and threads, but k may be cut only at multiples of the
 *     step, and so of ASH_K_GROUP on every backend; a product whose k is cut elsewhere says cut_anywhere and keeps the
 *     fma chain. Whoever sums over tokens (weight gradients) cuts k at the ends of sequences and inside one at
 *     multiples of ASH_K_GROUP.
 *   - A product with a quantised matrix goes by groups of inputs: of one block, ASH_QUANT_BLOCK (ASH_Q8_0), or of
 *     ASH_QUANT_GROUP, of which a row's last may be shorter (ASH_Q4_0, ASH_Q8_W). Each group of a row of x is
 *     quantised: amax is the largest |x|, d = amax / 127, q = x * (1 / d) rounded to nearest even. Where 1 / d is not
 *     finite (zeros, all but zeros), q and d are 0; where x has an infinity or NaN, q is 0 and d is NaN. Of w, a
 *     group's unit is the scale of its first block (ASH_Q8_W has the same in all of them). With ASH_Q4_0 the blocks of
 *     a group have scales of their own, which become whole steps of one unit: with top the largest |scale|, unit = top
 *     / S and steps = scale * (S / top), rounded to nearest even. S is ASH_QUANT_FEW_STEPS where that loses nothing
 *     (steps * top == S * scale for all of them: then a number times its steps is a byte), else ASH_QUANT_STEPS. Where
 *     top is 0 both are 0; where a scale is infinite or NaN, steps are 0 and the unit is NaN. Then, groups ascending,
 *     one chain per output element: acc = fma((float)dot, d * unit, acc), where dot is the exact integer sum of the
 *     group's products, with ASH_Q4_0 each block's times its steps.
 *   - A sum over a row (norms, softmax) uses ASH_LANES interleaved partial sums, lane l taking elements l, l +
 *     ASH_LANES, ... in ascending order, then halves added pairwise (l with l + 8, then + 4, + 2, + 1).
 *   - A sum over tokens (weight gradients) walks tokens in ascending order, one chain, starting from the value already
 *     there. So gradients do not depend on how a grain is cut into micro-batches.
 *   - Attention walks keys in blocks of ASH_ATTN_BLOCK from position 0 of the document, with one running maximum per
 *     row.
 *   - Every output element belongs to one unit of the parallel loop; no result depends on the number of threads.
 * Pointers are to memory of exec->memory. Strides and counts are in elements. Floats are float32 unless a dtype
 * says so. */
#ifndef ASH_COMPUTE_OPS_H
#define ASH_COMPUTE_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/dtype.h"
#include "base/workers.h"
#include "infra/memory.h"

#define ASH_LANES 16
#define ASH_K_GROUP 32 /* where k of products may be cut: a multiple of what any instruction for bf16 adds at once */
#define ASH_QUANT_BLOCK 32
#define ASH_QUANT_GROUP 256
#define ASH_QUANT_GROUP_BLOCKS (ASH_QUANT_GROUP / ASH_QUANT_BLOCK)
#define ASH_QUANT_STEPS 127    /* so many that rounding scales is a small part of what quantising loses */
#define ASH_QUANT_FEW_STEPS 15 /* times -8, the largest number of Q4_0, that is still a byte */
#define ASH_PACK_ROWS 16       /* rows of a weight that are packed together, or a divisor of that */
#define ASH_ATTN_BLOCK 64
#define ASH_ATTN_HEAD_MAX 512 /* largest head dimension */
#define ASH_ROUTE_EXPERTS_MAX 1024
#define ASH_ROUTE_CHOICES_MAX 64

struct ash_exec;
struct ash_cuda_backend;

/* ---- matrix products --------------------------------------------------------------------------------------------- */

/* A strided matrix: element (r, c) is at data[r * row_stride + c * col_stride]. */
struct ash_mat {
    const void *data;
    enum ash_dtype dtype; /* F32, BF16 or F16 */
    size_t row_stride, col_stride;
};

/* c[M,N] = a[M,K] b[K,N] (+ c) (+ bias). */
struct ash_gemm_args {
    size_t M, N, K;
    struct ash_mat a, b;
    float *c;
    size_t c_stride;   /* between rows of c; columns are adjacent */
    const float *bias; /* [N], added once after the last k; or NULL. Not together with accumulate. */
    bool accumulate;   /* the chain starts from c instead of 0 */
    bool round_bf16;   /* a and b are rounded to bf16 as they are read; the sum stays float32 */
    bool cut_anywhere; /* other calls continue this chain, whatever this call's K is (tokens that chose an expert):
                          always fma */
};

/* y[M,N] = x[M,K] w[N,K]^T (+ y) (+ bias), w quantised. Forward only: a quantised matrix is not trained. */
struct ash_quant_args {
    size_t M, N, K; /* K is whole blocks */
    const float *x;
    size_t x_stride;      /* between rows */
    const void *w;        /* rows of K / ASH_QUANT_BLOCK blocks, one after the other, at an even address */
    enum ash_dtype dtype; /* of w: ASH_Q8_0, ASH_Q4_0 or ASH_Q8_W */
    float *y;
    size_t y_stride;
    const float *bias; /* [N], added once after the last block; or NULL. Not together with accumulate. */
    bool accumulate;   /* the chain starts from y instead of 0 */
};

/* A weight as products of inference read it: w[N, K] with y = x w^T. */
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
    size_t y_stride; /* between rows */
};

/* Several products that share their input, as a layer of inference needs them, with what stands before and behind them:
 * x is normed (RMS) if asked; for each out, sum = x w^T + bias; y = sum, or y + sum with residual, or with swiglu,
 * whose two outs are gate and up and give one y (outs[0]'s), silu(gate) * up. To the bit what the separate ops give:
 * norm->rms_forward, gemm or quant_gemm, act->swiglu_forward, row->add. Forward only. No y overlaps x, unless it is x
 * and residual. */
struct ash_project_args {
    size_t M, K;
    const float *x;
    size_t x_stride;
    const float *norm; /* [K] weights of an RMS norm, or NULL */
    float norm_eps;
    bool round_bf16; /* as in ash_gemm_args; quantised weights do not care */
    bool residual, swiglu;
    size_t out_count;
    struct ash_project_out outs[ASH_PROJECT_OUTS_MAX]; /* weights all of one dtype, all packed or none */
};

struct ash_matrix_ops {
    void (*gemm)(struct ash_exec *exec, const struct ash_gemm_args *args);
    void (*quant_gemm)(struct ash_exec *exec, const struct ash_quant_args *args);
    void (*project)(struct ash_exec *exec, const struct ash_project_args *args);
    /* A weight laid out anew so that project() reads memory in order. packed_bytes: how much memory that takes (64-byte
     * aligned), or 0 where the plain layout serves as well. pack: write rows first ... first + count - 1 of w (plain,
     * [N, K] of dtype); first is a multiple of ASH_PACK_ROWS, so is count unless the rows end there: a load packs piece
     * by piece. NULL: this table packs nothing. */
    size_t (*packed_bytes)(enum ash_dtype dtype, size_t N, size_t K);
    void (*pack)(struct ash_exec *exec, const struct ash_weight *w, size_t K, size_t first, size_t count, void *packed);
    /* sum[c] += sum over rows r of x[r * stride + c], rows ascending: the gradient of a bias. */
    void (*column_sum)(struct ash_exec *exec, const float *x, size_t stride, size_t rows, size_t cols, float *sum);
};

/* ---- embedding --------------------------------------------------------------------------------------------------- */

struct ash_embed_ops {
    /* out[r, :] = table[ids[r], :] (add: out += instead), r < rows; table is [vocab, cols] of dtype
     * (a quantised one too); ids in range. */
    void (*gather)(struct ash_exec *exec, const void *table, enum ash_dtype dtype, size_t cols, const int32_t *ids,
                   size_t rows, bool add, float *out);
    /* table[ids[r], :] += grad[r, :], r ascending; table float32 [vocab, cols]. */
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
    float *rstd; /* [rows * groups], written by forward, read by backward; NULL when no backward follows */
    float *mean; /* likewise, layer norm only */
    /* backward: */
    const float *dy; /* strides like y */
    float *dx;       /* strides like x; dx += when dx_add, else written. May be the same memory as dy. */
    bool dx_add;
    float *dweight, *dbias; /* += over (row, group) ascending; NULL to skip */
};

struct ash_norm_ops {
    /* y = w * (x / sqrt(mean(x^2) + eps)) */
    void (*rms_forward)(struct ash_exec *exec, const struct ash_norm_args *args);
    void (*rms_backward)(struct ash_exec *exec, const struct ash_norm_args *args);
    void (*layer_forward)(struct ash_exec *exec, const struct ash_norm_args *args); /* biased variance, as torch */
    void (*layer_backward)(struct ash_exec *exec, const struct ash_norm_args *args);
};

/* ---- rotary positions -------------------------------------------------------------------------------------------- */

struct ash_rope_args {
    size_t rows, heads;
    size_t head_stride, row_stride; /* element d of head h of row r: x[r * row_stride + h * head_stride + d] */
    size_t dims;                    /* rotated dims of each head (even), from x */
    bool interleaved_in; /* pairs are (2i, 2i+1) in x; the result is stored in halves (i, i + dims/2), as transformers
                            does for deepseek. Backward undoes both. */
    const int32_t *positions; /* [rows] */
    const float *cos, *sin;   /* tables [max position, dims/2] */
    float *x;                 /* in place */
    bool inverse;             /* backward: rotate by the negative angle (and scatter back to interleaved pairs) */
};

struct ash_rope_ops {
    void (*apply)(struct ash_exec *exec, const struct ash_rope_args *args);
};

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* One document: q_count query rows that start at row q_row of q and out. The first has position pos; key j has position
 * j. Query i sees keys j with j <= pos + i and, under a window, j > pos + i - window. */
struct ash_attn_seq {
    size_t q_row, q_count, pos;
    const void *k, *v;  /* key 0 of this document; not used with pages */
    void *const *pages; /* page j / page_tokens holds key j and its value; NULL: one run at k and v. Forward only. */
    float *dk, *dv;     /* backward: likewise, += */
};

struct ash_attn_args {
    size_t heads, kv_heads; /* query head h reads kv head h / (heads / kv_heads) */
    size_t dim_k, dim_v;    /* per head; at most ASH_ATTN_HEAD_MAX */
    float scale;
    size_t window;           /* 0: none */
    enum ash_dtype kv_dtype; /* of k and v: F32 or BF16 (a cache may be narrower; then forward only) */
    size_t q_stride, k_stride, v_stride, out_stride; /* between rows; heads are adjacent */
    size_t page_tokens;                              /* of a page; a multiple of ASH_ATTN_BLOCK */
    size_t k_page, v_page;                           /* where in a page its first key and its first value are */
    const float *q;
    float *out;
    float *
        lse; /* [query rows, heads]: log of the sum of exponentials; forward writes it (NULL: not), backward reads it */
    const struct ash_attn_seq *seqs;
    size_t seq_count;
    /* backward (pos of every sequence is 0): */
    const float *dout; /* strides like out */
    float *dq;         /* strides like q, written */
};

/* What inference does between the products that make q, k and v and attention: queries and keys are rotated, queries
 * are rounded, keys and values are written to their pages. To the bit what rope->apply, row->round_bf16 and row->copy
 * give. */
struct ash_place_args {
    const struct ash_attn_args *attn; /* its seqs have pages and follow each other from row 0 of q on; dim_k is dim_v */
    float *q; /* row r: query heads, key heads, value heads, adjacent. Keys and values need not be there afterwards. */
    size_t q_stride;
    size_t dims; /* rotated dims of each head, 0 for none; the rest as in ash_rope_args */
    bool interleaved_in;
    const int32_t *positions;
    const float *cos, *sin;
    bool round_bf16; /* the queries; keys and values take the dtype of the pages */
};

struct ash_attn_ops {
    void (*forward)(struct ash_exec *exec, const struct ash_attn_args *args);
    void (*backward)(struct ash_exec *exec, const struct ash_attn_args *args);
    void (*place)(struct ash_exec *exec, const struct ash_place_args *args);
};

/* ---- activations and row arithmetic ------------------------------------------------------------------------------ */

enum ash_gelu { ASH_GELU_TANH, ASH_GELU_ERF };

struct ash_act_ops {
    /* out = silu(gate) * up; all [count]. Backward turns dout into dgate and dup (any of them may alias gate, up or
     * dout element by element). */
    void (*swiglu_forward)(struct ash_exec *exec, const float *gate, const float *up, size_t count, float *out);
    void (*swiglu_backward)(struct ash_exec *exec, const float *gate, const float *up, const float *dout, size_t count,
                            float *dgate, float *dup);
    void (*gelu_forward)(struct ash_exec *exec, enum ash_gelu kind, const float *x, size_t count, float *out);
    void (*gelu_backward)(struct ash_exec *exec, enum ash_gelu kind, const float *x, const float *dout, size_t count,
                          float *dx);
};

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

struct ash_row_ops {
    void (*copy)(struct ash_exec *exec, const struct ash_copy_args *args);
    void (*add)(struct ash_exec *exec, const float *a, const float *b, size_t count, float *out); /* out = a + b */
    void (*scale)(struct ash_exec *exec, float *x, float factor, size_t count);
    void (*round_bf16)(struct ash_exec *exec, const float *x, size_t count, float *out);
    /* out[r, :] = x[index[r], :] */
    void (*gather)(struct ash_exec *exec, const float *x, size_t cols, const int32_t *index, size_t rows, float *out);
    /* out[t, :] = (add ? out : 0) + sum over s < slots, ascending, of weight[t, s] * y[where[t, s], :]; weight NULL
     * means 1. */
    void (*combine)(struct ash_exec *exec, const float *y, size_t cols, const int32_t *where, const float *weight,
                    size_t slots, size_t rows, bool add, float *out);
    /* out[t, s] = dot(x[t, :], y[where[t, s], :]), a row sum: the gradient of combine's weights. */
    void (*slot_dot)(struct ash_exec *exec, const float *x, const float *y, size_t cols, const int32_t *where,
                     size_t slots, size_t rows, float *out);
};

/* ---- loss -------------------------------------------------------------------------------------------------------- */

/* Columns first ... first + cols - 1 of the logits of a vocabulary that is dealt out. What the parts have to tell each
 * other goes from part to part in the order of the vocabulary. Rows whose target is < 0 are passed over. */
struct ash_loss_part {
    size_t rows, cols, first; /* first is a multiple of ASH_LANES */
    float *logits;            /* [rows, cols] */
    const int32_t *targets;   /* [rows], of the whole vocabulary */
    float scale;              /* as in cross_entropy */
    bool start;               /* this is the first part: top and lanes begin here, elsewhere they go on */
    float *top;               /* [rows, 2]: the largest logit, and the target's */
    float *lanes;             /* [rows, ASH_LANES]: partial sums of exp(logit - largest) */
    float *loss;              /* [rows] */
};

struct ash_loss_ops {
    /* For each row r: loss[r] = logsumexp(logits[r]) - logits[r, target], and logits[r] becomes its gradient times
     * scale (when scale != 0). target < 0 gives loss 0 and gradient 0. logits [rows, vocab]. */
    void (*cross_entropy)(struct ash_exec *exec, float *logits, size_t rows, size_t vocab, const int32_t *targets,
                          float scale, float *loss);
    /* The same over a vocabulary that is dealt out, in three steps, each done by all parts before the next: top; then
     * lanes (with a scale != 0, logits become the exponentials); then the loss and this part of the gradient. To the
     * bit what cross_entropy gives. */
    void (*part_top)(struct ash_exec *exec, const struct ash_loss_part *part);
    void (*part_sum)(struct ash_exec *exec, const struct ash_loss_part *part);
    void (*part_end)(struct ash_exec *exec, const struct ash_loss_part *part);
};

/* ---- expert routing ---------------------------------------------------------------------------------------------- */

struct ash_route_args {
    size_t rows, experts, choices; /* choices: experts per token */
    bool sigmoid;                  /* scores are sigmoids (deepseek); else a softmax over experts */
    bool normalize;                /* divide the chosen weights by their sum */
    size_t groups, top_groups;     /* groups > 1: choose among the top_groups with the largest sum of their best two */
    const float *choice_bias;      /* [experts], added for choosing only; may be NULL */
    float scale;                   /* factor on the chosen weights */
    const float *logits;           /* [rows, experts] */
    int32_t *index;                /* [rows, choices], by descending score; ties go to the lower expert */
    float *weight;                 /* [rows, choices] */
    /* backward: */
    const float *dweight; /* [rows, choices] */
    float *dlogits;       /* [rows, experts], written */
};

struct ash_route_ops {
    void (*forward)(struct ash_exec *exec, const struct ash_route_args *args);
    void (*backward)(struct ash_exec *exec, const struct ash_route_args *args); /* choices are constants */
    /* Sort the chosen pairs (token, slot) by expert, tokens ascending within one. Pair p of the result is token
     * order[p] with flat[p] = token * choices + slot, and where[flat[p]] = p. Expert e has pairs offsets[e] ...
     * offsets[e + 1] - 1; offsets (experts + 1 of them) is host memory, because the host sizes the products by it. */
    void (*group)(struct ash_exec *exec, const int32_t *index, size_t rows, size_t choices, size_t experts,
                  int32_t *order, int32_t *flat, int32_t *where, size_t *offsets);
};

/* ---- optimizer --------------------------------------------------------------------------------------------------- */

struct ash_adamw_args {
    size_t count;
    const float *param, *m, *v;       /* float32, before */
    float *param_out, *m_out, *v_out; /* and after: elsewhere, or in place */
    const float *grad;
    float grad_scale; /* clipping factor */
    float lr, beta1, beta2, eps, weight_decay;
    float correction1, correction2; /* 1 - beta^t */
    uint16_t *param_bf16;           /* the working copy, refreshed; or NULL */
};

/* A sum of squares: high 2^32 + low units of 2^(2 exponent - 62). */
struct ash_squares {
    uint64_t high, low;
};

struct ash_optim_ops {
    void (*adamw)(struct ash_exec *exec, const struct ash_adamw_args *args);
    /* The bits of the largest |x|; a NaN counts as larger than all. */
    uint32_t (*max_abs)(struct ash_exec *exec, const float *x, size_t count);
    /* sum += the squares of x, each cut off to a whole number of units. All |x| are below 2^exponent. No order:
     * compute/squares.h. */
    void (*sum_squares)(struct ash_exec *exec, const float *x, size_t count, int exponent, struct ash_squares *sum);
};

/* ---- backends ---------------------------------------------------------------------------------------------------- */

struct ash_ops {
    const char *name;
    const struct ash_ops *reference; /* the plain table that computes the same bits; a reference names itself */
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
};

extern const struct ash_ops ash_ops_ref;
extern const struct ash_ops ash_ops_ref_bfmmla;  /* bf16 products as BFMMLA computes them */
extern const struct ash_ops ash_ops_ref_tdpbf16; /* as TDPBF16PS does */
extern const struct ash_ops ash_ops_ref_wgmma;   /* as Hopper's tensor cores do */

/* What an op runs on. One owner thread. */
struct ash_exec {
    const struct ash_ops *ops;
    const struct ash_memory_ops *memory;
    struct ash_workers *workers;
    struct ash_buffer *scratch;    /* one per worker, grown on demand; see ash_exec_scratch */
    struct ash_buffer shared;      /* grown on demand; see ash_exec_shared */
    struct ash_buffer handed;      /* likewise; see ash_exec_handed */
    size_t handed_at;              /* where the next place begins */
    struct ash_cuda_backend *cuda; /* the GPU, its queue and kernels; NULL on the CPU */
};

/* backend: "ref", "cpu" (the best path this machine can run), a path by name ("neon-bf16", "neon", "avx2", ...), or
 * NULL for the best. An unknown or unavailable one is -EINVAL and the sentence lists what there is. thread_count as in
 * ash_workers_open. */
int ash_exec_init(struct ash_exec *exec, const char *backend, int thread_count, struct ash_err *err);
void ash_exec_fini(struct ash_exec *exec);
/* Wait until all ops are done and their results can be read. Returns 0, or -EIO naming the op that failed. The CPU's ops
 * are done when they return. */
int ash_exec_wait(struct ash_exec *exec, struct ash_err *err);
/* Memory of at least size_bytes that only this worker uses, valid until its next call; contents undefined. Aborts when
 * the system is out of memory: sizes are bounded by tile sizes, not by input. */
void *ash_exec_scratch(struct ash_exec *exec, int worker, size_t size_bytes);
/* Memory of at least size_bytes that all workers of an op composed of others use; the ops it is composed of do not ask
 * for it. Valid until the next call; contents undefined. Aborts like ash_exec_scratch. */
void *ash_exec_shared(struct ash_exec *exec, size_t size_bytes);
/* Memory of at least size_bytes that workers write for all the others to read. Valid until the next call; contents
 * undefined. Each call gives another place, and none comes again while caches may still hold it: a core that writes
 * lines which every other one has read waits for all of them. Aborts like ash_exec_scratch. */
void *ash_exec_handed(struct ash_exec *exec, size_t size_bytes);
/* What all places together take if none is larger, which is what that costs beyond scratch; 0 with few threads, which
 * have one place. */
size_t ash_exec_handed_bytes(const struct ash_exec *exec);
/* Zeros, written by all workers: one thread alone does not fill the memory's time. data is memory of exec->memory. */
void ash_exec_zero(struct ash_exec *exec, void *data, size_t size_bytes);
/* Names of the backends this machine can run, best first, NULL-terminated. */
const char *const *ash_exec_backends(void);

#endif
