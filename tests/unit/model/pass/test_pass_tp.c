/* Tensor-parallel ranks, as threads: losses and every element of every gradient are those of the whole model, to the
 * byte, for every family, float32 and bf16, whatever is recomputed and however a batch is cut. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "model/family.h"
#include "model/files/open.h"
#include "model/model.h"
#include "model/pass/pass.h"
#include "unit/model/axis_threads.h"
#include "unit/model/golden_models.h"
#include "unit/model/wide_models.h"

#define ROWS 320
#define SEQ (ROWS / 2)
#define DOCS 3 /* of a sequence */
#define SEED 11
#if defined(__SANITIZE_THREAD__)
#define SIZE_MOST 2 /* what threads share is the same for more, and for other models */
#else
#define SIZE_MOST 4
#endif

struct variant {
    enum ash_recompute recompute;
    bool split;       /* one call for each of the two sequences */
    size_t head_rows; /* of the ranks; 0: as the pass likes */
    size_t rows;      /* of the batch */
    bool shard_experts;
    bool same_node; /* ranks share memory */
};

/* A model as a folder, or as a config whose weights are drawn. */
struct subject {
    const char *dir;
    const char *config; /* as json; each rank reads it for itself: its objects count who uses them, without locks */
    bool bf16;
    int32_t ids[ROWS], targets[ROWS];
    bool has_objective; /* a temperature, a scale for each row's loss and entropy */
    float scales[ROWS], entropy_scales[ROWS];
};

/* One rank, or the whole model (size 1). */
struct member {
    const struct subject *subject;
    struct variant variant;
    struct thread_rank place;
    struct ash_slice slice;
    struct ash_model *model;
    float *grads, losses[ROWS], evals[ROWS];
    size_t bytes; /* of activations */
    struct ash_err err;
    int rc;
};

static int parse_config(const char *text, struct ash_model_config *config, struct ash_err *err)
{
    json_t *json = json_loads(text, 0, NULL);
    int rc = ash_model_config_parse(json, config, err);

    json_decref(json);
    return rc;
}

static int open_model(struct member *m)
{
    const struct subject *s = m->subject;
    struct ash_model_config config;
    int rc;

    if (s->dir != NULL) return ash_model_open_slice(s->dir, &m->slice, &m->model, &m->err);
    rc = parse_config(s->config, &config, &m->err);
    if (rc < 0) return rc;
    rc = ash_model_create_slice(&config, &m->slice, SEED, NULL, &m->model, &m->err);
    if (rc < 0) ash_model_config_fini(&config);
    return rc;
}

static const size_t doc_ends[2][DOCS] = {{50, 107, SEQ}, {41, 104, SEQ}}; /* as long as golden models can read */

static struct ash_batch batch_of(const struct member *m, size_t part, struct ash_doc docs[2 * DOCS])
{
    const struct subject *s = m->subject;
    size_t rows = m->variant.rows, first = part * SEQ;

    if (rows < SEQ) {
        docs[0] = (struct ash_doc){.count = rows};
        return (struct ash_batch){.rows = rows, .ids = s->ids, .targets = s->targets, .docs = docs, .doc_count = 1};
    }
    for (size_t i = 0; i < (m->variant.split ? DOCS : 2 * DOCS); i++) {
        const size_t *ends = doc_ends[part + i / DOCS];
        size_t begin = i % DOCS == 0 ? 0 : ends[i % DOCS - 1];

        docs[i] = (struct ash_doc){.row = i / DOCS * SEQ + begin, .count = ends[i % DOCS] - begin};
    }
    return (struct ash_batch){.rows = m->variant.split ? SEQ : ROWS,
                              .ids = s->ids + first,
                              .targets = s->targets + first,
                              .docs = docs,
                              .doc_count = m->variant.split ? DOCS : 2 * DOCS,
                              .seq_rows = SEQ,
                              .sharpness = s->has_objective ? 1.25f : 0.0f,
                              .scales = s->has_objective ? s->scales + first : NULL,
                              .entropy_scales = s->has_objective ? s->entropy_scales + first : NULL};
}

