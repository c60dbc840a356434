/* Unigram vocabularies: drawn words are cut with the largest sum of scores that trying every cut finds; vocabularies and
 * character rules that make no sense are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "base/str.h"
#include "text/tokenizer/tokenizer.h"

#define PIECES 24
#define UNKNOWN_PENALTY 10.0

/* A drawn vocabulary over a, b and c; token 0 is unknown. No token spells a z. */
struct vocab {
    char pieces[PIECES + 1][5];
    double scores[PIECES + 1], worst;
    size_t count;
};

static bool has_piece(const struct vocab *vocab, const char *piece)
{
    for (size_t i = 0; i < vocab->count; i++)
        if (strcmp(vocab->pieces[i], piece) == 0) return true;
    return false;
}

static struct ash_tokenizer *draw_vocab(uint64_t seed, struct vocab *vocab)
{
    struct ash_tokenizer *tokenizer = NULL;
    struct ash_str text = {0};
    struct ash_err err = {0};

    *vocab = (struct vocab){.pieces = {"<u>"}, .count = 1};
    ash_str_adds(&text, "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<u>\",0.0]");
    for (uint64_t n = 0; n < PIECES; n++) {
        double score = -0.5 * (double)ash_rng_below(seed, 1, n, 20); /* ties happen */
        size_t length = 1 + ash_rng_below(seed, 2, n, 4);
        char piece[5] = {0};

        for (size_t i = 0; i < length; i++)
            piece[i] = (char)('a' + ash_rng_below(seed, 3, n * 4 + i, 3));
        if (has_piece(vocab, piece)) continue;
        strcpy(vocab->pieces[vocab->count], piece);
        vocab->scores[vocab->count++] = score;
        vocab->worst = score < vocab->worst ? score : vocab->worst;
        ash_str_addf(&text, ",[\"%s\",%.1f]", piece, score);
    }
    ash_str_adds(&text, "]}}");
    if (ash_tokenizer_parse(text.data, text.size_bytes, "drawn", &tokenizer, &err) < 0) fail_msg("%s", err.text);
    ash_str_fini(&text);
    return tokenizer;
}

/* The best sum over every way to cut word. */
static double best_sum(const struct vocab *vocab, const char *word)
{
    char one[2] = {*word};
    double best = -1e300;

    if (*word == '\0') return 0;
    for (size_t i = 1; i < vocab->count; i++) {
        size_t length = strlen(vocab->pieces[i]);
        double sum;

        if (strncmp(word, vocab->pieces[i], length) != 0) continue;
        sum = vocab->scores[i] + best_sum(vocab, word + length);
        best = sum > best ? sum : best;
    }
    if (!has_piece(vocab, one)) {
        double sum = vocab->worst - UNKNOWN_PENALTY + best_sum(vocab, word + 1);
        best = sum > best ? sum : best;
    }
    return best;
}

static void test_best_cuts(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct vocab vocab;
        struct ash_tokenizer *tokenizer = draw_vocab(seed, &vocab);
        size_t length = 1 + ash_rng_below(seed, 4, 0, 10), spelled = 0;
        struct ash_ids ids = {0};
        struct ash_err err = {0};
        char word[12] = {0};
        double sum = 0;

        for (size_t i = 0; i < length; i++)
            word[i] = "abcz"[ash_rng_below(seed, 5, i, i % 3 == 0 ? 4 : 3)];
        assert_int_equal(ash_tokenizer_encode(tokenizer, word, length, false, &ids, &err), 0);
        for (size_t i = 0; i < ids.count; i++) {
            assert_true(i == 0 || ids.data[i] != 0 || ids.data[i - 1] != 0); /* neighbours are unknown together */
            if (ids.data[i] == 0) continue;
            sum += vocab.scores[ids.data[i]];
            spelled += strlen(vocab.pieces[ids.data[i]]);
        }
        sum += (double)(length - spelled) * (vocab.worst - UNKNOWN_PENALTY);
        if (sum != best_sum(&vocab, word))
            fail_msg("seed %d: '%s' has %g, the best is %g", (int)seed, word, sum, best_sum(&vocab, word));
        ash_ids_fini(&ids);
        ash_tokenizer_close(tokenizer);
    }
}

static void check_refused(const char *json, const char *hint)
{
    struct ash_tokenizer *tokenizer = NULL;
    struct ash_err err = {0};

    assert_true(ash_tokenizer_parse(json, strlen(json), "sample", &tokenizer, &err) < 0);
    if (strstr(err.text, hint) == NULL) fail_msg("'%s' does not say '%s'", err.text, hint);
}

#define MODEL "\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1.0]]}}"

static void test_refusals(void **state)
{
    struct ash_tokenizer *tokenizer = NULL;
    struct ash_ids ids = {0};
    struct ash_err err = {0};

    (void)state;
    check_refused("{\"model\":{\"type\":\"Unigram\"}}", "'vocab' is missing");
    check_refused("{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", "0 tokens");
    check_refused("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}}", "token 0");
    check_refused("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0],[\"a\",1]]}}", "two ids");
    check_refused("{\"model\":{\"type\":\"Unigram\",\"unk_id\":1,\"vocab\":[[\"a\",0]]}}", "unk_id 1");
    check_refused("{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"?\"}," MODEL, "not base64");
    check_refused("{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"////fw==\"}," MODEL, "damaged");
    assert_int_equal(ash_tokenizer_parse("{" MODEL, strlen("{" MODEL), "sample", &tokenizer, &err), 0);
    assert_true(ash_tokenizer_encode(tokenizer, "ab", 2, false, &ids, &err) < 0);
    assert_non_null(strstr(err.text, "no token for 'b'"));
    assert_int_equal(ids.count, 0);
    ash_ids_fini(&ids);
    ash_tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_best_cuts), cmocka_unit_test(test_refusals)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
