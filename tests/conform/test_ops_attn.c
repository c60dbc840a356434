/* Attention on every backend: the reference's bits for packed documents, windows, grouped heads, narrow caches and
 * positions; and a row that does not change however the queries are cut into calls. */
#define PRODUCTS_UNDER_TEST PRODUCTS_NONE
#include "conform/ops_harness.h"

#include <math.h>
#include "base/math.h"
#include "compute/attn_pages.h"

#define DOCS_MAX 4
#define DOCS_SHARED 12 /* that begin alike */

/* Packed documents with everything that attention reads and writes. */
struct docs {
    struct ash_attn_args args;
    struct ash_attn_seq seqs[DOCS_SHARED];
    size_t rows, keys[DOCS_SHARED], k_count, v_count;
    float *q, *out, *lse;
    void *k, *v;
};

/* wide: more query heads on a key head, and larger heads, than a unit of work holds by default. */
static void draw_heads(struct tape *tape, struct ash_attn_args *args, bool wide)
{
    size_t group = wide ? 60 + draw_below(tape, 10) : 1 + draw_below(tape, 3), dim_max = wide ? ASH_ATTN_HEAD_MAX : 65;

    args->kv_heads = wide ? 1 : 1 + draw_below(tape, 3);
    args->heads = args->kv_heads * group;
    args->dim_k = wide ? dim_max - draw_below(tape, 40) : draw_size(tape, dim_max);
    args->dim_v = draw_bool(tape) ? args->dim_k : draw_size(tape, dim_max);
    if (!wide && draw_below(tape, 4) == 0) /* sizes that have kernels of their own */
        args->dim_k = args->dim_v = draw_below(tape, 3) == 0 ? 128 : 64;
    args->scale = 0.3f;
    args->window = draw_bool(tape) ? 0 : 1 + draw_below(tape, 100);
    args->cap = draw_below(tape, 4) == 0 ? 0.5f * (float)(1 + draw_below(tape, 40)) : 0.0f;
    args->round_bf16 = draw_bool(tape);
    args->q_stride = args->heads * args->dim_k + draw_below(tape, 3);
    args->k_stride = args->kv_heads * args->dim_k + draw_below(tape, 3);
    args->v_stride = args->kv_heads * args->dim_v + draw_below(tape, 3);
    args->out_stride = args->heads * args->dim_v + draw_below(tape, 3);
}

/* backward: every document starts at position 0 and keys are float32. rows_max bounds the first document. */
static void draw_docs_of(struct tape *tape, struct docs *docs, bool backward, bool wide, size_t rows_max)
{
    struct ash_attn_args *args = &docs->args;
    size_t key = 0, width;

    memset(docs, 0, sizeof(*docs));
    draw_heads(tape, args, wide);
    args->kv_dtype = backward || draw_bool(tape) ? ASH_F32 : ASH_BF16;
    width = args->kv_dtype == ASH_F32 ? sizeof(float) : sizeof(uint16_t);
    args->seq_count = 1 + draw_below(tape, DOCS_MAX);
    args->seqs = docs->seqs;
    for (size_t s = 0; s < args->seq_count; s++) {
        struct ash_attn_seq *seq = &docs->seqs[s];

        seq->q_row = docs->rows;
        seq->q_count = draw_size(tape, s == 0 ? rows_max : (rows_max + 2) / 3);
        seq->pos = backward || draw_bool(tape) ? 0 : draw_below(tape, 150);
        docs->rows += seq->q_count;
        docs->keys[s] = key;
        key += seq->pos + seq->q_count;
    }
    docs->k_count = key * args->k_stride;
    docs->v_count = key * args->v_stride;
    docs->k = draw_dtype(tape, args->kv_dtype, docs->k_count, 1.0f);
    docs->v = draw_dtype(tape, args->kv_dtype, docs->v_count, 1.0f);
    /* with large ones, scores are so far apart that weights vanish */
    args->q = docs->q = draw_floats(tape, docs->rows * args->q_stride, draw_below(tape, 3) == 0 ? 60.0f : 1.0f);
    args->out = docs->out = draw_floats(tape, docs->rows * args->out_stride, 1.0f);
    args->lse = docs->lse = draw_floats(tape, docs->rows * args->heads, 1.0f);
    for (size_t s = 0; s < args->seq_count; s++) {
        docs->seqs[s].k = (char *)docs->k + docs->keys[s] * args->k_stride * width;
        docs->seqs[s].v = (char *)docs->v + docs->keys[s] * args->v_stride * width;
    }
}

