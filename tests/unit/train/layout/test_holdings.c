/* Who holds what, drawn models on drawn meshes. The plain way first: the memory of every rank as a trainer has it,
 * each element saying where it belongs, gathered into whole tensors from those that count. The lists must say the same
 * of every element, both ways. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/math.h"
#include "base/rng.h"
#include "model/shards.h"
#include "train/layout/holdings.h"
#include "train/layout/mesh.h"

#define DRAWS 60
#define RANKS_MAX 48
#define BLOCK 100 /* elements that one replica writes */

/* A drawn case. */
struct drawn {
    uint64_t seed, at;
    struct ash_job_model model;
    struct ash_job_mesh mesh;
    struct ash_model_config config;
    struct ash_holdings *holdings;
    const struct ash_model *whole;
};

static size_t draw(struct drawn *drawn, size_t first, size_t last)
{
    return first + (size_t)ash_rng_below(drawn->seed, 7, drawn->at++, last - first + 1);
}

static int find_type(const char *name)
{
    int type = 0;

    while (strcmp(ash_job_model_types[type], name) != 0)
        type++;
    return type;
}

static void draw_model(struct drawn *drawn)
{
    static const char *const types[] = {"llama", "gpt2", "qwen3", "mixtral", "qwen3_moe"};
    size_t kv = draw(drawn, 1, 4), group = draw(drawn, 1, 2), dim = 4 * draw(drawn, 1, 2);
    const char *type = types[draw(drawn, 0, 4)];
    bool is_gpt2 = strcmp(type, "gpt2") == 0;

    drawn->model = (struct ash_job_model){.type = find_type(type),
                                          .layers = (int64_t)draw(drawn, 1, 5),
                                          .heads = (int64_t)(is_gpt2 ? kv : kv * group),
                                          .kv_heads = (int64_t)kv,
                                          .head_dim = (int64_t)dim,
                                          .ffn = (int64_t)draw(drawn, 8, 140),
                                          .max_positions = 24,
                                          .experts = (int64_t)draw(drawn, 2, 5),
                                          .experts_per_token = 1,
                                          .expert_ffn = (int64_t)draw(drawn, 3, 9),
                                          .tied = is_gpt2 || draw(drawn, 0, 1) == 1,
                                          .rope_theta = 10000,
                                          .norm_eps = 1e-5,
                                          .init_std = 0.02};
    drawn->model.hidden = is_gpt2 ? (int64_t)(kv * dim) : (int64_t)draw(drawn, 5, 20);
}

static void draw_mesh(struct drawn *drawn)
{
    const struct ash_job_model *model = &drawn->model;
    bool is_sparse = strstr(ash_job_model_types[model->type], "mixtral") != NULL ||
                     strstr(ash_job_model_types[model->type], "moe") != NULL;

    do {
        drawn->mesh = (struct ash_job_mesh){.dp = (int64_t)draw(drawn, 1, 3),
                                            .fsdp = (int64_t)draw(drawn, 1, 4),
                                            .tp = (int64_t)draw(drawn, 1, (size_t)model->kv_heads),
                                            .pp = (int64_t)draw(drawn, 1, (size_t)model->layers),
                                            .cp = (int64_t)draw(drawn, 1, 2),
                                            .ep = is_sparse ? (int64_t)draw(drawn, 1, 2) : 1,
                                            .zero = (int64_t)draw(drawn, 1, 3),
                                            .interleave = 1};
        if (drawn->mesh.pp > 1 && drawn->mesh.pp * 2 <= model->layers)
            drawn->mesh.interleave = (int64_t)draw(drawn, 1, 2);
        if (drawn->mesh.ep * drawn->mesh.tp > model->experts) drawn->mesh.ep = 1;
    } while (drawn->mesh.dp * drawn->mesh.fsdp * drawn->mesh.tp * drawn->mesh.pp * drawn->mesh.cp * drawn->mesh.ep >
             RANKS_MAX);
}

static void drawn_open(struct drawn *drawn, uint64_t seed)
{
    json_t *json = NULL;
    struct ash_err err = {0};

    *drawn = (struct drawn){.seed = seed};
    draw_model(drawn);
    draw_mesh(drawn);
    assert_int_equal(ash_job_config(&drawn->model, draw(drawn, 20, 90), -1, &json, &err), 0);
    if (ash_model_config_parse(json, &drawn->config, &err) < 0) fail_msg("seed %lu: %s", (unsigned long)seed, err.text);
    json_decref(json);
    assert_int_equal(ash_holdings_open(&drawn->config, &drawn->mesh, &drawn->holdings, &err), 0);
    drawn->whole = ash_holdings_outline(drawn->holdings);
}

static void drawn_close(struct drawn *drawn)
{
    ash_holdings_close(drawn->holdings);
    ash_model_config_fini(&drawn->config);
}

/* What an element is, as a number that a float holds exactly: kinds and tensors are few, elements fewer than 2^14. */
static float name_element(enum ash_holding_kind kind, size_t tensor, size_t element)
{
    return (float)(((size_t)kind * 64 + tensor % 61 + 1) * 65536 + element % 65521);
}

