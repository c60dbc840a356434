/* core_oracle - drawn requests of the engine loop, and what they should give. It knows nothing of the loop: it runs a
 * pass token by token, counts from scratch and asks the sampler. */
#ifndef TEST_SERVE_ENGINE_CORE_ORACLE_H
#define TEST_SERVE_ENGINE_CORE_ORACLE_H

#include "unit/serve/engine/core_requests.h"

#define REQUESTS (SANITIZED ? 16 : 40)

/* Prompts begin like one of three texts, so that many have a beginning in common, some to the end. */
static inline void draw_prompt(struct work *work)
{
    size_t text = draw(3), whole = 1 + draw(draw(3) == 0 ? 230 : 90), same = draw(3) == 0 ? 0 : draw(whole + 1);
    bool repeats = draw(2) == 0;

    work->request.prompt = work->prompt;
    work->request.prompt_count = whole;
    for (size_t i = 0; i < whole; i++)
        work->prompt[i] = i < same  ? (int32_t)ash_rng_below(9, text, i, VOCAB)
                          : repeats ? (int32_t)((i * 7 + text) % 5)
                                    : (int32_t)draw(VOCAB);
}

static inline void draw_sampler(struct ash_sampler_opts *sampler)
{
    *sampler = ash_sampler_defaults();
    sampler->temperature = draw(2) == 0 ? 0.0 : 0.2 + 0.3 * (double)draw(5);
    sampler->top_k = draw(3) == 0 ? 1 + draw(VOCAB) : 0;
    sampler->top_p = draw(3) == 0 ? 0.7 : 1.0;
    sampler->min_p = draw(4) == 0 ? 0.05 : 0.0;
    sampler->typical_p = draw(5) == 0 ? 0.8 : 1.0;
    sampler->repetition_penalty = draw(4) == 0 ? 1.2 : 1.0;
    sampler->presence_penalty = draw(4) == 0 ? 0.4 : 0.0;
    sampler->frequency_penalty = draw(4) == 0 ? 0.2 : 0.0;
    sampler->repeat_last_n = draw(3) == 0 ? 1 + draw(20) : 0;
    sampler->seed = draw(4);
}

static inline void draw_rest(struct work *work)
{
    struct ash_request *request = &work->request;

    request->max_tokens = draw(8) == 0 ? 0 : 1 + draw(ANSWER_MAX);
    request->min_tokens = draw(3) == 0 ? draw(10) : 0;
    request->stop_ids = work->stop_ids;
    request->stop_id_count = draw(3);
    for (size_t i = 0; i < 2; i++) {
        work->stop_ids[i] = (int32_t)draw(VOCAB);
        work->bias[i] = (struct ash_logit_bias){(int32_t)draw(VOCAB), (float)draw(5) - 2.0f};
    }
    request->bias = work->bias;
    request->bias_count = draw(3) == 0 ? 2 : 0;
    for (size_t i = 0; i < VOCAB; i++)
        work->allowed[i] = (int32_t)((i * 5) % VOCAB);
    if (draw(6) == 0) {
        request->allowed = work->allowed;
        request->allowed_count = 8 + draw(10); /* more than there are stop ids: something can always be chosen */
    }
    if (draw(5) == 0) {
        request->grammar = grammars[draw(2)];
        request->allowed = NULL;
        work->stop_ids[0] = VOCAB - 1;
        request->stop_id_count = 1;
    }
    request->wants_logprobs = draw(2) == 0;
    request->top_logprobs = request->wants_logprobs ? draw(TOP_MAX + 1) : 0;
    request->wants_prompt_logprobs = draw(5) == 0;
    request->prompt_top_logprobs = request->wants_prompt_logprobs ? draw(TOP_MAX + 1) : 0;
    request->prompt_logprobs_from = draw(2) == 0 ? draw(request->prompt_count + 2) : 0;
    request->pooling = draw(6) == 0 ? (enum ash_pooling)(1 + draw(2)) : ASH_POOLING_NONE;
    request->hidden = work->hidden;
    work->take_max = draw(6) == 0 ? 1 + draw(10) : SIZE_MAX;
}

struct oracle {
    struct ash_model *model;
    struct ash_pass *pass;
    int32_t ids[POSITIONS];
    size_t count;
    float logits[POSITIONS * VOCAB];
};

