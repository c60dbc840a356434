/* Experts that are sharded give the bits of experts in one place: ranks with batches of their own (some of them
 * empty) share the experts of every golden model that has some, on one node or on several. Losses, all gradients by
 * source, no pair lost on its way, and no row sent to a node twice. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
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

#define ROWS 40
#define CALLS 3
#define SCALE 0.02f

static const char *const models[] = {"mixtral-window", "qwen3_moe-mixed", "qwen3_moe-step", "deepseek_v3-groups",
                                     "deepseek_v3-plain-q-yarn"};
#define MODEL_COUNT (sizeof(models) / sizeof(models[0]))

/* Rows that the ranks bring to each call: some have nothing, some little. */
static const size_t brought[4][CALLS] = {{ROWS, 7, 0}, {3, 0, 1}, {0, 33, 0}, {1, 20, ROWS}};

/* ---- batches ----------------------------------------------------------------------------------------------------- */

struct input {
    int32_t ids[ROWS], targets[ROWS];
    struct ash_doc docs[2];
    struct ash_batch batch;
};

/* The batch that source brings to a call: one sequence, of two documents where it is long enough. */
static void input_fill(struct input *input, size_t source, size_t call, size_t vocab)
{
    size_t rows = brought[source][call], first = rows > 5 ? 5 : rows;

    for (size_t i = 0; i < rows; i++) {
        uint64_t at = (source * CALLS + call) * ROWS + i;
        input->ids[i] = (int32_t)ash_rng_below(11, 1, at, vocab);
        input->targets[i] = i % 4 == 1 ? -1 : (int32_t)ash_rng_below(11, 2, at, vocab);
    }
    input->docs[0] = (struct ash_doc){.row = 0, .count = first};
    input->docs[1] = (struct ash_doc){.row = first, .count = rows - first};
    input->batch = (struct ash_batch){.rows = rows,
                                      .ids = input->ids,
                                      .targets = input->targets,
                                      .docs = input->docs,
                                      .doc_count = rows == 0      ? 0
                                                   : rows > first ? 2
                                                                  : 1};
    if (rows == 0) input->batch = (struct ash_batch){0};
}

/* ---- what counts the floats that are exchanged ------------------------------------------------------------------- */

static atomic_size_t floats_sent, floats_got, floats_crossed;
static const char *counted_nodes; /* a letter for the node of each rank of ep */

static int counted_exchange(void *ctx, const float *in, const size_t *send, float *out, const size_t *recv,
                            struct ash_err *err)
{
    struct thread_rank *me = ctx;

    for (size_t r = 0; r < me->group->size; r++) {
        floats_sent += send[r];
        floats_got += recv[r];
        if (counted_nodes != NULL && counted_nodes[r] != counted_nodes[me->rank]) floats_crossed += send[r];
    }
    return thread_group_exchange(ctx, in, send, out, recv, err);
}

/* ---- the ranks --------------------------------------------------------------------------------------------------- */

struct settings {
    const char *model;
    bool bf16, eval, own_apart; /* own_apart: the own batch's experts have a buffer too */
    enum ash_recompute recompute;
    size_t size;
    size_t lost_after; /* not 0: of the messages */
    const char *nodes; /* a letter for the node of each rank; NULL: all are on one */
};

struct member {
    const struct settings *settings;
    struct thread_rank group, neighbours; /* all of ep, and those on this node */
    struct ash_axis here;
    uint32_t node_of[4];
    struct ash_axis_ops ops;
    struct ash_exec exec;
    struct ash_model *model;
    float *grads, *sums[THREAD_GROUP_MAX];
    float losses[CALLS][ROWS];
    int rc;
    struct ash_err err;
};

static int open_slice(struct member *m)
{
    const struct settings *s = m->settings;
    struct ash_model_config config;
    struct ash_slice slice;
    char dir[GOLDEN_PATH_BYTES];
    int rc;

    rc = ash_exec_init(&m->exec, NULL, 1, &m->err);
    if (rc < 0) return rc;
    rc = ash_model_config_load(golden_path(s->model, dir), &config, &m->err);
    if (rc < 0) return rc;
    slice = ash_slice_whole(&config);
    slice.expert_rank = m->group.rank;
    slice.expert_size = s->size;
    rc = ash_slice_check(&config, &slice, s->bf16, &m->err);
    ash_model_config_fini(&config);
    if (rc == 0) rc = ash_model_open_slice(dir, &slice, &m->model, &m->err);
    if (rc == 0) ash_model_round_bf16(m->model, s->bf16);
    return rc;
}

