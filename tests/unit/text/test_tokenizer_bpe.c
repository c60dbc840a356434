/* Byte-pair merging: against a naive implementation on random vocabularies and texts, short words and long ones, bytes
 * and characters, unknown characters and byte fallback, and from many threads at once. */
#include "text/tokenizer/tokenizer.h"

#include <stdarg.h>
#include <setjmp.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/rng.h"
#include "base/utf8.h"
#include "unit/text/tokenizer_sample.h"

#define TOKENS_MAX 160
#define WORD_MAX 400

/* A random vocabulary: a few characters, and merges of tokens that exist by then. */
struct toy {
    char tokens[TOKENS_MAX][64];
    int count;
    int left[TOKENS_MAX], right[TOKENS_MAX]; /* token i >= merge_first is left + right, in rank order */
    int merge_first;
    uint64_t seed, draws;
};

static uint32_t draw(struct toy *toy, uint32_t below)
{
    return (uint32_t)ash_rng_below(toy->seed, 0, toy->draws++, below);
}

static const char *const alphabet[] = {"a", "b", "c", "é", "中", "▁"};

static bool toy_has(const struct toy *toy, const char *token)
{
    for (int i = 0; i < toy->count; i++)
        if (strcmp(toy->tokens[i], token) == 0) return true;
    return false;
}

static void toy_init(struct toy *toy, uint64_t seed, int characters)
{
    *toy = (struct toy){.seed = seed};
    for (; toy->count < characters; toy->count++)
        snprintf(toy->tokens[toy->count], sizeof(toy->tokens[0]), "%s", alphabet[toy->count]);
    toy->merge_first = toy->count;
    for (int tries = 0; tries < 400 && toy->count < 40; tries++) {
        int left = (int)draw(toy, (uint32_t)toy->count), right = (int)draw(toy, (uint32_t)toy->count);
        char joined[128];
        snprintf(joined, sizeof(joined), "%s%s", toy->tokens[left], toy->tokens[right]);
        if (strlen(joined) > 30 || toy_has(toy, joined)) continue;
        snprintf(toy->tokens[toy->count], sizeof(toy->tokens[0]), "%s", joined);
        toy->left[toy->count] = left;
        toy->right[toy->count] = right;
        toy->count++;
    }
}

static struct ash_tokenizer *toy_open(const struct toy *toy, const char *options, const char *unknown)
{
    struct ash_str vocab = {0}, merges = {0};
    struct sample_parts parts = {.options = options};
    struct ash_tokenizer *tokenizer;

    assert_int_equal(ash_str_adds(&vocab, "{"), 0);
    assert_int_equal(ash_str_adds(&merges, "["), 0);
    for (int i = 0; i < toy->count; i++) {
        assert_int_equal(ash_str_addf(&vocab, "%s\"%s\": %d", i > 0 ? "," : "", toy->tokens[i], i), 0);
        if (i < toy->merge_first) continue;
        /* both ways of writing a merge, never mixed in real files, may be */
        assert_int_equal(ash_str_addf(&merges, i % 2 ? "%s[\"%s\", \"%s\"]" : "%s\"%s %s\"",
                                      i > toy->merge_first ? "," : "", toy->tokens[toy->left[i]],
                                      toy->tokens[toy->right[i]]),
                         0);
    }
    if (unknown != NULL) assert_int_equal(ash_str_addf(&vocab, ", \"%s\": %d", unknown, toy->count), 0);
    assert_int_equal(ash_str_adds(&vocab, "}"), 0);
    assert_int_equal(ash_str_adds(&merges, "]"), 0);
    parts.vocab = vocab.data;
    parts.merges = merges.data;
    tokenizer = sample_open(&parts);
    ash_str_fini(&vocab);
    ash_str_fini(&merges);
    return tokenizer;
}

/* Merge the leftmost pair of the lowest rank until there is none. */
static size_t naive_merge(const struct toy *toy, int32_t *ids, size_t count)
{
    for (;;) {
        size_t best = SIZE_MAX;
        int best_token = toy->count;
        for (size_t i = 0; i + 1 < count; i++) {
            for (int t = toy->merge_first; t < best_token; t++) {
                if (toy->left[t] != ids[i] || toy->right[t] != ids[i + 1]) continue;
                best_token = t;
                best = i;
            }
        }
        if (best == SIZE_MAX) return count;
        ids[best] = best_token;
        memmove(ids + best + 1, ids + best + 2, (count - best - 2) * sizeof(*ids));
        count--;
    }
}

