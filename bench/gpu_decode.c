/* gpu_decode - how fast the GPU makes the next token of a Llama: the ops that a decode step enqueues, layer by layer,
 * on drawn weights in GPU memory. Choosing the token is not in it, nor is reading logits back. One line of JSON per
 * measurement. usage: build/bench/gpu_decode [PATTERN [STEPS [AHEAD...]]]
 * AHEAD: MiB of the next product's weights that a product asks for in a replayed step; each is measured
 * prints {"model": ..., "weights": ..., "batch": ..., "context": ..., "ms": ..., "tokens_s": ..., "gb_s": ...};
 * enqueue_ms is what the host needs to enqueue a step. Then a line for each op, alone, in all layers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/assert.h"
#include "base/bf16.h"
#include "base/clock.h"
#include "base/math.h"
#include "base/rng.h"
#include "compute/cuda/host/ahead.h"
#include "compute/cuda/backend.h"
#include "compute/ops.h"
#include "infra/device/cuda.h"

#define WARM_UPS 3
#define STEPS 20
#define DRAWN ((size_t)1 << 20)
#define LAYERS_MAX 32
#define BATCH_MAX 256
#define AHEADS_MAX 8
#define NORMAL_SPREAD 0.02f

struct shape {
    const char *name;
    size_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
};

static const struct shape shapes[] = {
    {"8B", 32, 4096, 32, 8, 128, 14336, 128256},
    {"1.2B", 16, 2048, 32, 8, 64, 8192, 128256},
};

static const struct config {
    size_t shape;
    enum ash_dtype dtype;
    size_t batch, context;
} configs[] = {
    {0, ASH_BF16, 1, 128},    {0, ASH_BF16, 1, 1024}, {0, ASH_BF16, 1, 8192},  {1, ASH_BF16, 1, 128},
    {1, ASH_BF16, 1, 1024},   {0, ASH_BF16, 2, 128},  {0, ASH_BF16, 4, 128},   {0, ASH_BF16, 8, 128},
    {0, ASH_BF16, 16, 128},   {0, ASH_BF16, 32, 128}, {0, ASH_BF16, 64, 1024}, {0, ASH_BF16, 128, 1024},
    {0, ASH_BF16, 256, 1024}, {0, ASH_Q8_0, 1, 128},  {0, ASH_Q4_0, 1, 128},   {0, ASH_Q4_K, 1, 128},
    {0, ASH_Q6_K, 1, 128},    {0, ASH_Q4_0, 8, 128},
};

/* The matrices of a layer. */
enum matrix { QUERY, KEY, VALUE, OUTPUT, GATE, UP, DOWN, MATRICES };

struct model {
    struct ash_exec *exec;
    const struct shape *shape;
    const struct config *config;
    struct ash_weight layers[LAYERS_MAX][MATRICES], head;
    float *norm;              /* ones, of all norms */
    float *stream, *q, *attn; /* rows */
    float *ffn, *logits;
    float *cos, *sin;
    int32_t *positions;
    void *pool;
    size_t page_bytes;
    struct ash_attn_seq seqs[BATCH_MAX];
    int32_t *pages;
    double weight_bytes, cache_bytes;
};

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void *take(size_t size_bytes)
{
    void *memory = ash_memory_cuda.alloc(size_bytes);

    if (memory == NULL) {
        fprintf(stderr, "gpu_decode: the GPU has no room for %zu bytes\n", size_bytes);
        exit(1);
    }
    return memory;
}

/* Fill GPU memory with a drawn piece, again and again. */
static void fill(void *to, size_t size_bytes, const void *piece, size_t piece_bytes)
{
    for (size_t at = 0; at < size_bytes; at += piece_bytes)
        ash_memory_cuda.copy((char *)to + at, piece, ash_min(size_bytes - at, piece_bytes));
}