static int run_calls(struct member *m, struct ash_pass *pass)
{
    size_t vocab = ash_model_get_config(m->model)->vocab;
    int rc = 0;

    for (size_t call = 0; rc == 0 && call < CALLS; call++) {
        struct input input;
        input_fill(&input, m->group.rank, call, vocab);
        bool empty = input.batch.rows == 0;
        float *losses = empty ? NULL : m->losses[call];
        struct ash_pass_grads grads = {.sums = empty ? NULL : m->grads,
                                       .expert_sums = m->settings->size > 1 ? m->sums : NULL};
        rc = m->settings->eval ? ash_pass_eval(pass, &input.batch, losses, &m->err)
                               : ash_pass_train(pass, &input.batch, SCALE, &grads, losses, &m->err);
    }
    return rc;
}

static int run_member(struct member *m)
{
    const struct settings *s = m->settings;
    struct ash_pass_opts opts = {.max_rows = ROWS, .backward = !s->eval, .recompute = s->recompute};
    struct ash_pass *pass = NULL;
    int rc = open_slice(m);

    if (rc < 0) return rc;
    m->grads = calloc(ash_model_grad_size(m->model), sizeof(float));
    for (size_t i = 0; i < s->size; i++)
        if (i != m->group.rank || s->own_apart) m->sums[i] = calloc(ash_model_expert_size(m->model), sizeof(float));
    m->ops = thread_group_ops;
    m->ops.all_to_all = counted_exchange;
    opts.ep = thread_group_axis(&m->group);
    opts.ep.ops = &m->ops;
    if (s->nodes != NULL) {
        m->here = thread_group_axis(&m->neighbours);
        opts.ep.node_of = m->node_of;
        opts.ep.node_ranks = &m->here;
    }
    rc = ash_pass_open(m->model, &m->exec, &opts, &pass, &m->err);
    if (rc < 0) return rc;
    rc = run_calls(m, pass);
    ash_pass_close(pass);
    return rc;
}

static int member_main(void *ctx, size_t rank)
{
    struct member *m = (struct member *)ctx + rank;

    m->rc = run_member(m);
    return m->rc;
}

/* The ranks of ep, and those of each node. */
struct test_mesh {
    struct thread_group all, nodes[4];
    struct member members[4];
};

static void join_node(struct test_mesh *mesh, struct member *m)
{
    const struct settings *s = m->settings;
    struct thread_group *node = &mesh->nodes[s->nodes[m->group.rank] - 'a'];

    for (size_t r = 0; r < s->size; r++)
        m->node_of[r] = 7 + (uint32_t)(s->nodes[r] - 'a'); /* numbers say nothing but who is with whom */
    m->neighbours = (struct thread_rank){node, node->size++, 0};
}

static void mesh_run(struct test_mesh *mesh, const struct settings *settings)
{
    struct member *members = mesh->members;

    thread_group_open(&mesh->all, settings->size);
    mesh->all.lost_after = settings->lost_after;
    for (size_t i = 0; i < 4; i++)
        thread_group_open(&mesh->nodes[i], 0);
    for (size_t i = 0; i < settings->size; i++) {
        members[i] = (struct member){.settings = settings, .group = {&mesh->all, i, 0}};
        if (settings->nodes != NULL) join_node(mesh, &members[i]);
    }
    ranks_run_threads(settings->size, member_main, members);
    for (size_t i = 0; settings->lost_after == 0 && i < settings->size; i++)
        if (members[i].rc < 0) fail_msg("%s, rank %zu: %s", settings->model, i, members[i].err.text);
}

static void member_close(struct member *m)
{
    for (size_t i = 0; i < THREAD_GROUP_MAX; i++)
        free(m->sums[i]);
    free(m->grads);
    ash_model_close(m->model);
    ash_exec_fini(&m->exec);
}

static void mesh_close(struct test_mesh *mesh)
{
    for (size_t i = 0; i < mesh->all.size; i++)
        member_close(&mesh->members[i]);
    for (size_t i = 0; i < 4; i++)
        thread_group_close(&mesh->nodes[i]);
    thread_group_close(&mesh->all);
}

