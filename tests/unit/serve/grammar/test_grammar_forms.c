/* What each form of grammar takes and refuses, and what it says about sources that it cannot compile. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "unit/serve/grammar/vocabularies.h"

static struct vocabulary vocabulary;

static int set_up(void **state)
{
    (void)state;
    vocabulary_init(&vocabulary, 1, 100);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    vocabulary_fini(&vocabulary);
    return 0;
}

enum { REGEX, GBNF, SCHEMA, ANY_SPACE, LENIENT };

static int compile(int kind, const char *source, struct ash_grammar **grammar_out, struct ash_err *err)
{
    struct ash_grammar_opts opts = ash_grammar_default_opts();
    json_t *schema = NULL;
    int rc;

    if (kind == REGEX) return ash_grammar_from_regex(source, strlen(source), NULL, grammar_out, err);
    if (kind == GBNF) return ash_grammar_from_gbnf(source, strlen(source), NULL, grammar_out, err);
    if (kind == ANY_SPACE) opts.space = ASH_JSON_SPACE_ANY;
    opts.is_lenient = kind == LENIENT;
    schema = json_loads(source, JSON_DECODE_ANY, NULL);
    assert_non_null(schema);
    rc = ash_grammar_from_json_schema(schema, &opts, grammar_out, err);
    json_decref(schema);
    return rc;
}

/* texts: those that the source takes, NULL, those that it refuses, NULL. */
static void check(int kind, const char *source, const char *const *texts)
{
    struct ash_grammar *grammar = NULL;
    struct ash_err err = {0};
    bool expected = true;

    if (compile(kind, source, &grammar, &err) < 0) fail_msg("%s: %s", source, err.text);
    for (; *texts != NULL || expected; texts++) {
        if (*texts == NULL) {
            expected = false;
            continue;
        }
        if (grammar_takes(grammar, &vocabulary, *texts, strlen(*texts)) != expected)
            fail_msg("%s: '%s' should be %s", source, *texts, expected ? "taken" : "refused");
    }
    ash_grammar_put(grammar);
}
#define CHECK(kind, source, ...) check(kind, source, (const char *const[]){__VA_ARGS__, NULL})

static void refuse(int kind, const char *source, int code, const char *words)
{
    struct ash_grammar *grammar = NULL;
    struct ash_err err = {0};
    int rc = compile(kind, source, &grammar, &err);

    if (rc != code || strstr(err.text, words) == NULL)
        fail_msg("%s: %d '%s' instead of %d with '%s'", source, rc, err.text, code, words);
}

static void regular_expressions(void **state)
{
    (void)state;
    CHECK(REGEX, "a*b", "b", "aab", NULL, "", "a", "ba");
    CHECK(REGEX, "(ab|c){2,3}", "abab", "cc", "cabc", NULL, "c", "cccc", "aba");
    CHECK(REGEX, "[^a-c\\d]+", "xyz", "é日", NULL, "", "xa", "x1");
    CHECK(REGEX, "^\\w+\\s?$", "a_1 ", "Z", NULL, "a-b", " a");
    CHECK(REGEX, "\\u00e9\\x41[\\u{1F600}-\\u{1F64F}]", "éA😀", NULL, "éA", "eA😀");
    CHECK(REGEX, "x{0}y{3}", "yyy", NULL, "xyyy", "yy");
    CHECK(REGEX, "a.c", "abc", "aéc", NULL, "a\nc", "ac");
    CHECK(REGEX, "(?:a|)b??", "", "a", "b", "ab", NULL, "ba");
    CHECK(REGEX, "a{,2}", "a{,2}", NULL, "aa");
    CHECK(REGEX, "(?<year>\\d{4})-(?P<m>\\d\\d)", "2024-01", NULL, "24-01");
    refuse(REGEX, "(a", -EINVAL, "no ')'");
    refuse(REGEX, "a)", -EINVAL, "without '('");
    refuse(REGEX, "*a", -EINVAL, "nothing to repeat");
    refuse(REGEX, "(?=a)b", -ENOTSUP, "lookaround");
    refuse(REGEX, "(a)\\1", -ENOTSUP, "'\\1'");
    refuse(REGEX, "\\bword", -ENOTSUP, "'\\b'");
    refuse(REGEX, "[z-a]", -EINVAL, "range");
    refuse(REGEX, "a$b", -EINVAL, "no text at all");
    refuse(REGEX, "((a{1000}){1000}){1000}", -E2BIG, "states");
}