/* A word of the toy's characters (and with strangers, of one that it lacks): text, and its ids before merging. */
static size_t toy_word(struct toy *toy, bool strangers, char text[WORD_MAX * 4], int32_t *ids, int32_t unknown)
{
    size_t length = 1 + draw(toy, draw(toy, 4) == 0 ? WORD_MAX - 1 : 20), count = 0, size = 0;

    for (size_t i = 0; i < length; i++) {
        int pick = (int)draw(toy, (uint32_t)toy->merge_first + (strangers ? 2 : 0));
        bool known = pick < toy->merge_first;
        size += (size_t)snprintf(text + size, WORD_MAX * 4 - size, "%s", known ? toy->tokens[pick] : "Z");
        if (known)
            ids[count++] = pick;
        else if (count == 0 || ids[count - 1] != unknown) /* fused */
            ids[count++] = unknown;
    }
    return count;
}

static void check_toy(uint64_t seed, bool strangers)
{
    struct toy toy;
    struct ash_tokenizer *tokenizer;
    static char text[WORD_MAX * 4];
    static int32_t ids[WORD_MAX];

    toy_init(&toy, seed, 6);
    tokenizer = toy_open(&toy, strangers ? "\"unk_token\": \"?\", \"fuse_unk\": true," : NULL, strangers ? "?" : NULL);
    for (int word = 0; word < 60; word++) {
        size_t count = naive_merge(&toy, ids, toy_word(&toy, strangers, text, ids, toy.count));
        struct ash_ids got = {0};
        struct ash_err err = {0};
        assert_int_equal(ash_tokenizer_encode(tokenizer, text, strlen(text), false, &got, &err), 0);
        assert_int_equal(got.count, count);
        assert_memory_equal(got.data, ids, count * sizeof(*ids));
        ash_ids_fini(&got);
    }
    ash_tokenizer_close(tokenizer);
}

static void test_against_naive(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        check_toy(seed, false);
        check_toy(seed, true);
    }
}

/* Byte-level: the same merges over bytes, where one character is several symbols. */
static void test_bytes_against_naive(void **state)
{
    static const char pre[] = "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}";
    struct sample_parts parts = {.pre = pre,
                                 .vocab = "{\"ä\": 0, \"¸\": 1, \"Ń\": 2, \"a\": 3, \"Ġ\": 4, \"ä¸\": 5, \"ä¸Ń\": 6, "
                                          "\"Ġa\": 7, \"ä¸Ńä¸Ń\": 8, \"aa\": 9}",
                                 .merges = "[\"ä ¸\", \"ä¸ Ń\", \"Ġ a\", \"a a\", \"ä¸Ń ä¸Ń\"]"};
    struct ash_tokenizer *tokenizer = sample_open(&parts);

    (void)state;
    sample_check(tokenizer, "中中中 aaa a", false, "ä¸Ńä¸Ń|ä¸Ń|Ġa|aa|Ġa");
    sample_check(tokenizer, "b中b", false, "ä¸Ń"); /* a byte that the vocabulary lacks and no unk_token: dropped */
    ash_tokenizer_close(tokenizer);
}

static void test_unknown(void **state)
{
    static const char vocab[] = "{\"a\": 0, \"?\": 1, \"<0x5A>\": 2, \"b\": 3}"; /* 5A is Z */
    struct sample_parts parts = {.vocab = vocab};
    struct ash_tokenizer *tokenizer = sample_open(&parts);

    (void)state;
    sample_check(tokenizer, "aZYb", false, "a|b");
    ash_tokenizer_close(tokenizer);
    parts.options = "\"unk_token\": \"?\",";
    tokenizer = sample_open(&parts);
    sample_check(tokenizer, "aXYb", false, "a|?|?|b");
    ash_tokenizer_close(tokenizer);
    parts.options = "\"unk_token\": \"?\", \"fuse_unk\": true,";
    tokenizer = sample_open(&parts);
    sample_check(tokenizer, "aXYbX", false, "a|?|b|?");
    ash_tokenizer_close(tokenizer);
    parts.options = "\"unk_token\": \"?\", \"fuse_unk\": true, \"byte_fallback\": true,";
    tokenizer = sample_open(&parts);
    sample_check(tokenizer, "aZb", false, "a|<0x5A>|b");
    sample_check(tokenizer, "aXZYb", false,
                 "a|<0x5A>|?|b"); /* the library lets an unknown one wait, so Z overtakes X */
    ash_tokenizer_close(tokenizer);
}

/* The same long text of characters that no merge joins is cut into words, unknown runs stay whole. */
static void test_long_unknown_run(void **state)
{
    struct sample_parts parts = {.vocab = "{\"a\": 0, \"?\": 1}",
                                 .options = "\"unk_token\": \"?\", \"fuse_unk\": true,"};
    struct ash_tokenizer *tokenizer = sample_open(&parts);

    (void)state;
    sample_check(tokenizer, "aXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXaXYa", false, "a|?|a|?|a");
    ash_tokenizer_close(tokenizer);
}

