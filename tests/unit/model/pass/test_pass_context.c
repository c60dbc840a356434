/* Sequences split over ranks (context parallel) give the bits of one process: every golden model, float32 and bf16, all
 * ways to recompute, several batches into one sum; alone, and with expert and tensor parallelism too. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "model/files/open.h"
#include "model/model.h"
#include "model/pass/pass.h"
#include "unit/model/axis_threads.h"
#include "unit/model/golden_models.h"
#include "unit/model/wide_models.h"

#define ROWS 135
#define CALLS 3
#define SOURCES 2
#define SCALE 0.02f

/* Rows of each source's sequences: bf16 wants 32 for every rank, float32 cuts anywhere. The second source has one. */
static const size_t lengths[2][SOURCES][CALLS] = {{{ROWS, 41, 5}, {77, 0, 0}}, {{ROWS, 128, 130}, {129, 0, 0}}};
static const size_t doc_ends[] = {18, 75, 78, ROWS};

/* ---- batches ----------------------------------------------------------------------------------------------------- */

struct input {
    int32_t ids[ROWS], targets[ROWS];
    struct ash_doc docs[4];
    struct ash_batch batch;
};

static void input_fill(struct input *input, bool bf16, size_t source, size_t call, size_t vocab)
{
    size_t rows = lengths[bf16][source][call], docs = 0;

    for (size_t i = 0; i < rows; i++) {
        uint64_t at = (source * CALLS + call) * ROWS + i;
        input->ids[i] = (int32_t)ash_rng_below(13, 1, at, vocab);
        input->targets[i] = i % 7 == 3 ? -1 : (int32_t)ash_rng_below(13, 2, at, vocab);
    }
    for (size_t row = 0; row < rows; row += input->docs[docs++].count) {
        size_t end = doc_ends[docs] < rows ? doc_ends[docs] : rows;
        input->docs[docs] = (struct ash_doc){.row = row, .count = end - row};
    }
    input->batch = (struct ash_batch){
        .rows = rows,
        .ids = input->ids,
        .targets = input->targets,
        .docs = input->docs,
        .doc_count = docs,
        .seq_rows = call % 2 == 0 ? 0 : rows,
        .flags = call + 1 < CALLS && lengths[bf16][source][call + 1] > 0 ? ASH_BATCH_MORE_FOLLOW : 0};
}

/* ---- models: a golden one by its name, or one drawn from a config ------------------------------------------------ */

static int read_config(const char *model, struct ash_model_config *config, struct ash_err *err)
{
    json_t *json;
    char dir[GOLDEN_PATH_BYTES];
    int rc;

    if (model[0] != '{') return ash_model_config_load(golden_path(model, dir), config, err);
    json = json_loads(model, 0, NULL);
    rc = ash_model_config_parse(json, config, err);
    json_decref(json);
    return rc;
}

/* Takes config over. */
static int open_model(const char *model, struct ash_model_config *config, const struct ash_slice *slice,
                      struct ash_model **model_out, struct ash_err *err)
{
    char dir[GOLDEN_PATH_BYTES];
    int rc;

    rc = model[0] == '{' ? ash_model_create_slice(config, slice, 5, NULL, model_out, err)
                         : ash_model_open_slice(golden_path(model, dir), slice, model_out, err);
    if (model[0] != '{' || rc < 0) ash_model_config_fini(config);
    return rc;
}

/* ---- the ranks --------------------------------------------------------------------------------------------------- */

struct settings {
    const char *model;
    bool bf16;
    enum ash_recompute recompute;
    size_t tp, cp, ep;
    bool same_node;    /* along cp, too */
    bool one;          /* then: ranks along cp have one sum of gradients, which their first batch starts if it can */
    size_t lost_after; /* not 0: of the messages along cp; without it, of the messages and signals along tp */
};

struct member {
    const struct settings *settings;
    struct thread_rank tp, cp, ep, node;
    struct member *first; /* of those along cp */
    struct ash_exec exec;
    struct ash_model *model;
    float *grads, *sums[SOURCES];
    float losses[CALLS][ROWS];
    int rc;
    struct ash_err err;
    pthread_barrier_t found; /* of those along cp */
};

