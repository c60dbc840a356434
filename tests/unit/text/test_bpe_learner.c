/* Learning merges: against a plain version that counts every pair before each merge, on drawn words, with
 * tokens that are reserved; and the files that come out. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <cmocka.h>

#include "base/json.h"
#include "base/rng.h"
#include "text/learn/bpe_learner.h"
#include "text/learn/tokenizer_form.h"
#include "text/tokenizer/tokenizer.h"
#include "unit/long_form.h"

#define WORDS_MAX 300
#define LENGTH_MAX 24
#define TOKENS_MAX 600
#define TOKEN_BYTES 512

static struct ash_err err;

/* ---- the plain version ------------------------------------------------------------------------------------------- */

struct plain_token {
    char bytes[TOKEN_BYTES];
    size_t size_bytes;
};

struct plain {
    uint32_t words[WORDS_MAX][LENGTH_MAX];
    size_t lengths[WORDS_MAX], count;
    uint64_t counts[WORDS_MAX];
    struct plain_token tokens[TOKENS_MAX];
    size_t token_count;
    uint64_t pairs[TOKENS_MAX][TOKENS_MAX];
};

static uint32_t plain_find(const struct plain *plain, const struct plain_token *token)
{
    for (size_t i = 0; i < plain->token_count; i++)
        if (plain->tokens[i].size_bytes == token->size_bytes &&
            memcmp(plain->tokens[i].bytes, token->bytes, token->size_bytes) == 0)
            return (uint32_t)i;
    return UINT32_MAX;
}

static struct plain_token plain_join(const struct plain *plain, size_t left, size_t right)
{
    struct plain_token joined = plain->tokens[left];

    assert_true(joined.size_bytes + plain->tokens[right].size_bytes <= TOKEN_BYTES);
    memcpy(joined.bytes + joined.size_bytes, plain->tokens[right].bytes, plain->tokens[right].size_bytes);
    joined.size_bytes += plain->tokens[right].size_bytes;
    return joined;
}

/* The most frequent pair that is not reserved, the first of equal ones. Returns its count. */
static uint64_t plain_best(struct plain *plain, const struct ash_words *reserved, uint32_t best[2])
{
    uint64_t most = 0;

    memset(plain->pairs, 0, sizeof(plain->pairs));
    for (size_t w = 0; w < plain->count; w++)
        for (size_t i = 0; i + 1 < plain->lengths[w]; i++)
            plain->pairs[plain->words[w][i]][plain->words[w][i + 1]] += plain->counts[w];
    for (uint32_t left = 0; left < plain->token_count; left++)
        for (uint32_t right = 0; right < plain->token_count; right++) {
            struct plain_token joined;

            if (plain->pairs[left][right] <= most) continue;
            joined = plain_join(plain, left, right);
            if (ash_words_find(reserved, joined.bytes, joined.size_bytes) >= 0) continue;
            most = plain->pairs[left][right];
            best[0] = left;
            best[1] = right;
        }
    return most;
}

static void plain_merge(struct plain *plain, const uint32_t best[2], uint32_t result)
{
    for (size_t w = 0; w < plain->count; w++) {
        size_t out = 0;

        for (size_t i = 0; i < plain->lengths[w]; out++) {
            bool merges =
                i + 1 < plain->lengths[w] && plain->words[w][i] == best[0] && plain->words[w][i + 1] == best[1];

            plain->words[w][out] = merges ? result : plain->words[w][i];
            i += merges ? 2 : 1;
        }
        plain->lengths[w] = out;
    }
}

/* The next merge. False: there is none. */
static bool plain_step(struct plain *plain, const struct ash_bpe_learner_opts *opts, struct ash_bpe_merge *merge_out)
{
    uint32_t best[2] = {0};
    struct plain_token joined;

    if (plain->token_count >= opts->tokens_max || plain_best(plain, opts->reserved, best) < opts->min_frequency)
        return false;
    joined = plain_join(plain, best[0], best[1]);
    *merge_out = (struct ash_bpe_merge){best[0], best[1], plain_find(plain, &joined)};
    if (merge_out->result == UINT32_MAX) {
        merge_out->result = (uint32_t)plain->token_count;
        plain->tokens[plain->token_count++] = joined;
    }
    plain_merge(plain, best, merge_out->result);
    return true;
}

