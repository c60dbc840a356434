/* The engine loop: whatever shares the passes, however the work is cut, and whatever is cached, preempted, drafted or
 * cancelled, tokens are those of one request at a time and log-probabilities are the evaluation's, to the bit. The
 * oracle knows nothing of the loop: it runs a pass token by token, counts from scratch and asks the sampler. */
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
#include "model/files/open.h"
#include "model/pass/cache.h"
#include "model/pass/pass.h"
#include "serve/engine/core.h"
#include "serve/grammar/grammar.h"
#include "unit/sanitized.h"

#define VOCAB 24
#define HIDDEN 32
#define POSITIONS 400
#define REQUESTS (SANITIZED ? 16 : 40)
#define ANSWER_MAX 48
#define TOP_MAX 3
#define CASES (SANITIZED ? 15 : 60)

/* ---- a model ----------------------------------------------------------------------------------------------------- */

static struct ash_exec execs[3]; /* of 1, 2 and 3 threads */
static struct ash_exec device;   /* whose memory is not the host's */
/* The ids as letters; the last one ends a text. */
static struct ash_vocab_trie *trie;
static struct ash_grammar *grammars[2];

static struct ash_model *make_model(bool bf16, bool kv_bf16)
{
    static const char text[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 24, \"hidden_size\": 32, \"intermediate_size\": 48,"
        " \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2,"
        " \"max_position_embeddings\": 400, \"initializer_range\": 0.6}";
    struct ash_model_config config;
    struct ash_model *model = NULL;
    struct ash_err err = {0};
    json_t *json = NULL;

    assert_int_equal(ash_json_parse(text, strlen(text), "model", &json, &err), 0);
    assert_int_equal(ash_model_config_parse(json, &config, &err), 0);
    json_decref(json);
    assert_int_equal(ash_model_create(&config, 5, &model, &err), 0);
    ash_model_round_bf16(model, bf16);
    if (kv_bf16) ash_model_use_kv_dtype(model, ASH_BF16);
    return model;
}

/* ---- requests and what they should give -------------------------------------------------------------------------- */

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

static size_t draw(size_t bound)
{
    return ash_rng_below(seed_now, 77, counter++, bound);
}

/* Prompts begin like one of three texts, so that many have a beginning in common, some to the end. */
static void draw_prompt(struct work *work)
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

static void draw_sampler(struct ash_sampler_opts *sampler)
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

static void draw_rest(struct work *work)
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

/* ---- the oracle -------------------------------------------------------------------------------------------------- */

struct oracle {
    struct ash_model *model;
    struct ash_pass *pass;
    int32_t ids[POSITIONS];
    size_t count;
    float logits[POSITIONS * VOCAB];
};

/* Logits of all rows, in one pass without a cache. */
static void run_all(struct oracle *oracle)
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

static int32_t choose(struct oracle *oracle, const struct ash_request *request, struct ash_sampler *sampler)
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
static void eval(struct oracle *oracle, float *losses)
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
static void want_tops(struct oracle *oracle, size_t row, size_t count, struct ash_top_logprob *tops)
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

static void want_pooled(struct oracle *oracle, struct work *work)
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
static void want_logprobs(struct oracle *oracle, struct work *work)
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

static void find_want(struct oracle *oracle, struct work *work, struct ash_sampler *sampler)
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
static void want_tokens_alone(struct ash_request *request)
{
    struct ash_sampler_opts *sampler = &request->sampler;

    sampler->repetition_penalty = 1.0;
    sampler->presence_penalty = sampler->frequency_penalty = 0.0;
    request->grammar = NULL;
    request->wants_logprobs = request->wants_prompt_logprobs = false;
    request->top_logprobs = request->prompt_top_logprobs = 0;
    request->pooling = ASH_POOLING_NONE;
}

static struct work *make_work(struct ash_model *model, uint64_t seed, bool is_plain)
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

/* ---- the core ---------------------------------------------------------------------------------------------------- */

static int take(void *ctx, const struct ash_token *token)
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

static void take_prompt(void *ctx, size_t index, const struct ash_token *token)
{
    struct work *work = ctx;

    assert_int_equal(index, ash_max(work->got.prompt_told + 1, work->request.prompt_logprobs_from));
    assert_int_equal(token->id, work->prompt[index]);
    work->got.prompt_told = index;
    work->got.prompt_logprobs[index] = token->logprob;
    memcpy(work->got.prompt_tops[index], token->top, token->top_count * sizeof(*token->top));
}

static void take_end(void *ctx, const struct ash_request_end *end)
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

struct shape {
    struct ash_core_opts opts;
    size_t threads, pages, cancels;
};

static struct shape draw_shape(const struct ash_model *model)
{
    struct shape shape = {.threads = 1 + draw(3), .cancels = draw(3) == 0 ? draw(REQUESTS) : 0};
    size_t least = ash_cache_pages_for(POSITIONS);