static void choices(void **state)
{
    const char *const texts[] = {"yes", "no", "yesterday", "né", "no"};
    struct ash_grammar *grammar = NULL;
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_grammar_from_choice(texts, 5, NULL, &grammar, &err), 0);
    for (size_t i = 0; i < 5; i++)
        assert_true(grammar_takes(grammar, &vocabulary, texts[i], strlen(texts[i])));
    assert_false(grammar_takes(grammar, &vocabulary, "ye", 2));
    assert_false(grammar_takes(grammar, &vocabulary, "yesno", 5));
    ash_grammar_put(grammar);
    assert_int_equal(ash_grammar_from_choice(texts, 0, NULL, &grammar, &err), -EINVAL);
}

static void gbnf_grammars(void **state)
{
    (void)state;
    CHECK(GBNF, "root ::= \"a\" [b-d]+ x?\nx ::= \"!\" | \"?\"", "ab", "abcd!", "ad?", NULL, "a", "ab!?");
    CHECK(GBNF,
          "root  ::= (expr \"=\" ws term \"\\n\")+\nexpr  ::= term ([-+*/] term)*\n"
          "term  ::= ident | num | \"(\" ws expr \")\" ws\nident ::= [a-z] [a-z0-9_]* ws\n"
          "num   ::= [0-9]+ ws\nws    ::= [ \\t\\n]*",
          "1+2=3\n", "(a*b)-1 = c \n", "((x))=1\ny=2\n", NULL, "1+2=3", "1+=3\n", "((x)=1\n");
    CHECK(GBNF, "# a comment\nroot ::= # another\n  \"x\"{2,3} |\n  [^x\\n]{2} # last\n", "xx", "xxx", "ab", "é日",
          NULL, "x", "xxxx", "a\n", "ax");
    CHECK(GBNF, "root ::= . \"\\u00e9\\x21\"", "xé!", "日é!", NULL, "é!");
    CHECK(GBNF, "root ::= \"a\" root \"b\" | \"\"", "", "ab", "aaabbb", NULL, "aab", "ba");
    CHECK(GBNF, "root ::= (\n \"a\"\n | \"b\"\n)*", "", "abba", NULL, "c");
    CHECK(GBNF, "root ::= (\"a\"? \"b\"?){0,3} \"c\"", "c", "abababc", "bbbc", "aaac", NULL, "bbbbc", "aaaac");
    CHECK(GBNF, "root ::= \"say\" <|tool|>", "say<|tool|>", NULL, "say");
    refuse(GBNF, "root ::= a", -EINVAL, "'a' is not defined");
    refuse(GBNF, "start ::= \"a\"", -EINVAL, "no rule 'root'");
    refuse(GBNF, "root ::= root \"a\" | \"b\"", -EINVAL, "'root' begins with itself");
    refuse(GBNF, "root ::= x y\nx ::= \"a\"?\ny ::= x y \"b\" | \"c\"", -EINVAL, "'y' begins with itself");
    refuse(GBNF, "root ::= \"a\"\nroot ::= \"b\"", -EINVAL, "line 2");
    refuse(GBNF, "root ::= \"a", -EINVAL, "ends too early");
    refuse(GBNF, "root ::= (\"a\"", -EINVAL, "no ')'");
    refuse(GBNF, "root ::= \"a\" )", -EINVAL, "unexpected");
    refuse(GBNF, "root ::= \"a\"{3,1}", -EINVAL, "wrong way round");
    refuse(GBNF, "root ::= \"a\" root", -EINVAL, "no text at all");
    refuse(GBNF, "root ::= (\"a\"?){0,1000}", -E2BIG, "may be empty");
    refuse(GBNF, "root = \"a\"", -EINVAL, "'::='");
}