static void test_ignore_merges(void **state)
{
    static const char vocab[] = "{\"a\": 0, \"b\": 1, \"c\": 2, \"ab\": 3, \"abc\": 4, \"bc\": 5}";
    struct sample_parts parts = {.vocab = vocab, .merges = "[[\"b\", \"c\"]]", .options = "\"ignore_merges\": true,"};
    struct ash_tokenizer *tokenizer = sample_open(&parts);

    (void)state;
    sample_check(tokenizer, "abc", false, "abc");
    sample_check(tokenizer, "abcb", false, "a|bc|b");
    ash_tokenizer_close(tokenizer);
    parts.options = "";
    tokenizer = sample_open(&parts);
    sample_check(tokenizer, "abc", false, "a|bc");
    ash_tokenizer_close(tokenizer);
}

/* A pair that is listed twice has its last rank. */
/* InternLM2's vocabulary has NUL as a token in addition to the byte. */
static void test_nul_is_a_token(void **state)
{
    struct sample_parts parts = {.vocab = "{\"a\": 0, \"\\u0000\": 1, \"<0x00>\": 2}",
                                 .options = "\"byte_fallback\": true, ",
                                 .decoder = "{\"type\": \"Fuse\"}"};
    struct ash_tokenizer *tokenizer = sample_open(&parts);
    struct ash_ids ids = {0};
    struct ash_str text = {0};
    struct ash_err err = {0};
    (void)state;

    assert_int_equal(ash_tokenizer_encode(tokenizer, "a\0a", 3, false, &ids, &err), 0);
    assert_int_equal(ids.count, 3);
    assert_int_equal(ids.data[1], 1);
    assert_int_equal(ash_tokenizer_decode(tokenizer, ids.data, 3, false, &text, &err), 0);
    assert_int_equal(text.size_bytes, 3);
    assert_memory_equal(text.data, "a\0a", 3);
    ash_ids_fini(&ids);
    ash_str_fini(&text);
    ash_tokenizer_close(tokenizer);
}

static void test_listed_twice(void **state)
{
    struct sample_parts parts = {.vocab = "{\"a\": 0, \"b\": 1, \"ab\": 2, \"bb\": 3}",
                                 .merges = "[\"#version: 0.2\", \"a b\", \"b b\", \"a b\"]"};
    struct ash_tokenizer *tokenizer = sample_open(&parts);

    (void)state;
    sample_check(tokenizer, "abb", false, "a|bb");
    ash_tokenizer_close(tokenizer);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

struct job {
    const struct ash_tokenizer *tokenizer;
    const char *text;
    const struct ash_ids *expected;
    bool same;
};

static void *encode_often(void *ctx)
{
    struct job *job = ctx;

    job->same = true;
    for (int i = 0; i < 50; i++) {
        struct ash_ids ids = {0};
        struct ash_str text = {0};
        struct ash_err err = {0};
        int rc = ash_tokenizer_encode(job->tokenizer, job->text, strlen(job->text), true, &ids, &err);
        if (rc == 0) rc = ash_tokenizer_decode(job->tokenizer, ids.data, ids.count, false, &text, &err);
        job->same = job->same && rc == 0 && ids.count == job->expected->count &&
                    memcmp(ids.data, job->expected->data, ids.count * sizeof(*ids.data)) == 0 &&
                    strcmp(text.data, job->text) == 0;
        ash_ids_fini(&ids);
        ash_str_fini(&text);
    }
    return NULL;
}

static void test_threads(void **state)
{
    static const char text[] = "Four threads share one tokenizer; each must get what one alone gets. 1234 été 東京\n";
    struct ash_tokenizer *tokenizer = NULL;
    struct ash_ids expected = {0};
    struct ash_err err = {0};
    struct job jobs[4];
    pthread_t threads[4];

    (void)state;
    if (ash_tokenizer_open(TEST_DATA "/golden/tokenizers/gpt2-bytelevel", &tokenizer, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(ash_tokenizer_encode(tokenizer, text, strlen(text), true, &expected, &err), 0);
    for (int i = 0; i < 4; i++) {
        jobs[i] = (struct job){tokenizer, text, &expected, false};
        assert_int_equal(pthread_create(&threads[i], NULL, encode_often, &jobs[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_true(jobs[i].same);
    }
    ash_ids_fini(&expected);
    ash_tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_naive), cmocka_unit_test(test_bytes_against_naive),
        cmocka_unit_test(test_unknown),       cmocka_unit_test(test_long_unknown_run),
        cmocka_unit_test(test_ignore_merges), cmocka_unit_test(test_nul_is_a_token),
        cmocka_unit_test(test_listed_twice),  cmocka_unit_test(test_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
