/* core_requests - a small model, and requests of the engine loop with what each should give and what it gave. */
#ifndef TEST_SERVE_ENGINE_CORE_REQUESTS_H
#define TEST_SERVE_ENGINE_CORE_REQUESTS_H

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

#include "base/math.h"
#include "base/rng.h"
#include "model/family.h"
#include "model/files/eagle.h"
#include "model/files/open.h"
#include "model/pass/cache.h"
#include "model/pass/pass.h"
#include "serve/engine/core.h"
#include "serve/grammar/grammar.h"
#include "unit/sanitized.h"

#define VOCAB 24
#define HIDDEN 32
#define POSITIONS 400
#define ANSWER_MAX 48
#define TOP_MAX 3

static struct ash_exec execs[3]; /* of 1, 2 and 3 threads */
static struct ash_exec device;   /* whose memory is not the host's */
/* The ids as letters; the last one ends a text. */
static struct ash_vocab_trie *trie;
static struct ash_grammar *grammars[2];

static inline struct ash_model_config make_config(void)
{
    static const char text[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 24, \"hidden_size\": 32, \"intermediate_size\": 48,"
        " \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2,"
        " \"max_position_embeddings\": 400, \"initializer_range\": 0.6}";
    struct ash_model_config config;
    struct ash_err err = {0};
    json_t *json = NULL;

    assert_int_equal(ash_json_parse(text, strlen(text), "model", &json, &err), 0);
    assert_int_equal(ash_model_config_parse(json, &config, &err), 0);
    json_decref(json);
    return config;
}

/* A head for drafts of such a model. */
static inline struct ash_model *make_head(uint64_t seed)
{
    struct ash_model_config config = make_config();
    struct ash_slice slice = ash_slice_whole(&config);
    struct ash_model *head = NULL;
    struct ash_err err = {0};

    config.fuses_states = true;
    slice.layers[0] = 0;
    if (ash_model_create_slice(&config, &slice, seed, NULL, &head, &err) < 0) fail_msg("%s", err.text);
    return head;
}

/* A head of EAGLE-3, with outputs for some tokens. */
static inline struct ash_eagle make_eagle(uint64_t seed, size_t outputs)
{
    struct ash_model_config config = make_config();
    struct ash_eagle eagle = {.layers = {1, 0, 1}};
    struct ash_err err = {0};

    config.family = &ash_family_eagle3;
    config.fuses_states = config.is_eagle = true;
    config.captured = ASH_MODEL_CAPTURES * HIDDEN;
    config.embed_vocab = VOCAB;
    config.vocab = outputs;
    config.layers = 1;
    if (ash_model_create(&config, seed, &eagle.model, &err) < 0) fail_msg("%s", err.text);
    eagle.ids = calloc(config.vocab, sizeof(*eagle.ids));
    assert_non_null(eagle.ids);
    for (size_t i = 0; i < config.vocab; i++)
        eagle.ids[i] = (int32_t)((i / 2 * 3 + i % 2) % VOCAB);
    return eagle;
}

static inline struct ash_model *make_seeded(uint64_t seed, bool bf16, bool kv_bf16)
{
    struct ash_model_config config = make_config();
    struct ash_model *model = NULL;
    struct ash_err err = {0};

    assert_int_equal(ash_model_create(&config, seed, &model, &err), 0);
    ash_model_round_bf16(model, bf16);
    if (kv_bf16) ash_model_use_kv_dtype(model, ASH_BF16);
    return model;
}

static inline struct ash_model *make_model(bool bf16, bool kv_bf16)
{
    return make_seeded(5, bf16, kv_bf16);
}

/* A request with all that it points at, what it should give, and what it gave. */
struct work {
    struct ash_request request;
    int32_t prompt[POSITIONS], stop_ids[2], allowed[VOCAB];
    struct ash_logit_bias bias[2];
    size_t take_max; /* tokens after which take says stop */
    float hidden[HIDDEN];
    struct {
        int32_t answer[ANSWER_MAX];
        float logprobs[ANSWER_MAX], prompt_logprobs[POSITIONS], hidden[HIDDEN];
        struct ash_top_logprob tops[ANSWER_MAX][TOP_MAX], prompt_tops[POSITIONS][TOP_MAX];
        size_t count, prompt_told;
        enum ash_finish finish;
        int32_t stop_id;
    } want, got;
    bool is_done;
    struct ash_request_end end;
};

static uint64_t seed_now, counter;

static inline size_t draw(size_t bound)
{
    return ash_rng_below(seed_now, 77, counter++, bound);
}

static inline int take(void *ctx, const struct ash_token *token)
{
    struct work *work = ctx;
    size_t n = work->got.count++;

    assert_false(work->is_done);
    assert_in_range(n, 0, ANSWER_MAX - 1);
    assert_int_equal(token->top_count, work->request.top_logprobs);
    work->got.answer[n] = token->id;
    work->got.logprobs[n] = token->logprob;
    memcpy(work->got.tops[n], token->top, token->top_count * sizeof(*token->top));
    return work->got.count == work->take_max;
}

static inline void take_prompt(void *ctx, size_t index, const struct ash_token *token)
{
    struct work *work = ctx;

    assert_int_equal(index, ash_max(work->got.prompt_told + 1, work->request.prompt_logprobs_from));
    assert_int_equal(token->id, work->prompt[index]);
    work->got.prompt_told = index;
    work->got.prompt_logprobs[index] = token->logprob;
    memcpy(work->got.prompt_tops[index], token->top, token->top_count * sizeof(*token->top));
}

static inline void take_end(void *ctx, const struct ash_request_end *end)
{
    struct work *work = ctx;

    assert_false(work->is_done);
    work->is_done = true;
    work->end = *end;
    work->got.finish = end->finish;
    work->got.stop_id = end->stop_id;
    memcpy(work->got.hidden, work->hidden, sizeof(work->hidden));
    assert_int_equal(end->answer_tokens, work->got.count);
}

static inline void submit(struct ash_core *core, struct work *work)
{
    struct ash_err err = {0};

    memset(&work->got, 0, sizeof(work->got));
    work->is_done = false;
    work->request.take = take;
    work->request.take_prompt = take_prompt;
    work->request.done = take_end;
    work->request.ctx = work;
    work->request.priority = (int)draw(2);
    work->request.owner = draw(3);
    work->request.salt = draw(4) == 0;
    work->request.skips_cache = draw(8) == 0;
    if (ash_core_submit(core, &work->request, &err) < 0) fail_msg("%s", err.text);
}

static inline int make_grammars(struct ash_err *err)
{
    static const char *const patterns[] = {"(ab|c[d-h]*e)+k?", "[a-f]{3,9}(gh|ij)*[k-w]"};
    struct ash_vocab_token tokens[VOCAB];
    int32_t eos = VOCAB - 1;
    int rc = 0;

    for (size_t i = 0; i < VOCAB; i++)
        tokens[i] = (struct ash_vocab_token){&"abcdefghijklmnopqrstuvw$"[i], 1, i == VOCAB - 1};
    rc = ash_vocab_trie_from_tokens(tokens, VOCAB, &eos, 1, &trie, err);
    for (size_t i = 0; rc == 0 && i < 2; i++)
        rc = ash_grammar_from_regex(patterns[i], strlen(patterns[i]), NULL, &grammars[i], err);
    return rc;
}

static inline int setup(void **state)
{
    struct ash_err err = {0};

    (void)state;
    for (int i = 0; i < 3; i++)
        if (ash_exec_init(&execs[i], NULL, i + 1, &err) < 0) return -1;
    if (ash_exec_init(&device, "apart", 1, &err) < 0) return -1;
    return make_grammars(&err);
}

static inline int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        ash_exec_fini(&execs[i]);
    ash_exec_fini(&device);
    for (int i = 0; i < 2; i++)
        ash_grammar_put(grammars[i]);
    ash_vocab_trie_close(trie);
    return 0;
}

#endif