static void schemas_of_scalars(void **state)
{
    (void)state;
    CHECK(SCHEMA, "true", "null", "[1, {\"a\": -2.5e+10}]", "\"\\u00e9\\n\"", NULL, "", "nul", "[1,]", "\"\n\"");
    CHECK(SCHEMA, "{\"type\": \"string\", \"minLength\": 2, \"maxLength\": 3}", "\"ab\"", "\"é日x\"", "\"\\n\\\"\"",
          "\"\\ud83d\\ude00a\"", NULL, "\"a\"", "\"abcd\"", "\"\\ud83d\"", "\"\\ud83d\\ude00\"");
    CHECK(SCHEMA, "{\"type\": [\"integer\", \"null\"], \"minimum\": -5, \"exclusiveMaximum\": 120}", "null", "-5", "0",
          "119", "7", NULL, "-6", "120", "00", "-0", "1.0", "1000");
    CHECK(SCHEMA, "{\"type\": \"number\", \"minimum\": 0.25, \"maximum\": 10}", "0.25", "0.3", "1", "9.999", "10",
          "10.0", NULL, "0.24", "0.2", "10.01", "11", "-1", "1e0");
    CHECK(SCHEMA, "{\"type\": \"number\", \"exclusiveMinimum\": -1.5, \"exclusiveMaximum\": 0}", "-1.49", "-1",
          "-0.001", NULL, "-1.5", "0", "-1.51", "-2", "1");
    CHECK(SCHEMA, "{\"type\": \"integer\", \"multipleOf\": 7, \"minimum\": 1, \"maximum\": 50}", "7", "14", "49", NULL,
          "0", "8", "56", "1");
    CHECK(SCHEMA, "{\"type\": \"number\", \"multipleOf\": 0.25}", "0", "-1.25", "3.5", "100.75", NULL, "0.1", "1.255",
          "0.26");
    CHECK(SCHEMA, "{\"enum\": [\"a\", 1, null, true, [1, \"x\"], {\"k\": 2}]}", "\"a\"", "1", "null", "true",
          "[1, \"x\"]", "{\"k\":2}", NULL, "false", "\"b\"", "[1]");
    CHECK(SCHEMA, "{\"enum\": [\"ab\", \"abc\", 5, 50], \"maxLength\": 2, \"maximum\": 9}", "\"ab\"", "5", NULL,
          "\"abc\"", "50");
    CHECK(SCHEMA, "{\"const\": 1.5}", "1.5", NULL, "1", "2");
    CHECK(SCHEMA, "{\"type\": \"string\", \"pattern\": \"^a+\\\"?$\"}", "\"a\"", "\"aa\\\"\"", NULL, "\"b\"",
          "\"a\"\"");
    CHECK(SCHEMA, "{\"type\": \"string\", \"pattern\": \"b\", \"maxLength\": 3}", "\"b\"", "\"abc\"", NULL, "\"a\"",
          "\"aabc\"");
    CHECK(SCHEMA, "{\"type\": \"string\", \"format\": \"date\"}", "\"2024-02-29\"", "\"1999-12-31\"", NULL,
          "\"2023-02-29\"", "\"2024-04-31\"", "\"24-01-01\"");
    CHECK(SCHEMA, "{\"type\": \"string\", \"format\": \"ipv6\"}", "\"::\"", "\"1:2:3:4:5:6:7:8\"", "\"fe80::1\"", NULL,
          "\"1:2:3\"", "\"1::2::3\"", "\"12345::\"");
}