static void draw_docs(struct tape *tape, struct docs *docs, bool backward)
{
    draw_docs_of(tape, docs, backward, false, 193);
}

static void run_forward(struct ash_exec *exec, struct tape *tape, struct docs *docs)
{
    exec->ops->attn->forward(exec, &docs->args);
    tape_words(tape, docs->out, docs->rows * docs->args.out_stride);
    tape_words(tape, docs->lse, docs->rows * docs->args.heads);
}

static void run_backward(struct ash_exec *exec, struct tape *tape, struct docs *docs)
{
    float *dk = draw_floats(tape, docs->k_count, 1.0f), *dv = draw_floats(tape, docs->v_count, 1.0f);

    docs->args.dq = draw_floats(tape, docs->rows * docs->args.q_stride, 1.0f);
    docs->args.dout = draw_floats(tape, docs->rows * docs->args.out_stride, 1.0f);
    for (size_t s = 0; s < docs->args.seq_count; s++) {
        docs->seqs[s].dk = dk + docs->keys[s] * docs->args.k_stride;
        docs->seqs[s].dv = dv + docs->keys[s] * docs->args.v_stride;
    }
    exec->ops->attn->forward(exec, &docs->args);
    exec->ops->attn->backward(exec, &docs->args);
    tape_words(tape, docs->args.dq, docs->rows * docs->args.q_stride);
    tape_words(tape, dk, docs->k_count);
    tape_words(tape, dv, docs->v_count);
}

static void scenario_forward(struct ash_exec *exec, struct tape *tape)
{
    struct docs docs;

    draw_docs(tape, &docs, false);
    run_forward(exec, tape, &docs);
}

static void scenario_backward(struct ash_exec *exec, struct tape *tape)
{
    struct docs docs;

    draw_docs(tape, &docs, true);
    run_backward(exec, tape, &docs);
}

static void scenario_wide(struct ash_exec *exec, struct tape *tape)
{
    struct docs docs;

    draw_docs_of(tape, &docs, true, true, 7);
    run_forward(exec, tape, &docs);
    run_backward(exec, tape, &docs);
}

/* A document of several spans of keys (ASH_ATTN_SPAN) and a short one, heads of the dims that have kernels of their
 * own. */
static void draw_long(struct tape *tape, struct docs *docs)
{
    struct ash_attn_args *args = &docs->args;

    memset(docs, 0, sizeof(*docs));
    args->kv_heads = 1;
    args->heads = 1 + draw_below(tape, 2);
    args->dim_k = args->dim_v = draw_below(tape, 3) == 0 ? 128 : 64;
    args->scale = 0.3f;
    args->window = draw_bool(tape) ? 0 : 100 + draw_below(tape, 500);
    args->round_bf16 = true;
    args->q_stride = args->out_stride = args->heads * args->dim_k;
    args->k_stride = args->v_stride = args->dim_k;
    args->seq_count = 2;
    args->seqs = docs->seqs;
    for (size_t s = 0; s < args->seq_count; s++) {
        docs->seqs[s] = (struct ash_attn_seq){.q_row = docs->rows,
                                              .q_count = s == 0 ? ASH_ATTN_SPAN + 1 + draw_below(tape, 150)
                                                                : 1 + draw_below(tape, 90)};
        docs->keys[s] = docs->rows;
        docs->rows += docs->seqs[s].q_count;
    }
    docs->k_count = docs->v_count = docs->rows * args->k_stride;
    docs->k = draw_floats(tape, docs->k_count, 1.0f);
    docs->v = draw_floats(tape, docs->v_count, 1.0f);
    args->q = docs->q = draw_floats(tape, docs->rows * args->q_stride, draw_bool(tape) ? 30.0f : 1.0f);
    args->out = docs->out = draw_floats(tape, docs->rows * args->out_stride, 1.0f);
    args->lse = docs->lse = draw_floats(tape, docs->rows * args->heads, 1.0f);
    for (size_t s = 0; s < args->seq_count; s++) {
        docs->seqs[s].k = (float *)docs->k + docs->keys[s] * args->k_stride;
        docs->seqs[s].v = (float *)docs->v + docs->keys[s] * args->v_stride;
    }
}