/* ---- the plain way ----------------------------------------------------------------------------------------------- */

/* A chunk's memory on a rank, as a trainer has it: weights flat, moments of the shard. */
struct memory {
    struct ash_model *outline;
    float *kinds[ASH_HOLDING_KINDS];
    size_t sizes[ASH_HOLDING_KINDS];
};

struct world {
    struct memory *chunks; /* [ranks][interleave] */
    size_t count;
    float **gathered[ASH_HOLDING_KINDS]; /* [tensor][element] */
};

static struct ash_mesh mesh_of(const struct drawn *drawn, size_t rank)
{
    const struct ash_job_mesh *job = &drawn->mesh;
    struct ash_mesh mesh = {.size = {(size_t)job->tp, (size_t)job->cp, (size_t)job->ep, (size_t)job->fsdp,
                                     (size_t)job->dp, (size_t)job->pp},
                            .zero = job->fsdp > 1 ? (int)job->zero : 0};

    for (size_t a = 0; a < ASH_MESH_AXES; rank /= mesh.size[a++])
        mesh.at[a] = rank % mesh.size[a];
    return mesh;
}

/* A tensor's index by name: ash_model_find gives the parameter. */
static size_t tensor_of(const struct drawn *drawn, const char *name)
{
    return (size_t)(ash_model_find(drawn->whole, name) - ash_model_param(drawn->whole, 0));
}

/* Fill one parameter's memory, and gather it where this rank counts, as ash_collect does. */
static void fill_param(const struct drawn *drawn, struct world *world, struct memory *memory, size_t index,
                       bool is_gathered)
{
    const struct ash_param *param = ash_model_param(memory->outline, index);
    struct ash_shard_part part = ash_shards_part(ash_model_shards(memory->outline), param);
    size_t tensor = tensor_of(drawn, param->name);

    for (int k = 0; k < ASH_HOLDING_KINDS; k++) {
        float *own = memory->kinds[k] + (k == 0 ? param->offset + part.first : part.at);
        if (k > 0 && (!param->is_trained || param->is_tied_copy)) continue;
        for (size_t p = 0; p < ash_param_piece_count(param); p++) {
            struct ash_piece piece = ash_param_piece(param, p);
            for (size_t i = 0; i < piece.count; i++) {
                size_t local = piece.local + i;
                if (local < part.first || local >= part.first + part.count) continue;
                own[local - part.first] = name_element((enum ash_holding_kind)k, tensor, piece.full + i);
                if (is_gathered) world->gathered[k][tensor][piece.full + i] += own[local - part.first];
            }
        }
    }
}

static void world_open(const struct drawn *drawn, struct world *world)
{
    size_t ranks = ash_holdings_ranks(drawn->holdings), chunks = (size_t)drawn->mesh.interleave;

    *world = (struct world){.count = ranks * chunks};
    world->chunks = calloc(world->count, sizeof(*world->chunks));
    for (int k = 0; k < ASH_HOLDING_KINDS; k++) {
        world->gathered[k] = calloc(ash_model_param_count(drawn->whole), sizeof(float *));
        for (size_t t = 0; t < ash_model_param_count(drawn->whole); t++)
            world->gathered[k][t] = calloc(ash_param_full_count(ash_model_param(drawn->whole, t)), sizeof(float));
    }
    for (size_t r = 0; r < ranks; r++)
        for (size_t c = 0; c < chunks; c++) {
            struct ash_mesh mesh = mesh_of(drawn, r);
            struct ash_slice slice = ash_mesh_slice(&mesh, &drawn->config, c, chunks);
            struct memory *memory = &world->chunks[r * chunks + c];
            bool is_first = mesh.at[ASH_MESH_DP] == 0 && mesh.at[ASH_MESH_CP] == 0;

            assert_int_equal(ash_model_outline_slice(&drawn->config, &slice, &memory->outline, NULL), 0);
            for (int k = 0; k < ASH_HOLDING_KINDS; k++) {
                memory->sizes[k] = k == 0 ? ash_model_size(memory->outline) : ash_model_shards(memory->outline)->total;
                memory->kinds[k] = calloc(memory->sizes[k] + 1, sizeof(float));
            }
            for (size_t i = 0; i < ash_model_param_count(memory->outline); i++) {
                const struct ash_param *param = ash_model_param(memory->outline, i);
                fill_param(drawn, world, memory, i,
                           is_first && param->is_counted && (param->is_expert || mesh.at[ASH_MESH_EP] == 0));
            }
        }
}

static void world_close(const struct drawn *drawn, struct world *world)
{
    for (size_t i = 0; i < world->count; i++) {
        for (int k = 0; k < ASH_HOLDING_KINDS; k++)
            free(world->chunks[i].kinds[k]);
        ash_model_close(world->chunks[i].outline);
    }
    for (int k = 0; k < ASH_HOLDING_KINDS; k++) {
        for (size_t t = 0; t < ash_model_param_count(drawn->whole); t++)
            free(world->gathered[k][t]);
        free(world->gathered[k]);
    }
    free(world->chunks);
}