    shape.opts.vocab_trie = trie;
    shape.opts.max_seqs = 1 + draw(draw(2) == 0 ? 4 : 16);
    shape.opts.max_batch_rows = shape.opts.max_seqs + draw(draw(2) == 0 ? 8 : 100);
    shape.pages = draw(2) == 0 ? least + draw(4) : least + draw(60);
    shape.opts.kv_bytes = shape.pages * ASH_CACHE_PAGE_TOKENS * ash_cache_token_bytes(model);
    shape.opts.has_no_prefix_cache = draw(3) == 0;
    shape.opts.speculate = draw(2) == 0 ? draw(7) : 0;
    shape.opts.step_seconds = draw(2) == 0 ? 1e-9 : 0.0;
    return shape;
}

static void check_work(const struct work *work, size_t index, const struct shape *shape, uint64_t seed)
{
    const struct ash_request *request = &work->request;
    size_t count = work->got.count;
    bool is_same = memcmp(work->got.answer, work->want.answer, count * sizeof(int32_t)) == 0;

    if (request->wants_logprobs) {
        is_same &= memcmp(work->got.logprobs, work->want.logprobs, count * sizeof(float)) == 0;
        for (size_t i = 0; i < count; i++)
            is_same &= memcmp(work->got.tops[i], work->want.tops[i], request->top_logprobs * 8) == 0;
    }
    for (size_t i = 1; i <= work->got.prompt_told; i++)
        is_same &= memcmp(&work->got.prompt_logprobs[i], &work->want.prompt_logprobs[i], sizeof(float)) == 0 &&
                   memcmp(work->got.prompt_tops[i], work->want.prompt_tops[i], request->prompt_top_logprobs * 8) == 0;
    if (work->got.finish != ASH_FINISH_CANCELLED) {
        is_same &= work->got.finish == work->want.finish && count == work->want.count &&
                   work->got.stop_id == work->want.stop_id && work->got.prompt_told == work->want.prompt_told;
        if (request->pooling != ASH_POOLING_NONE)
            is_same &= memcmp(work->got.hidden, work->want.hidden, sizeof(work->got.hidden)) == 0;
    } else {
        is_same &= count <= work->want.count;
    }
    if (!is_same)
        fail_msg("seed %llu, request %zu: finish %d, %zu tokens instead of %d, %zu (rc %d %s; sequences %zu, rows %zu, "
                 "pages %zu, prefix cache %d, drafts %zu, threads %zu)",
                 (unsigned long long)seed, index, work->got.finish, count, work->want.finish, work->want.count,
                 work->end.rc, work->end.err.text, shape->opts.max_seqs, shape->opts.max_batch_rows, shape->pages,
                 !shape->opts.has_no_prefix_cache, shape->opts.speculate, shape->threads);
}

static void submit(struct ash_core *core, struct work *work)
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

/* exec NULL: one of the CPU's. */
static struct ash_core_stats run_case(struct ash_model *model, struct ash_exec *exec, struct work *works, uint64_t seed)
{
    struct ash_core *core = NULL;
    struct ash_core_stats stats;
    struct ash_err err = {0};
    struct shape shape;
    size_t next = 0;
    int more;

