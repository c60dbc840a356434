/* Masks against a plain matcher that tries every token: drawn grammars, drawn vocabularies, drawn walks. Regular
 * expressions against PCRE2. Then the sharing of masks: full caches, many threads, taking tokens back. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <errno.h>
#include <pcre2.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "unit/serve/grammar/drawn.h"
#include "unit/serve/grammar/vocabularies.h"

#define GRAMMARS 250
#define WALK_TOKENS 8

/* Every bit of the mask after text; counts the tokens that could not be decided. */
static size_t compare_mask(const struct drawn *drawn, const struct vocabulary *vocabulary, const uint64_t *mask,
                           const struct ash_str *text, const char *source)
{
    size_t undecided = 0;

    for (size_t id = 0; id < vocabulary->count; id++) {
        char longer[256];
        bool is_prefix = false, is_whole = false, expected;
        size_t size = text->size_bytes;
        memcpy(longer, text->data, size);
        if ((int32_t)id != vocabulary->eos) {
            memcpy(longer + size, vocabulary->tokens[id].bytes, vocabulary->tokens[id].size_bytes);
            size += vocabulary->tokens[id].size_bytes;
        }
        if (!drawn_matches(drawn, longer, size, &is_prefix, &is_whole)) {
            undecided++;
            continue;
        }
        expected =
            (int32_t)id == vocabulary->eos ? is_whole : is_prefix && !vocabulary->tokens[id].is_special && id != 0xff;
        if (mask_has(mask, (int32_t)id) != expected)
            fail_msg("%s\nafter '%.*s' token %zu '%.*s' should be %s", source, (int)text->size_bytes, text->data, id,
                     (int)vocabulary->tokens[id].size_bytes, vocabulary->tokens[id].bytes,
                     expected ? "allowed" : "refused");
    }
    return undecided;
}

static void masks_of_drawn_grammars(void **state)
{
    static struct vocabulary vocabulary;
    size_t undecided = 0, compared = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= GRAMMARS; seed++) {
        static struct drawn drawn;
        struct ash_str source = {0}, text = {0};
        struct ash_grammar *grammar = NULL;
        struct ash_matcher *matcher = NULL;
        struct ash_err err = {0};

        vocabulary_init(&vocabulary, seed, 120);
        drawn_init(&drawn, seed, true);
        drawn_gbnf(&drawn, &source);
        if (ash_grammar_from_gbnf(source.data, source.size_bytes, NULL, &grammar, &err) == 0) {
            assert_int_equal(ash_matcher_open(grammar, vocabulary.trie, &matcher, &err), 0);
            assert_int_equal(ash_str_adds(&text, ""), 0);
            for (uint64_t step = 0; step < WALK_TOKENS; step++) {
                const uint64_t *mask = ash_matcher_mask(matcher);
                int32_t id;
                assert_non_null(mask);
                assert_int_equal(mask_has(mask, vocabulary.eos), ash_matcher_is_complete(matcher));
                undecided += compare_mask(&drawn, &vocabulary, mask, &text, source.data);
                compared += vocabulary.count;
                id = mask_draw(mask, vocabulary.count, seed, step);
                if (id < 0 || id == vocabulary.eos) break;
                assert_int_equal(ash_matcher_accept(matcher, id), 0);
                ash_str_add(&text, vocabulary.tokens[id].bytes, vocabulary.tokens[id].size_bytes);
            }
        } else if (strstr(err.text, "begins with itself") == NULL) {
            fail_msg("%s: %s", source.data, err.text);
        }
        ash_matcher_close(matcher);
        ash_grammar_put(grammar);
        ash_str_fini(&source);
        ash_str_fini(&text);
        vocabulary_fini(&vocabulary);
    }
    print_message("%zu tokens compared, %zu undecided\n", compared, undecided);
    assert_true(compared > 100000 && undecided < compared / 50);
}