/* ---- the whole model, one source after the other ----------------------------------------------------------------- */

struct whole {
    struct ash_exec exec;
    struct ash_model *model;
    float *grads[4];
    float losses[4][CALLS][ROWS];
};

static void whole_open(struct whole *w, const char *name, bool bf16)
{
    struct ash_pass_opts opts = {.max_rows = ROWS, .backward = true};
    struct ash_pass *pass = NULL;
    struct ash_err err = {0};

    memset(w, 0, sizeof(*w));
    if (ash_exec_init(&w->exec, NULL, 1, &err) < 0) fail_msg("%s", err.text);
    w->model = golden_open(name);
    ash_model_round_bf16(w->model, bf16);
    if (ash_pass_open(w->model, &w->exec, &opts, &pass, &err) < 0) fail_msg("%s", err.text);
    for (size_t source = 0; source < 4; source++) {
        w->grads[source] = calloc(ash_model_grad_size(w->model), sizeof(float));
        for (size_t call = 0; call < CALLS; call++) {
            struct input input;
            input_fill(&input, source, call, ash_model_get_config(w->model)->vocab);
            if (input.batch.rows == 0) continue;
            if (ash_pass_train(pass, &input.batch, SCALE, &(struct ash_pass_grads){.sums = w->grads[source]},
                               w->losses[source][call], &err) < 0)
                fail_msg("%s", err.text);
        }
    }
    ash_pass_close(pass);
}

static void whole_close(struct whole *w)
{
    for (size_t i = 0; i < 4; i++)
        free(w->grads[i]);
    ash_model_close(w->model);
    ash_exec_fini(&w->exec);
}

