/* One policy, for any sampler: log-probabilities of the sampler are those of the trainer's pass, to the bit, for every
 * family, precision, quantised base, adapter, temperature, kept set, batch and reuse of prefixes. ASHLAR_TEST_TOKENS=N
 * in the environment draws again until N were compared. */
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "base/math.h"
#include "base/rng.h"
#include "model/files/lora_folder.h"
#include "model/files/open.h"
#include "model/lora.h"
#include "model/pass/pass.h"
#include "serve/engine/core.h"
#include "unit/sanitized.h"

#define ANSWERS (SANITIZED ? 4 : 32)
#define TOKENS (SANITIZED ? 8 : 24)
#define PROMPT_MAX 24

struct answer {
    struct ash_request request;
    struct ash_request_end end;
    int32_t ids[PROMPT_MAX + TOKENS];
    float logps[TOKENS];
    struct ash_kept kept[TOKENS]; /* of its tokens; ids are its own */
    size_t count;
};

static struct ash_exec exec;
static uint64_t checked, checked_kept, checked_adapted;

static int take(void *ctx, const struct ash_token *token)
{
    struct answer *answer = ctx;

    answer->ids[answer->request.prompt_count + answer->count] = token->id;
    if (token->kept_count > 0) {
        int32_t *ids = malloc(token->kept_count * sizeof(*ids));

        memcpy(ids, token->kept, token->kept_count * sizeof(*ids));
        answer->kept[answer->count] = (struct ash_kept){ids, token->kept_count};
    }
    answer->logps[answer->count++] = token->logprob;
    return 0;
}

static void take_end(void *ctx, const struct ash_request_end *end)
{
    struct answer *answer = ctx;

    answer->end = *end;
}

/* Every second model samples with filters, which leave from one id to nearly all. */
static void draw_filters(struct ash_request *request, uint64_t seed, size_t vocab)
{
    if (seed % 4 < 2) return;
    request->wants_kept = true;
    if (ash_rng_below(seed, 6, 0, 2) == 0) request->sampler.top_k = 1 + ash_rng_below(seed, 7, 0, vocab);
    if (request->sampler.top_k == 0 || ash_rng_below(seed, 8, 0, 2) == 0)
        request->sampler.top_p = 0.01 + 0.98 * ash_rng_uniform(seed, 9, 0);
}

/* Four answers to each prompt, as a rollout has them; prompts begin alike. */
static void sample(struct ash_core *core, struct answer *answers, size_t vocab, double temperature, uint64_t seed)
{
    struct ash_err err = {0};

    for (size_t a = 0; a < ANSWERS; a++) {
        struct answer *answer = &answers[a];
        size_t group = a / 4, count = 1 + ash_rng_below(seed, 1, group, PROMPT_MAX);

        *answer = (struct answer){.count = 0};
        for (size_t i = 0; i < count; i++)
            answer->ids[i] = (int32_t)ash_rng_below(seed, i < count / 2 ? 2 : 3 + group, i, vocab);
        answer->request = (struct ash_request){.prompt = answer->ids,
                                               .prompt_count = count,
                                               .sampler = ash_sampler_defaults(),
                                               .max_tokens = 1 + ash_rng_below(seed, 4000, a, TOKENS),
                                               .wants_logprobs = true,
                                               .take = take,
                                               .done = take_end,
                                               .ctx = answer};
        answer->request.sampler.temperature = temperature;
        draw_filters(&answer->request, seed, vocab);
        answer->request.sampler.seed = seed * ANSWERS + a;
        assert_int_equal(ash_core_submit(core, &answer->request, &err), 0);
    }
    while (ash_core_step(core) > 0)
        continue;
}

/* The sets of an answer's rows, and whether there are any. */
static const struct ash_kept *kept_rows(const struct answer *answer, struct ash_kept *kept)
{
    memset(kept, 0, (PROMPT_MAX + TOKENS) * sizeof(*kept));
    for (size_t t = 0; t < answer->count; t++) {
        kept[answer->request.prompt_count - 1 + t] = answer->kept[t];
        checked_kept += answer->kept[t].count > 0;
    }
    return answer->request.wants_kept ? kept : NULL;
}

/* The trainer's way: whole answers, packed one after the other. */
static void compare(struct ash_model *model, const struct answer *answers, double temperature, const char *name)
{
    struct ash_pass_opts opts = {.max_rows = PROMPT_MAX + TOKENS};
    struct ash_pass *pass = NULL;
    struct ash_err err = {0};

    assert_int_equal(ash_pass_open(model, &exec, &opts, &pass, &err), 0);
    for (size_t a = 0; a < ANSWERS; a++) {
        const struct answer *answer = &answers[a];
        size_t prompt = answer->request.prompt_count, rows = prompt + answer->count - 1;
        int32_t targets[PROMPT_MAX + TOKENS];
        float losses[PROMPT_MAX + TOKENS];
        struct ash_kept kept[PROMPT_MAX + TOKENS];
        struct ash_doc doc = {.count = rows};
        struct ash_batch batch = {.rows = rows,
                                  .ids = answer->ids,
                                  .targets = targets,
                                  .docs = &doc,
                                  .doc_count = 1,
                                  .kept = kept_rows(answer, kept),
                                  .sharpness = (float)(1.0 / temperature)};

        assert_int_equal(answer->end.rc, 0);
        for (size_t i = 0; i < rows; i++)
            targets[i] = i + 1 >= prompt ? answer->ids[i + 1] : -1;
        assert_int_equal(ash_pass_eval(pass, &batch, losses, &err), 0);
        for (size_t t = 0; t < answer->count; t++, checked++) {
            float trained = -losses[prompt - 1 + t], ratio = trained - answer->logps[t];

            if (memcmp(&trained, &answer->logps[t], sizeof(trained)) != 0 && ratio != 0)
                fail_msg("%s: answer %zu, token %zu: sampled %.9g, trained %.9g", name, a, t, (double)answer->logps[t],
                         (double)trained);
            free((void *)(uintptr_t)answer->kept[t].ids);
        }
    }
    ash_pass_close(pass);
}