/* Logits of all rows, in one pass without a cache. */
static inline void run_all(struct oracle *oracle)
{
    struct ash_doc doc = {.count = oracle->count};
    struct ash_batch batch = {.rows = oracle->count, .ids = oracle->ids, .docs = &doc, .doc_count = 1};
    size_t rows[POSITIONS];
    struct ash_err err = {0};

    for (size_t i = 0; i < oracle->count; i++)
        rows[i] = i;
    if (ash_pass_infer(oracle->pass, &batch, NULL, rows, oracle->count, oracle->logits, &err) < 0)
        fail_msg("%s", err.text);
}

static inline int32_t choose(struct oracle *oracle, const struct ash_request *request, struct ash_sampler *sampler)
{
    struct ash_token_counts counts = {0};
    struct ash_choice choice = {.opts = &request->sampler,
                                .logits = oracle->logits + (oracle->count - 1) * VOCAB,
                                .position = oracle->count,
                                .counts = &counts,
                                .bias = request->bias,
                                .bias_count = request->bias_count,
                                .allowed = request->allowed,
                                .allowed_count = request->allowed_count,
                                .forbidden = request->stop_ids};
    size_t window = request->sampler.repeat_last_n;
    struct ash_matcher *matcher = NULL;
    struct ash_err err = {0};
    int32_t id = -1;

    if (oracle->count - request->prompt_count < request->min_tokens) choice.forbidden_count = request->stop_id_count;
    if (request->grammar != NULL) { /* from its start, every time */
        assert_int_equal(ash_matcher_open(request->grammar, trie, &matcher, &err), 0);
        for (size_t i = request->prompt_count; i < oracle->count; i++)
            assert_int_equal(ash_matcher_accept(matcher, oracle->ids[i]), 0);
        choice.mask = ash_matcher_mask(matcher);
        if (ash_matcher_must_end(matcher)) choice.forbidden_count = 0;
    }
    assert_int_equal(ash_token_counts_init(&counts, oracle->count), 0);
    for (size_t i = window > 0 && oracle->count > window ? oracle->count - window : 0; i < oracle->count; i++)
        ash_token_counts_add(&counts, oracle->ids[i], i >= request->prompt_count);
    if (ash_sampler_next(sampler, &choice, &id, &err) < 0) fail_msg("%s", err.text);
    ash_token_counts_fini(&counts);
    ash_matcher_close(matcher);
    return id;
}

/* Losses of every next token, by the evaluation. */
static inline void eval(struct oracle *oracle, float *losses)
{
    struct ash_doc doc = {.count = oracle->count};
    int32_t targets[POSITIONS];
    struct ash_batch batch = {
        .rows = oracle->count, .ids = oracle->ids, .targets = targets, .docs = &doc, .doc_count = 1};
    struct ash_err err = {0};

    for (size_t i = 0; i < oracle->count; i++)
        targets[i] = i + 1 < oracle->count ? oracle->ids[i + 1] : -1;
    if (ash_pass_eval(oracle->pass, &batch, losses, &err) < 0) fail_msg("%s", err.text);
}

/* The most likely ids of a row and their log-probabilities, each by the evaluation of a text that continues with it. */
static inline void want_tops(struct oracle *oracle, size_t row, size_t count, struct ash_top_logprob *tops)
{
    const float *logits = oracle->logits + row * VOCAB;
    struct oracle *other = malloc(sizeof(*other));
    bool is_taken[VOCAB] = {false};
    float losses[POSITIONS];

    for (size_t t = 0; t < count; t++) {
        size_t best = VOCAB;

        for (size_t v = 0; v < VOCAB; v++)
            if (!is_taken[v] && (best == VOCAB || logits[v] > logits[best])) best = v;
        is_taken[best] = true;
        *other = *oracle;
        other->count = row + 2;
        other->ids[row + 1] = (int32_t)best;
        eval(other, losses);
        tops[t] = (struct ash_top_logprob){(int32_t)best, -losses[row]};
    }
    free(other);
}

static inline void want_pooled(struct oracle *oracle, struct work *work)
{
    struct ash_doc doc = {.count = work->request.prompt_count};
    struct ash_batch batch = {.rows = doc.count, .ids = oracle->ids, .docs = &doc, .doc_count = 1};
    struct ash_err err = {0};
    float *states = malloc(POSITIONS * HIDDEN * sizeof(float));
    size_t rows[POSITIONS], n = doc.count;

    for (size_t i = 0; i < n; i++)
        rows[i] = i;
    assert_int_equal(ash_pass_infer_layers(oracle->pass, &batch, NULL, &err), 0);
    assert_int_equal(ash_pass_infer_states(oracle->pass, rows, n, states, &err), 0);
    memcpy(work->want.hidden, states + (work->request.pooling == ASH_POOLING_LAST ? n - 1 : 0) * HIDDEN,
           sizeof(work->want.hidden));
    for (size_t d = 0; d < HIDDEN && work->request.pooling == ASH_POOLING_MEAN; d++) {
        for (size_t i = 1; i < n; i++)
            work->want.hidden[d] += states[i * HIDDEN + d];
        work->want.hidden[d] /= (float)n;
    }
    free(states);
}