static void scenario_long(struct ash_exec *exec, struct tape *tape)
{
    struct docs docs;

    draw_long(tape, &docs);
    run_backward(exec, tape, &docs);
    tape_words(tape, docs.out, docs.rows * docs.args.out_stride);
    tape_words(tape, docs.lse, docs.rows * docs.args.heads);
}

/* Row i of document s alone, as the last query over the keys that it sees both ways. */
static void check_row_alone(struct ash_exec *exec, struct tape *tape, const struct docs *docs, size_t s, size_t i)
{
    struct ash_attn_args args = docs->args;
    size_t width = args.kv_dtype == ASH_F32 ? sizeof(float) : sizeof(uint16_t), n = docs->seqs[s].q_count;
    size_t first = args.window != 0 && i > args.window ? i - args.window : 0;
    size_t end = args.window != 0 && i + args.window + 1 < n ? i + args.window + 1 : n, row = docs->seqs[s].q_row + i;
    struct ash_attn_seq seq = {.q_count = 1, .pos = end - 1 - first};
    float *out = tape_alloc(tape, args.out_stride * sizeof(*out)), *lse = tape_alloc(tape, args.heads * sizeof(*lse));

    if (first % ASH_ATTN_BLOCK != 0) return; /* blocks of keys begin elsewhere */
    seq.k = (const char *)docs->seqs[s].k + first * args.k_stride * width;
    seq.v = (const char *)docs->seqs[s].v + first * args.v_stride * width;
    args.both_ways = false;
    args.window = 0;
    args.q += row * args.q_stride;
    args.out = out;
    args.lse = lse;
    args.seqs = &seq;
    args.seq_count = 1;
    exec->ops->attn->forward(exec, &args);
    assert_memory_equal(out, docs->out + row * args.out_stride, args.heads * args.dim_v * sizeof(*out));
    assert_memory_equal(lse, docs->lse + row * args.heads, args.heads * sizeof(*lse));
}

static void scenario_both_ways(struct ash_exec *exec, struct tape *tape)
{
    struct docs docs;

    draw_docs(tape, &docs, false);
    docs.args.both_ways = true;
    docs.args.cap = 0;
    for (size_t s = 0; s < docs.args.seq_count; s++)
        docs.seqs[s].pos = 0;
    if (exec->ops->takes_bf16) return; /* these do not compute it */
    run_forward(exec, tape, &docs);
    for (size_t s = 0; s < docs.args.seq_count; s++)
        check_row_alone(exec, tape, &docs, s, draw_below(tape, docs.seqs[s].q_count));
}

static void test_both_ways(void **state)
{
    (void)state;
    check_scenario(scenario_both_ways, 24);
}

static void test_long(void **state)
{
    (void)state;
    check_scenario(scenario_long, few_or_many(2, SANITIZED ? 5 : 6));
}

static void test_forward(void **state)
{
    (void)state;
    check_scenario(scenario_forward, 80);
}

static void test_backward(void **state)
{
    (void)state;
    check_scenario(scenario_backward, 60);
}

static void test_wide(void **state)
{
    (void)state;
    check_scenario(scenario_wide, 8);
}

/* |a - b| / |b|, of count values. */
static double distance(const float *a, const float *b, size_t count)
{
    double apart = 0.0, size = 0.0;

    for (size_t i = 0; i < count; i++) {
        apart += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)b[i] * b[i];
    }
    return sqrt(apart / size);
}