static int train(struct member *m, struct ash_exec *exec)
{
    struct ash_pass_opts opts = {
        .max_rows = ROWS, .backward = true, .recompute = m->variant.recompute, .head_rows = m->variant.head_rows};
    struct ash_pass *pass = NULL;
    struct ash_doc docs[2 * DOCS];
    int rc;

    if (m->slice.tp_size > 1) opts.tp = thread_group_axis(&m->place);
    rc = ash_pass_measure(m->model, &opts, &m->bytes, &m->err);
    if (rc == 0) rc = ash_pass_open(m->model, exec, &opts, &pass, &m->err);
    for (size_t part = 0; rc == 0 && part < (m->variant.split ? 2 : 1); part++) {
        struct ash_batch batch = batch_of(m, part, docs);

        rc = ash_pass_train(pass, &batch, 0.02f, &(struct ash_pass_grads){.sums = m->grads}, m->losses + part * SEQ,
                            &m->err);
    }
    ash_pass_close(pass);
    if (rc == 0) ash_model_grad_fold(m->model, exec, m->grads);
    return rc;
}

/* Losses once more, without a backward pass. */
static int evaluate(struct member *m, struct ash_exec *exec)
{
    struct ash_pass_opts opts = {.max_rows = ROWS};
    struct ash_pass *pass = NULL;
    struct ash_doc docs[2 * DOCS];
    int rc;

    m->variant.split = false;
    if (m->slice.tp_size > 1) opts.tp = thread_group_axis(&m->place);
    rc = ash_pass_open(m->model, exec, &opts, &pass, &m->err);
    struct ash_batch batch = batch_of(m, 0, docs);
    if (rc == 0) rc = ash_pass_eval(pass, &batch, m->evals, &m->err);
    ash_pass_close(pass);
    return rc;
}

static int run_member(void *ctx, size_t rank)
{
    struct member *m = (struct member *)ctx + rank;
    struct ash_exec exec;

    m->rc = ash_exec_init(&exec, NULL, 1, &m->err);
    if (m->rc < 0) return m->rc;
    m->rc = open_model(m);
    if (m->rc == 0) {
        ash_model_round_bf16(m->model, m->subject->bf16);
        if (m->place.group != NULL) m->place.group->weights[m->place.rank] = ash_model_weights(m->model);
        m->grads = calloc(ash_model_grad_size(m->model), sizeof(float));
        m->rc = m->grads == NULL ? -ENOMEM : train(m, &exec);
    }
    if (m->rc == 0) m->rc = evaluate(m, &exec);
    ash_exec_fini(&exec);
    return m->rc;
}

static void close_member(struct member *m)
{
    ash_model_close(m->model);
    free(m->grads);
}

/* Is the part of a gradient that a rank has the whole's, element by element? */
static void compare_param(const struct ash_param *part, const float *part_grads, const struct ash_param *whole,
                          const float *whole_grads)
{
    for (size_t i = 0; i < ash_param_piece_count(part); i++) {
        struct ash_piece piece = ash_param_piece(part, i);
        const float *a = part_grads + part->offset + piece.local, *b = whole_grads + whole->offset + piece.full;

        for (size_t j = 0; j < piece.count; j++)
            if (memcmp(a + j, b + j, sizeof(float)) != 0)
                fail_msg("gradient of %s, element %zu: %a, of the whole model %a", part->name, piece.full + j,
                         (double)a[j], (double)b[j]);
    }
}

static void compare(const struct member *part, const struct member *whole)
{
    assert_memory_equal(part->losses, whole->losses, sizeof(part->losses));
    assert_memory_equal(part->evals, whole->evals, sizeof(part->evals));
    for (size_t i = 0; i < ash_model_param_count(part->model); i++) {
        const struct ash_param *param = ash_model_param(part->model, i);

        if (param->is_trained)
            compare_param(param, part->grads, ash_model_find(whole->model, param->name), whole->grads);
    }
}