static void schemas_of_arrays_and_objects(void **state)
{
    (void)state;
    CHECK(SCHEMA, "{\"type\": \"array\", \"items\": {\"type\": \"integer\"}, \"minItems\": 1, \"maxItems\": 3}", "[1]",
          "[1, 2,3]", NULL, "[]", "[1,2,3,4]", "[1 ,2]", "[ 1]", "[\"a\"]");
    CHECK(SCHEMA, "{\"prefixItems\": [{\"const\": 1}, {\"type\": \"string\"}], \"items\": {\"type\": \"null\"}}", "[]",
          "[1]", "[1, \"a\"]", "[1, \"a\", null, null]", NULL, "[2]", "[1, null]");
    CHECK(SCHEMA, "{\"prefixItems\": [{}, {}], \"items\": false, \"minItems\": 2}", "[1, 2]", NULL, "[1]", "[1,2,3]");
    CHECK(SCHEMA,
          "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}, \"b\": {\"type\": \"null\"}, "
          "\"c\": {\"type\": \"boolean\"}}, \"required\": [\"b\"]}",
          "{\"b\": null}", "{\"a\":1,\"b\":null,\"c\":true}", "{\"b\": null, \"c\": false}", NULL, "{}", "{\"a\": 1}",
          "{\"b\": null, \"a\": 1}", "{\"b\": null, \"d\": 1}", "{, \"b\": null}");
    CHECK(SCHEMA,
          "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}}, "
          "\"additionalProperties\": {\"type\": \"string\"}}",
          "{}", "{\"a\": 1, \"b\": \"x\"}", "{\"ab\": \"x\", \"\": \"\"}", NULL, "{\"a\": \"x\"}", "{\"b\": 1}");
    CHECK(SCHEMA,
          "{\"patternProperties\": {\"^x\": {\"type\": \"integer\"}, \"y$\": {\"minimum\": 5}}, "
          "\"additionalProperties\": false}",
          "{}", "{\"x\": 1}", "{\"y\": 5}", "{\"xy\": 7}", NULL, "{\"xy\": 1}", "{\"z\": 1}", "{\"xa\": 1.5}");
    CHECK(SCHEMA,
          "{\"type\": \"object\", \"properties\": {\"a\": {}, \"b\": {}, \"c\": {}}, \"minProperties\": 2, "
          "\"maxProperties\": 2}",
          "{\"a\": 1, \"b\": 2}", "{\"b\": 1, \"c\": 2}", NULL, "{\"a\": 1}", "{\"a\": 1, \"b\": 1, \"c\": 1}");
    CHECK(SCHEMA,
          "{\"type\": \"object\", \"additionalProperties\": {\"type\": \"null\"}, \"minProperties\": 1, "
          "\"maxProperties\": 2}",
          "{\"a\": null}", "{\"a\": null, \"b\": null}", NULL, "{}", "{\"a\": null, \"b\": null, \"c\": null}");
    CHECK(ANY_SPACE, "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"array\"}}, \"required\": [\"a\"]}",
          "{\n\t\"a\" : [ 1 ,2 ]\n}", "{\"a\":[]}", NULL, "{\"a\": [] } ");
}