/* ---- drawn words ------------------------------------------------------------------------------------------------- */

struct drawing {
    uint64_t seed, draws;
};

static uint32_t draw(struct drawing *drawing, uint32_t below)
{
    return (uint32_t)ash_rng_below(drawing->seed, 0, drawing->draws++, below);
}

/* Few letters make long runs and ties. */
static void draw_words(struct drawing *drawing, struct ash_words *words)
{
    static const char letters[] = "ab \xc3\n\xff";
    uint32_t count = 1 + draw(drawing, WORDS_MAX - 1), kinds = 1 + draw(drawing, 6), longest = 1 + draw(drawing, 23);

    for (uint32_t w = 0; w < count; w++) {
        char bytes[LENGTH_MAX];
        uint32_t length = 1 + draw(drawing, longest);

        for (uint32_t i = 0; i < length; i++)
            bytes[i] = letters[draw(drawing, kinds)];
        assert_true(ash_words_add(words, bytes, length, 1 + draw(drawing, 3)) >= 0);
    }
}

/* The same words for the plain version, with the ids of the learner's bytes. */
static void plain_init(struct plain *plain, const struct ash_words *words, const struct ash_words *tokens)
{
    memset(plain, 0, sizeof(*plain));
    for (; plain->token_count < ASH_BPE_BYTES; plain->token_count++) {
        plain->tokens[plain->token_count].bytes[0] = *ash_words_bytes(tokens, plain->token_count);
        plain->tokens[plain->token_count].size_bytes = 1;
    }
    for (; plain->count < words->count; plain->count++) {
        const char *bytes = ash_words_bytes(words, plain->count);

        plain->lengths[plain->count] = words->items[plain->count].size_bytes;
        plain->counts[plain->count] = words->items[plain->count].count;
        for (size_t i = 0; i < plain->lengths[plain->count]; i++) {
            int64_t id = ash_words_find(tokens, bytes + i, 1);

            assert_true(id >= 0);
            plain->words[plain->count][i] = (uint32_t)id;
        }
    }
}

static struct ash_bpe_learner *open_learner(const struct ash_words *words, const struct ash_bpe_learner_opts *opts)
{
    struct ash_bpe_learner *learner = NULL;

    assert_int_equal(ash_bpe_learner_open(words, opts, &learner, &err), 0);
    return learner;
}

static void learn_all(struct ash_bpe_learner *learner, size_t step)
{
    while (ash_bpe_learner_step(learner, step, &err) == 1)
        ;
}

static uint64_t plain_tokens(const struct plain *plain)
{
    uint64_t sum = 0;

    for (size_t w = 0; w < plain->count; w++)
        sum += plain->lengths[w] * plain->counts[w];
    return sum;
}

static void compare(struct plain *plain, uint64_t seed)
{
    struct drawing drawing = {.seed = seed};
    struct ash_words words = {0}, reserved = {0};
    struct ash_bpe_learner_opts opts = {.reserved = &reserved};
    struct ash_bpe_learner *learner;
    const struct ash_bpe_merge *merges;
    struct ash_bpe_merge wanted;
    size_t count;

    opts.tokens_max = ASH_BPE_BYTES + draw(&drawing, 200);
    opts.min_frequency = 1 + draw(&drawing, 4);
    draw_words(&drawing, &words);
    if (draw(&drawing, 2) == 0) assert_true(ash_words_add(&reserved, "aa", 2, 1) >= 0);
    if (draw(&drawing, 2) == 0) assert_true(ash_words_add(&reserved, "aba", 3, 1) >= 0);
    learner = open_learner(&words, &opts);
    plain_init(plain, &words, ash_bpe_learner_tokens(learner));
    learn_all(learner, 1 + draw(&drawing, 20));
    merges = ash_bpe_learner_merges(learner, &count);
    for (size_t i = 0; i < count; i++) {
        bool more = plain_step(plain, &opts, &wanted);

        if (!more || memcmp(&merges[i], &wanted, sizeof(wanted)) != 0)
            fail_msg("seed %llu, merge %zu of %zu: %u %u is not the plain version's", (unsigned long long)seed, i,
                     count, merges[i].left, merges[i].right);
    }
    assert_false(plain_step(plain, &opts, &wanted));
    assert_int_equal(ash_bpe_learner_tokens(learner)->count, plain->token_count);
    assert_int_equal(ash_bpe_learner_text_tokens(learner), plain_tokens(plain));
    ash_bpe_learner_close(learner);
    ash_words_fini(&words);
    ash_words_fini(&reserved);
}