/* Every parameter of a member against the whole model's gradients of the same source. */
static void compare(const struct whole *w, const struct member *m)
{
    size_t rank = m->group.rank;

    assert_memory_equal(m->losses, w->losses[rank], sizeof(m->losses));
    for (size_t i = 0; i < ash_model_param_count(m->model); i++) {
        const struct ash_param *param = ash_model_param(m->model, i), *full = ash_model_find(w->model, param->name);
        size_t bytes = param->count * sizeof(float);
        assert_non_null(full);
        if (!param->is_expert) assert_memory_equal(m->grads + param->offset, w->grads[rank] + full->offset, bytes);
        for (size_t s = 0; param->is_expert && s < m->settings->size; s++) {
            const float *sum = m->sums[s] != NULL ? m->sums[s] + param->expert_offset : m->grads + param->offset;
            assert_memory_equal(sum, w->grads[s] + full->offset, bytes);
        }
    }
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void check_mesh(const struct whole *w, const struct settings *settings)
{
    struct test_mesh mesh;

    mesh_run(&mesh, settings);
    for (size_t i = 0; i < settings->size; i++)
        compare(w, &mesh.members[i]);
    mesh_close(&mesh);
}

static void test_gradients(void **state)
{
    static const char *const placements[] = {"ab", "aabb", "abab", "aaba"};

    (void)state;
    for (size_t i = 0; i < 2 * MODEL_COUNT; i++) {
        struct whole w;
        struct settings s = {.model = models[i / 2], .bf16 = i % 2 == 1};
        whole_open(&w, s.model, s.bf16);
        for (s.size = 2; s.size <= 4; s.size++)
            for (int mode = 0; mode < 3; mode++) {
                s.recompute = (enum ash_recompute)mode;
                s.own_apart = (s.size + (size_t)mode) % 2 == 0;
                check_mesh(&w, &s);
            }
        for (size_t k = 0; k < 4; k++) {
            s.nodes = placements[k];
            s.size = strlen(s.nodes);
            s.recompute = (enum ash_recompute)((i + k) % 3);
            check_mesh(&w, &s);
        }
        whole_close(&w);
    }
}

/* Evaluation exchanges each pair once there and once back, and what is sent is what arrives. */
static void test_conservation(void **state)
{
    (void)state;
    for (size_t i = 0; i < MODEL_COUNT; i++)
        for (size_t size = 2; size <= 4; size++) {
            struct settings s = {.model = models[i], .eval = true, .size = size};
            struct test_mesh mesh;
            size_t rows = 0, sparse = 0, expected;

            floats_sent = floats_got = 0;
            mesh_run(&mesh, &s);
            const struct ash_model_config *c = ash_model_get_config(mesh.members[0].model);
            for (size_t r = 0; r < size; r++)
                for (size_t call = 0; call < CALLS; call++)
                    rows += brought[r][call];
            for (size_t l = 0; l < c->layers; l++)
                sparse += c->sparse[l];
            expected = sparse * (2 * rows * c->expert.choices * c->hidden + CALLS * size * (c->expert.experts + size));
            assert_int_equal(floats_sent, expected);
            assert_int_equal(floats_got, expected);
            mesh_close(&mesh);
        }
}

/* Floats that cross when rows go straight (nodes says what counts as crossing), or once to each node. */
static size_t crossed(const char *model, const char *nodes, bool straight, bool eval)
{
    struct settings s = {.model = model, .eval = eval, .size = strlen(nodes), .nodes = straight ? NULL : nodes};
    struct test_mesh mesh;

    floats_sent = floats_got = floats_crossed = 0;
    counted_nodes = nodes;
    mesh_run(&mesh, &s);
    counted_nodes = NULL;
    assert_int_equal(floats_sent, floats_got);
    mesh_close(&mesh);
    return floats_crossed;
}

/* A row crosses to a node once: what crosses becomes less, forward and backward, the less the more experts share it. */
static void test_crossing(void **state)
{
    (void)state;
    for (size_t i = 0; i < MODEL_COUNT; i++)
        for (int eval = 0; eval < 2; eval++) {
            size_t straight = crossed(models[i], "aabb", true, eval == 1),
                   once = crossed(models[i], "aabb", false, eval == 1);

            print_message("%s: %zu floats cross instead of %zu\n", models[i], once, straight);
            assert_true(once < straight);
        }
}

/* A rank that is lost ends the pass on all others with that error. */
static void test_lost_rank(void **state)
{
    (void)state;
    for (int mode = 0; mode < 3; mode++) {
        struct settings s = {.model = "qwen3_moe-mixed",
                             .recompute = (enum ash_recompute)mode,
                             .size = 3,
                             .nodes = mode == 2 ? "abc" : NULL};
        bool lost = true;

        for (s.lost_after = 1; lost; s.lost_after += 1 + s.lost_after / 8) {
            struct test_mesh mesh;
            size_t failed = 0;

            mesh_run(&mesh, &s);
            for (size_t i = 0; i < s.size; i++) {
                if (mesh.members[i].rc < 0) assert_int_equal(mesh.members[i].rc, -ECONNRESET);
                failed += mesh.members[i].rc < 0;
            }
            lost = mesh.all.lost;
            assert_true((failed > 0) == lost);
            mesh_close(&mesh);
        }
    }
}

/* Axes that do not fit the slice, and gradients with no place to go, are answered. */
static void test_refusals(void **state)
{
    struct settings s = {.model = "mixtral-window", .size = 2};
    struct thread_group group;
    struct member m = {.settings = &s, .group = {&group, 1, 0}};
    struct ash_pass_opts opts = {.max_rows = ROWS, .backward = true};
    struct ash_pass *pass = NULL;
    struct ash_batch empty = {0};
    struct ash_pass_grads none = {0};
    struct ash_err err = {0};

    (void)state;
    thread_group_open(&group, 2);
    assert_int_equal(open_slice(&m), 0);
    assert_int_equal(ash_pass_open(m.model, &m.exec, &opts, &pass, &err), -EINVAL); /* no peer to share with */
    assert_non_null(strstr(err.text, "experts of rank 1 of 2, but the pass is rank 0 of 1"));
    opts.ep = thread_group_axis(&m.group);
    assert_int_equal(ash_pass_open(m.model, &m.exec, &opts, &pass, &err), 0);
    assert_int_equal(ash_pass_train(pass, &empty, SCALE, &none, NULL, &err), -EINVAL);
    assert_non_null(strstr(err.text, "rank 0's batch have no place to go"));
    ash_pass_close(pass);
    member_close(&m);
    thread_group_close(&group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients), cmocka_unit_test(test_conservation), cmocka_unit_test(test_crossing),
        cmocka_unit_test(test_lost_rank), cmocka_unit_test(test_refusals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