/* ---- the lists against it ---------------------------------------------------------------------------------------- */

/* What a walk over all ranks finds. */
struct count {
    const struct drawn *drawn;
    const struct world *world;
    uint8_t **written[ASH_HOLDING_KINDS]; /* [tensor][element]: how many write it */
    size_t *held;                         /* [rank]: elements that the walk named */
};

static int check_holding(void *ctx, const struct ash_holding *holding)
{
    struct count *count = ctx;
    const struct memory *memory =
        &count->world->chunks[holding->rank * (size_t)count->drawn->mesh.interleave + holding->chunk];

    assert_true(holding->at + holding->elements.count <= memory->sizes[holding->kind]);
    assert_true(holding->replica < holding->replicas);
    for (size_t i = 0; i < holding->elements.count; i++) {
        size_t element = holding->elements.first + i;
        float expected = name_element(holding->kind, holding->tensor, element);

        if (memory->kinds[holding->kind][holding->at + i] != expected)
            fail_msg("seed %lu rank %zu kind %d tensor %zu element %zu: memory has %g, not %g",
                     (unsigned long)count->drawn->seed, holding->rank, (int)holding->kind, holding->tensor, element,
                     (double)memory->kinds[holding->kind][holding->at + i], (double)expected);
        if (ash_holding_is_writer(holding, element / BLOCK)) {
            assert_float_equal(count->world->gathered[holding->kind][holding->tensor][element], expected, 0);
            count->written[holding->kind][holding->tensor][element]++;
        }
    }
    count->held[holding->rank] += holding->elements.count;
    return 0;
}

/* Everything that a rank's memory was filled with is named, and nothing else. */
static void check_all_named(const struct count *count)
{
    size_t chunks = (size_t)count->drawn->mesh.interleave;

    for (size_t r = 0; r < count->world->count / chunks; r++) {
        size_t filled = 0;

        for (size_t c = 0; c < chunks; c++)
            for (int k = 0; k < ASH_HOLDING_KINDS; k++)
                for (size_t i = 0; i < count->world->chunks[r * chunks + c].sizes[k]; i++)
                    filled += count->world->chunks[r * chunks + c].kinds[k][i] != 0.0f;
        assert_int_equal(count->held[r], filled);
    }
}

static void check_written_once(const struct count *count)
{
    const struct ash_model *whole = count->drawn->whole;

    for (int k = 0; k < ASH_HOLDING_KINDS; k++)
        for (size_t t = 0; t < ash_model_param_count(whole); t++)
            for (size_t i = 0; i < ash_param_full_count(ash_model_param(whole, t)); i++) {
                uint8_t wanted = ash_holdings_has(count->drawn->holdings, (enum ash_holding_kind)k, t);

                if (count->written[k][t][i] != wanted)
                    fail_msg("seed %lu kind %d tensor %zu element %zu: %d ranks write it",
                             (unsigned long)count->drawn->seed, k, t, i, count->written[k][t][i]);
            }
}

static void check_case(uint64_t seed)
{
    struct drawn drawn;
    struct world world;
    struct count count = {.drawn = &drawn, .world = &world};
    size_t tensors;

    drawn_open(&drawn, seed);
    world_open(&drawn, &world);
    tensors = ash_model_param_count(drawn.whole);
    count.held = calloc(ash_holdings_ranks(drawn.holdings), sizeof(*count.held));
    for (int k = 0; k < ASH_HOLDING_KINDS; k++) {
        count.written[k] = calloc(tensors, sizeof(uint8_t *));
        for (size_t t = 0; t < tensors; t++)
            count.written[k][t] = calloc(ash_param_full_count(ash_model_param(drawn.whole, t)), 1);
    }
    for (size_t r = 0; r < ash_holdings_ranks(drawn.holdings); r++)
        assert_int_equal(ash_holdings_each(drawn.holdings, r, check_holding, &count, NULL), 0);
    check_all_named(&count);
    check_written_once(&count);
    for (int k = 0; k < ASH_HOLDING_KINDS; k++) {
        for (size_t t = 0; t < tensors; t++)
            free(count.written[k][t]);
        free(count.written[k]);
    }
    free(count.held);
    world_close(&drawn, &world);
    drawn_close(&drawn);
}

static void every_element_of_drawn_meshes_is_named_where_it_lies_and_written_once(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= DRAWS; seed++)
        check_case(seed);
}

static int stop_at_once(void *ctx, const struct ash_holding *holding)
{
    size_t *calls = ctx;

    (void)holding;
    ++*calls;
    return -4;
}

static void a_walk_ends_where_its_caller_says(void **state)
{
    struct drawn drawn;
    size_t calls = 0;

    (void)state;
    drawn_open(&drawn, 3);
    assert_int_equal(ash_holdings_each(drawn.holdings, 0, stop_at_once, &calls, NULL), -4);
    assert_int_equal(calls, 1);
    drawn_close(&drawn);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_of_drawn_meshes_is_named_where_it_lies_and_written_once),
        cmocka_unit_test(a_walk_ends_where_its_caller_says),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