/* What PCRE2 says of a text: 2 a whole match, 1 a beginning, 0 neither. */
static int pcre_says(pcre2_code *code, pcre2_match_data *data, const char *text, size_t size_bytes, uint32_t flags)
{
    int workspace[4096];
    int rc = pcre2_dfa_match(code, (PCRE2_SPTR)text, size_bytes, 0, flags | PCRE2_ANCHORED, data, NULL, workspace,
                             ASH_COUNT(workspace));

    assert_true(rc >= 0 || rc == PCRE2_ERROR_NOMATCH || rc == PCRE2_ERROR_PARTIAL);
    return rc >= 0 ? 2 : rc == PCRE2_ERROR_PARTIAL;
}

/* Drawn texts through the bytes of a grammar and through PCRE2: whole matches, and whether a text can continue. */
static void expressions_of_pcre2(void **state)
{
    static struct vocabulary vocabulary;
    static const char alphabet[] = "abc019\"{}, x";
    struct ash_err err = {0};
    size_t matched = 0;

    (void)state;
    vocabulary_init(&vocabulary, 1, 0);
    for (uint64_t seed = 1; seed <= 400; seed++) {
        static struct drawn drawn;
        struct ash_str source = {0}, whole = {0};
        struct ash_grammar *grammar = NULL;
        pcre2_match_data *data;
        pcre2_code *code;
        PCRE2_SIZE offset;
        int error;

        drawn_init(&drawn, seed, false);
        for (int i = 0; i < drawn.count; i++)
            drawn.nodes[i].is_other = false; /* written for GBNF */
        drawn_write(&drawn, drawn.rules[0], false, &source);
        ash_str_addf(&whole, "(?:%s)\\z", source.data);
        code = pcre2_compile((PCRE2_SPTR)whole.data, whole.size_bytes, 0, &error, &offset, NULL);
        assert_non_null(code);
        data = pcre2_match_data_create(16, NULL);
        if (ash_grammar_from_regex(source.data, source.size_bytes, NULL, &grammar, &err) < 0)
            fail_msg("%s: %s", source.data, err.text);
        for (uint64_t t = 0; t < 40; t++) {
            struct ash_matcher *matcher = NULL;
            char text[16];
            size_t size = 0;
            bool goes_on = true;
            assert_int_equal(ash_matcher_open(grammar, vocabulary.trie, &matcher, &err), 0);
            while (size < 12 && goes_on) {
                int partial;
                text[size] = alphabet[ash_rng_below(seed, 5, t * 16 + size, sizeof(alphabet) - 1)];
                goes_on = ash_matcher_accept(matcher, (uint8_t)text[size++]) == 0;
                partial = pcre_says(code, data, text, size, PCRE2_PARTIAL_HARD);
                if (goes_on != (partial > 0)) fail_msg("%s: '%.*s'", source.data, (int)size, text);
                if (goes_on && ash_matcher_is_complete(matcher) != (pcre_says(code, data, text, size, 0) == 2))
                    fail_msg("%s: '%.*s' whole", source.data, (int)size, text);
                matched += goes_on;
            }
            ash_matcher_close(matcher);
        }
        pcre2_match_data_free(data);
        pcre2_code_free(code);
        ash_str_fini(&whole);
        ash_grammar_put(grammar);
        ash_str_fini(&source);
    }
    assert_true(matched > 2000);
    vocabulary_fini(&vocabulary);
}

/* ---- sharing ----------------------------------------------------------------------------------------------------- */

static const char nested[] =
    "root ::= value\nvalue ::= \"[\" (value (\",\" value)*)? \"]\" | \"\\\"\" [^\"]{0,40} \"\\\"\"\n";

/* A walk of `tokens` drawn tokens; every few a hash of the mask. Ends early where nothing is allowed. */
static uint64_t walk(struct ash_grammar *grammar, const struct vocabulary *vocabulary, uint64_t seed, size_t tokens)
{
    struct ash_matcher *matcher = NULL;
    struct ash_err err = {0};
    uint64_t sum = 0;

    ash_assert(ash_matcher_open(grammar, vocabulary->trie, &matcher, &err) == 0);
    for (size_t i = 0; i < tokens; i++) {
        const uint64_t *mask = ash_matcher_mask(matcher);
        int32_t id;
        ash_assert(mask != NULL);
        for (size_t w = 0; w < ash_vocab_trie_mask_words(vocabulary->trie); w++)
            sum = sum * 31 + mask[w];
        id = mask_draw(mask, vocabulary->count, seed, i);
        if (id < 0) break;
        ash_assert(ash_matcher_accept(matcher, id) == 0);
        if (i % 7 == 6) { /* back and forth again */
            size_t back = i % 3 + 1;
            ash_matcher_rollback(matcher, back);
        }
    }
    ash_matcher_close(matcher);
    return sum;
}