/* Attention in bf16 is near that in float32: outputs, and gradients of queries. */
static void test_rounding(void **state)
{
    (void)state;
    for (uint64_t seed = 400; seed < 406; seed++) {
        struct ash_exec exec;
        struct tape tape;
        struct docs docs;
        float *near, *k, *v;
        size_t outs, queries;

        exec_init(&exec, "ref-wgmma", 2);
        tape_init(&tape, &exec, seed);
        draw_docs_of(&tape, &docs, true, false, 70);
        outs = docs.rows * docs.args.out_stride;
        queries = docs.rows * docs.args.q_stride;
        docs.args.q = docs.q = draw_floats(&tape, queries, 1.0f);
        docs.args.dout = draw_floats(&tape, outs, 1.0f);
        k = draw_floats(&tape, docs.k_count, 1.0f);
        v = draw_floats(&tape, docs.v_count, 1.0f);
        for (size_t s = 0; s < docs.args.seq_count; s++) {
            docs.seqs[s].dk = k + docs.keys[s] * docs.args.k_stride;
            docs.seqs[s].dv = v + docs.keys[s] * docs.args.v_stride;
        }
        near = tape_alloc(&tape, (outs + queries) * sizeof(*near));
        for (int round = 1; round >= 0; round--) {
            docs.args.round_bf16 = round != 0;
            docs.args.dq = draw_floats(&tape, queries, 0.0f);
            memset(docs.out, 0, outs * sizeof(*docs.out));
            exec.ops->attn->forward(&exec, &docs.args);
            exec.ops->attn->backward(&exec, &docs.args);
            if (round == 0) break;
            memcpy(near, docs.out, outs * sizeof(*near));
            memcpy(near + outs, docs.args.dq, queries * sizeof(*near));
        }
        assert_true(distance(near, docs.out, outs) < 0.01);
        assert_true(distance(near + outs, docs.args.dq, queries) < 0.02);
        ash_exec_fini(&exec);
        tape_fini(&tape);
    }
}

/* One document in calls of step rows (1: decoding token by token) gives the bits of one call. */
static void check_split(struct ash_exec *exec, uint64_t seed)
{
    struct tape tape;
    struct docs docs;
    struct ash_attn_seq whole;
    float *out, *lse;
    size_t out_bytes, lse_bytes;

    tape_init(&tape, exec, seed);
    draw_docs(&tape, &docs, false);
    docs.args.seq_count = 1;
    whole = docs.seqs[0];
    out_bytes = whole.q_count * docs.args.out_stride * sizeof(float);
    lse_bytes = whole.q_count * docs.args.heads * sizeof(float);
    out = tape_alloc(&tape, out_bytes);
    lse = tape_alloc(&tape, lse_bytes);
    exec->ops->attn->forward(exec, &docs.args);
    tape_wait(&tape);
    memcpy(out, docs.out, out_bytes);
    memcpy(lse, docs.lse, lse_bytes);
    for (size_t step = 1; step < whole.q_count; step += 1 + step / 2) {
        for (size_t i = 0; i < whole.q_count; i += step) {
            docs.seqs[0] = whole;
            docs.seqs[0].q_row += i;
            docs.seqs[0].pos += i;
            docs.seqs[0].q_count = i + step < whole.q_count ? step : whole.q_count - i;
            exec->ops->attn->forward(exec, &docs.args);
        }
        tape_wait(&tape);
        assert_memory_equal(out, docs.out, out_bytes);
        assert_memory_equal(lse, docs.lse, lse_bytes);
    }
    tape_fini(&tape);
}

static void test_split(void **state)
{
    (void)state;
    if (EMULATED) skip(); /* hundreds of launches, of kernels that test_forward has, too */
    for (const char *const *name = backends_under_test(); *name != NULL; name++) {
        struct ash_exec exec;

        exec_init(&exec, *name, 2);
        for (uint64_t seed = 100; seed < 112; seed++)
            check_split(&exec, seed);
        ash_exec_fini(&exec);
    }
}

/* A document's rows do not depend on the documents packed with it, nor on their order. */
static void test_packing(void **state)
{
    (void)state;
    for (const char *const *name = backends_under_test(); *name != NULL; name++) {
        struct ash_exec exec;
        struct tape tape;
        struct docs docs;
        float *out;
        size_t bytes;

        exec_init(&exec, *name, 3);
        tape_init(&tape, &exec, 200);
        do {
            draw_docs(&tape, &docs, true);
        } while (docs.args.seq_count < 3);
        exec.ops->attn->forward(&exec, &docs.args);
        bytes = docs.rows * docs.args.out_stride * sizeof(float);
        out = tape_alloc(&tape, bytes);
        tape_wait(&tape);
        memcpy(out, docs.out, bytes);
        for (size_t s = docs.args.seq_count; s-- > 0;) {
            struct ash_attn_args alone = docs.args;

            alone.seqs = &docs.seqs[s];
            alone.seq_count = 1;
            exec.ops->attn->forward(&exec, &alone);
        }
        tape_wait(&tape);
        assert_memory_equal(out, docs.out, bytes);
        ash_exec_fini(&exec);
        tape_fini(&tape);
    }
}

