/* Same bits: a sequence's logits and gradients do not depend on what shares its batch, on pieces, threads,
 * recomputation or kernels. Every family, float32 and bf16; every comparison is of bytes. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/assert.h"
#include "base/bf16.h"
#include "base/rng.h"
#include "model/model_priv.h"
#include "model/pass/cache.h"
#include "model/pass/pass.h"
#include "unit/model/golden_models.h"
#include "unit/sanitized.h"

#define DOC_A 47
#define DOC_B 33
#define ROWS (DOC_A + DOC_B)
#define SEQ (ROWS / 2) /* rows of a sequence in training: not whole groups of k */
#define SEQ_DOC 18     /* of which the first sequence's first document has these */

struct fixture {
    struct ash_exec exec;
    struct ash_model *model;
    int32_t ids[ROWS], targets[ROWS];
    size_t vocab;
};

static void fixture_open(struct fixture *f, const char *name, const char *backend, int threads, bool bf16)
{
    struct ash_err err = {0};

    if (ash_exec_init(&f->exec, backend, threads, &err) < 0) fail_msg("%s", err.text);
    f->model = golden_open(name);
    if (ash_model_own(f->model, &err) < 0) fail_msg("%s", err.text);
    ash_model_round_bf16(f->model, bf16);
    f->vocab = ash_model_get_config(f->model)->vocab;
    for (size_t i = 0; i < ROWS; i++) {
        f->ids[i] = (int32_t)ash_rng_below(7, 1, i, f->vocab);
        f->targets[i] = i % 5 == 0 ? -1 : (int32_t)ash_rng_below(7, 2, i, f->vocab);
    }
}

static void fixture_close(struct fixture *f)
{
    ash_model_close(f->model);
    ash_exec_fini(&f->exec);
}

/* Logits of all rows of documents [0, doc_count), each a list of pieces given by piece length (0: whole, no cache). */
static float *infer(struct fixture *f, const struct ash_doc *docs, size_t doc_count, size_t first_id, size_t piece)
{
    struct ash_pass_opts opts = {.max_rows = ROWS};
    struct ash_pass *pass = NULL;
    struct ash_cache *cache = NULL;
    struct ash_block_table table = {0};
    struct ash_err err = {0};
    float *logits = calloc(ROWS * f->vocab, sizeof(float));
    size_t wanted[ROWS];

    for (size_t i = 0; i < ROWS; i++)
        wanted[i] = i;
    if (ash_pass_open(f->model, &f->exec, &opts, &pass, &err) < 0) fail_msg("%s", err.text);
    if (piece == 0) {
        size_t rows = 0;
        for (size_t i = 0; i < doc_count; i++)
            rows += docs[i].count;
        struct ash_batch batch = {.rows = rows, .ids = f->ids + first_id, .docs = docs, .doc_count = doc_count};
        if (ash_pass_infer(pass, &batch, NULL, wanted, rows, logits, &err) < 0) fail_msg("%s", err.text);
    } else {
        if (ash_cache_open(f->model, ash_cache_pages_for(DOC_A) + 1, &cache, &err) < 0) fail_msg("%s", err.text);
        assert_int_equal(ash_cache_take(cache), 0); /* another owner's */
        assert_int_equal(ash_block_table_init(&table, DOC_A), 0);
        assert_int_equal(ash_block_table_grow(&table, cache, DOC_A), 0);
        for (size_t done = 0; done < docs[0].count; done += piece) {
            size_t count = docs[0].count - done < piece ? docs[0].count - done : piece;
            struct ash_doc part = {.count = count, .pos = done, .pages = table.pages, .page_count = table.count};
            struct ash_batch batch = {.rows = count, .ids = f->ids + done, .docs = &part, .doc_count = 1};
            if (ash_pass_infer(pass, &batch, cache, wanted, count, logits + done * f->vocab, &err) < 0)
                fail_msg("%s", err.text);
        }
    }
    ash_block_table_fini(&table);
    ash_cache_close(cache);
    ash_pass_close(pass);
    return logits;
}

static void check_batch_and_pieces(const char *name, bool bf16)
{
    static const size_t pieces[] = {1, 5, 16, 36};
    struct fixture f = {0};
    struct ash_doc both[2] = {{.row = 0, .count = DOC_A}, {.row = DOC_A, .count = DOC_B}};
    struct ash_doc first = {.count = DOC_A}, second = {.count = DOC_B};

    fixture_open(&f, name, NULL, 2, bf16);
    float *whole = infer(&f, both, 2, 0, 0), *a = infer(&f, &first, 1, 0, 0), *b = infer(&f, &second, 1, DOC_A, 0);
    size_t row = f.vocab * sizeof(float);
    assert_memory_equal(whole, a, DOC_A * row);
    assert_memory_equal(whole + DOC_A * f.vocab, b, DOC_B * row);
    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        float *cut = infer(&f, &first, 1, 0, pieces[i]);
        assert_memory_equal(whole, cut, DOC_A * row);
        free(cut);
    }
    free(whole);
    free(a);
    free(b);
    fixture_close(&f);
}

