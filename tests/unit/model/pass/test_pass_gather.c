/* Inference over ranks that gather, as threads: logits are those of one rank, to the bit, for families and weight
 * types, packed or not, in memory that all share or sent from rank to rank, experts cut or whole, however prompts are
 * cut and many documents share a batch; and a rank has its part of the weights and of the cache alone. */
#include <errno.h>
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
#include "model/model.h"
#include "model/pass/cache.h"
#include "model/pass/pass.h"
#include "unit/model/axis_threads.h"
#include "unit/model/golden_models.h"

#define DOCS 3
#define DOC_TOKENS 60
#define STEPS 12
#define ROWS (DOCS * DOC_TOKENS)
#define SIZE_MOST (SANITIZED ? 2 : 4)

/* What all ranks compute: drawn pieces of each document, step by step. */
struct subject {
    char path[GOLDEN_PATH_BYTES];
    bool bf16, packs, apart; /* apart: the ranks share no memory */
    bool whole_experts;
    size_t vocab;
    int32_t ids[DOCS][DOC_TOKENS];
    size_t counts[STEPS][DOCS]; /* rows of each document in a step */
};

struct member {
    const struct subject *subject;
    struct thread_rank place;
    size_t size;
    float *logits; /* [ROWS, vocab] of the first rank: rows in the order in which they were computed */
    size_t weight_count, token_bytes;
    struct ash_err err;
};

static uint64_t counter;

static void draw(struct subject *s, uint64_t seed)
{
    size_t done[DOCS] = {0};

    for (size_t d = 0; d < DOCS; d++)
        for (size_t i = 0; i < DOC_TOKENS; i++)
            s->ids[d][i] = (int32_t)ash_rng_below(seed, d, i, s->vocab);
    for (size_t t = 0; t < STEPS; t++)
        for (size_t d = 0; d < DOCS; d++) {
            size_t most = DOC_TOKENS - done[d], kind = ash_rng_below(seed, 50, counter++, 3);
            size_t count = kind == 0 ? 0 : kind == 1 ? 1 : 1 + ash_rng_below(seed, 51, counter++, 40);

            s->counts[t][d] = ash_min(count, most);
            done[d] += s->counts[t][d];
        }
}

static int open_part(struct member *m, struct ash_model **model_out)
{
    struct ash_model_config config;
    struct ash_slice slice;
    int rc = ash_model_config_load(m->subject->path, &config, &m->err);

    if (rc < 0) return rc;
    slice = ash_slice_gathered(
        &config, &(struct ash_slice_parts){.tp = m->size, .stages = 1, .whole_experts = m->subject->whole_experts},
        m->place.rank);
    slice.gathers = m->size > 1;
    ash_model_config_fini(&config);
    return ash_model_open_slice(m->subject->path, slice.gathers ? &slice : NULL, model_out, &m->err);
}

/* One step: its rows of all documents, and their logits. */
static int run_step(struct member *m, struct ash_pass *pass, struct ash_cache *cache,
                    const struct ash_block_table *tables, size_t *done, size_t step, float *logits)
{
    const struct subject *s = m->subject;
    struct ash_doc docs[DOCS];
    size_t wanted[ROWS], wanted_count = 0;
    int32_t ids[ROWS];
    struct ash_batch batch = {.ids = ids, .docs = docs};

    for (size_t d = 0; d < DOCS; d++) {
        size_t count = s->counts[step][d];

        if (count == 0) continue;
        docs[batch.doc_count++] = (struct ash_doc){
            .row = batch.rows, .count = count, .pos = done[d], .pages = tables[d].pages, .page_count = tables[d].count};
        memcpy(ids + batch.rows, s->ids[d] + done[d], count * sizeof(*ids));
        for (size_t i = 0; i < count; i++)
            wanted[wanted_count++] = batch.rows + i;
        batch.rows += count;
        done[d] += count;
    }
    if (batch.rows == 0) return 0;
    return ash_pass_infer(pass, &batch, cache, wanted, wanted_count, m->place.rank == 0 ? logits : NULL, &m->err);
}

static int compute(struct member *m, struct ash_model *model, struct ash_exec *exec)
{
    struct ash_pass_opts opts = {.max_rows = ROWS};
    struct ash_block_table tables[DOCS] = {0};
    struct ash_pass *pass = NULL;
    struct ash_cache *cache = NULL;
    size_t done[DOCS] = {0}, row = 0;
    int rc;

    if (m->size > 1) opts.outs = thread_group_axis(&m->place);
    rc = ash_pass_open(model, exec, &opts, &pass, &m->err);
    if (rc == 0) rc = ash_cache_open(model, DOCS * ash_cache_pages_for(DOC_TOKENS), &cache, &m->err);
    for (size_t d = 0; d < DOCS && rc == 0; d++) {
        rc = ash_block_table_init(&tables[d], DOC_TOKENS);
        if (rc == 0) rc = ash_block_table_grow(&tables[d], cache, DOC_TOKENS);
    }
    for (size_t t = 0; t < STEPS && rc == 0; t++) {
        if (t == STEPS / 2 && m->subject->packs) rc = ash_model_pack(model, exec, &m->err);
        if (rc == 0)
            rc = run_step(m, pass, cache, tables, done, t,
                          m->logits != NULL ? m->logits + row * m->subject->vocab : NULL);
        for (size_t d = 0; d < DOCS; d++)
            row += m->subject->counts[t][d];
    }
    for (size_t d = 0; d < DOCS; d++)
        ash_block_table_fini(&tables[d]);
    ash_cache_close(cache);
    ash_pass_close(pass);
    return rc;
}