static void schemas_together(void **state)
{
    (void)state;
    CHECK(SCHEMA, "{\"anyOf\": [{\"type\": \"integer\"}, {\"const\": \"x\"}], \"minimum\": 3}", "3", "\"x\"", NULL, "2",
          "\"y\"");
    CHECK(SCHEMA,
          "{\"allOf\": [{\"properties\": {\"a\": {\"type\": \"integer\"}}, \"required\": [\"a\"]}, "
          "{\"properties\": {\"a\": {\"maximum\": 3}, \"b\": {\"type\": \"null\"}}}]}",
          "{\"a\": 3}", "{\"a\": 1, \"b\": null}", NULL, "{\"a\": 4}", "{}", "{\"a\": 1.5}", "{\"b\": null}");
    CHECK(SCHEMA,
          "{\"$ref\": \"#/$defs/tree\", \"$defs\": {\"tree\": {\"type\": \"object\", \"properties\": {\"v\": "
          "{\"type\": \"integer\"}, \"kids\": {\"type\": \"array\", \"items\": {\"$ref\": \"#/$defs/tree\"}}}, "
          "\"required\": [\"v\"], \"additionalProperties\": false}}}",
          "{\"v\": 1}", "{\"v\": 1, \"kids\": [{\"v\": 2, \"kids\": []}, {\"v\": 3}]}", NULL, "{\"kids\": []}",
          "{\"v\": 1, \"kids\": [{}]}");
    CHECK(SCHEMA,
          "{\"oneOf\": [{\"type\": \"object\", \"properties\": {\"k\": {\"const\": \"a\"}}, \"required\": "
          "[\"k\"]}, {\"type\": \"object\", \"properties\": {\"k\": {\"const\": \"b\"}, \"n\": {\"type\": "
          "\"integer\"}}, \"required\": [\"k\", \"n\"]}]}",
          "{\"k\": \"a\"}", "{\"k\": \"b\", \"n\": 1}", NULL, "{\"k\": \"b\"}", "{\"k\": \"a\", \"n\": 1}");
    CHECK(SCHEMA, "{\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"array\", \"items\": {\"$ref\": \"#\"}}]}", "\"a\"",
          "[[\"a\", []]]", NULL, "1", "[1]");
    CHECK(SCHEMA, "{\"type\": \"string\", \"nullable\": true}", "null", "\"a\"", NULL, "1");
}

static void unsupported_schemas_name_the_keyword(void **state)
{
    (void)state;
    refuse(SCHEMA, "{\"type\": \"object\", \"properties\": {\"a/b\": {\"not\": {}}}}", -ENOTSUP,
           "schema #/properties/a~1b/not");
    refuse(SCHEMA, "{\"items\": {\"uniqueItems\": true}}", -ENOTSUP, "#/items/uniqueItems");
    refuse(SCHEMA, "{\"anyOf\": [{}, {\"if\": {}}]}", -ENOTSUP, "#/anyOf/1/if");
    refuse(SCHEMA, "{\"pattern\": \"(?=a)\"}", -ENOTSUP, "#/pattern: the lookaround");
    refuse(SCHEMA, "{\"type\": \"strin\"}", -EINVAL, "#/type");
    refuse(SCHEMA, "{\"minLength\": -1}", -EINVAL, "#/minLength");
    refuse(SCHEMA, "{\"required\": \"a\"}", -EINVAL, "#/required");
    refuse(SCHEMA, "{\"$ref\": \"other.json\"}", -ENOTSUP, "#/$ref");
    refuse(SCHEMA, "{\"$ref\": \"#/$defs/x\"}", -EINVAL, "#/$ref");
    refuse(SCHEMA, "{\"$ref\": \"#\"}", -EINVAL, "refers to itself");
    refuse(SCHEMA, "{\"anyOf\": [{\"$ref\": \"#\"}, {}]}", -EINVAL, "itself");
    refuse(SCHEMA, "false", -EINVAL, "no text at all");
    refuse(SCHEMA, "{\"type\": \"string\", \"minLength\": 3, \"maxLength\": 2}", -EINVAL, "no text at all");
    refuse(SCHEMA, "{\"multipleOf\": 0.123456789}", -ENOTSUP, "#/multipleOf");
    refuse(SCHEMA, "{\"minProperties\": 3}", -ENOTSUP, "#/minProperties");
    refuse(SCHEMA, "[]", -EINVAL, "must be an object");
}

