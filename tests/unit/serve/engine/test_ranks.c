/* One model over several processes: tokens and log-probabilities of drawn requests, run together on two to four ranks
 * with drawn settings of the loop, are those of one process with one request at a time, to the bit, for drawn shapes and
 * weight types, where ranks share the host's memory and where each has a device. A rank that is
 * killed or stopped ends all requests with its name. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "base/math.h"
#include "base/rng.h"
#include "base/socket.h"
#include "harness/ranks.h"
#include "model/files/lora_folder.h"
#include "model/files/open.h"
#include "model/files/save.h"
#include "model/pass/cache.h"
#include "serve/engine/core.h"
#include "serve/engine/ranks.h"
#include "serve/grammar/grammar.h"
#include "unit/sanitized.h"

#define LETTERS 40
#define POSITIONS 200
#define ANSWER_MAX 24
#define TOP_MAX 2
#define ADAPTERS 2
#define REQUESTS 14
#define ROUNDS 3 /* each with other settings of the loop */
#define MODELS (SANITIZED ? 3 : 9)
#define FAULT_TOKENS 150

static uint64_t seed_now, counter;

static size_t draw(size_t bound)
{
    return ash_rng_below(seed_now, 31, counter++, bound);
}

/* ---- models ------------------------------------------------------------------------------------------------------ */

/* A folder or GGUF file of a drawn model. */
struct subject {
    char dir[64], path[128];
    size_t vocab, size;           /* ids; ranks */
    char adapters[ADAPTERS][128]; /* PEFT folders over it */
    size_t adapter_count;
    bool bf16;           /* operands are rounded */
    const char *backend; /* NULL: the CPU's best; "apart": a device, whose memory the host cannot touch */
    struct ash_slice_parts parts;
    uint64_t seed;
    int port;
};

/* Stages of some ranks each; whole experts where a family has some. */
static struct ash_slice_parts draw_parts(size_t size)
{
    size_t stages = 1 + draw(size);

    while (size % stages > 0)
        stages--;
    return (struct ash_slice_parts){.tp = size / stages, .stages = stages};
}

/* A GGUF file has no experts. */
static void draw_config(char *text, size_t bytes, size_t kv_heads, bool is_gguf, size_t *vocab_out)
{
    static const char *const types[] = {"llama", "qwen3", "qwen2", "mixtral", "mixtral"};
    size_t heads = kv_heads * (1 + draw(2)), hidden = 64 * (1 + draw(2));

    *vocab_out = LETTERS + 1 + draw(100);
    snprintf(text, bytes,
             "{\"model_type\": \"%s\", \"vocab_size\": %zu, \"hidden_size\": %zu, \"intermediate_size\": %zu, "
             "\"num_hidden_layers\": 4, \"num_attention_heads\": %zu, \"num_key_value_heads\": %zu, \"head_dim\": 32, "
             "\"max_position_embeddings\": %d, \"initializer_range\": 0.4, \"num_local_experts\": 4, "
             "\"num_experts_per_tok\": 2, \"tie_word_embeddings\": %s}",
             types[draw(is_gguf ? 3 : 5)], *vocab_out, hidden, 32 * (2 + draw(6)), heads, kv_heads, POSITIONS,
             draw(2) == 0 ? "true" : "false");
}

/* Adapters of all its linear modules, with drawn values. */
static void write_adapter(struct subject *s, size_t index)
{
    static const char *const targets[] = {"all-linear"};
    struct ash_lora_opts opts = {
        .base_dir = s->path, .rank = 2 + 3 * index, .alpha = 8, .targets = targets, .target_count = 1};
    struct ash_model_config config;
    struct ash_model *model = NULL;
    struct ash_lora *lora = NULL;
    struct ash_err err = {0};
    float *values;

    snprintf(s->adapters[index], sizeof(s->adapters[index]), "%s/adapter-%zu", s->dir, index);
    if (ash_lora_open(&opts, &lora, &err) < 0 || ash_model_config_load(s->path, &config, &err) < 0)
        fail_msg("%s", err.text);
    config.lora = lora;
    if (ash_model_create(&config, s->seed, &model, &err) < 0) fail_msg("%s", err.text);
    values = ash_model_values(model);
    for (size_t i = 0; i < ash_model_param_count(model); i++)
        for (size_t k = 0; k < ash_model_param(model, i)->count; k++)
            values[ash_model_param(model, i)->offset + k] =
                0.4F * ((float)ash_rng_uniform(s->seed + index, i, k) - 0.5F);
    if (ash_model_save(model, s->adapters[index], ASH_F32, 0, NULL, &err) < 0) fail_msg("%s", err.text);
    ash_model_close(model);
    ash_lora_close(lora);
    s->adapter_count = index + 1;
}