/* Put the keys and values of a document into pages of the pool, in which other things lie too; used is how many are
 * taken, and pages are given out from the last one on. */
static const int32_t *cut_pages(struct tape *tape, const struct ash_attn_args *args, const struct ash_attn_seq *seq,
                                size_t *left)
{
    size_t tokens = seq->pos + seq->q_count, count = (tokens + ASH_ATTN_BLOCK - 1) / ASH_ATTN_BLOCK;
    size_t width = ash_dtype_bytes(args->kv_dtype);
    int32_t *pages = tape_alloc(tape, (count + 1) * sizeof(*pages));
    struct ash_attn_seq there = {.pages = pages};

    for (size_t p = 0; p < count; p++)
        pages[p] = (int32_t)-- * left;
    for (size_t j = 0; j < tokens; j++)
        for (size_t g = 0; g < args->kv_heads; g++) {
            struct ash_attn_run k = ash_attn_keys(args, &there, j, g), v = ash_attn_values(args, &there, j, g);

            for (size_t d = 0; d < args->dim_k; d++)
                memcpy((char *)k.data + d * k.dim_stride * width,
                       (const char *)seq->k + (j * args->k_stride + g * args->dim_k + d) * width, width);
            memcpy(v.data, (const char *)seq->v + (j * args->v_stride + g * args->dim_v) * width, args->dim_v * width);
        }
    return pages;
}

/* The document begins with `blocks` whole blocks of another: the same pages, and the same keys and values in its run.
 * */
static void share_pages(const struct ash_attn_args *args, struct ash_attn_seq *seq, const struct ash_attn_seq *other,
                        size_t blocks)
{
    size_t width = ash_dtype_bytes(args->kv_dtype), tokens = blocks * ASH_ATTN_BLOCK;

    memcpy((void *)(uintptr_t)seq->k, other->k, tokens * args->k_stride * width);
    memcpy((void *)(uintptr_t)seq->v, other->v, tokens * args->v_stride * width);
    memcpy((void *)(uintptr_t)seq->pages, other->pages, blocks * sizeof(*seq->pages));
}

/* A pool with a page for every block of the documents' tokens. */
static size_t draw_pool(struct tape *tape, struct ash_attn_args *args)
{
    size_t count = 0, width = ash_dtype_bytes(args->kv_dtype);
    bool at_borders = draw_below(tape, 3) != 0; /* of 16 bytes, as caches have them */

    args->k_page = at_borders ? 8 * draw_below(tape, 2) : draw_below(tape, 9);
    args->v_page = args->k_page + ASH_ATTN_BLOCK * args->kv_heads * args->dim_k;
    args->page_bytes = (args->v_page + ASH_ATTN_BLOCK * args->kv_heads * args->dim_v + draw_below(tape, 9)) * width;
    args->page_bytes = at_borders ? (args->page_bytes + 15) / 16 * 16 : (args->page_bytes + 3) / 4 * 4;
    for (size_t s = 0; s < args->seq_count; s++)
        count += (args->seqs[s].pos + args->seqs[s].q_count + ASH_ATTN_BLOCK - 1) / ASH_ATTN_BLOCK;
    args->pool = tape_alloc(tape, count * args->page_bytes);
    memset(args->pool, 0xff, count * args->page_bytes); /* NaN, for reads of keys that do not exist */
    return count;
}

