/* Heads whose drafts are right: the model's next token is a function of its last one, and the head knows it. Then each
 * drafted token holds, whatever the engine loop's measurements let it draft. */
#include "unit/serve/engine/core_requests.h"

#define TOKENS 380
#define PLACES (SANITIZED_THREADS ? 1 : 2) /* host memory; a device */

static int32_t next_of(size_t token)
{
    return (int32_t)((token * 5 + 7) % VOCAB);
}

static float *values_of(struct ash_model *model, const char *name)
{
    const struct ash_param *param = ash_model_find(model, name);

    if (param == NULL) fail_msg("there is no %s", name);
    return ash_model_values(model) + param->offset;
}

/* All zero but norms, and the embedding: token t is the t-th unit vector. Blocks add nothing to the stream then. */
static void blank(struct ash_model *model, const char *embed)
{
    for (size_t i = 0; i < ash_model_param_count(model); i++) {
        const struct ash_param *param = ash_model_param(model, i);

        for (size_t j = 0; j < param->count; j++)
            ash_model_values(model)[param->offset + j] = param->is_matrix ? 0.0f : 1.0f;
    }
    for (size_t t = 0; t < VOCAB; t++)
        values_of(model, embed)[t * HIDDEN + t] = 1.0f;
}

static struct ash_model *make_counter(void)
{
    struct ash_model *model = make_seeded(1, false, false);

    blank(model, "model.embed_tokens.weight");
    for (size_t t = 0; t < VOCAB; t++)
        values_of(model, "lm_head.weight")[(size_t)next_of(t) * HIDDEN + t] = 4.0f;
    ash_model_refresh(model);
    return model;
}

/* It reads the token alone. */
static struct ash_model *make_knowing_head(void)
{
    struct ash_model *head = make_head(1);

    blank(head, "model.embed_tokens.weight");
    for (size_t i = 0; i < HIDDEN; i++)
        values_of(head, "model.layers.1.eh_proj.weight")[i * 2 * HIDDEN + i] = 1.0f;
    for (size_t t = 0; t < VOCAB; t++)
        values_of(head, "lm_head.weight")[(size_t)next_of(t) * HIDDEN + t] = 4.0f;
    ash_model_refresh(head);
    return head;
}

/* It reads the token before alone, in the third of the captured streams. Its outputs are in an order of their own. */
static struct ash_eagle make_knowing_eagle(void)
{
    struct ash_eagle eagle = make_eagle(1, VOCAB);

    for (size_t o = 0; o < VOCAB; o++)
        eagle.ids[o] = (int32_t)(o * 7 % VOCAB);
    eagle.layers[2] = 0;
    blank(eagle.model, "embed_tokens.weight");
    for (size_t i = 0; i < HIDDEN; i++)
        values_of(eagle.model, "fc.weight")[i * ASH_MODEL_CAPTURES * HIDDEN + 2 * HIDDEN + i] = 1.0f;
    for (size_t o = 0; o < VOCAB; o++)
        for (size_t t = 0; t < VOCAB; t++)
            if (next_of((size_t)next_of(t)) == eagle.ids[o])
                values_of(eagle.model, "lm_head.weight")[o * HIDDEN + t] = 4.0f;
    ash_model_refresh(eagle.model);
    return eagle;
}

struct answer {
    int32_t last;
    size_t count;
};

static int take_next(void *ctx, const struct ash_token *token)
{
    struct answer *answer = ctx;

    assert_int_equal(token->id, next_of((size_t)answer->last));
    answer->last = token->id;
    answer->count++;
    return 0;
}

/* An answer of some hundred tokens. */
static void check_drafts(struct ash_model *model, struct ash_exec *exec, const struct ash_core_opts *opts)
{
    const int32_t prompt[] = {5, next_of(5)};
    struct answer answer = {.last = prompt[1]};
    struct ash_request request = {.prompt = prompt,
                                  .prompt_count = 2,
                                  .sampler = ash_sampler_defaults(),
                                  .max_tokens = TOKENS,
                                  .take = take_next,
                                  .ctx = &answer};
    struct ash_core *core = NULL;
    struct ash_core_stats stats;
    struct ash_err err = {0};

    request.sampler.temperature = 0;
    if (ash_core_open(model, exec, opts, &core, &err) < 0 || ash_core_submit(core, &request, &err) < 0)
        fail_msg("%s", err.text);
    while (ash_core_step(core) > 0)
        continue;
    stats = ash_core_get_stats(core);
    print_message("%llu of %llu drafts held\n", (unsigned long long)stats.accepted, (unsigned long long)stats.drafted);
    assert_int_equal(answer.count, TOKENS);
    assert_true(stats.drafted > 0);
    assert_int_equal(stats.accepted, stats.drafted);
    ash_core_close(core);
}

static void drafts_of_a_head_hold(void **state)
{
    struct ash_model *models[] = {make_counter(), make_counter()},
                     *heads[] = {make_knowing_head(), make_knowing_head()};

    (void)state;
    for (size_t i = 0; i < PLACES; i++) {
        struct ash_core_opts opts = {.max_seqs = 2, .max_batch_rows = 40, .draft = heads[i], .speculate = 5};

        check_drafts(models[i], i == 0 ? &execs[0] : &device, &opts);
    }
    for (size_t i = 0; i < 2; i++) {
        ash_model_close(heads[i]);
        ash_model_close(models[i]);
    }
}

/* One token each: its own state does not know the token that it drafted. */
static void drafts_of_eagle_hold(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLACES; i++) {
        struct ash_model *model = make_counter();
        struct ash_eagle eagle = make_knowing_eagle();
        struct ash_core_opts opts = {
            .max_seqs = 2, .max_batch_rows = 40, .draft = eagle.model, .eagle = &eagle, .speculate = 1};

        check_drafts(model, i == 0 ? &execs[0] : &device, &opts);
        ash_eagle_close(&eagle);
        ash_model_close(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafts_of_a_head_hold),
        cmocka_unit_test(drafts_of_eagle_hold),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