static void check_ranks(const struct subject *subject, const struct member *whole, size_t size, struct variant variant)
{
    static const char *const modes[] = {"none", "selective", "full"};
    struct member members[THREAD_GROUP_MAX];
    struct thread_group group;

    thread_group_open(&group, size);
    group.same_node = variant.same_node;
    memset(members, 0, sizeof(members));
    for (size_t r = 0; r < size; r++) {
        members[r] = (struct member){.subject = subject, .variant = variant, .place = {&group, r, 0}};
        members[r].slice = ash_slice_whole(ash_model_get_config(whole->model));
        members[r].slice.tp_rank = r;
        members[r].slice.tp_size = size;
        if (variant.shard_experts) {
            members[r].slice.expert_rank = r;
            members[r].slice.expert_size = size;
        }
    }
    ranks_run_threads(size, run_member, members);
    for (size_t r = 0; r < size; r++) {
        if (members[r].rc < 0)
            fail_msg("rank %zu of %zu, recompute %s: %s", r, size, modes[variant.recompute], members[r].err.text);
        compare(&members[r], whole);
        assert_true(members[r].bytes < whole->bytes);
        close_member(&members[r]);
    }
    thread_group_close(&group);
}

static void draw_tokens(struct subject *subject, size_t vocab)
{
    static size_t drawn;

    for (size_t i = 0; i < ROWS; i++) {
        subject->ids[i] = (int32_t)ash_rng_below(7, 1, i, vocab);
        subject->targets[i] = i % 5 == 0 ? -1 : (int32_t)ash_rng_below(7, 2, i, vocab);
        if (i >= ROWS / 2 && i < ROWS / 2 + 80) subject->targets[i] = -1; /* whole groups of k without a target */
        subject->scales[i] = 0.01f * (float)((int)(i % 7) - 3);
        subject->entropy_scales[i] = 0.002f * (float)((int)(i % 5) - 2);
    }
    subject->has_objective = drawn++ % 2 == 0;
}

/* All sizes that the model allows, at least one. */
static void check_subject(struct subject *subject, const struct ash_model_config *config, size_t rows)
{
    static const struct variant variants[] = {{ASH_RECOMPUTE_NONE, false, 0, 0, true, false},
                                              {ASH_RECOMPUTE_SELECTIVE, true, 32, 0, true, false},
                                              {ASH_RECOMPUTE_FULL, false, 64, 0, false, false}};
    struct member whole = {.subject = subject, .variant.rows = rows, .slice = ash_slice_whole(config)};
    size_t sizes = 0;

    draw_tokens(subject, config->vocab);
    run_member(&whole, 0);
    if (whole.rc < 0) fail_msg("%s", whole.err.text);
    for (size_t size = 2; size <= SIZE_MOST; size++) {
        struct ash_slice slice = ash_slice_whole(config);

        slice.tp_size = size;
        if (ash_slice_check(config, &slice, subject->bf16, NULL) < 0) continue;
        sizes++;
        for (size_t v = 0; v < 2 * (rows < SEQ ? 1 : sizeof(variants) / sizeof(variants[0])); v++) {
            struct variant variant = variants[v / 2];

            variant.rows = rows;
            variant.same_node = v % 2 == 1;
            check_ranks(subject, &whole, size, variant);
        }
    }
    assert_true(sizes > 0);
    close_member(&whole);
}

static void test_golden(void **state)
{
    (void)state;
    for (size_t i = 0; i < GOLDEN_MODEL_COUNT; i += GOLDEN_MODEL_STEP) {
        struct ash_model_config config;
        struct ash_err err = {0};
        char dir[GOLDEN_PATH_BYTES];
        struct subject subject = {.dir = golden_path(golden_models[i], dir)};

        if (ash_model_config_load(dir, &config, &err) < 0) fail_msg("%s", err.text);
        print_message("%s\n", golden_models[i]);
        check_subject(&subject, &config, ROWS);
        ash_model_config_fini(&config);
    }
}