static void a_full_cache_changes_nothing(void **state)
{
    static struct vocabulary vocabulary;
    struct ash_grammar_opts roomy = ash_grammar_default_opts(), narrow = roomy;
    struct ash_grammar *first = NULL, *second = NULL;
    struct ash_err err = {0};

    (void)state;
    vocabulary_init(&vocabulary, 3, 300);
    narrow.limits.cache_bytes = 300000;
    assert_int_equal(ash_grammar_from_gbnf(nested, strlen(nested), &roomy, &first, &err), 0);
    assert_int_equal(ash_grammar_from_gbnf(nested, strlen(nested), &narrow, &second, &err), 0);
    for (uint64_t seed = 1; seed <= 40; seed++)
        assert_int_equal(walk(first, &vocabulary, seed, 300), walk(second, &vocabulary, seed, 300));
    ash_grammar_put(first);
    ash_grammar_put(second);
    vocabulary_fini(&vocabulary);
}

struct walker {
    pthread_t thread;
    struct ash_grammar *grammar;
    const struct vocabulary *vocabulary;
    uint64_t sums[20];
};

static void *walk_all(void *arg)
{
    struct walker *walker = arg;

    for (uint64_t seed = 0; seed < 20; seed++)
        walker->sums[seed] = walk(walker->grammar, walker->vocabulary, seed, 120);
    return NULL;
}

static void threads_share_one_grammar(void **state)
{
    static struct vocabulary vocabulary;
    struct ash_grammar_opts opts = ash_grammar_default_opts();
    struct ash_grammar *grammar = NULL;
    struct walker walkers[4];
    struct ash_err err = {0};

    (void)state;
    vocabulary_init(&vocabulary, 4, 300);
    opts.limits.cache_bytes = 1000000; /* they also run into its end */
    assert_int_equal(ash_grammar_from_gbnf(nested, strlen(nested), &opts, &grammar, &err), 0);
    for (int i = 0; i < 4; i++) {
        walkers[i].grammar = grammar;
        walkers[i].vocabulary = &vocabulary;
        assert_int_equal(pthread_create(&walkers[i].thread, NULL, walk_all, &walkers[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(walkers[i].thread, NULL);
    for (int i = 1; i < 4; i++)
        assert_memory_equal(walkers[i].sums, walkers[0].sums, sizeof(walkers[0].sums));
    ash_grammar_put(grammar);
    vocabulary_fini(&vocabulary);
}

static void too_ambiguous_is_an_error_not_a_crash(void **state)
{
    static const char source[] = "root ::= (a | b | \"x\")*\na ::= \"x\" root \"y\"\nb ::= \"x\" root \"z\"";
    static struct vocabulary vocabulary;
    struct ash_grammar *grammar = NULL;
    struct ash_matcher *matcher = NULL;
    struct ash_err err = {0};
    int rc = 0;

    (void)state;
    vocabulary_init(&vocabulary, 1, 0);
    assert_int_equal(ash_grammar_from_gbnf(source, strlen(source), NULL, &grammar, &err), 0);
    assert_int_equal(ash_matcher_open(grammar, vocabulary.trie, &matcher, &err), 0);
    for (int i = 0; i < 64 && rc == 0; i++)
        rc = ash_matcher_accept(matcher, 'x');
    assert_int_equal(rc, -E2BIG);
    ash_matcher_close(matcher);
    ash_grammar_put(grammar);
    vocabulary_fini(&vocabulary);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_of_drawn_grammars),
        cmocka_unit_test(expressions_of_pcre2),
        cmocka_unit_test(a_full_cache_changes_nothing),
        cmocka_unit_test(threads_share_one_grammar),
        cmocka_unit_test(too_ambiguous_is_an_error_not_a_crash),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