/* Under a sanitizer models take turns with their precisions. */
static bool is_drawn(size_t model, int bf16)
{
    return !SANITIZED || model % 2 == (size_t)bf16;
}

static void test_batch_and_pieces(void **state)
{
    (void)state;
    for (size_t i = 0; i < GOLDEN_MODEL_COUNT; i += GOLDEN_MODEL_STEP)
        for (int bf16 = 0; bf16 < 2; bf16++)
            if (is_drawn(i, bf16)) check_batch_and_pieces(golden_models[i], bf16);
    for (size_t i = 0; i < FAMILY_MODEL_COUNT; i += GOLDEN_MODEL_STEP)
        check_batch_and_pieces(family_models[i], i % 2);
}

/* A gradient buffer for a first batch: nothing of use but what is to be cleared. */
static float *unclear_grads(struct fixture *f)
{
    size_t size = ash_model_grad_size(f->model), flat = ash_model_size(f->model);
    float *grads = calloc(size, sizeof(float));

    for (size_t i = 0; i < ash_model_param_count(f->model); i++)
        memset(grads + ash_model_param(f->model, i)->offset, 0xff, ash_model_param(f->model, i)->count * sizeof(float));
    memset(grads + flat, 0xff, (size - flat) * sizeof(float));
    ash_model_clear_grads(f->model, &f->exec, grads, (struct ash_range){0, size});
    return grads;
}

/* Gradients of both sequences, in one call or in one call each. starts: the first call starts them. */
static float *train(struct fixture *f, enum ash_recompute recompute, bool split, size_t head_rows, bool starts,
                    float *losses)
{
    struct ash_pass_opts opts = {.max_rows = ROWS,
                                 .backward = true,
                                 .recompute = recompute,
                                 .head_rows = head_rows,
                                 .logit_rows = 1,
                                 .bf16_acts = f->exec.ops->takes_bf16};
    struct ash_pass *pass = NULL;
    struct ash_err err = {0};
    struct ash_doc docs[3] = {
        {.row = 0, .count = SEQ_DOC}, {.row = SEQ_DOC, .count = SEQ - SEQ_DOC}, {.row = split ? 0 : SEQ, .count = SEQ}};
    float *grads = starts ? unclear_grads(f) : calloc(ash_model_grad_size(f->model), sizeof(float));

    if (ash_pass_open(f->model, &f->exec, &opts, &pass, &err) < 0) fail_msg("%s", err.text);
    for (size_t i = 0; i < (split ? 2 : 1); i++) {
        size_t first = i == 0 ? 0 : SEQ;
        struct ash_batch batch = {.rows = split ? SEQ : ROWS,
                                  .ids = f->ids + first,
                                  .targets = f->targets + first,
                                  .docs = docs + 2 * i,
                                  .doc_count = !split   ? 3
                                               : i == 0 ? 2
                                                        : 1,
                                  .seq_rows = SEQ,
                                  .flags = starts && i == 0 ? ASH_BATCH_OVERWRITES : 0};
        if (ash_pass_train(pass, &batch, 0.02f, &(struct ash_pass_grads){.sums = grads}, losses + first, &err) < 0)
            fail_msg("%s", err.text);
    }
    ash_model_grad_fold(f->model, &f->exec, grads);
    ash_pass_close(pass);
    return grads;
}

struct variant {
    const char *backend;
    int threads;
    enum ash_recompute recompute;
    bool split;
    size_t head_rows; /* 0: as the pass likes; up to 32: parts of a sequence; 64: one sequence */
};

/* What the default backend is held to. */
static const char *reference_name(void)
{
    struct ash_exec exec;
    const char *name;

    assert_int_equal(ash_exec_init(&exec, NULL, 1, NULL), 0);
    name = exec.ops->reference->name;
    ash_exec_fini(&exec);
    return name;
}