/* What z.toJSONSchema and pydantic write beside what they mean. */
static void schemas_of_zod_and_pydantic(void **state)
{
    (void)state;
    CHECK(SCHEMA, "{\"type\": \"string\", \"format\": \"ulid\", \"pattern\": \"^[0-9A-HJKMNP-TV-Z]{4}$\"}", "\"01AB\"",
          NULL, "\"01\"", "\"01ai\"");
    CHECK(SCHEMA, "{\"type\": \"string\", \"format\": \"password\", \"writeOnly\": true}", "\"x\"", NULL, "1");
    CHECK(SCHEMA,
          "{\"type\": \"object\", \"propertyNames\": {\"type\": \"string\"}, \"additionalProperties\": "
          "{\"type\": \"integer\"}}",
          "{}", "{\"any\": 1}", NULL, "{\"any\": \"x\"}");
    CHECK(SCHEMA,
          "{\"type\": \"object\", \"propertyNames\": {\"pattern\": \"^k\", \"maxLength\": 2}, "
          "\"properties\": {\"k\": {}, \"a\": {}}, \"additionalProperties\": {\"type\": \"integer\"}}",
          "{}", "{\"k\": \"x\"}", "{\"k\": 1, \"kk\": 2}", NULL, "{\"a\": 1}", "{\"b\": 1}", "{\"kkk\": 1}",
          "{\"kk\": \"x\"}");
    CHECK(SCHEMA,
          "{\"type\": \"object\", \"propertyNames\": {\"enum\": [\"a\", \"b\"]}, \"additionalProperties\": "
          "{\"type\": \"null\"}, \"required\": [\"a\"]}",
          "{\"a\": null}", "{\"a\": null, \"b\": null}", NULL, "{}", "{\"b\": null}", "{\"a\": null, \"c\": null}");
    CHECK(SCHEMA, "{\"type\": \"number\", \"minimum\": -3.4028234663852886e38, \"maximum\": 3.4028234663852886e38}",
          "0", "-12.5", "9999999999999999999", NULL, "1e300", "10000000000000000000");
    CHECK(SCHEMA, "{\"type\": \"integer\", \"minimum\": 0, \"maximum\": 1.8446744073709551615e19}", "0",
          "9223372036854775808", NULL, "-1", "1.5");
    CHECK(SCHEMA, "{\"type\": \"number\", \"maximum\": 2e18}", "2000000000000000000", "-1", NULL, "2000000000000000001",
          "3000000000000000000");
    CHECK(SCHEMA, "{\"type\": \"string\", \"format\": \"duration\", \"pattern\": \"^P(?!$)(\\\\d+Y)?$\"}", "\"P1Y\"",
          NULL, "\"P\"", "\"1Y\"");
    refuse(SCHEMA, "{\"pattern\": \"^(?!-)\\\\d+$\"}", -ENOTSUP, "#/pattern: the lookaround");
    CHECK(LENIENT, "{\"type\": \"string\", \"pattern\": \"^(?!-)\\\\d+$\", \"maxLength\": 2}", "\"-\"", NULL,
          "\"abc\"");
    CHECK(LENIENT, "{\"type\": \"array\", \"items\": {\"type\": \"integer\"}, \"uniqueItems\": true}", "[1, 1]", NULL,
          "[\"a\"]");
    CHECK(LENIENT, "{\"type\": \"integer\", \"not\": {\"const\": 3}}", "3", NULL, "\"a\"");
    refuse(LENIENT, "{\"type\": \"strin\"}", -EINVAL, "#/type");
}

