/* GGUF files against llama.cpp: the tokens it chooses greedily from three small files of random weights
 * (tests/golden/gguf) are the tokens chosen here, on every backend. A fourth is a file as its quantiser makes them, of
 * several types: there its tokens are as likely here. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/json.h"
#include "model/files/open.h"
#include "model/model.h"
#include "model/pass/cache.h"
#include "model/pass/pass.h"

#define GOLDEN TEST_DATA "/golden/gguf"
#define TOKENS_MAX 128

static size_t read_ids(const json_t *json, const char *key, int32_t *ids)
{
    const json_t *list = json_object_get(json, key);
    size_t count = json_array_size(list);

    assert_true(count > 0 && count <= TOKENS_MAX);
    for (size_t i = 0; i < count; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return count;
}

static int32_t best(const float *logits, size_t count)
{
    size_t top = 0;

    for (size_t i = 1; i < count; i++)
        if (logits[i] > logits[top]) top = i;
    return (int32_t)top;
}

/* The probability of a token, and by how much the largest logit exceeds its. */
static double probability(const float *logits, size_t count, int32_t token, double *behind_out)
{
    double top = (double)logits[best(logits, count)], sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += exp((double)logits[i] - top);
    *behind_out = top - (double)logits[token];
    return exp((double)logits[token] - top) / sum;
}

/* llama.cpp's arithmetic rounds x elsewhere: logits differ by hundredths, so almost equally likely tokens may change
 * places. */
#define BEHIND_MAX 0.25
#define RATIO_MAX 0.25 /* of probabilities: the logarithm of one token's, and the mean */
#define RATIO_MEAN_MAX 0.08

/* Walks along a file's golden tokens and looks at the logits of each. */
struct walk {
    const char *backend, *name;
    int32_t want[TOKENS_MAX];
    const json_t *probabilities; /* llama.cpp's, of its tokens; NULL: each must be the best one */
    double off;                  /* sum of the logarithms of ratios */
};

static void check_step(struct walk *walk, size_t step, const float *logits, size_t vocab)
{
    int32_t got = best(logits, vocab), want = walk->want[step];
    double behind, ratio;

    if (walk->probabilities == NULL) {
        if (got != want)
            fail_msg("%s on %s: token %zu is %d, llama.cpp's is %d", walk->name, walk->backend, step, got, want);
        return;
    }
    ratio = fabs(
        log(probability(logits, vocab, want, &behind) / json_real_value(json_array_get(walk->probabilities, step))));
    walk->off += ratio;
    if (behind > BEHIND_MAX || ratio > RATIO_MAX)
        fail_msg("%s on %s: token %zu, %d, is %g behind, and its probability off by %g", walk->name, walk->backend,
                 step, want, behind, ratio);
}

/* The prompt at once, then token by token. */
static void check_model(struct ash_model *model, const char *backend, const json_t *golden, const char *name)
{
    struct walk walk = {.backend = backend, .name = name};
    struct ash_pass_opts opts = {.max_rows = TOKENS_MAX};
    size_t vocab = ash_model_get_config(model)->vocab, done = 0;
    int32_t ids[2 * TOKENS_MAX];
    size_t count = read_ids(golden, "prompt", ids), wanted_count = read_ids(golden, name, walk.want);
    float *logits = malloc(vocab * sizeof(*logits));
    struct ash_pass *pass = NULL;
    struct ash_cache *cache = NULL;
    struct ash_block_table table = {0};
    struct ash_exec exec;
    struct ash_err err = {0};
    char key[128];

    assert_non_null(logits);
    snprintf(key, sizeof(key), "%s probabilities", name);
    walk.probabilities = json_object_get(golden, key);
    if (ash_exec_init(&exec, backend, 2, &err) < 0) fail_msg("%s", err.text);
    ash_model_use_kv_dtype(model, ASH_F32); /* bf16, the default with quantised weights, may choose another near tie */
    if (ash_pass_open(model, &exec, &opts, &pass, &err) < 0) fail_msg("%s", err.text);
    if (ash_cache_open(model, ash_cache_pages_for(TOKENS_MAX), &cache, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(ash_block_table_init(&table, TOKENS_MAX), 0);
    assert_int_equal(ash_block_table_grow(&table, cache, TOKENS_MAX), 0);
    for (size_t i = 0; i < wanted_count; i++) {
        size_t last = count - done - 1;
        struct ash_doc doc = {.count = count - done, .pos = done, .pages = table.pages, .page_count = table.count};
        struct ash_batch batch = {.rows = count - done, .ids = ids + done, .docs = &doc, .doc_count = 1};

        if (ash_pass_infer(pass, &batch, cache, &last, 1, logits, &err) < 0) fail_msg("%s", err.text);
        done = count;
        check_step(&walk, i, logits, vocab);
        ids[count++] = walk.want[i];
    }
    assert_true(walk.off < RATIO_MEAN_MAX * (double)wanted_count);
    ash_block_table_fini(&table);
    ash_cache_close(cache);
    ash_pass_close(pass);
    ash_exec_fini(&exec);
    free(logits);
}

static void test_greedy(void **state)
{
    static const char *const files[] = {"llama-f16.gguf", "llama-q8_0.gguf", "llama-q4_0.gguf", "llama-q4_k_m.gguf"};
    struct ash_err err = {0};
    json_t *golden = NULL;

    (void)state;
    if (ash_json_load(GOLDEN "/tokens.json", &golden, &err) < 0) fail_msg("%s", err.text);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct ash_model *model = NULL;
        char path[512];

        snprintf(path, sizeof(path), "%s/%s", GOLDEN, files[i]);
        if (ash_model_open(path, &model, &err) < 0) fail_msg("%s", err.text);
        for (const char *const *name = ash_exec_backends(); *name != NULL; name++)
            check_model(model, *name, golden, files[i]);
        ash_model_close(model);
    }
    json_decref(golden);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_greedy)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