/* One thread and one batch of the reference against every variant. */
static void check_variants(const char *name, const char *reference, bool bf16, const struct variant *variants,
                           size_t count)
{
    struct fixture f = {0};
    float losses[ROWS], other_losses[ROWS];

    fixture_open(&f, name, reference, 1, bf16);
    float *grads = train(&f, ASH_RECOMPUTE_NONE, false, 0, false, losses);
    size_t bytes = ash_model_size(f.model) * sizeof(float);
    fixture_close(&f);
    for (size_t i = 0; i < count; i++) {
        const struct variant *v = &variants[i];
        fixture_open(&f, name, v->backend, v->threads, bf16);
        float *other = train(&f, v->recompute, v->split, v->head_rows, true, other_losses);
        assert_memory_equal(losses, other_losses, sizeof(losses));
        assert_memory_equal(grads, other, bytes);
        free(other);
        fixture_close(&f);
    }
    free(grads);
}

static void check_gradients(const char *name, bool bf16)
{
    const char *reference = reference_name();
    const struct variant variants[] = {
        {NULL, 1, ASH_RECOMPUTE_NONE, true, 0},      {NULL, 2, ASH_RECOMPUTE_SELECTIVE, false, 0},
        {NULL, 3, ASH_RECOMPUTE_FULL, false, 8},     {NULL, 5, ASH_RECOMPUTE_SELECTIVE, true, 64},
        {reference, 2, ASH_RECOMPUTE_FULL, true, 7},
    };

    check_variants(name, reference, bf16, variants, ASH_COUNT(variants));
}

/* Where activations are rounded as they are stored, some are recomputed in every mode, and logits are fewer than their
 * gradients. */
static void test_rounded_activations(void **state)
{
    static const char *const name = "ref-wgmma";
    const struct variant variants[] = {
        {name, 2, ASH_RECOMPUTE_FULL, false, 0},
        {name, 2, ASH_RECOMPUTE_SELECTIVE, true, 64},
        {name, 2, ASH_RECOMPUTE_NONE, false, 32},
    };

    (void)state;
    for (size_t i = 0; i < GOLDEN_MODEL_COUNT; i += SANITIZED ? 5 : 2)
        check_variants(golden_models[i], name, true, variants, ASH_COUNT(variants));
}

static void test_gradients(void **state)
{
    (void)state;
    for (size_t i = 0; i < GOLDEN_MODEL_COUNT; i += GOLDEN_MODEL_STEP)
        for (int bf16 = 0; bf16 < 2; bf16++)
            if (is_drawn(i, bf16)) check_gradients(golden_models[i], bf16);
    for (size_t i = 0; i < FAMILY_MODEL_COUNT; i += GOLDEN_MODEL_STEP)
        check_gradients(family_models[i], i % 2);
}

static size_t products; /* that were asked for */

static void counted_gemm(struct ash_exec *exec, const struct ash_gemm_args *args)
{
    products++;
    exec->ops->reference->matrix->gemm(exec, args);
}

/* Gradients with weights that lie in memory as they are laid out, or each elsewhere; how many products they took. */
static float *train_counted(const char *name, const char *backend, bool bf16, bool is_scattered, float *losses,
                            size_t *count_out, size_t *bytes_out)
{
    struct ash_matrix_ops matrix;
    struct fixture f = {0};
    struct ash_ops ops;
    float *grads;

    fixture_open(&f, name, backend, 2, bf16);
    ops = *f.exec.ops;
    matrix = *ops.matrix;
    matrix.gemm = counted_gemm;
    ops.matrix = &matrix;
    f.exec.ops = &ops;
    void **copies = calloc(f.model->param_count, sizeof(*copies));
    for (size_t i = 0; is_scattered && i < f.model->param_count; i++) {
        struct ash_param *param = &f.model->params[i];

        copies[i] = malloc(ash_dtype_size(param->dtype, param->count));
        memcpy(copies[i], param->data, ash_dtype_size(param->dtype, param->count));
        param->data = copies[i];
    }
    products = 0;
    grads = train(&f, ASH_RECOMPUTE_SELECTIVE, false, 0, true, losses);
    *count_out = products;
    *bytes_out = ash_model_size(f.model) * sizeof(float);
    for (size_t i = 0; i < f.model->param_count; i++)
        free(copies[i]);
    free(copies);
    fixture_close(&f);
    return grads;
}

/* Weights of one input that lie one after the other are multiplied as one: fewer products, the same bits. */
static void test_joined_weights(void **state)
{
    static const char *const backends[] = {"ref", "ref-wgmma"};
    size_t saved = 0;

    (void)state;
    for (size_t i = 0; i < 2 * GOLDEN_MODEL_COUNT; i += SANITIZED ? 5 : 1) {
        float losses[ROWS], other_losses[ROWS];
        size_t count, other_count, bytes;
        float *grads = train_counted(golden_models[i / 2], backends[i % 2], i % 2, false, losses, &count, &bytes),
              *other =
                  train_counted(golden_models[i / 2], backends[i % 2], i % 2, true, other_losses, &other_count, &bytes);

        assert_memory_equal(losses, other_losses, sizeof(losses));
        assert_memory_equal(grads, other, bytes);
        assert_true(count <= other_count);
        saved += other_count - count;
        free(grads);
        free(other);
    }
    assert_true(saved > 0);
}