    seed_now = seed;
    counter = 0;
    shape = draw_shape(model);
    if (exec == NULL) exec = &execs[shape.threads - 1];
    if (ash_core_open(model, exec, &shape.opts, &core, &err) < 0) fail_msg("%s", err.text);
    do { /* they arrive a few at a time, or all at once */
        size_t arrive = draw(3) == 0 ? draw(REQUESTS) : draw(3);

        for (; arrive > 0 && next < REQUESTS; arrive--)
            submit(core, &works[next++]);
        more = ash_core_step(core);
        if (!ash_core_is_consistent(core)) fail_msg("seed %llu: pages are lost", (unsigned long long)seed);
        if (next > 0 && shape.cancels > 0 && draw(4) == 0) {
            struct work *work = &works[draw(next)];

            if (!work->is_done) ash_core_cancel(core, &work->request);
            assert_true(work->is_done);
            shape.cancels--;
        }
    } while (more > 0 || next < REQUESTS);
    stats = ash_core_get_stats(core);
    assert_int_equal(stats.running + stats.waiting + stats.pages_held, 0);
    for (size_t i = 0; i < REQUESTS; i++) {
        assert_true(works[i].is_done);
        check_work(&works[i], i, &shape, seed);
    }
    ash_core_close(core);
    return stats;
}

static size_t case_count(void)
{
    const char *asked = getenv("ASHLAR_TEST_CASES"); /* for long runs */

    return asked != NULL ? strtoul(asked, NULL, 10) : CASES;
}

/* The drawn cases must have met what they are there for. */
static void answers_are_those_of_one_at_a_time(void **state)
{
    static const bool precisions[][2] = {{false, false}, {true, true}, {false, true}};
    struct ash_core_stats all = {0};

    (void)state;
    for (size_t p = 0; p < 3; p++) {
        struct ash_model *model = make_model(precisions[p][0], precisions[p][1]);
        struct work *works = make_work(model, 100 + p, false);

        for (uint64_t i = 0; i < case_count() / 3 + 1; i++) {
            struct ash_core_stats stats = run_case(model, NULL, works, 1000 * (p + 1) + i);

            all.preemptions += stats.preemptions;
            all.prefix_hits += stats.prefix_hits;
            all.accepted += stats.accepted;
            all.drafted += stats.drafted;
        }
        free(works);
        ash_model_close(model);
    }
    print_message("%llu preemptions, %llu tokens from the prefix cache, %llu of %llu drafts accepted\n",
                  (unsigned long long)all.preemptions, (unsigned long long)all.prefix_hits,
                  (unsigned long long)all.accepted, (unsigned long long)all.drafted);
    assert_true(all.preemptions > 0 && all.prefix_hits > 500 && all.accepted > 20 && all.drafted > all.accepted);
}

static void a_device_that_runs_ahead_gives_the_same(void **state)
{
    struct ash_model *model, *there;
    struct work *works;
    uint64_t ahead = 0, steps = 0;

    (void)state;
    if (SANITIZED_THREADS) skip();
    model = make_model(false, false);
    there = make_model(false, false);
    works = make_work(model, 200, true);
    /* half of them draft, and never run ahead: as many as it takes */
    for (uint64_t i = 0; i < case_count() / 10 || (ahead <= 20 && i < CASES); i++) {
        struct ash_core_stats stats = run_case(there, &device, works, 5000 + i);

        ahead += stats.ahead;
        steps += stats.steps;
    }
    print_message("%llu of %llu steps ran ahead\n", (unsigned long long)ahead, (unsigned long long)steps);
    assert_true(ahead > 20);
    free(works);
    ash_model_close(model);
    ash_model_close(there);
}

/* ---- one thing at a time ----------------------------------------------------------------------------------------- */

static void a_common_prefix_is_computed_once(void **state)
{
    enum { TOGETHER = 8, PREFIX = 200 };
    struct ash_model *model = make_model(false, false);
    struct work *works = calloc(TOGETHER, sizeof(*works));
    struct ash_core_opts opts = {.max_seqs = TOGETHER, .max_batch_rows = 64};
    struct ash_core_stats stats;
    struct ash_core *core = NULL;
    struct ash_err err = {0};

    (void)state;
    seed_now = 3;
    for (size_t i = 0; i < TOGETHER; i++) {
        works[i].request = (struct ash_request){.prompt = works[i].prompt,
                                                .prompt_count = PREFIX + 1 + i,
                                                .sampler = ash_sampler_defaults(),
                                                .max_tokens = 4};
        works[i].take_max = SIZE_MAX;
        for (size_t t = 0; t < PREFIX + 1 + i; t++)
            works[i].prompt[t] = t < PREFIX ? (int32_t)(t % 7) : (int32_t)(8 + i);
    }
    assert_int_equal(ash_core_open(model, &execs[1], &opts, &core, &err), 0);
    for (size_t i = 0; i < TOGETHER; i++) {
        submit(core, &works[i]);
    }
    for (size_t i = 0; i < TOGETHER; i++) {
        ash_core_cancel(core, &works[i].request); /* what was drawn for them is of no use here */
        works[i].request.priority = 0;
        works[i].request.salt = works[i].request.owner = 0;
        works[i].request.skips_cache = works[i].is_done = false;
        assert_int_equal(ash_core_submit(core, &works[i].request, &err), 0);
    }
    while (ash_core_step(core) > 0)
        continue;
    stats = ash_core_get_stats(core);
    assert_int_equal(stats.rows - stats.answer_tokens + TOGETHER, PREFIX + TOGETHER * (TOGETHER + 1) / 2);
    ash_core_close(core);
    free(works);
    ash_model_close(model);
}

static void what_cannot_be_served_is_refused(void **state)
{
    struct ash_model *model = make_model(false, false);
    struct ash_core_opts opts = {.max_seqs = 2, .max_tokens = 100};
    struct work *work = calloc(1, sizeof(*work));
    struct ash_core *core = NULL;
    struct ash_err err = {0};

    (void)state;
    opts.max_batch_rows = 1;
    assert_int_equal(ash_core_open(model, &execs[0], &opts, &core, &err), -EINVAL);
    opts.max_batch_rows = 16;
    opts.kv_bytes = 10;
    assert_int_equal(ash_core_open(model, &execs[0], &opts, &core, &err), -EINVAL);
    opts.kv_bytes = 0;
    assert_int_equal(ash_core_open(model, &execs[0], &opts, &core, &err), 0);
    work->request = (struct ash_request){.prompt = work->prompt,
                                         .prompt_count = 100,
                                         .sampler = ash_sampler_defaults(),
                                         .max_tokens = 1,
                                         .done = take_end};
    assert_int_equal(ash_core_submit(core, &work->request, &err), -EOVERFLOW);
    assert_non_null(strstr(err.text, "100 tokens"));
    work->request.prompt_count = 0;
    assert_int_equal(ash_core_submit(core, &work->request, &err), -EINVAL);
    work->request.prompt_count = 3;
    work->prompt[1] = VOCAB;
    assert_int_equal(ash_core_submit(core, &work->request, &err), -EINVAL);
    work->prompt[1] = 0;
    work->request.sampler.top_p = 2.0;
    assert_int_equal(ash_core_submit(core, &work->request, &err), -EINVAL);
    work->request.sampler.top_p = 1.0;
    work->request.top_logprobs = ASH_CORE_TOP_LOGPROBS_MAX + 1;
    assert_int_equal(ash_core_submit(core, &work->request, &err), -EINVAL);
    assert_int_equal(ash_core_step(core), 0);
    ash_core_close(core);
    ash_core_close(NULL);
    free(work);
    ash_model_close(model);
}

/* One broken row ends its own request, and no other. */
static void broken_logits(void *ctx, const int32_t *ids, size_t count, float *logits_out)
{
    (void)ctx;
    for (size_t v = 0; v < VOCAB; v++)
        logits_out[v] = (float)((count * 7 + v * 3) % 11);
    if (ids[0] == 5 && count == 12) logits_out[3] = NAN;
}

static void a_broken_row_ends_its_own_request(void **state)
{
    struct ash_null_model null = {.vocab = VOCAB, .max_positions = POSITIONS, .logits = broken_logits};
    struct ash_core_opts opts = {.max_seqs = 4, .max_batch_rows = 32};
    struct work *works = calloc(4, sizeof(*works));
    struct ash_core *core = NULL;
    struct ash_err err = {0};

    (void)state;
    seed_now = 4;
    assert_int_equal(ash_core_open_null(&null, &execs[1], &opts, &core, &err), 0);
    for (size_t i = 0; i < 4; i++) {
        works[i].request = (struct ash_request){
            .prompt = works[i].prompt, .prompt_count = 8, .sampler = ash_sampler_defaults(), .max_tokens = 20};
        works[i].prompt[0] = i == 2 ? 5 : 1;
        works[i].take_max = SIZE_MAX;
        submit(core, &works[i]);
    }
    while (ash_core_step(core) > 0)
        continue;
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(works[i].got.count, i == 2 ? 4 : 20);
        assert_int_equal(works[i].got.finish, i == 2 ? ASH_FINISH_FAILED : ASH_FINISH_MAX_TOKENS);
        assert_int_equal(works[i].end.rc, i == 2 ? -EDOM : 0);
    }
    ash_core_close(core);
    free(works);
}

static int make_grammars(struct ash_err *err)
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

static int setup(void **state)
{
    struct ash_err err = {0};

    (void)state;
    for (int i = 0; i < 3; i++)
        if (ash_exec_init(&execs[i], NULL, i + 1, &err) < 0) return -1;
    if (ash_exec_init(&device, "apart", 1, &err) < 0) return -1;
    return make_grammars(&err);
}

static int teardown(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_those_of_one_at_a_time), cmocka_unit_test(a_device_that_runs_ahead_gives_the_same),
        cmocka_unit_test(a_common_prefix_is_computed_once),   cmocka_unit_test(what_cannot_be_served_is_refused),
        cmocka_unit_test(a_broken_row_ends_its_own_request),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