static void check_wide(const char *text, bool bf16, size_t rows)
{
    struct ash_model_config config;
    struct ash_err err = {0};
    struct subject subject = {.config = text, .bf16 = bf16};

    if (parse_config(text, &config, &err) < 0) fail_msg("%s", err.text);
    print_message("%s%s\n", config.family->type, bf16 ? ", bf16" : "");
    check_subject(&subject, &config, rows);
    ash_model_config_fini(&config);
}

static void test_wide(void **state)
{
    (void)state;
    if (SIZE_MOST < 4) skip();
    for (size_t i = 0; i < WIDE_MODEL_COUNT; i++)
        check_wide(wide_models[i], true, ROWS);
}

/* Fewer rows than ranks: some keep none of the stream. */
static void test_few_rows(void **state)
{
    (void)state;
    if (SIZE_MOST < 4) skip();
    for (size_t rows = 1; rows < 4; rows++)
        check_wide(wide_models[2], rows == 2, rows);
}

/* Rows so wide that a chain has more tiles than messages may be under way. */
static void test_many_tiles(void **state)
{
    (void)state;
    if (SIZE_MOST < 4) skip();
    check_wide("{\"model_type\": \"llama\", \"hidden_size\": 16384, \"num_attention_heads\": 2, \"head_dim\": 32, "
               "\"num_key_value_heads\": 2, \"intermediate_size\": 64, \"num_hidden_layers\": 1, \"vocab_size\": 64}",
               true, SEQ - 1);
}

/* ---- what goes wrong --------------------------------------------------------------------------------------------- */

/* An axis whose other rank says nothing and is lost after some calls. */
static int lost_after(void *ctx, struct ash_err *err)
{
    size_t *left = ctx;

    if (*left == 0) return ash_err_set(err, -ECONNRESET, "rank 1 is lost");
    --*left;
    return 0;
}

static int lost_gather(void *ctx, float *data, const size_t *counts, struct ash_err *err)
{
    (void)data;
    (void)counts;
    return lost_after(ctx, err);
}

static int lost_exchange(void *ctx, const float *in, const size_t *send, float *out, const size_t *recv,
                         struct ash_err *err)
{
    (void)in;
    (void)send;
    (void)out;
    (void)recv;
    return lost_after(ctx, err);
}

static int lost_broadcast(void *ctx, size_t root, float *data, size_t count, struct ash_err *err)
{
    (void)root;
    (void)data;
    (void)count;
    return lost_after(ctx, err);
}

static int lost_send(void *ctx, size_t to, const float *data, size_t count, struct ash_err *err)
{
    (void)to;
    (void)data;
    (void)count;
    return lost_after(ctx, err);
}

static int lost_recv(void *ctx, size_t from, float *data, size_t count, struct ash_err *err)
{
    (void)from;
    memset(data, 0, count * sizeof(float));
    return lost_after(ctx, err);
}

static const struct ash_axis_ops lost_ops = {.all_gather = lost_gather,
                                             .all_to_all = lost_exchange,
                                             .broadcast = lost_broadcast,
                                             .send = lost_send,
                                             .recv = lost_recv};

static void open_half(const char *text, struct ash_model **model_out)
{
    struct ash_model_config config;
    struct ash_err err = {0};
    struct ash_slice slice;

    if (parse_config(text, &config, &err) < 0) fail_msg("%s", err.text);
    slice = ash_slice_whole(&config);
    slice.tp_size = 2;
    if (ash_model_create_slice(&config, &slice, SEED, NULL, model_out, &err) < 0) fail_msg("%s", err.text);
}

/* Wherever the other rank is lost, the pass comes to its end and says so; one
 * that shares memory: test_pass_context.c. */