static void check_opened(struct ash_model *model, const char *name, bool is_bf16, uint64_t seed)
{
    static const double temperatures[] = {1.0, 0.7, 1.3};
    static struct answer answers[ANSWERS];
    double temperature = temperatures[seed % 3];
    struct ash_core_opts opts = {.max_seqs = 1 + ash_rng_below(seed, 5, 0, ANSWERS),
                                 .max_tokens = PROMPT_MAX + TOKENS,
                                 .has_no_prefix_cache = seed % 2 == 1,
                                 .logprob_sharpness = (float)(1.0 / temperature)};
    struct ash_core *core = NULL;
    struct ash_err err = {0};
    size_t vocab;

    if (is_bf16) ash_model_round_bf16(model, true);
    vocab = ash_model_get_config(model)->vocab;
    assert_int_equal(ash_core_open(model, &exec, &opts, &core, &err), 0);
    sample(core, answers, vocab, temperature, seed);
    compare(model, answers, temperature, name);
    ash_core_close(core);
}

static void check_model(const char *path, bool is_bf16, uint64_t seed)
{
    struct ash_model *model = NULL;
    struct ash_err err = {0};

    if (ash_model_open(path, &model, &err) < 0) fail_msg("%s: %s", path, err.text);
    check_opened(model, path, is_bf16, seed);
    ash_model_close(model);
}

/* Adapters of all matrices, none of which is zero, over a base that is held as quant says. Families and shapes that
 * cannot be held so are left out. */
static void check_adapted(const char *path, enum ash_dtype quant, bool is_bf16, uint64_t seed)
{
    static const char *const targets[] = {"all-linear"};
    struct ash_lora_opts opts = {
        .base_dir = path, .rank = 4, .alpha = 8, .targets = targets, .target_count = 1, .quant = quant};
    struct ash_lora *lora = NULL;
    struct ash_model *model = NULL;
    struct ash_err err = {0};
    uint64_t before = checked;
    int rc;

    if (ash_lora_open(&opts, &lora, &err) < 0) fail_msg("%s: %s", path, err.text);
    rc = ash_lora_open_base(lora, &model, &err);
    if (rc < 0 && (quant == ASH_F32 || rc != -ENOTSUP)) fail_msg("%s: %s", path, err.text);
    if (rc == 0) {
        for (size_t i = 0; i < ash_model_weight_count(model); i++)
            ash_model_values(model)[i] += (float)(0.2 * (ash_rng_uniform(seed, 10, i) - 0.5));
        ash_model_refresh(model);
        check_opened(model, path, is_bf16, seed);
        ash_model_close(model);
    }
    ash_lora_close(lora);
    checked_adapted += checked - before;
}

/* Every folder of tests/golden with a model in it. */
static void check_families(uint64_t round)
{
    static const enum ash_dtype quants[] = {ASH_F32, ASH_Q8_0, ASH_Q4_0, ASH_Q8_W};
    struct dirent **names = NULL;
    int count = scandir(TEST_DATA "/golden", &names, NULL, alphasort), models = 0;

    assert_true(count > 0);
    for (int i = 0; i < count; i++) {
        char path[1024], config[1100];

        snprintf(path, sizeof(path), "%s/golden/%s", TEST_DATA, names[i]->d_name);
        snprintf(config, sizeof(config), "%s/config.json", path);
        free(names[i]);
        if (!ash_path_exists(config)) continue;
        models++;
        if (SANITIZED && models % 4 != 0) continue; /* each is opened four times slower */
        check_model(path, false, 1000 * round + (uint64_t)(2 * models));
        check_model(path, true, 1000 * round + (uint64_t)(2 * models + 1));
        check_adapted(path, quants[(models + (int)round) % 4], (models + (int)round) % 8 >= 4,
                      1000 * round + 500 + (uint64_t)models);
    }
    free(names);
    assert_true(models >= 15);
}

static void test_every_family_in_both_precisions(void **state)
{
    const char *wanted = getenv("ASHLAR_TEST_TOKENS");
    uint64_t least = wanted != NULL ? strtoull(wanted, NULL, 10) : 0, round = 0;

    (void)state;
    do
        check_families(round++);
    while (checked < least);
}

static void test_quantised_bases(void **state)
{
    static const char *const files[] = {"f16", "q8_0", "q4_0", "q4_k_m"};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        char path[1024];

        snprintf(path, sizeof(path), "%s/golden/gguf/llama-%s.gguf", TEST_DATA, files[i]);
        for (uint64_t seed = 0; seed < (SANITIZED ? 1 : 3); seed++)
            check_model(path, false, 100 + 3 * i + seed);
    }
    print_message("%llu log-probabilities of sampler and trainer compared, %llu over kept sets, %llu with adapters\n",
                  (unsigned long long)checked, (unsigned long long)checked_kept, (unsigned long long)checked_adapted);
    assert_true(checked_kept > 0); /* by one of the two tests: few models are drawn under sanitizers */
}

static int open_exec(void **state)
{
    struct ash_err err = {0};

    (void)state;
    return ash_exec_init(&exec, NULL, 2, &err);
}

static int close_exec(void **state)
{
    (void)state;
    ash_exec_fini(&exec);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_family_in_both_precisions),
        cmocka_unit_test(test_quantised_bases),
    };

    return cmocka_run_group_tests(tests, open_exec, close_exec);
}