/* Keys in pages give the bits of keys in one run. */
static void test_pages(void **state)
{
    (void)state;
    for (const char *const *name = backends_under_test(); *name != NULL; name++)
        for (uint64_t seed = 300; seed < 312; seed++) {
            struct ash_exec exec;
            struct tape tape;
            struct docs docs;
            float *out;
            size_t bytes, left;

            exec_init(&exec, *name, 2);
            tape_init(&tape, &exec, seed);
            draw_docs(&tape, &docs, false);
            exec.ops->attn->forward(&exec, &docs.args);
            bytes = docs.rows * docs.args.out_stride * sizeof(float);
            out = tape_alloc(&tape, bytes);
            tape_wait(&tape);
            memcpy(out, docs.out, bytes);
            left = draw_pool(&tape, &docs.args);
            for (size_t s = 0; s < docs.args.seq_count; s++) {
                docs.seqs[s].pages = cut_pages(&tape, &docs.args, &docs.seqs[s], &left);
                docs.seqs[s].k = docs.seqs[s].v = NULL;
            }
            exec.ops->attn->forward(&exec, &docs.args);
            tape_wait(&tape);
            assert_memory_equal(out, docs.out, bytes);
            ash_exec_fini(&exec);
            tape_fini(&tape);
        }
}

/* A new token of each of a few documents of at least `least` tokens; heads and types of args are drawn already. Many
 * heads have short documents: the reference is slow. */
static void decode_docs(struct ash_exec *exec, struct tape *tape, struct docs *docs, size_t least)
{
    struct ash_attn_args *args = &docs->args;
    size_t key = 0, width = ash_dtype_bytes(args->kv_dtype), spread = args->kv_heads > 2 ? 100 : 500, left;

    args->k_stride = args->kv_heads * args->dim_k;
    args->v_stride = args->kv_heads * args->dim_v;
    args->window = draw_below(tape, 3) == 0 ? 100 + draw_below(tape, 400) : 0;
    args->seq_count = 1 + draw_below(tape, 3);
    args->seqs = docs->seqs;
    for (size_t s = 0; s < args->seq_count; s++) {
        docs->seqs[s] = (struct ash_attn_seq){.q_row = s, .q_count = 1, .pos = least + draw_below(tape, spread)};
        docs->keys[s] = key;
        key += docs->seqs[s].pos + 1;
    }
    docs->rows = args->seq_count;
    docs->k = draw_dtype(tape, args->kv_dtype, key * args->k_stride, 1.0f);
    docs->v = draw_dtype(tape, args->kv_dtype, key * args->v_stride, 1.0f);
    args->q = draw_floats(tape, docs->rows * args->q_stride, draw_below(tape, 3) == 0 ? 60.0f : 1.0f);
    args->out = docs->out = draw_floats(tape, docs->rows * args->out_stride, 1.0f);
    args->lse = docs->lse = draw_bool(tape) ? draw_floats(tape, docs->rows * args->heads, 1.0f) : NULL;
    left = draw_pool(tape, args);
    for (size_t s = 0; s < args->seq_count; s++) {
        docs->seqs[s].k = (char *)docs->k + docs->keys[s] * args->k_stride * width;
        docs->seqs[s].v = (char *)docs->v + docs->keys[s] * args->v_stride * width;
        docs->seqs[s].pages = cut_pages(tape, args, &docs->seqs[s], &left);
        if (s > 0 && draw_bool(tape))
            share_pages(args, &docs->seqs[s], &docs->seqs[s - 1],
                        draw_below(tape, ash_min(docs->seqs[s].pos, docs->seqs[s - 1].pos) / ASH_ATTN_BLOCK + 1));
    }
    exec->ops->attn->forward(exec, args);
    tape_words(tape, docs->out, docs->rows * args->out_stride);
    if (args->lse != NULL) tape_words(tape, docs->lse, docs->rows * args->heads);
}

/* Fewer heads than threads, so one head is several threads' work. */
static void scenario_decode(struct ash_exec *exec, struct tape *tape)
{
    struct docs docs;
    struct ash_attn_args *args = &docs.args;

    memset(&docs, 0, sizeof(docs));
    draw_heads(tape, args, draw_below(tape, 8) == 0);
    args->round_bf16 = draw_below(tape, 10) == 0; /* its reference is slow, and no CPU has kernels for it */
    if (args->kv_heads > 2) args->kv_heads = 1, args->heads = 1 + draw_below(tape, 9);
    args->kv_dtype = draw_bool(tape) ? ASH_F32 : ASH_BF16;
    args->q_stride = args->heads * args->dim_k + draw_below(tape, 3);
    args->out_stride = args->heads * args->dim_v + draw_below(tape, 3);
    decode_docs(exec, tape, &docs, 200);
}