/* A piece of weights of dtype: bf16 normals, or blocks with a scale and random quants. */
static void *draw_piece(enum ash_dtype dtype, size_t *bytes_out)
{
    size_t bytes = ash_dtype_size(dtype, DRAWN), block = ash_dtype_size(dtype, ash_dtype_block(dtype));
    char *host = malloc(bytes), *there = take(bytes);
    double *normals = malloc(DRAWN * sizeof(*normals));

    ash_assert(host != NULL && normals != NULL);
    ash_rng_normals(1, (uint64_t)dtype, 0, normals, DRAWN);
    for (size_t i = 0; dtype == ASH_BF16 && i < DRAWN; i++)
        ((uint16_t *)host)[i] = ash_f32_to_bf16(NORMAL_SPREAD * (float)normals[i]);
    for (size_t i = 0; dtype != ASH_BF16 && i < bytes; i++)
        host[i] = (char)(i % block < 2 ? "\x00\x11"[i % block] : (int)(normals[i % DRAWN] * 40.0)); /* scale: 6e-4 */
    ash_memory_cuda.copy(there, host, bytes);
    free(host);
    free(normals);
    *bytes_out = bytes;
    return there;
}

static float *take_floats(size_t count, float value)
{
    float *host = malloc(count * sizeof(*host)), *there = take(count * sizeof(*host));

    ash_assert(host != NULL);
    for (size_t i = 0; i < count; i++)
        host[i] = value;
    ash_memory_cuda.copy(there, host, count * sizeof(*host));
    free(host);
    return there;
}

/* ---- a model ----------------------------------------------------------------------------------------------------- */

/* Pack a weight and free it as it was, if products read its type packed. */
static void pack(struct model *m, struct ash_weight *w, size_t K)
{
    const struct ash_matrix_ops *matrix = m->exec->ops->matrix;
    size_t bytes = matrix->packed_bytes(w->mat.dtype, w->N, K);
    void *packed;
    struct ash_err err = {0};

    if (bytes == 0) return;
    packed = take(bytes);
    matrix->pack(m->exec, w, K, 0, w->N, packed);
    if (ash_exec_wait(m->exec, &err) < 0) fprintf(stderr, "gpu_decode: %s\n", err.text);
    ash_memory_cuda.free((void *)(uintptr_t)w->mat.data, 0);
    w->mat.data = packed;
    w->packed = true;
}

static struct ash_weight make_weight(struct model *m, size_t N, size_t K, const void *piece, size_t piece_bytes)
{
    enum ash_dtype dtype = m->config->dtype;
    size_t bytes = ash_dtype_size(dtype, N * K);
    struct ash_weight w = {.N = N, .mat = {.data = take(bytes), .dtype = dtype}};

    if (ash_dtype_block(dtype) == 1) w.mat.row_stride = 1, w.mat.col_stride = K;
    fill((void *)(uintptr_t)w.mat.data, bytes, piece, piece_bytes);
    m->weight_bytes += (double)bytes;
    pack(m, &w, K);
    return w;
}

static void make_weights(struct model *m)
{
    const struct shape *s = m->shape;
    size_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim, piece_bytes;
    const size_t N[MATRICES] = {q, kv, kv, s->hidden, s->ffn, s->ffn, s->hidden};
    const size_t K[MATRICES] = {s->hidden, s->hidden, s->hidden, q, s->hidden, s->hidden, s->ffn};
    void *piece = draw_piece(m->config->dtype, &piece_bytes);

    for (size_t l = 0; l < s->layers; l++)
        for (size_t i = 0; i < MATRICES; i++)
            m->layers[l][i] = make_weight(m, N[i], K[i], piece, piece_bytes);
    m->head = make_weight(m, s->vocab, s->hidden, piece, piece_bytes);
    ash_memory_cuda.free(piece, piece_bytes);
}

/* Pages of the cache, full of drawn keys and values. */
static void make_cache(struct model *m)
{
    const struct shape *s = m->shape;
    size_t batch = m->config->batch, pages = ash_div_up(m->config->context, ASH_ATTN_BLOCK), piece_bytes;
    void *piece = draw_piece(ASH_BF16, &piece_bytes);

    m->page_bytes = s->layers * 2 * s->kv_heads * s->head_dim * ASH_ATTN_BLOCK * sizeof(uint16_t);
    m->pool = take(batch * pages * m->page_bytes);
    fill(m->pool, batch * pages * m->page_bytes, piece, piece_bytes);
    ash_memory_cuda.free(piece, piece_bytes);
    m->pages = malloc(batch * pages * sizeof(*m->pages));
    ash_assert(m->pages != NULL);
    for (size_t i = 0; i < batch * pages; i++)
        m->pages[i] = (int32_t)i;
    for (size_t b = 0; b < batch; b++)
        m->seqs[b] = (struct ash_attn_seq){
            .q_row = b, .q_count = 1, .pos = m->config->context - 1, .pages = m->pages + b * pages};
    m->cache_bytes = (double)(batch * m->config->context * m->page_bytes / ASH_ATTN_BLOCK);
}