/* A bf16 working copy and rounding on read are the same arithmetic. */
static void test_bf16_copy(void **state)
{
    (void)state;
    for (size_t i = 0; i < GOLDEN_MODEL_COUNT; i += GOLDEN_MODEL_STEP) {
        struct fixture f = {0};
        struct ash_doc doc = {.count = DOC_A};
        fixture_open(&f, golden_models[i], NULL, 2, true);
        float *rounded = infer(&f, &doc, 1, 0, 0);
        size_t size = ash_model_size(f.model);
        uint16_t *copy = malloc(size * sizeof(*copy));
        for (size_t j = 0; j < size; j++)
            copy[j] = ash_f32_to_bf16(ash_model_values(f.model)[j]);
        ash_model_use_bf16(f.model, copy);
        float *copied = infer(&f, &doc, 1, 0, 0);
        assert_memory_equal(rounded, copied, DOC_A * f.vocab * sizeof(float));
        ash_model_use_bf16(f.model, NULL);
        float *plain = infer(&f, &doc, 1, 0, 0);
        assert_memory_not_equal(plain, copied, DOC_A * f.vocab * sizeof(float));
        free(plain);
        free(copied);
        free(rounded);
        free(copy);
        fixture_close(&f);
    }
}

/* What a caller gets wrong is answered, not computed. */
static void test_refusals(void **state)
{
    struct fixture f = {0};
    struct ash_pass *pass = NULL;
    struct ash_cache *cache = NULL;
    struct ash_err err = {0};
    struct ash_pass_opts opts = {.max_rows = 8};
    int32_t page = 0;
    struct ash_doc doc = {.count = 4, .pages = &page, .page_count = 1};
    int32_t ids[16] = {1, 2, 3, 4};
    size_t last = 3;
    float logits[96];

    (void)state;
    fixture_open(&f, "llama-gqa", NULL, 1, false);
    assert_int_equal(ash_pass_open(f.model, &f.exec, &opts, &pass, &err), 0);
    assert_int_equal(ash_cache_open(f.model, 1, &cache, &err), 0);
    struct ash_batch batch = {.rows = 4, .ids = ids, .docs = &doc, .doc_count = 1};
    assert_int_equal(ash_pass_infer(pass, &batch, cache, &last, 1, logits, &err), -EINVAL); /* a page not taken */
    assert_int_equal(ash_cache_take(cache), page);
    assert_int_equal(ash_cache_take(cache), -ENOSPC);
    assert_int_equal(ash_pass_infer(pass, &batch, cache, &last, 1, logits, &err), 0);
    doc.pos = ASH_CACHE_PAGE_TOKENS - 2;
    assert_int_equal(ash_pass_infer(pass, &batch, cache, &last, 1, logits, &err), -EOVERFLOW);
    doc.pos = 2;
    assert_int_equal(ash_pass_infer(pass, &batch, NULL, &last, 1, logits, &err), -EINVAL); /* a start without a cache */
    doc = (struct ash_doc){.count = 4};
    ids[2] = 96;
    assert_int_equal(ash_pass_infer(pass, &batch, NULL, &last, 1, logits, &err), -EINVAL);
    assert_non_null(strstr(err.text, "outside the vocabulary"));
    ids[2] = 3;
    doc.count = 3;
    assert_int_equal(ash_pass_infer(pass, &batch, NULL, &last, 1, logits, &err), -EINVAL); /* a row of no document */
    doc.count = 4;
    batch.seq_rows = 3;
    assert_int_equal(ash_pass_infer(pass, &batch, NULL, &last, 1, logits, &err), -EINVAL); /* a part of a sequence */
    assert_non_null(strstr(err.text, "not whole sequences of 3"));
    batch.seq_rows = 0;
    batch.rows = 9;
    assert_int_equal(ash_pass_infer(pass, &batch, NULL, &last, 1, logits, &err), -EINVAL);
    ash_cache_close(cache);
    cache = NULL;
    assert_int_equal(ash_cache_open(f.model, 0, &cache, &err), -EINVAL);
    assert_null(cache);
    ash_pass_close(pass);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batch_and_pieces),    cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_rounded_activations), cmocka_unit_test(test_joined_weights),
        cmocka_unit_test(test_bf16_copy),           cmocka_unit_test(test_refusals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