/* Repetitions in each other: the automaton is small, its first state is not. */
static void a_grammar_too_large_to_follow_is_no_lack_of_memory(void **state)
{
    struct ash_grammar *grammar = NULL;
    struct ash_matcher *matcher = NULL;
    struct ash_err err = {0};
    struct ash_grammar_opts opts = ash_grammar_default_opts();
    const char source[] = "root ::= ((([a-z]{0,100}){0,100}){0,100})";

    (void)state;
    opts.limits.cache_bytes = 1 << 10;
    if (ash_grammar_from_gbnf(source, strlen(source), &opts, &grammar, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(ash_matcher_open(grammar, vocabulary.trie, &matcher, &err), -E2BIG);
    assert_non_null(strstr(err.text, "simplify"));
    ash_grammar_put(grammar);
}

static void a_special_token_is_not_text(void **state)
{
    struct ash_grammar *grammar = NULL;
    struct ash_matcher *matcher = NULL;
    struct ash_err err = {0};
    int32_t tool = vocabulary.eos - 1;

    (void)state;
    assert_int_equal(compile(REGEX, ".*", &grammar, &err), 0);
    assert_int_equal(ash_matcher_open(grammar, vocabulary.trie, &matcher, &err), 0);
    assert_false(mask_has(ash_matcher_mask(matcher), tool));
    assert_int_equal(ash_matcher_accept(matcher, tool), -EINVAL);
    ash_matcher_close(matcher);
    ash_grammar_put(grammar);
    assert_int_equal(compile(GBNF, "root ::= <|tool|>", &grammar, &err), 0);
    assert_int_equal(ash_matcher_open(grammar, vocabulary.trie, &matcher, &err), 0);
    assert_true(mask_has(ash_matcher_mask(matcher), tool));
    assert_false(mask_has(ash_matcher_mask(matcher), vocabulary.eos));
    assert_int_equal(ash_matcher_accept(matcher, tool), 0);
    assert_true(ash_matcher_must_end(matcher));
    assert_true(mask_has(ash_matcher_mask(matcher), vocabulary.eos));
    ash_matcher_rollback(matcher, 1);
    assert_false(ash_matcher_is_complete(matcher));
    ash_matcher_close(matcher);
    ash_grammar_put(grammar);
}

static void equal_sources_are_compiled_once(void **state)
{
    struct ash_grammar_cache *cache = ash_grammar_cache_open(2);
    struct ash_grammar_source source = {ASH_GRAMMAR_REGEX, "a+", 2};
    struct ash_grammar *first = NULL, *second = NULL, *other = NULL;
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_grammar_cache_get(cache, &source, NULL, &first, &err), 0);
    assert_int_equal(ash_grammar_cache_get(cache, &source, NULL, &second, &err), 0);
    assert_ptr_equal(first, second);
    for (int i = 0; i < 3; i++) {
        char text[16];
        snprintf(text, sizeof(text), "b{%d}", i);
        source = (struct ash_grammar_source){ASH_GRAMMAR_REGEX, text, 4};
        assert_int_equal(ash_grammar_cache_get(cache, &source, NULL, &other, &err), 0);
        ash_grammar_put(other);
    }
    assert_int_equal(ash_grammar_cache_compiled(cache), 4);
    source = (struct ash_grammar_source){ASH_GRAMMAR_JSON_SCHEMA, "{\"a", 3};
    assert_int_equal(ash_grammar_cache_get(cache, &source, NULL, &other, &err), -EINVAL);
    ash_grammar_put(first);
    ash_grammar_put(second);
    ash_grammar_cache_close(cache);
}

/* A compiler that another thread holds up. */
struct slow {
    struct ash_grammar_cache *cache;
    struct ash_str key;
    sem_t has_begun, may_end;
};

static int compile_slowly(void *ctx, const struct ash_grammar_opts *opts, struct ash_grammar **grammar_out,
                          struct ash_err *err)
{
    struct slow *slow = ctx;

    sem_post(&slow->has_begun);
    sem_wait(&slow->may_end);
    return ash_grammar_from_regex("a+", 2, opts, grammar_out, err);
}

static void *ask(void *arg)
{
    struct slow *slow = arg;
    struct ash_grammar_maker maker = {compile_slowly, slow, &slow->key};
    struct ash_grammar *grammar = NULL;
    struct ash_err err = {0};

    assert_int_equal(ash_grammar_cache_make(slow->cache, &maker, NULL, &grammar, &err), 0);
    return grammar;
}

/* The second asker would hang in the compiler, if it got there: it may end only once. */
static void a_source_asked_for_twice_at_once_is_compiled_once(void **state)
{
    struct slow slow = {.cache = ash_grammar_cache_open(2)};
    struct ash_grammar_maker maker = {compile_slowly, &slow, &slow.key};
    struct ash_grammar_opts opts = ash_grammar_default_opts();
    struct ash_grammar *grammar = NULL;
    pthread_t threads[2];
    void *grammars[2];
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_str_adds(&slow.key, "slow"), 0);
    sem_init(&slow.has_begun, 0, 0);
    sem_init(&slow.may_end, 0, 0);
    assert_int_equal(pthread_create(&threads[0], NULL, ask, &slow), 0);
    sem_wait(&slow.has_begun);
    opts.patience_s = 1;
    assert_int_equal(ash_grammar_cache_make(slow.cache, &maker, &opts, &grammar, &err), -EAGAIN);
    assert_int_equal(pthread_create(&threads[1], NULL, ask, &slow), 0);
    sem_post(&slow.may_end);
    for (size_t i = 0; i < 2; i++)
        pthread_join(threads[i], &grammars[i]);
    assert_ptr_equal(grammars[0], grammars[1]);
    assert_int_equal(ash_grammar_cache_compiled(slow.cache), 1);
    assert_int_equal(ash_grammar_cache_make(slow.cache, &maker, &opts, &grammar, &err), 0);
    ash_grammar_put(grammar);
    ash_grammar_put(grammars[0]);
    ash_grammar_put(grammars[1]);
    ash_grammar_cache_close(slow.cache);
    ash_str_fini(&slow.key);
}