static void make_rows(struct model *m)
{
    const struct shape *s = m->shape;
    size_t batch = m->config->batch;

    m->norm = take_floats(s->hidden, 1.0f);
    m->stream = take_floats(batch * s->hidden, 0.1f);
    m->q = take_floats(batch * (s->heads + 2 * s->kv_heads) * s->head_dim, 0.1f);
    m->attn = take_floats(batch * s->heads * s->head_dim, 0.1f);
    m->ffn = take_floats(batch * s->ffn, 0.1f);
    m->logits = take_floats(batch * s->vocab, 0.0f);
    m->cos = take_floats(m->config->context * s->head_dim / 2, 0.8f);
    m->sin = take_floats(m->config->context * s->head_dim / 2, 0.6f);
    m->positions = take(batch * sizeof(int32_t)); /* zeros: the angle does not matter here */
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

static void project(struct model *m, const float *x, size_t K, bool has_norm, struct ash_project_args args)
{
    args.M = m->config->batch;
    args.K = K;
    args.x = x;
    args.x_stride = K;
    args.norm = has_norm ? m->norm : NULL;
    args.norm_eps = 1e-5f;
    args.round_bf16 = true;
    m->exec->ops->matrix->project(m->exec, &args);
}

/* The ops of a layer in their order; the head follows the last. */
enum part { QKV, WRITE, ATTEND, OUT, GATE_UP, OUT_FFN, HEAD, PARTS };
static const char *const part_names[PARTS] = {"qkv", "kv_write", "attention", "output", "gate_up", "down", "head"};

static void attend(struct model *m, size_t layer, bool writes)
{
    const struct shape *s = m->shape;
    size_t kv = s->kv_heads * s->head_dim, q_stride = s->heads * s->head_dim + 2 * kv;
    struct ash_attn_args attn = {.heads = s->heads,
                                 .kv_heads = s->kv_heads,
                                 .dim_k = s->head_dim,
                                 .dim_v = s->head_dim,
                                 .scale = 0.09f,
                                 .round_bf16 = true,
                                 .kv_dtype = ASH_BF16,
                                 .q_stride = q_stride,
                                 .out_stride = s->heads * s->head_dim,
                                 .pool = m->pool,
                                 .page_bytes = m->page_bytes,
                                 .k_page = layer * ASH_ATTN_BLOCK * 2 * kv,
                                 .v_page = (layer * 2 + 1) * ASH_ATTN_BLOCK * kv,
                                 .q = m->q,
                                 .out = m->attn,
                                 .seqs = m->seqs,
                                 .seq_count = m->config->batch};
    struct ash_kv_write_args write = {.attn = &attn,
                                      .q = m->q,
                                      .q_stride = q_stride,
                                      .dims = s->head_dim,
                                      .positions = m->positions,
                                      .cos = m->cos,
                                      .sin = m->sin,
                                      .round_bf16 = true};

    if (writes)
        m->exec->ops->attn->kv_write(m->exec, &write);
    else
        m->exec->ops->attn->forward(m->exec, &attn);
}

/* A product that is added to the stream. */
static void add_to_stream(struct model *m, const float *x, size_t K, const struct ash_weight *w)
{
    project(m, x, K, false,
            (struct ash_project_args){
                .residual = true, .out_count = 1, .outs = {{.w = *w, .y = m->stream, .y_stride = m->shape->hidden}}});
}

static void run_part(struct model *m, size_t layer, enum part part)
{
    const struct shape *s = m->shape;
    const struct ash_weight *w = m->layers[layer];
    size_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim, stride = q + 2 * kv;

    if (part == WRITE || part == ATTEND) attend(m, layer, part == WRITE);
    if (part == OUT) add_to_stream(m, m->attn, q, &w[OUTPUT]);
    if (part == OUT_FFN) add_to_stream(m, m->ffn, s->ffn, &w[DOWN]);
    if (part == QKV)
        project(m, m->stream, s->hidden, true,
                (struct ash_project_args){.out_count = 3,
                                          .outs = {{.w = w[QUERY], .y = m->q, .y_stride = stride},
                                                   {.w = w[KEY], .y = m->q + q, .y_stride = stride},
                                                   {.w = w[VALUE], .y = m->q + q + kv, .y_stride = stride}}});
    if (part == GATE_UP)
        project(m, m->stream, s->hidden, true,
                (struct ash_project_args){.swiglu = true,
                                          .out_count = 2,
                                          .outs = {{.w = w[GATE], .y = m->ffn, .y_stride = s->ffn}, {.w = w[UP]}}});
    if (part == HEAD && layer + 1 == s->layers)
        project(
            m, m->stream, s->hidden, true,
            (struct ash_project_args){.out_count = 1, .outs = {{.w = m->head, .y = m->logits, .y_stride = s->vocab}}});
}

/* All layers, one of their parts or (PARTS) all. */
static void run_step(struct model *m, enum part only)
{
    for (size_t l = 0; l < m->shape->layers; l++)
        for (int part = 0; part < PARTS; part++)
            if (only == PARTS || part == (int)only) run_part(m, l, (enum part)part);
}

/* Bytes that a part of all layers must read. */
static double part_bytes(const struct model *m, enum part part)
{
    static const int matrices[PARTS][2] = {{QUERY, VALUE}, {0, -1},      {0, -1}, {OUTPUT, OUTPUT},
                                           {GATE, UP},     {DOWN, DOWN}, {0, -1}};
    const struct ash_weight *w = m->layers[0];
    const size_t K[MATRICES] = {
        m->shape->hidden, m->shape->hidden, m->shape->hidden, m->shape->heads * m->shape->head_dim,
        m->shape->hidden, m->shape->hidden, m->shape->ffn};
    double bytes = part == ATTEND ? m->cache_bytes : 0.0;

    if (part == HEAD) return (double)ash_dtype_size(m->config->dtype, m->head.N * m->shape->hidden);
    for (int i = matrices[part][0]; i <= matrices[part][1]; i++)
        bytes += (double)(m->shape->layers * ash_dtype_size(m->config->dtype, w[i].N * K[i]));
    return bytes;
}

static void check(struct model *m)
{
    struct ash_err err = {0};

    if (ash_exec_wait(m->exec, &err) < 0) {
        fprintf(stderr, "gpu_decode: %s\n", err.text);
        exit(1);
    }
}

/* Milliseconds of a step, or of one part of it in all layers. */
static double time_step(struct model *m, size_t steps, enum part only)
{
    struct ash_cuda *cuda = ash_cuda_backend_device(m->exec->cuda);
    double ms;

    for (size_t i = 0; i < WARM_UPS; i++)
        run_step(m, only);
    check(m);
    ash_cuda_mark(cuda, 0);
    for (size_t i = 0; i < steps; i++)
        run_step(m, only);
    ash_cuda_mark(cuda, 1);
    ms = ash_cuda_mark_ms(cuda, 0, 1) / (double)steps;
    check(m);
    return ms;
}

/* The beginning of a line. */
static void print_config(const struct model *m)
{
    printf("{\"model\": \"%s\", \"weights\": \"%s\", \"batch\": %zu, \"context\": %zu, ", m->shape->name,
           ash_dtype_name(m->config->dtype), m->config->batch, m->config->context);
}

/* Milliseconds of a step that was recorded once and is replayed, and of enqueueing one; 0: it cannot be recorded. */
static double time_replay(struct model *m, size_t steps, double *enqueue_ms)
{
    struct ash_cuda *cuda = ash_cuda_backend_device(m->exec->cuda);
    uint64_t begin;
    void *graph;
    double ms;

    ash_cuda_links_turn(m->exec->cuda, ASH_LINKS_WATCH);
    run_step(m, PARTS);
    ash_cuda_graph_begin(cuda);
    ash_cuda_links_turn(m->exec->cuda, ASH_LINKS_USE);
    run_step(m, PARTS);
    ash_cuda_links_turn(m->exec->cuda, ASH_LINKS_OFF);
    if (ash_cuda_graph_end(cuda, &graph) < 0) return 0;
    for (size_t i = 0; i < WARM_UPS; i++)
        ash_cuda_graph_run(cuda, graph);
    check(m);
    ash_cuda_mark(cuda, 0);
    begin = ash_clock_ns();
    for (size_t i = 0; i < steps; i++)
        ash_cuda_graph_run(cuda, graph);
    *enqueue_ms = (double)(ash_clock_ns() - begin) / 1e6 / (double)steps;
    ash_cuda_mark(cuda, 1);
    ms = ash_cuda_mark_ms(cuda, 0, 1) / (double)steps;
    check(m);
    ash_cuda_graph_free(cuda, graph);
    return ms;
}

static void measure_replay(struct model *m, size_t steps, size_t ahead)
{
    double enqueue_ms, ms;

    ash_cuda_links_limit(m->exec->cuda, ahead << 20);
    ms = time_replay(m, steps, &enqueue_ms);
    if (ms == 0) return;
    print_config(m);
    printf("\"part\": \"replayed\", \"ahead_mib\": %zu, \"ms\": %.4f, \"tokens_s\": %.1f, \"enqueue_ms\": %.3f}\n",
           ahead, ms, (double)m->config->batch * 1e3 / ms, enqueue_ms);
}

static void measure(struct model *m, size_t steps, const size_t *aheads, size_t ahead_count)
{
    double ms = time_step(m, steps, PARTS), enqueue_ms;
    uint64_t begin = ash_clock_ns();

    run_step(m, PARTS);
    enqueue_ms = (double)(ash_clock_ns() - begin) / 1e6;
    print_config(m);
    printf("\"ms\": %.4f, \"tokens_s\": %.1f, \"gb_s\": %.0f, \"enqueue_ms\": %.3f}\n", ms,
           (double)m->config->batch * 1e3 / ms, (m->weight_bytes + m->cache_bytes) / ms / 1e6, enqueue_ms);
    check(m);
    for (size_t i = 0; i < ahead_count; i++)
        measure_replay(m, steps, aheads[i]);
    for (int part = 0; part < PARTS; part++) {
        ms = time_step(m, steps, (enum part)part);
        print_config(m);
        printf("\"part\": \"%s\", \"ms\": %.4f, \"gb_s\": %.0f}\n", part_names[part], ms,
               part_bytes(m, (enum part)part) / ms / 1e6);
    }
    fflush(stdout);
}

static void free_model(struct model *m)
{
    void *const rows[] = {m->norm, m->stream, m->q, m->attn, m->ffn, m->logits, m->cos, m->sin, m->positions, m->pool};

    for (size_t l = 0; l < m->shape->layers; l++)
        for (size_t i = 0; i < MATRICES; i++)
            ash_memory_cuda.free((void *)(uintptr_t)m->layers[l][i].mat.data, 0);
    ash_memory_cuda.free((void *)(uintptr_t)m->head.mat.data, 0);
    for (size_t i = 0; i < ASH_COUNT(rows); i++)
        ash_memory_cuda.free(rows[i], 0);
    free(m->pages);
}

int main(int argc, char **argv)
{
    static struct model model;
    struct ash_exec exec;
    struct ash_err err = {0};
    size_t steps = argc > 2 ? (size_t)strtoul(argv[2], NULL, 10) : STEPS;
    size_t aheads[AHEADS_MAX] = {ASH_CUDA_AHEAD_BYTES >> 20}, ahead_count = 1;

    if (ash_exec_init(&exec, "cuda", 1, &err) < 0) {
        fprintf(stderr, "gpu_decode: %s\n", err.text);
        return 77;
    }
    for (int i = 3; i < argc && i - 3 < AHEADS_MAX; i++) {
        aheads[i - 3] = (size_t)strtoul(argv[i], NULL, 10);
        ahead_count = (size_t)i - 2;
    }
    for (size_t i = 0; i < ASH_COUNT(configs); i++) {
        char name[64];

        model = (struct model){.exec = &exec, .shape = &shapes[configs[i].shape], .config = &configs[i]};
        snprintf(name, sizeof(name), "%s %s %zu", model.shape->name, ash_dtype_name(configs[i].dtype),
                 configs[i].batch);
        if (argc > 1 && strstr(name, argv[1]) == NULL) continue;
        make_weights(&model);
        make_cache(&model);
        make_rows(&model);
        measure(&model, steps, aheads, ahead_count);
        free_model(&model);
    }
    ash_exec_fini(&exec);
    return 0;
}