/* Log-probabilities of the whole text, where they are wanted. */
static inline void want_logprobs(struct oracle *oracle, struct work *work)
{
    const struct ash_request *request = &work->request;
    size_t prompt = request->prompt_count;
    float losses[POSITIONS] = {0};

    if (oracle->count > 1) eval(oracle, losses);
    for (size_t i = 0; i < work->want.count && request->wants_logprobs; i++) {
        work->want.logprobs[i] = -losses[prompt - 1 + i];
        want_tops(oracle, prompt - 1 + i, request->top_logprobs, work->want.tops[i]);
    }
    for (size_t i = ash_max(1, request->prompt_logprobs_from); i < prompt && request->wants_prompt_logprobs; i++) {
        work->want.prompt_told = i;
        work->want.prompt_logprobs[i] = -losses[i - 1];
        want_tops(oracle, i - 1, request->prompt_top_logprobs, work->want.prompt_tops[i]);
    }
}

static inline void find_want(struct oracle *oracle, struct work *work, struct ash_sampler *sampler)
{
    const struct ash_request *request = &work->request;
    size_t count = 0;

    memcpy(oracle->ids, request->prompt, request->prompt_count * sizeof(int32_t));
    oracle->count = request->prompt_count;
    work->want.stop_id = -1;
    work->want.finish = ASH_FINISH_MAX_TOKENS;
    run_all(oracle);
    while (count < request->max_tokens) {
        int32_t id = choose(oracle, request, sampler);

        for (size_t i = 0; i < request->stop_id_count; i++)
            if (request->stop_ids[i] == id) work->want.stop_id = id;
        if (work->want.stop_id >= 0) {
            work->want.finish = ASH_FINISH_EOS;
            break;
        }
        oracle->ids[oracle->count++] = work->want.answer[count++] = id;
        run_all(oracle);
        if (count == work->take_max) {
            work->want.finish = ASH_FINISH_STOP;
            break;
        }
    }
    work->want.count = count;
    if (request->pooling != ASH_POOLING_NONE) want_pooled(oracle, work);
    want_logprobs(oracle, work);
}

/* Nothing that the host must look at between two steps. */
static inline void want_tokens_alone(struct ash_request *request)
{
    struct ash_sampler_opts *sampler = &request->sampler;

    sampler->repetition_penalty = 1.0;
    sampler->presence_penalty = sampler->frequency_penalty = 0.0;
    request->grammar = NULL;
    request->wants_logprobs = request->wants_prompt_logprobs = false;
    request->top_logprobs = request->prompt_top_logprobs = 0;
    request->pooling = ASH_POOLING_NONE;
}

static inline struct work *make_work(struct ash_model *model, uint64_t seed, bool is_plain)
{
    struct work *works = calloc(REQUESTS, sizeof(*works));
    struct oracle *oracle = calloc(1, sizeof(*oracle));
    struct ash_pass_opts opts = {.max_rows = POSITIONS};
    struct ash_sampler *sampler = NULL;
    struct ash_err err = {0};

    seed_now = seed;
    counter = 0;
    oracle->model = model;
    assert_int_equal(ash_pass_open(model, &execs[1], &opts, &oracle->pass, &err), 0);
    assert_int_equal(ash_sampler_open(VOCAB, &sampler, &err), 0);
    for (size_t i = 0; i < REQUESTS; i++) {
        draw_prompt(&works[i]);
        if (i > 0 && draw(4) == 0) { /* several answers to one prompt */
            memcpy(works[i].prompt, works[i - 1].prompt, sizeof(works[i].prompt));
            works[i].request.prompt_count = works[i - 1].request.prompt_count;
        }
        draw_sampler(&works[i].request.sampler);
        draw_rest(&works[i]);
        if (is_plain && i % 16 != 0) want_tokens_alone(&works[i].request);
        find_want(oracle, &works[i], sampler);
    }
    ash_sampler_close(sampler);
    ash_pass_close(oracle->pass);
    free(oracle);
    return works;
}

#endif