/* Bf16 heads of the usual widths at borders of 16 bytes, which a GPU has a kernel for. */
static void scenario_decode_bf16(struct ash_exec *exec, struct tape *tape)
{
    struct docs docs;
    struct ash_attn_args *args = &docs.args;

    memset(&docs, 0, sizeof(docs));
    args->kv_heads = draw_below(tape, 4) == 0 ? 67 : 1 + draw_below(tape, 2); /* 67: more than a GPU computes at once */
    args->heads = args->kv_heads > 2 ? args->kv_heads
                  : draw_bool(tape)  ? args->kv_heads * (1 + draw_below(tape, 4))
                                     : args->kv_heads * (1 + draw_below(tape, 16));
    args->dim_k = args->dim_v = draw_bool(tape) ? 64 : 128;
    args->scale = 0.1f;
    args->round_bf16 = true;
    args->kv_dtype = ASH_BF16;
    args->q_stride = args->heads * args->dim_k + 4 * draw_below(tape, 3);
    args->out_stride = args->heads * args->dim_v + 4 * draw_below(tape, 3);
    decode_docs(exec, tape, &docs, draw_below(tape, 4) == 0 && args->kv_heads <= 2 ? 600 : draw_below(tape, 20));
}

/* New tokens of documents that begin alike, in drawn depths, between parts of prompts and documents without a shared
 * prefix. The reference reads every page for every sequence; with pages and without it must give the same. */
static void scenario_shared(struct ash_exec *exec, struct tape *tape)
{
    struct docs docs;
    struct ash_attn_args *args = &docs.args;
    size_t key = 0, width, left;

    memset(&docs, 0, sizeof(docs));
    draw_heads(tape, args, draw_below(tape, 8) == 0);
    args->round_bf16 = draw_below(tape, 10) == 0; /* its reference is slow, and no CPU has kernels for it */
    args->kv_dtype = draw_bool(tape) ? ASH_F32 : ASH_BF16;
    args->q_stride = args->heads * args->dim_k + draw_below(tape, 3);
    args->out_stride = args->heads * args->dim_v + draw_below(tape, 3);
    args->k_stride = args->kv_heads * args->dim_k;
    args->v_stride = args->kv_heads * args->dim_v;
    args->window = draw_below(tape, 3) == 0 ? 50 + draw_below(tape, 200) : 0;
    width = ash_dtype_bytes(args->kv_dtype);
    args->seq_count = 2 + draw_below(tape, DOCS_SHARED - 1);
    args->seqs = docs.seqs;
    for (size_t s = 0; s < args->seq_count; s++) {
        size_t rows = draw_below(tape, 5) == 0 ? 1 + draw_below(tape, 9) : 1;

        docs.seqs[s] = (struct ash_attn_seq){.q_row = docs.rows, .q_count = rows, .pos = draw_below(tape, 300)};
        docs.keys[s] = key;
        docs.rows += rows;
        key += docs.seqs[s].pos + rows;
    }
    docs.k = draw_dtype(tape, args->kv_dtype, key * args->k_stride, 1.0f);
    docs.v = draw_dtype(tape, args->kv_dtype, key * args->v_stride, 1.0f);
    args->q = draw_floats(tape, docs.rows * args->q_stride, draw_below(tape, 3) == 0 ? 60.0f : 1.0f);
    args->out = docs.out = draw_floats(tape, docs.rows * args->out_stride, 1.0f);
    args->lse = docs.lse = draw_bool(tape) ? draw_floats(tape, docs.rows * args->heads, 1.0f) : NULL;
    left = draw_pool(tape, args);
    for (size_t s = 0; s < args->seq_count; s++) {
        const struct ash_attn_seq *other = s > 0 ? &docs.seqs[draw_below(tape, s)] : NULL;
        size_t most = other != NULL && other->pos < docs.seqs[s].pos ? other->pos : docs.seqs[s].pos;

        docs.seqs[s].k = (char *)docs.k + docs.keys[s] * args->k_stride * width;
        docs.seqs[s].v = (char *)docs.v + docs.keys[s] * args->v_stride * width;
        docs.seqs[s].pages = cut_pages(tape, args, &docs.seqs[s], &left);
        if (other != NULL) share_pages(args, &docs.seqs[s], other, draw_below(tape, most / ASH_ATTN_BLOCK + 1));
    }
    exec->ops->attn->forward(exec, args);
    tape_words(tape, docs.out, docs.rows * args->out_stride);
    for (size_t s = 0; s < args->seq_count; s++)
        docs.seqs[s].pages = NULL;
    exec->ops->attn->forward(exec, args);
    tape_words(tape, docs.out, docs.rows * args->out_stride);
    if (args->lse != NULL) tape_words(tape, docs.lse, docs.rows * args->heads);
}

