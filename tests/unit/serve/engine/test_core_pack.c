/* Mapped weights are served at once: they are laid out for decoding after the first token, and only where enough tokens
 * are to come. The answer is the same, packed or not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/math.h"
#include "model/files/open.h"
#include "model/model.h"
#include "serve/engine/core.h"

#define MODEL TEST_DATA "/golden/gguf/llama-q8_0.gguf"
#define PROMPT 12
#define ANSWER 40

struct answer {
    int32_t ids[ANSWER];
    float logprobs[ANSWER];
    size_t count;
    bool is_done;
};

static int take(void *ctx, const struct ash_token *token)
{
    struct answer *answer = ctx;

    answer->ids[answer->count] = token->id;
    answer->logprobs[answer->count++] = token->logprob;
    return 0;
}

static void take_end(void *ctx, const struct ash_request_end *end)
{
    struct answer *answer = ctx;

    assert_int_equal(end->rc, 0);
    answer->is_done = true;
}

static bool is_packed(const struct ash_model *model)
{
    const struct ash_param *param = ash_model_find(model, "model.layers.0.mlp.down_proj.weight");

    assert_non_null(param);
    return param->packed != NULL;
}

/* An answer of `most` tokens; *packed_at_out: how many were out when the weights were packed, SIZE_MAX: they never were. */
static struct answer run(struct ash_exec *exec, enum ash_core_pack pack, size_t most, size_t *packed_at_out)
{
    static const int32_t prompt[PROMPT] = {1, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120};
    struct ash_core_opts opts = {.max_seqs = 2, .max_tokens = 128, .pack = pack};
    struct answer answer = {0};
    struct ash_request request = {.prompt = prompt,
                                  .prompt_count = PROMPT,
                                  .sampler = ash_sampler_defaults(),
                                  .max_tokens = most,
                                  .wants_logprobs = true,
                                  .take = take,
                                  .done = take_end,
                                  .ctx = &answer};
    struct ash_model *model = NULL;
    struct ash_core *core = NULL;
    struct ash_err err = {0};

    if (ash_model_open(MODEL, &model, &err) < 0) fail_msg("%s", err.text);
    if (ash_core_open(model, exec, &opts, &core, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(ash_core_submit(core, &request, &err), 0);
    *packed_at_out = SIZE_MAX;
    do {
        if (is_packed(model)) *packed_at_out = ash_min(*packed_at_out, answer.count);
    } while (ash_core_step(core) > 0);
    assert_true(answer.is_done);
    ash_core_close(core);
    ash_model_close(model);
    return answer;
}

static void the_first_token_does_not_wait_for_packing(void **state)
{
    struct answer at_open, later, few;
    struct ash_exec exec;
    struct ash_err err = {0};
    size_t packed_at;

    (void)state;
    assert_int_equal(ash_exec_init(&exec, NULL, 2, &err), 0);
    at_open = run(&exec, ASH_CORE_PACK_AT_OPEN, ANSWER, &packed_at);
    if (packed_at == SIZE_MAX) { /* a backend that has no layout of its own */
        ash_exec_fini(&exec);
        skip();
    }
    assert_int_equal(packed_at, 0);
    later = run(&exec, ASH_CORE_PACK_LATER, ANSWER, &packed_at);
    assert_in_range(packed_at, 1, 2);
    few = run(&exec, ASH_CORE_PACK_LATER, 4, &packed_at); /* not worth it */
    assert_true(packed_at == SIZE_MAX);
    assert_int_equal(later.count, at_open.count);
    assert_memory_equal(later.ids, at_open.ids, sizeof(later.ids));
    assert_memory_equal(later.logprobs, at_open.logprobs, sizeof(later.logprobs));
    assert_int_equal(few.count, 4);
    assert_memory_equal(few.logprobs, at_open.logprobs, 4 * sizeof(few.logprobs[0]));
    ash_exec_fini(&exec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_first_token_does_not_wait_for_packing)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