static void test_merges_are_those_of_a_recount(void **state)
{
    struct plain *plain = malloc(sizeof(*plain));

    (void)state;
    assert_non_null(plain);
    for (uint64_t seed = 0; seed < few_or_many(20, 200); seed++)
        compare(plain, seed);
    free(plain);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static void learn_text(const struct ash_tokenizer_form *form, const char *const *texts, size_t count,
                       struct ash_str *json_text)
{
    struct ash_words words = {0}, reserved = {0};
    struct ash_bpe_learner *learner;
    json_t *json;

    assert_int_equal(ash_tokenizer_form_check(form, &reserved, &err), 0);
    for (size_t i = 0; i < count; i++)
        assert_true(ash_words_add(&words, texts[i], strlen(texts[i]), 2) >= 0);
    learner = open_learner(
        &words, &(struct ash_bpe_learner_opts){.tokens_max = 1000, .min_frequency = 1, .reserved = &reserved});
    learn_all(learner, 100);
    json = ash_tokenizer_form_json(form, learner);
    assert_non_null(json);
    assert_int_equal(ash_json_add_text(json, json_text), 0);
    json_decref(json);
    ash_bpe_learner_close(learner);
    ash_words_fini(&words);
    ash_words_fini(&reserved);
}

static void test_files_read_back_in_every_pattern(void **state)
{
    static const char *const texts[] = {"hello", " hello", " world", "end", "\n"};
    static const char *const special[] = {"<|end|>", "end"};
    struct ash_str text = {0}, decoded = {0};
    struct ash_tokenizer *tokenizer = NULL;
    struct ash_ids ids = {0};

    (void)state;
    for (int pattern = 0; ash_learned_patterns[pattern] != NULL; pattern++) {
        struct ash_tokenizer_form form = {(enum ash_learned_pattern)pattern, special, 2};
        const char *input = "hello world\n<|end|> \xf0\x9f\x99\x82 \xc3\xa9";

        ash_str_clear(&text);
        ash_str_clear(&decoded);
        ids.count = 0;
        learn_text(&form, texts, 5, &text);
        assert_int_equal(ash_tokenizer_parse(text.data, text.size_bytes, "learned", &tokenizer, &err), 0);
        assert_int_equal(ash_tokenizer_id(tokenizer, "<|end|>"), 0);
        assert_int_equal(ash_tokenizer_id(tokenizer, "end"), 1); /* the special token alone: "end" was not learned */
        assert_true(ash_tokenizer_is_special(tokenizer, 1));
        assert_true(ash_tokenizer_id(tokenizer, "hello") > ASH_BPE_BYTES);
        assert_int_equal(ash_tokenizer_encode(tokenizer, input, strlen(input), false, &ids, &err), 0);
        assert_int_equal(ids.data[0], ash_tokenizer_id(tokenizer, "hello"));
        assert_int_equal(ids.data[3], 0);
        assert_int_equal(ash_tokenizer_decode(tokenizer, ids.data, ids.count, false, &decoded, &err), 0);
        assert_string_equal(decoded.data, input);
        ash_tokenizer_close(tokenizer);
    }
    ash_ids_fini(&ids);
    ash_str_fini(&text);
    ash_str_fini(&decoded);
}

static void test_special_tokens_that_cannot_be_are_refused(void **state)
{
    static const char *const lists[][2] = {{"a", "b"}, {"<x>", "<x>"}, {"", "<x>"}, {"<\xff>", "<x>"}};
    struct ash_words reserved = {0};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct ash_tokenizer_form form = {ASH_LEARNED_GPT2, lists[i], 2};

        err = (struct ash_err){0};
        assert_int_equal(ash_tokenizer_form_check(&form, &reserved, &err), -EINVAL);
        assert_true(strlen(err.text) > 20);
    }
    ash_words_fini(&reserved);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merges_are_those_of_a_recount),
        cmocka_unit_test(test_files_read_back_in_every_pattern),
        cmocka_unit_test(test_special_tokens_that_cannot_be_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