static int rank_main(void *ctx, size_t rank)
{
    struct member *m = (struct member *)ctx + rank;
    struct ash_model *model = NULL;
    struct ash_exec exec = {0};
    int rc = ash_exec_init(&exec, NULL, 1, &m->err);

    if (rc == 0) rc = open_part(m, &model);
    if (rc == 0) {
        ash_model_round_bf16(model, m->subject->bf16);
        m->weight_count = ash_model_weight_count(model);
        m->token_bytes = ash_cache_token_bytes(model);
        rc = compute(m, model, &exec);
    }
    ash_model_close(model);
    ash_exec_fini(&exec);
    return rc;
}

static void run_group(const struct subject *s, size_t size, struct member members[SIZE_MOST])
{
    struct thread_group group;

    thread_group_open(&group, size);
    group.same_node = !s->apart;
    for (size_t r = 0; r < size; r++)
        members[r] = (struct member){.subject = s, .place = {.group = &group, .rank = r}, .size = size};
    members[0].logits = calloc(ROWS * s->vocab, sizeof(float));
    assert_non_null(members[0].logits);
    if (ranks_run_threads(size, rank_main, members) != 0)
        for (size_t r = 0; r < size; r++)
            if (members[r].err.code != 0) fail_msg("%s: rank %zu of %zu: %s", s->path, r, size, members[r].err.text);
    thread_group_close(&group);
}

/* Every number of ranks that the model has key-value heads for. Returns how many were compared. */
static size_t check_subject(struct subject *s, uint64_t seed)
{
    struct member whole[SIZE_MOST], parts[SIZE_MOST];
    struct ash_model_config config;
    struct ash_err err = {0};
    size_t compared = 0;

    if (ash_model_config_load(s->path, &config, &err) < 0) fail_msg("%s", err.text);
    s->vocab = config.vocab;
    draw(s, seed);
    run_group(s, 1, whole);
    for (size_t size = 2; size <= SIZE_MOST; size++) {
        size_t bytes = 0;

        if (ash_slice_check_gathers(&config, &(struct ash_slice_parts){.tp = size, .stages = 1}, &err) < 0) break;
        s->apart = ash_rng_below(seed, 51, counter++, 2) == 1;
        s->whole_experts = config.expert.experts >= size && ash_rng_below(seed, 52, counter++, 2) == 1;
        run_group(s, size, parts);
        s->whole_experts = false;
        if (memcmp(parts[0].logits, whole[0].logits, ROWS * s->vocab * sizeof(float)) != 0)
            fail_msg("%s: %zu ranks, bf16 %d, packed %d, apart %d: other logits", s->path, size, s->bf16, s->packs,
                     s->apart);
        for (size_t r = 0; r < size; r++) {
            bytes += parts[r].token_bytes;
            assert_true(parts[r].weight_count < whole[0].weight_count);
        }
        assert_int_equal(bytes, whole[0].token_bytes); /* each head of the cache is on one rank */
        free(parts[0].logits);
        compared++;
    }
    free(whole[0].logits);
    ash_model_config_fini(&config);
    return compared;
}

static void test_same_logits(void **state)
{
    static const char *const names[] = {"llama-gqa",
                                        "llama-bias-tied",
                                        "llama3-rope",
                                        "llama-linear-rope-bf16",
                                        "mistral-window",
                                        "qwen2-window",
                                        "gpt2-default",
                                        "families/gemma2",
                                        "qwen3-tied-sharded",
                                        "families/gemma3",
                                        "families/cohere2",
                                        "families/glm4",
                                        "families/granite",
                                        "families/phi3",
                                        "families/starcoder2",
                                        "families/gpt_neox",
                                        "families/llama4",
                                        "families/phimoe",
                                        "families/olmo2",
                                        "families/olmo3",
                                        "families/olmoe",
                                        "families/minimax_m2",
                                        "mixtral-window",
                                        "qwen3_moe-mixed",
                                        "qwen3_moe-step",
                                        "deepseek_v3-groups",
                                        "deepseek_v3-plain-q-yarn",
                                        "families/gpt_oss",
                                        "families/hunyuan_moe",
                                        "families/granitemoe",
                                        "families/glm4_moe",
                                        "families/ernie4_5_moe",
                                        "families/deepseek_v2",
                                        "gguf/llama-f16.gguf",
                                        "gguf/llama-q8_0.gguf",
                                        "gguf/llama-q4_0.gguf",
                                        "gguf/llama-q4_k_m.gguf"};
    size_t compared = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i += SANITIZED ? 4 : 1)
        for (size_t how = 0; how < 3; how++) {
            struct subject s = {.bf16 = how > 0, .packs = how != 1};

            golden_path(names[i], s.path);
            compared += check_subject(&s, 100 * i + how);
        }
    assert_true(compared > (SANITIZED ? 3 : 30));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_logits)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