static int open_slice(struct member *m)
{
    const struct settings *s = m->settings;
    struct ash_model_config config;
    struct ash_slice slice;
    int rc;

    rc = ash_exec_init(&m->exec, NULL, 1, &m->err);
    if (rc < 0) return rc;
    rc = read_config(s->model, &config, &m->err);
    if (rc < 0) return rc;
    slice = ash_slice_whole(&config);
    slice.tp_rank = m->tp.rank;
    slice.tp_size = s->tp;
    slice.expert_rank = m->ep.rank * s->tp + m->tp.rank;
    slice.expert_size = s->ep * s->tp;
    rc = open_model(s->model, &config, &slice, &m->model, &m->err);
    if (rc < 0) return rc;
    ash_model_round_bf16(m->model, s->bf16);
    return 0;
}

static int run_calls(struct member *m, struct ash_pass *pass)
{
    struct ash_pass_grads grads = {.sums = m->grads, .expert_sums = m->settings->ep > 1 ? m->sums : NULL};
    int rc = 0;

    for (size_t call = 0; rc == 0 && call < CALLS; call++) {
        struct input input;
        input_fill(&input, m->settings->bf16, m->ep.rank, call, ash_model_get_config(m->model)->vocab);
        if (call == 0 && m->settings->one && m->settings->ep == 1) input.batch.flags |= ASH_BATCH_OVERWRITES;
        rc = ash_pass_train(pass, &input.batch, SCALE, &grads, m->losses[call], &m->err);
    }
    return rc;
}

/* Sums of this rank's own, or those of the first rank along cp, who makes them before any of them opens its pass. Of
 * what a first batch starts nothing is cleared. */
static void find_sums(struct member *m)
{
    size_t size = ash_model_grad_size(m->model);
    bool one = m->settings->one;

    if (!one || m->first == m) {
        m->grads = calloc(size, sizeof(float));
        for (size_t i = 0; one && m->settings->ep == 1 && i < size; i++)
            m->grads[i] = NAN;
        if (one && m->settings->ep == 1)
            ash_model_clear_grads(m->model, &m->exec, m->grads, (struct ash_range){0, size});
        for (size_t i = 0; i < m->settings->ep; i++)
            if (i != m->ep.rank) m->sums[i] = calloc(ash_model_expert_size(m->model), sizeof(float));
    }
    pthread_barrier_wait(&m->first->found);
    if (m->grads != NULL) return;
    m->grads = m->first->grads;
    memcpy(m->sums, m->first->sums, sizeof(m->sums));
}

static int run_member(struct member *m)
{
    const struct settings *s = m->settings;
    struct ash_pass_opts opts = {.max_rows = ROWS,
                                 .backward = true,
                                 .recompute = s->recompute,
                                 .shared_grads = s->one,
                                 .head_rows = s->recompute == ASH_RECOMPUTE_NONE ? 0 : 32};
    struct ash_pass *pass = NULL;
    int rc = open_slice(m);

    if (rc < 0) return rc;
    find_sums(m);
    m->tp.group->weights[m->tp.rank] = ash_model_weights(m->model);
    opts.tp = thread_group_axis(&m->tp);
    opts.cp = thread_group_axis(&m->cp);
    opts.ep = thread_group_axis(&m->ep);
    if (s->same_node) opts.node = thread_group_axis(&m->node);
    rc = ash_pass_open(m->model, &m->exec, &opts, &pass, &m->err);
    if (rc < 0) return rc;
    rc = run_calls(m, pass);
    ash_pass_close(pass);
    if (rc == 0 && (!s->one || m->first == m)) ash_model_grad_fold(m->model, &m->exec, m->grads);
    return rc;
}

static int member_main(void *ctx, size_t rank)
{
    struct member *m = (struct member *)ctx + rank;

    m->rc = run_member(m);
    return m->rc;
}

struct test_mesh {
    struct thread_group tp[THREAD_GROUP_MAX], cp[THREAD_GROUP_MAX], ep[THREAD_GROUP_MAX], node[THREAD_GROUP_MAX];
    struct member members[THREAD_GROUP_MAX]; /* neighbours differ in tp, then cp, then ep */
    size_t size;
};