static void test_lost_rank(void **state)
{
    static const size_t calls[] = {0, 1, 2, 7, 20, 41};
    struct subject subject = {0};
    struct ash_doc doc = {.count = 50};
    float losses[ROWS];

    (void)state;
    draw_tokens(&subject, 140);
    for (size_t i = 0; i < WIDE_MODEL_COUNT * sizeof(calls) / sizeof(calls[0]); i++) {
        size_t left = calls[i / WIDE_MODEL_COUNT];
        struct ash_pass_opts opts = {
            .max_rows = ROWS, .backward = true, .tp = {.size = 2, .ops = &lost_ops, .ctx = &left}};
        struct ash_batch batch = {
            .rows = 50, .ids = subject.ids, .targets = subject.targets, .docs = &doc, .doc_count = 1};
        struct ash_model *model = NULL;
        struct ash_pass *pass = NULL;
        struct ash_err err = {0};
        struct ash_exec exec;

        open_half(wide_models[i % WIDE_MODEL_COUNT], &model);
        assert_int_equal(ash_exec_init(&exec, NULL, 1, &err), 0);
        float *grads = calloc(ash_model_grad_size(model), sizeof(float));
        if (ash_pass_open(model, &exec, &opts, &pass, &err) < 0) fail_msg("%s", err.text);
        assert_int_equal(ash_pass_train(pass, &batch, 0.02f, &(struct ash_pass_grads){.sums = grads}, losses, &err),
                         -ECONNRESET);
        assert_string_equal(err.text, "rank 1 is lost");
        ash_pass_close(pass);
        free(grads);
        ash_exec_fini(&exec);
        ash_model_close(model);
    }
}

/* A slice is for a pass with its ranks, and for one without a cache; what cannot be cut is refused with a reason. */
static void test_refusals(void **state)
{
    struct ash_pass_opts opts = {.max_rows = 8, .tp = {.size = 2, .ops = &lost_ops}};
    struct ash_pass_opts alone = {.max_rows = 8},
                         other = {.max_rows = 8, .tp = {.rank = 1, .size = 2, .ops = &lost_ops}};
    struct ash_doc doc = {.count = 1};
    struct ash_batch batch = {.rows = 1, .ids = (int32_t[]){1}, .docs = &doc, .doc_count = 1};
    struct ash_model *model = NULL;
    struct ash_pass *pass = NULL;
    struct ash_slice slice;
    struct ash_err err = {0};
    struct ash_exec exec;
    size_t row = 0;
    float logits[256];

    (void)state;
    open_half(wide_models[0], &model);
    assert_int_equal(ash_exec_init(&exec, NULL, 1, &err), 0);
    assert_int_equal(ash_pass_open(model, &exec, &alone, &pass, &err), -EINVAL);
    assert_non_null(strstr(err.text, "rank 0 of mesh.tp=2"));
    assert_int_equal(ash_pass_open(model, &exec, &other, &pass, &err), -EINVAL);
    assert_int_equal(ash_pass_open(model, &exec, &opts, &pass, &err), 0);
    assert_int_equal(ash_pass_infer(pass, &batch, NULL, &row, 1, logits, &err), -EINVAL);
    slice = *ash_model_slice(model);
    slice.tp_size = 5; /* of 4 key-value heads */
    assert_int_equal(ash_slice_check(ash_model_get_config(model), &slice, false, &err), -EINVAL);
    assert_non_null(strstr(err.text, "key-value heads (4)"));
    ash_pass_close(pass);
    ash_exec_fini(&exec);
    ash_model_close(model);
}

/* k, v and latent heads are cut in the backward pass: in bf16 their sums count too. */
static void test_cuts(void **state)
{
    struct ash_model_config config;
    struct ash_err err = {0};
    struct ash_slice slice;

    (void)state;
    if (ash_model_config_load(TEST_DATA "/golden/stories260K", &config, &err) < 0) fail_msg("%s", err.text);
    slice = ash_slice_whole(&config);
    slice.tp_size = 2;
    assert_int_equal(ash_slice_check(&config, &slice, false, &err), 0);
    assert_int_equal(ash_slice_check(&config, &slice, true, &err), -EINVAL);
    assert_non_null(strstr(err.text, "8 values a key-value head"));
    ash_model_config_fini(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),     cmocka_unit_test(test_wide),      cmocka_unit_test(test_few_rows),
        cmocka_unit_test(test_many_tiles), cmocka_unit_test(test_lost_rank), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_cuts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