/* A large source, and one that takes long, are for those who wait. */
static void a_hurried_caller_gets_small_grammars_only(void **state)
{
    static const char large[] = "((([a-z]{0,100}){0,100}){0,100}){0,100}";
    struct ash_grammar_cache *cache = ash_grammar_cache_open(2);
    struct ash_grammar_source source = {ASH_GRAMMAR_REGEX, large, sizeof(large) - 1};
    struct ash_grammar_opts opts = ash_grammar_default_opts();
    struct ash_grammar *grammar = NULL;
    struct ash_err err = {0};
    char *long_source = calloc(1, 20001);

    (void)state;
    memset(long_source, 'a', 20000);
    opts.patience_s = 1e-6;
    assert_int_equal(ash_grammar_cache_get(cache, &source, &opts, &grammar, &err), -EAGAIN);
    source = (struct ash_grammar_source){ASH_GRAMMAR_REGEX, long_source, 20000};
    opts.patience_s = 100;
    assert_int_equal(ash_grammar_cache_get(cache, &source, &opts, &grammar, &err), -EAGAIN);
    assert_int_equal(ash_grammar_cache_get(cache, &source, NULL, &grammar, &err), 0);
    ash_grammar_put(grammar);
    assert_int_equal(ash_grammar_cache_get(cache, &source, &opts, &grammar, &err), 0); /* it is there now */
    ash_grammar_put(grammar);
    ash_grammar_cache_close(cache);
    free(long_source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regular_expressions),
        cmocka_unit_test(choices),
        cmocka_unit_test(gbnf_grammars),
        cmocka_unit_test(schemas_of_scalars),
        cmocka_unit_test(schemas_of_arrays_and_objects),
        cmocka_unit_test(schemas_together),
        cmocka_unit_test(unsupported_schemas_name_the_keyword),
        cmocka_unit_test(schemas_of_zod_and_pydantic),
        cmocka_unit_test(a_grammar_too_large_to_follow_is_no_lack_of_memory),
        cmocka_unit_test(a_special_token_is_not_text),
        cmocka_unit_test(equal_sources_are_compiled_once),
        cmocka_unit_test(a_source_asked_for_twice_at_once_is_compiled_once),
        cmocka_unit_test(a_hurried_caller_gets_small_grammars_only),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