/* A group for every rank: ranks that differ along its axis only use the first one's. */
static void mesh_run(struct test_mesh *mesh, const struct settings *s)
{
    mesh->size = s->tp * s->cp * s->ep;
    for (size_t i = 0; i < mesh->size; i++) {
        thread_group_open(&mesh->tp[i], s->tp);
        mesh->tp[i].same_node = true;
        thread_group_open(&mesh->cp[i], s->cp);
        *(s->cp > 1 ? &mesh->cp[i].lost_after : &mesh->tp[i].lost_after) = s->lost_after;
        mesh->cp[i].same_node = s->same_node;
        thread_group_open(&mesh->ep[i], s->ep);
        thread_group_open(&mesh->node[i], s->tp * s->cp);
        mesh->node[i].same_node = true;
    }
    for (size_t i = 0; i < mesh->size; i++) {
        size_t t = i % s->tp, c = i / s->tp % s->cp, e = i / s->tp / s->cp;
        mesh->members[i] = (struct member){.settings = s,
                                           .tp = {&mesh->tp[i - t], t, 0},
                                           .cp = {&mesh->cp[i - c * s->tp], c, 0},
                                           .ep = {&mesh->ep[i - e * s->tp * s->cp], e, 0},
                                           .node = {&mesh->node[i - t - c * s->tp], t + c * s->tp, 0},
                                           .first = &mesh->members[i - c * s->tp]};
        if (c == 0) pthread_barrier_init(&mesh->members[i].found, NULL, (unsigned)s->cp);
    }
    ranks_run_threads(mesh->size, member_main, mesh->members);
}

static void mesh_close(struct test_mesh *mesh)
{
    for (size_t i = 0; i < mesh->size; i++) {
        struct member *m = &mesh->members[i];
        bool own = !m->settings->one || m->first == m;
        for (size_t j = 0; own && j < SOURCES; j++)
            free(m->sums[j]);
        if (own) free(m->grads);
        if (m->first == m) pthread_barrier_destroy(&m->found);
        ash_model_close(m->model);
        ash_exec_fini(&m->exec);
        thread_group_close(&mesh->tp[i]);
        thread_group_close(&mesh->cp[i]);
        thread_group_close(&mesh->ep[i]);
        thread_group_close(&mesh->node[i]);
    }
}

/* ---- the whole model, one source after the other ----------------------------------------------------------------- */

struct whole {
    struct ash_exec exec;
    struct ash_model *model;
    float *grads[SOURCES];
    float losses[SOURCES][CALLS][ROWS];
};

static void whole_open(struct whole *w, const char *name, bool bf16)
{
    struct ash_pass_opts opts = {.max_rows = ROWS, .backward = true};
    struct ash_pass *pass = NULL;
    struct ash_model_config config;
    struct ash_err err = {0};

    memset(w, 0, sizeof(*w));
    if (ash_exec_init(&w->exec, NULL, 1, &err) < 0) fail_msg("%s", err.text);
    if (read_config(name, &config, &err) < 0) fail_msg("%s", err.text);
    if (open_model(name, &config, NULL, &w->model, &err) < 0) fail_msg("%s", err.text);
    ash_model_round_bf16(w->model, bf16);
    if (ash_pass_open(w->model, &w->exec, &opts, &pass, &err) < 0) fail_msg("%s", err.text);
    for (size_t i = 0; i < SOURCES * CALLS; i++) {
        size_t source = i / CALLS, call = i % CALLS;
        struct input input;
        if (call == 0) w->grads[source] = calloc(ash_model_grad_size(w->model), sizeof(float));
        input_fill(&input, bf16, source, call, ash_model_get_config(w->model)->vocab);
        if (input.batch.rows > 0 &&
            ash_pass_train(pass, &input.batch, SCALE, &(struct ash_pass_grads){.sums = w->grads[source]},
                           w->losses[source][call], &err) < 0)
            fail_msg("%s", err.text);
        if (call + 1 == CALLS) ash_model_grad_fold(w->model, &w->exec, w->grads[source]);
    }
    ash_pass_close(pass);
}

static void whole_close(struct whole *w)
{
    for (size_t i = 0; i < SOURCES; i++)
        free(w->grads[i]);
    ash_model_close(w->model);
    ash_exec_fini(&w->exec);
}

static void compare_param(const struct member *m, const struct ash_param *param, const float *grad, const float *whole)
{
    for (size_t i = 0; i < ash_param_piece_count(param); i++) {
        struct ash_piece piece = ash_param_piece(param, i);
        if (memcmp(grad + piece.local, whole + piece.full, piece.count * sizeof(float)) != 0)
            fail_msg("%s, tp=%zu cp=%zu ep=%zu: gradient of %s", m->settings->model, m->settings->tp, m->settings->cp,
                     m->settings->ep, param->name);
    }
}

/* The last rank of cp has the sums; all have the losses. */
static void compare(const struct whole *w, const struct member *m)
{
    size_t source = m->ep.rank;

    assert_memory_equal(m->losses, w->losses[source], sizeof(m->losses));
    for (size_t i = 0; m->cp.rank + 1 == m->settings->cp && i < ash_model_param_count(m->model); i++) {
        const struct ash_param *param = ash_model_param(m->model, i), *full = ash_model_find(w->model, param->name);
        assert_non_null(full);
        compare_param(m, param, m->grads + param->offset, w->grads[source] + full->offset);
        for (size_t s = 0; param->is_expert && s < m->settings->ep; s++)
            if (s != source) compare_param(m, param, m->sums[s] + param->expert_offset, w->grads[s] + full->offset);
    }
}