static void write_model(struct subject *s, size_t index)
{
    static const enum ash_dtype dtypes[] = {ASH_F32, ASH_BF16, ASH_Q8_0, ASH_Q4_0, ASH_F16, ASH_BF16};
    enum ash_dtype dtype = dtypes[index % (sizeof(dtypes) / sizeof(dtypes[0]))];
    bool is_gguf = ash_dtype_block(dtype) > 1;
    struct ash_model_config config;
    struct ash_model *model = NULL;
    struct ash_err err = {0};
    json_t *json;
    char text[512];

    s->size = 2 + index % (SANITIZED ? 1 : 3);
    draw_config(text, sizeof(text), s->size + draw(5 - s->size), is_gguf, &s->vocab);
    json = json_loads(text, 0, NULL);
    assert_int_equal(ash_model_config_parse(json, &config, &err), 0);
    json_decref(json);
    assert_int_equal(ash_model_create(&config, s->seed, &model, &err), 0);
    s->parts = draw_parts(s->size);
    s->parts.whole_experts = config.expert.experts > 0 && s->parts.tp > 1 && draw(3) > 0;
    snprintf(s->dir, sizeof(s->dir), "/tmp/ashlar-ranks-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    snprintf(s->path, sizeof(s->path), "%s%s", s->dir, is_gguf ? "/model.gguf" : "");
    if ((is_gguf ? ash_model_save_gguf(model, NULL, s->path, dtype, NULL, NULL, &err)
                 : ash_model_save(model, s->path, dtype, 0, NULL, &err)) < 0)
        fail_msg("%s", err.text);
    ash_model_close(model);
    s->bf16 = dtype == ASH_BF16;
    for (size_t i = 0; i < ADAPTERS && !is_gguf; i++) /* of GGUF: e2e_serve_lora, as its rows have another order */
        write_adapter(s, i);
}

/* This rank's part of it; of one rank: all. */
static int open_part(const struct subject *s, size_t rank, size_t size, struct ash_model **model_out,
                     struct ash_err *err)
{
    struct ash_model_config config;
    struct ash_slice slice;
    int rc = ash_model_config_load(s->path, &config, err);

    if (rc == 0 && size > 1) rc = ash_slice_check_gathers(&config, &s->parts, err);
    if (rc < 0) return rc;
    slice = ash_slice_gathered(&config, &s->parts, size > 1 ? rank : 0);
    ash_model_config_fini(&config);
    rc = ash_model_open_slice(s->path, size > 1 ? &slice : NULL, model_out, err);
    if (rc == 0) ash_model_round_bf16(*model_out, s->bf16);
    return rc;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

struct answer {
    int32_t ids[ANSWER_MAX];
    float logprobs[ANSWER_MAX], prompt_logprobs[POSITIONS];
    struct ash_top_logprob tops[ANSWER_MAX][TOP_MAX];
    size_t count;
};

struct work {
    struct ash_request request;
    int32_t prompt[POSITIONS];
    struct answer want, got, *now;
    size_t adapter; /* its number, from 1; 0: none */
};

static struct ash_vocab_trie *trie;
static struct ash_grammar *grammar;
static const int32_t eos = LETTERS;

static int make_grammar(size_t vocab, struct ash_err *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789{}:\"";
    static const char schema[] = "[a-d]{2,5}(ef|g[h-k]+)*[0-9]?";
    struct ash_vocab_token tokens[LETTERS + 200] = {{0}};
    int rc;

    for (size_t i = 0; i < LETTERS; i++)
        tokens[i] = (struct ash_vocab_token){&letters[i], 1, false};
    tokens[LETTERS] = (struct ash_vocab_token){"$", 1, true};
    rc = ash_vocab_trie_from_tokens(tokens, vocab, &eos, 1, &trie, err);
    return rc < 0 ? rc : ash_grammar_from_regex(schema, strlen(schema), NULL, &grammar, err);
}

static int take(void *ctx, const struct ash_token *token)
{
    struct work *work = ctx;
    struct answer *answer = work->now;

    answer->ids[answer->count] = token->id;
    answer->logprobs[answer->count] = token->logprob;
    for (size_t i = 0; i < token->top_count; i++)
        answer->tops[answer->count][i] = token->top[i];
    answer->count++;
    return 0;
}

static void take_prompt(void *ctx, size_t index, const struct ash_token *token)
{
    struct work *work = ctx;

    work->now->prompt_logprobs[index] = token->logprob;
}

/* Prompts begin like one of two texts; a request may be that of the one before, with another seed (as n is). */
static void draw_work(struct work *work, const struct work *before, const struct subject *s)
{
    struct ash_request *request = &work->request;
    size_t text = draw(2), same = draw(160);

    memset(work, 0, sizeof(*work));
    request->prompt = work->prompt;
    request->prompt_count = 1 + draw(160);
    for (size_t i = 0; i < request->prompt_count; i++)
        work->prompt[i] = (int32_t)(i < same ? ash_rng_below(9, text, i, s->vocab) : draw(s->vocab));
    if (before != NULL && draw(4) == 0) {
        memcpy(work->prompt, before->prompt, sizeof(work->prompt));
        request->prompt_count = before->request.prompt_count;
    }
    request->sampler = ash_sampler_defaults();
    request->sampler.temperature = draw(2) == 0 ? 0.0 : 0.5 + 0.25 * (double)draw(4);
    request->sampler.top_p = draw(3) == 0 ? 0.8 : 1.0;
    request->sampler.repetition_penalty = draw(4) == 0 ? 1.2 : 1.0;
    request->sampler.seed = draw(100);
    request->max_tokens = 1 + draw(ANSWER_MAX);
    request->wants_logprobs = draw(2) == 0;
    request->top_logprobs = request->wants_logprobs ? draw(TOP_MAX + 1) : 0;
    request->wants_prompt_logprobs = draw(5) == 0;
    request->grammar = draw(4) == 0 ? grammar : NULL;
    work->adapter = draw(s->adapter_count + 1);
    request->salt = work->adapter;
    request->stop_ids = &eos;
    request->stop_id_count = 1;
    request->take = take;
    request->take_prompt = take_prompt;
    request->ctx = work;
}

static bool same_answer(const struct answer *a, const struct answer *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

/* ---- running them ------------------------------------------------------------------------------------------------ */

/* The adapters over model (the whole one: ranks NULL), for the requests. */
static int attach(const struct subject *s, struct ash_ranks *ranks, struct ash_model *model, struct ash_exec *exec,
                  struct ash_lora_set *sets, struct work *works, struct ash_err *err)
{
    int rc = 0;

    for (size_t i = 0; i < s->adapter_count && rc == 0; i++) {
        rc = ash_lora_attach(s->adapters[i], model, exec, ASH_CORE_MAX_BATCH_ROWS, &sets[i], err);
        if (rc == 0 && ranks != NULL) rc = ash_ranks_send_adapter(ranks, sets[i].adapters, s->adapters[i], err);
    }
    for (size_t i = 0; i < REQUESTS; i++)
        works[i].request.adapters = works[i].adapter > 0 ? sets[works[i].adapter - 1].adapters : NULL;
    return rc;
}

static void detach(const struct subject *s, struct ash_ranks *ranks, struct ash_lora_set *sets)
{
    for (size_t i = 0; i < s->adapter_count; i++) {
        ash_ranks_forget_adapter(ranks, sets[i].adapters);
        ash_lora_detach(&sets[i]);
    }
}

/* One process, one request at a time. */
static int find_wants(const struct subject *s, struct ash_model *whole, struct work *works, struct ash_exec *exec,
                      struct ash_err *err)
{
    struct ash_lora_set sets[ADAPTERS] = {{0}};
    struct ash_core_opts opts = {.has_no_prefix_cache = true, .vocab_trie = trie};
    struct ash_core *core = NULL;
    int rc = ash_core_open(whole, exec, &opts, &core, err);

    if (rc == 0) rc = attach(s, NULL, whole, exec, sets, works, err);
    for (size_t i = 0; i < REQUESTS && rc == 0; i++) {
        works[i].now = &works[i].want;
        rc = ash_core_finish(core, ash_core_submit(core, &works[i].request, err), err);
    }
    ash_core_close(core);
    detach(s, NULL, sets);
    return rc;
}

/* What happened, in memory that all processes share. */
static struct met {
    uint64_t pages, accepted; /* from tiers; drafts that held */
} * met;

static void count_what_happened(const struct ash_core *core)
{
    struct ash_core_stats stats = ash_core_get_stats(core);

    for (size_t tier = 0; tier < ASH_KV_TIERS; tier++)
        met->pages += stats.kv.tiers[tier].pages_read;
    met->accepted += stats.accepted;
}

/* Tiers of a drawn size below a pool of a few pages; those of the round before are read again. */
static void draw_tiers(const struct subject *s, size_t page_bytes, struct ash_kv_opts *kv, struct ash_core_opts *opts)
{
    opts->kv_bytes = (4 + draw(8)) * page_bytes;
    *kv = (struct ash_kv_opts){.host_bytes = draw(3) * (1 + draw(8)) * page_bytes,
                               .dir = draw(2) == 0 ? s->dir : NULL,
                               .dir_bytes = (2 + draw(30)) * (page_bytes + 4096),
                               .reads_always = true};
    opts->kv = draw(5) > 0 && (kv->host_bytes > 0 || kv->dir != NULL) ? kv : NULL;
}

/* All of them together on all ranks, some steps apart. */
static int run_round(const struct subject *s, struct ash_ranks *ranks, struct ash_model *model, struct ash_model *whole,
                     struct ash_exec *exec, struct work *works, struct ash_err *err)
{
    size_t most = 1 + draw(6);
    struct ash_kv_opts kv;
    struct ash_core_opts opts = {.max_seqs = most,
                                 .max_batch_rows = most + draw(60),
                                 .has_no_prefix_cache = draw(4) == 0,
                                 .speculate = draw(2) * 3,
                                 .draft = draw(3) == 0 ? whole : NULL,
                                 .pack = draw(2) == 0 ? ASH_CORE_PACK_AT_OPEN : ASH_CORE_PACK_LATER,
                                 .vocab_trie = trie,
                                 .ranks = ranks};
    struct ash_lora_set sets[ADAPTERS] = {{0}};
    struct ash_core *core = NULL;
    int rc;

    draw_tiers(s, ash_cache_token_bytes(whole) * ASH_CACHE_PAGE_TOKENS, &kv, &opts);
    rc = ash_core_open(model, exec, &opts, &core, err);
    if (rc == 0 && ash_core_kv(core) != NULL) ash_kv_arm(ash_core_kv(core), 5);
    if (rc == 0) rc = attach(s, ranks, model, exec, sets, works, err);
    for (size_t i = 0; i < REQUESTS && rc == 0; i++) {
        memset(&works[i].got, 0, sizeof(works[i].got));
        works[i].now = &works[i].got;
        rc = ash_core_submit(core, &works[i].request, err);
        for (size_t steps = draw(4); steps > 0 && rc == 0; steps--)
            (void)ash_core_step(core);
    }
    if (core != NULL) rc = ash_core_finish(core, rc, err);
    for (size_t i = 0; i < REQUESTS && rc == 0; i++)
        if (!same_answer(&works[i].want, &works[i].got))
            rc = ash_err_set(err, -EDOM, "request %zu has another answer: %zu tokens, not %zu", i, works[i].got.count,
                             works[i].want.count);
    if (core != NULL) count_what_happened(core);
    ash_core_close(core);
    detach(s, ranks, sets);
    return rc;
}

static int lead(const struct subject *s, struct ash_ranks *ranks, struct ash_model *model, struct ash_exec *exec,
                struct ash_err *err)
{
    struct work *works = calloc(REQUESTS, sizeof(*works));
    struct ash_model *whole = NULL;
    int rc = make_grammar(s->vocab, err);

    if (rc == 0) rc = open_part(s, 0, 1, &whole, err);
    if (rc < 0) return rc;
    seed_now = s->seed;
    for (size_t i = 0; i < REQUESTS; i++)
        draw_work(&works[i], i > 0 ? &works[i - 1] : NULL, s);
    rc = find_wants(s, whole, works, exec, err);
    for (size_t i = 0; i < ROUNDS && rc == 0; i++)
        rc = run_round(s, ranks, model, whole, exec, works, err);
    ash_model_close(whole);
    ash_grammar_put(grammar);
    ash_vocab_trie_close(trie);
    free(works);
    return rc;
}

/* The first rank leads, the others follow. */
static int run_rank(const struct subject *s, size_t rank,
                    int (*first)(const struct subject *, struct ash_ranks *, struct ash_model *, struct ash_exec *,
                                 struct ash_err *))
{
    struct ash_launch_env env = {
        .launcher = "test", .rank = rank, .size = s->size, .host = "127.0.0.1", .port = s->port, .job = 7};
    struct ash_ranks *ranks = NULL;
    struct ash_model *model = NULL;
    struct ash_exec exec = {0};
    struct ash_err err = {0};
    bool is_own;
    int rc = ash_exec_init(&exec, s->backend, 1, &err);

    if (rc == 0) rc = ash_ranks_open(&env, &s->parts, 1, &ranks, &err);
    if (rc == 0) ash_ranks_compute_with(ranks, &exec);
    if (rc == 0) rc = open_part(s, rank, s->size, &model, &err);
    if (rc == 0) rc = ash_model_prefetch(model, &exec, &err);
    if (rc == 0)
        rc = rank == 0 ? first(s, ranks, model, &exec, &err) : ash_ranks_follow(ranks, &model, &exec, &is_own, &err);
    ash_ranks_close(ranks);
    ash_model_close(model);
    ash_exec_fini(&exec);
    if (rc < 0) fprintf(stderr, "rank %zu of %zu, %s: %s\n", rank, s->size, s->path, err.text);
    return rc < 0;
}

static int answer_rank(void *ctx, size_t rank)
{
    return run_rank(ctx, rank, lead);
}

static void answers_are_those_of_one_process(void **state)
{
    (void)state;
    met = mmap(NULL, sizeof(*met), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(met != MAP_FAILED);
    for (size_t i = 0; i < MODELS; i++) {
        struct subject s = {.seed = 40 + i, .backend = i == 1 || i == 3 || i == 8 ? "apart" : NULL};
        int reserved;

        seed_now = s.seed;
        write_model(&s, i);
        reserved = ash_socket_reserve(&s.port, NULL);
        assert_int_equal(ranks_run(s.size, answer_rank, &s, NULL), 0);
        close(reserved);
        assert_int_equal(ash_dir_remove(s.dir, NULL), 0);
    }
    print_message("%llu pages from tiers, %llu drafts held\n", (unsigned long long)met->pages,
                  (unsigned long long)met->accepted);
    assert_true(met->pages > 0 && met->accepted > 0);
    munmap(met, sizeof(*met));
}

/* ---- faults ------------------------------------------------------------------------------------------------------ */

static int fault_signal;

/* Rank 1 gets a signal while it computes: the request fails, and the sentence names the rank. */
static int lead_to_fault(const struct subject *s, struct ash_ranks *ranks, struct ash_model *model,
                         struct ash_exec *exec, struct ash_err *err)
{
    struct ash_core_opts opts = {.ranks = ranks};
    struct work *work = calloc(1, sizeof(*work));
    struct ash_request *request = &work->request;
    struct ash_core *core = NULL;
    int rc = ash_core_open(model, exec, &opts, &core, err);

    (void)s;
    request->prompt = work->prompt;
    request->prompt_count = 3;
    request->max_tokens = FAULT_TOKENS;
    request->sampler = ash_sampler_defaults();
    if (rc == 0) rc = ash_core_submit(core, request, err);
    if (rc < 0) return rc;
    assert_int_equal(ash_core_step(core), 1);
    kill(ash_ranks_pid(ranks, 1), fault_signal);
    if (fault_signal == SIGSTOP) /* what the server's other thread does */
        while (ash_ranks_watch(ranks, err) == 0)
            usleep(50000);
    rc = ash_core_finish(core, 0, err);
    if (rc == 0 || request->end.finish != ASH_FINISH_FAILED || strstr(request->end.err.text, "rank 1") == NULL)
        rc = ash_err_set(err, -EDOM, "the request has not failed as it should: %s", request->end.err.text);
    else
        rc = 0;
    kill(ash_ranks_pid(ranks, 1), SIGKILL);
    ash_core_close(core);
    free(work);
    return rc;
}

static int fault_rank(void *ctx, size_t rank)
{
    int bad = run_rank(ctx, rank, lead_to_fault);

    return rank == 0 ? bad : 0; /* the others end with the group's error */
}

static void a_lost_rank_is_named(void **state)
{
    static const int signals[] = {SIGKILL, SIGSTOP};
    struct subject s = {.seed = 3, .backend = "apart"};

    (void)state;
    seed_now = s.seed;
    write_model(&s, 1);
    s.size = 3;
    s.parts = (struct ash_slice_parts){.tp = 3, .stages = 1};
    for (size_t i = 0; i < 2; i++) {
        int reserved = ash_socket_reserve(&s.port, NULL), kills = 0;

        fault_signal = signals[i];
        assert_int_equal(ranks_run(s.size, fault_rank, &s, &kills), 0);
        assert_int_equal(kills, 1);
        close(reserved);
    }
    assert_int_equal(ash_dir_remove(s.dir, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers_are_those_of_one_process),
                                       cmocka_unit_test(a_lost_rank_is_named)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