static void test_shared(void **state)
{
    (void)state;
    check_scenario(scenario_shared, SANITIZED ? 20 : 60);
}

static void test_decode(void **state)
{
    (void)state;
    check_scenario(scenario_decode, 72);
    check_scenario(scenario_decode_bf16, 16);
}

/* Block tables for the documents of attn, into all, on a pool that is full of the same everywhere. */
static size_t draw_pages(struct tape *tape, struct ash_attn_args *attn, struct ash_attn_seq *seqs, int32_t *all)
{
    size_t total = draw_pool(tape, attn), left = total, at = 0;

    memset(attn->pool, 0x5a, total * attn->page_bytes);
    for (size_t s = 0; s < attn->seq_count; s++) {
        size_t count = (seqs[s].pos + seqs[s].q_count + ASH_ATTN_BLOCK - 1) / ASH_ATTN_BLOCK;

        seqs[s].pages = all + at;
        for (; count > 0; count--)
            all[at++] = (int32_t)--left;
    }
    return total;
}

/* From q, k and v to attention: the queries, and everything that pages hold afterwards. */
static void scenario_place(struct ash_exec *exec, struct tape *tape)
{
    size_t dim = 2 * draw_size(tape, 33), rows = 0, total;
    struct ash_attn_seq seqs[DOCS_MAX] = {{0}};
    struct ash_attn_args attn = {.kv_heads = 1 + draw_below(tape, 3), .dim_k = dim, .dim_v = dim, .seqs = seqs};
    struct ash_kv_write_args args = {.attn = &attn, .round_bf16 = draw_bool(tape), .interleaved_in = draw_bool(tape)};
    int32_t pages[DOCS_MAX * 8];

    attn.heads = attn.kv_heads * (1 + draw_below(tape, 3));
    attn.kv_dtype = draw_bool(tape) ? ASH_F32 : ASH_BF16;
    attn.seq_count = 1 + draw_below(tape, DOCS_MAX);
    for (size_t s = 0; s < attn.seq_count; s++) {
        seqs[s].q_row = rows;
        seqs[s].q_count = draw_size(tape, s == 0 ? 193 : 33);
        seqs[s].pos = draw_below(tape, 150);
        rows += seqs[s].q_count;
    }
    total = draw_pages(tape, &attn, seqs, pages);
    args.q_stride = (attn.heads + 2 * attn.kv_heads) * dim + draw_below(tape, 3);
    args.q = draw_floats(tape, rows * args.q_stride, 1.0f);
    args.dims = draw_below(tape, 4) == 0 ? 0 : dim - 2 * draw_below(tape, dim / 2);
    args.positions = draw_ids(tape, rows, 50);
    args.cos = draw_floats(tape, 50 * (args.dims / 2), 1.0f);
    args.sin = draw_floats(tape, 50 * (args.dims / 2), 1.0f);
    exec->ops->attn->kv_write(exec, &args);
    for (size_t r = 0; r < rows; r++)
        tape_words(tape, args.q + r * args.q_stride, attn.heads * dim);
    tape_words(tape, attn.pool, total * attn.page_bytes / sizeof(uint32_t));
}

static void test_place(void **state)
{
    (void)state;
    check_scenario(scenario_place, 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_ways), cmocka_unit_test(test_forward), cmocka_unit_test(test_backward),
        cmocka_unit_test(test_wide),      cmocka_unit_test(test_long),    cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_decode),    cmocka_unit_test(test_split),   cmocka_unit_test(test_packing),
        cmocka_unit_test(test_pages),     cmocka_unit_test(test_shared),  cmocka_unit_test(test_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