static void check_mesh(const struct whole *w, const struct settings *s)
{
    static struct test_mesh mesh;

    mesh_run(&mesh, s);
    for (size_t i = 0; i < mesh.size; i++) {
        const struct member *m = &mesh.members[i];
        if (m->rc < 0) fail_msg("%s, rank %zu: %s", s->model, i, m->err.text);
        compare(w, m);
    }
    mesh_close(&mesh);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static size_t kv_heads(const struct whole *w)
{
    return ash_model_get_config(w->model)->kv_heads;
}

static void test_gradients(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * GOLDEN_MODEL_COUNT; i += SANITIZED ? 7 : 1) {
        struct whole w;
        struct settings s = {.model = golden_models[i / 2], .bf16 = i % 2 == 1, .tp = 1, .ep = 1};
        whole_open(&w, s.model, s.bf16);
        for (s.cp = 2; s.cp <= 4 && s.cp <= kv_heads(&w); s.cp++)
            for (int mode = 0; mode < 3; mode++) {
                s.recompute = (enum ash_recompute)mode;
                s.same_node = (i / 2 + s.cp + (size_t)mode) % 2 == 0;
                s.one = false;
                check_mesh(&w, &s);
                s.same_node = s.one = true;
                check_mesh(&w, &s);
            }
        whole_close(&w);
    }
}

/* Experts sharded over two sources, whose sequences are split over two ranks or more. */
static void test_with_experts(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * GOLDEN_MODEL_COUNT; i += SANITIZED ? 3 : 1) {
        struct whole w;
        struct settings s = {.model = golden_models[i / 2], .bf16 = i % 2 == 1, .tp = 1, .ep = SOURCES};
        whole_open(&w, s.model, s.bf16);
        bool sparse = ash_model_get_config(w.model)->expert.experts > 0;
        for (s.cp = 2; sparse && s.cp <= 4 && s.cp <= kv_heads(&w); s.cp++) {
            s.recompute = (enum ash_recompute)((i + s.cp) % 3);
            s.same_node = (i / 2 + s.cp) % 2 == 0;
            s.one = false;
            check_mesh(&w, &s);
            s.same_node = s.one = true;
            check_mesh(&w, &s);
        }
        whole_close(&w);
    }
}

/* Can the model be cut by tp at all, and do enough key-value heads remain for cp? */
static bool can_cut(const struct whole *w, const struct settings *s)
{
    const struct ash_model_config *config = ash_model_get_config(w->model);
    struct ash_slice slice = ash_slice_whole(config);

    slice.tp_size = s->tp;
    slice.expert_size = s->tp * s->ep;
    if (config->expert.experts == 0 && s->ep > 1) return false;
    return kv_heads(w) / s->tp >= s->cp && ash_slice_check(config, &slice, s->bf16, NULL) == 0;
}

/* Along tp too: each rank has a part of the matrices, and some of the experts. Returns how
 * many layouts were possible. */
static size_t check_mixtures(struct settings s, size_t turn)
{
    static const size_t sizes[][3] = {{2, 2, 1}, {2, 1, 2}, {2, 2, 2}, {3, 1, 2}, {4, 1, 2}};
    struct whole w;
    size_t checked = 0;

    whole_open(&w, s.model, s.bf16);
    for (size_t j = 0; j < sizeof(sizes) / sizeof(sizes[0]); j++) {
        s.tp = sizes[j][0];
        s.cp = sizes[j][1];
        s.ep = sizes[j][2];
        s.recompute = (enum ash_recompute)((turn + j) % 3);
        s.same_node = (turn / 2 + j) % 2 == 0;
        s.one = false;
        if (!can_cut(&w, &s)) continue;
        check_mesh(&w, &s);
        s.same_node = s.one = s.cp > 1;
        if (s.one) check_mesh(&w, &s);
        checked++;
    }
    whole_close(&w);
    return checked;
}

static void test_with_matrices(void **state)
{
    size_t golden = 0, wide = 0;

    (void)state;
    for (size_t i = 0; i < GOLDEN_MODEL_COUNT; i += GOLDEN_MODEL_STEP)
        golden += check_mixtures((struct settings){.model = golden_models[i]}, i);
    for (size_t i = 0; i < 2 * WIDE_MODEL_COUNT; i += GOLDEN_MODEL_STEP)
        wide += check_mixtures((struct settings){.model = wide_models[i / 2], .bf16 = i % 2 == 0}, i);
    if (!SANITIZED) assert_int_equal(golden, 13);
    if (!SANITIZED) assert_int_equal(wide, 10);
    assert_true(golden > 0 && wide > 0);
}

/* A rank that is lost ends the pass on all others with that error, wherever they are, and nothing else. */
static bool ends_well(struct settings s)
{
    static struct test_mesh mesh;
    size_t failed = 0;

    mesh_run(&mesh, &s);
    for (size_t i = 0; i < mesh.size; i++) {
        if (mesh.members[i].rc < 0) assert_int_equal(mesh.members[i].rc, -ECONNRESET);
        failed += mesh.members[i].rc < 0;
    }
    bool lost = s.cp > 1 ? mesh.cp[0].lost : mesh.tp[0].lost;
    /* what was sent before the loss arrives, the last message too */
    assert_true(failed > 0 ? lost : !lost || s.one);
    mesh_close(&mesh);
    return failed == 0;
}

static void test_lost_rank(void **state)
{
    static const char *const lost_models[] = {"deepseek_v3-groups", "gpt2-default", "qwen3-tied-sharded"};

    (void)state;
    for (size_t i = 0; i < 12; i++) {
        struct settings s = {.model = lost_models[i / 4],
                             .recompute = (enum ash_recompute)(i / 4),
                             .tp = i % 4 == 2 ? 2 : 1,
                             .cp = i % 4 == 2 ? 1 : 2,
                             .ep = 1,
                             .same_node = i % 4 % 2 == 1,
                             .one = i % 4 == 3};
        for (s.lost_after = 1; !ends_well(s); s.lost_after += 1 + s.lost_after / (SANITIZED ? 1 : 4))
            assert_true(s.lost_after < 100000);
    }
}

/* What cannot be split is refused, on every rank and without a message to the others. */
static void test_refusals(void **state)
{
    struct settings s = {.model = "llama-gqa", .bf16 = true, .tp = 1, .cp = 2, .ep = 1};
    struct thread_group cp, ep;
    struct member m = {.settings = &s, .cp = {&cp, 1, 0}, .ep = {&ep, 0, 0}};
    struct ash_pass_opts opts = {.max_rows = ROWS, .backward = true};
    struct ash_pass *pass = NULL;
    struct ash_err err = {0};
    struct input input;
    float losses[ROWS], logits[96];
    size_t last = 0;

    (void)state;
    thread_group_open(&cp, 3);
    thread_group_open(&ep, 1);
    assert_int_equal(open_slice(&m), 0);
    opts.cp = thread_group_axis(&m.cp);
    assert_int_equal(ash_pass_open(m.model, &m.exec, &opts, &pass, &err), -EINVAL);
    assert_non_null(strstr(err.text, "mesh.cp=3 wants more parts than there are key-value heads (2)"));
    opts.cp.size = 2;
    assert_int_equal(ash_pass_open(m.model, &m.exec, &opts, &pass, &err), 0);
    input_fill(&input, false, 0, 1, 96);
    assert_int_equal(ash_pass_eval(pass, &input.batch, losses, &err), -EINVAL);
    assert_non_null(strstr(err.text, "in bf16 each needs 32, so mesh.cp can be at most 1"));
    ash_model_round_bf16(m.model, false);
    input.batch.rows = input.docs[0].count = 1;
    input.batch.doc_count = 1;
    input.batch.seq_rows = 0;
    assert_int_equal(ash_pass_eval(pass, &input.batch, losses, &err), -EINVAL);
    assert_int_equal(ash_pass_infer(pass, &input.batch, NULL, &last, 1, logits, &err), -EINVAL);
    input.batch.rows = input.docs[0].count = 10;
    input.batch.seq_rows = 5;
    assert_int_equal(ash_pass_eval(pass, &input.batch, losses, &err), -EINVAL);
    assert_non_null(strstr(err.text, "one sequence, not 2"));
    ash_pass_close(pass);
    ash_model_close(m.model);
    ash_exec_fini(&m.exec);
    thread_group_close(&cp);
    thread_group_close(&ep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients), cmocka_unit_test(test_with_experts), cmocka_unit_test(test_with_matrices),
        cmocka_unit_test(test_lost_rank), cmocka_unit_test(test_refusals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
