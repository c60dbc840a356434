/* Grammars that make a model call: what each format takes and refuses, and that any walk through the masks gives calls
 * that the parser of the format reads back, with arguments that fit their schemas. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/str.h"
#include "serve/tools/tools.h"
#include "unit/serve/grammar/vocabularies.h"

#define BEGIN "<｜tool▁calls▁begin｜>"
#define END "<｜tool▁calls▁end｜>"
#define ONE "<｜tool▁call▁begin｜>"
#define ONE_END "<｜tool▁call▁end｜>"
#define SEP "<｜tool▁sep｜>"

static struct vocabulary vocabulary;
static struct ash_tool tools[2];
static struct ash_grammar *argument_grammars[2];

static int set_up(void **state)
{
    struct ash_err err = {0};

    (void)state;
    vocabulary_init(&vocabulary, 1, 100);
    tools[0].name = "add";
    tools[0].parameters = json_loads("{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}, \"b\": "
                                     "{\"enum\": [\"x\", \"</tool_call>\"]}}, \"required\": [\"a\"]}",
                                     0, NULL);
    tools[1].name = "look_up";
    tools[1].parameters = json_loads("{\"type\": \"object\", \"properties\": {}}", 0, NULL);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ash_grammar_from_json_schema(tools[i].parameters, NULL, &argument_grammars[i], &err), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        json_decref((json_t *)(uintptr_t)tools[i].parameters);
        ash_grammar_put(argument_grammars[i]);
    }
    vocabulary_fini(&vocabulary);
    return 0;
}

static struct ash_grammar *build(struct ash_tool_grammar_opts opts)
{
    struct ash_grammar *grammar = NULL;
    struct ash_err err = {0};

    opts.tools = tools;
    opts.count = opts.count > 0 ? opts.count : 2;
    opts.trie = vocabulary.trie;
    if (ash_tool_grammar(&opts, NULL, &grammar, &err) < 0) fail_msg("%s", err.text);
    return grammar;
}

/* texts: those that are taken, NULL, those that are refused, NULL. */
static void check(struct ash_tool_grammar_opts opts, const char *const *texts)
{
    struct ash_grammar *grammar = build(opts);
    bool expected = true;

    for (; *texts != NULL || expected; texts++) {
        if (*texts == NULL) {
            expected = false;
            continue;
        }
        if (grammar_takes(grammar, &vocabulary, *texts, strlen(*texts)) != expected)
            fail_msg("format %d: '%s' should be %s", (int)opts.format, *texts, expected ? "taken" : "refused");
    }
    ash_grammar_put(grammar);
}
#define CHECK(opts, ...) check((struct ash_tool_grammar_opts)opts, (const char *const[]){__VA_ARGS__, NULL})
#define OPTS(...)                                                                                                      \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

static void required_calls(void **state)
{
    (void)state;
    CHECK(OPTS(.format = ASH_TOOLS_HERMES, .choice = ASH_TOOL_REQUIRED),
          "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>",
          "<tool_call>\n{\"name\": \"look_up\", \"arguments\": {}}\n</tool_call>", NULL, "hello", "",
          "<tool_call>\n{\"name\": \"other\", \"arguments\": {}}\n</tool_call>",
          "<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>",
          "<tool_call>\n{\"name\": \"look_up\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"look_up\", "
          "\"arguments\": {}}\n</tool_call>");
    CHECK(
        OPTS(.format = ASH_TOOLS_HERMES, .choice = ASH_TOOL_REQUIRED, .is_parallel = true, .count = 1,
             .tags = {"<think>", "</think>"}),
        "<think>\nhm <tool_call></think>\n\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>\n"
        "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 2}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>", NULL, "<think>\nhm</think>",
        "<tool_call>\n{\"name\": \"look_up\", \"arguments\": {}}\n</tool_call>");
    CHECK(OPTS(.format = ASH_TOOLS_HERMES, .choice = ASH_TOOL_REQUIRED, .tags = {"<think>", "</think>"},
               .is_thinking = true),
          "so </th</think><tool_call>\n{\"name\": \"look_up\", \"arguments\": {}}\n</tool_call>", NULL,
          "<tool_call>\n{\"name\": \"look_up\", \"arguments\": {}}\n</tool_call>");
    CHECK(OPTS(.format = ASH_TOOLS_LLAMA3, .choice = ASH_TOOL_REQUIRED, .is_parallel = true),
          "{\"name\": \"add\", \"parameters\": {\"a\": -3}}",
          "{\"name\": \"look_up\", \"parameters\": {}}; {\"name\": \"look_up\", \"parameters\": {}}", NULL,
          "{\"name\": \"add\"}");
    CHECK(OPTS(.format = ASH_TOOLS_MISTRAL, .choice = ASH_TOOL_REQUIRED, .is_parallel = true),
          "[TOOL_CALLS] [{\"name\": \"add\", \"arguments\": {\"a\": 1}}, {\"name\": \"look_up\", \"arguments\": {}}]",
          "[TOOL_CALLS][{\"name\": \"look_up\", \"arguments\": {}}]", NULL, "[TOOL_CALLS][]");
    CHECK(OPTS(.format = ASH_TOOLS_MISTRAL_NAMED, .choice = ASH_TOOL_REQUIRED, .is_parallel = true),
          "[TOOL_CALLS]add[ARGS]{\"a\": 1}[TOOL_CALLS]look_up[ARGS]{}", NULL, "[TOOL_CALLS]other[ARGS]{}");
    CHECK(OPTS(.format = ASH_TOOLS_DEEPSEEK_V3, .choice = ASH_TOOL_REQUIRED, .is_parallel = true),
          BEGIN ONE "function" SEP "look_up\n```json\n{}\n```" ONE_END "\n" ONE "function" SEP
                    "add\n```json\n{\"a\": 1}\n```" ONE_END END,
          NULL, BEGIN END);
    CHECK(OPTS(.format = ASH_TOOLS_DEEPSEEK_V31, .choice = ASH_TOOL_REQUIRED, .is_parallel = true),
          BEGIN ONE "look_up" SEP "{}" ONE_END ONE "add" SEP "{\"a\": 1}" ONE_END END, NULL,
          BEGIN ONE "add" SEP "{}" ONE_END END);
}

static void required_calls_in_tags(void **state)
{
    (void)state;
    CHECK(OPTS(.format = ASH_TOOLS_QWEN3_CODER, .choice = ASH_TOOL_REQUIRED),
          "<tool_call>\n<function=add>\n<parameter=a>\n-3\n</parameter>\n</function>\n</tool_call>",
          "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\nx\n</parameter>\n</function>\n"
          "</tool_call>",
          "<tool_call>\n<function=look_up>\n</function>\n</tool_call>", NULL, "hello",
          "<tool_call>\n<function=add>\n</function>\n</tool_call>",
          "<tool_call>\n<function=add>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>",
          "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\ny\n</parameter>\n</function>\n"
          "</tool_call>",
          "<tool_call>\n<function=look_up>\n<parameter=q>\n1\n</parameter>\n</function>\n</tool_call>");
    CHECK(
        OPTS(.format = ASH_TOOLS_DEEPSEEK_V32, .choice = ASH_TOOL_REQUIRED, .is_parallel = true),
        "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"add\">\n<｜DSML｜parameter name=\"a\" string=\"false\">1"
        "</｜DSML｜parameter>\n<｜DSML｜parameter name=\"b\" string=\"true\">x</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
        "<｜DSML｜invoke name=\"look_up\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        NULL,
        "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"add\">\n<｜DSML｜parameter name=\"a\" string=\"true\">1"
        "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        "<｜DSML｜function_calls>\n</｜DSML｜function_calls>");
    CHECK(
        OPTS(.format = ASH_TOOLS_GLM, .choice = ASH_TOOL_REQUIRED, .is_parallel = true),
        "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>\n<tool_call>look_up\n</tool_call>",
        "<tool_call>add<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>", NULL, "<tool_call>add\n</tool_call>",
        "<tool_call>other\n</tool_call>");
    CHECK(OPTS(.format = ASH_TOOLS_HARMONY, .choice = ASH_TOOL_REQUIRED, .is_parallel = true,
               .tags = {"<|channel|>analysis<|message|>", "<|end|>"}),
          "<|channel|>commentary to=functions.add <|constrain|>json<|message|>{\"a\": 1}",
          "<|channel|>analysis<|message|>so <|en<|end|><|start|>assistant<|channel|>commentary to=functions.look_up "
          "<|constrain|>json<|message|>{}",
          NULL, "<|channel|>final<|message|>no",
          "<|channel|>commentary to=functions.add <|constrain|>json<|message|>{}");
}

static void free_text_until_a_call(void **state)
{
    (void)state;
    CHECK(OPTS(.format = ASH_TOOLS_HERMES), "", "hello <tool",
          "<<tool_call>\n{\"name\": \"look_up\", \"arguments\": {}}\n</tool_call>",
          "see: <tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>", NULL, "a <tool_call>",
          "<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>",
          "<tool_call>\n{\"name\": \"look_up\", \"arguments\": {}}\n</tool_call> more",
          "<tool_call>\n{\"name\": \"look_up\", \"arguments\": {}}\n</tool_call><tool_call>\n{\"name\": \"look_up\", "
          "\"arguments\": {}}\n</tool_call>");
    CHECK(
        OPTS(.format = ASH_TOOLS_HERMES, .is_parallel = true),
        "a<tool_call>\n{\"name\": \"look_up\", \"arguments\": {}}\n</tool_call> b <tool_call>\n{\"name\": \"look_up\", "
        "\"arguments\": {}}\n</tool_call>c",
        NULL, "<tool_call>x");
    CHECK(OPTS(.format = ASH_TOOLS_LLAMA3), "", "{", "{\"name\": \"Bob\"}", "hi {\"name\": \"add\", \"parameters\": 1",
          "{\"name\": \"add\", \"parameters\": {\"a\": 1}}", "{\"name\": \"add\", \"par", NULL,
          "{\"name\": \"add\", \"parameters\": {}}", "{\"name\": \"add\", \"parameters\": {\"a\": 1}} x",
          "{\"name\": \"add\", \"parameters\": {\"a\": 1}}; {\"name\": \"look_up\", \"parameters\": {}}");
    CHECK(OPTS(.format = ASH_TOOLS_LLAMA3, .is_parallel = true),
          "{\"name\": \"add\", \"parameters\": {\"a\": 1}}; {\"name\": "
          "\"look_up\", \"parameters\": {}}",
          NULL, "{\"name\": \"add\", \"parameters\": {\"a\": 1}}; x");
    CHECK(OPTS(.format = ASH_TOOLS_MISTRAL), "x", "[TOOL_CALLS][{\"name\": \"look_up\", \"arguments\": {}}]", NULL,
          "[TOOL_CALLS]");
    CHECK(OPTS(.format = ASH_TOOLS_DEEPSEEK_V31, .tags = {"<think>", "</think>"}),
          "<think>" BEGIN "</think>ok" BEGIN ONE "look_up" SEP "{}" ONE_END END, NULL, "ok" BEGIN);
    CHECK(OPTS(.format = ASH_TOOLS_HARMONY), "<|channel|>final<|message|>Hi",
          "<|channel|>commentary to=functions.add <|constrain|>json<|message|>{\"a\": 1}", NULL,
          "<|channel|>commentary to=functions.add",
          "<|channel|>commentary to=functions.none <|constrain|>json<|message|>{}");
}

/* ---- walks ------------------------------------------------------------------------------------------------------- */

struct seen {
    struct ash_str arguments;
    char name[32];
    size_t calls;
    bool has_content;
};

static int take(void *ctx, const struct ash_tool_event *event)
{
    struct seen *seen = ctx;

    if (event->kind == ASH_TOOL_CONTENT) seen->has_content = true;
    if (event->kind == ASH_TOOL_CALL_BEGIN) {
        strcpy(seen->name, event->name);
        ash_str_clear(&seen->arguments);
        seen->calls++;
    }
    if (event->kind == ASH_TOOL_ARGUMENTS) ash_str_add(&seen->arguments, event->text, event->size_bytes);
    if (event->kind == ASH_TOOL_CALL_END) {
        int tool = strcmp(seen->name, tools[0].name) == 0 ? 0 : 1;
        assert_string_equal(seen->name, tools[tool].name);
        assert_true(
            grammar_takes(argument_grammars[tool], &vocabulary, seen->arguments.data, seen->arguments.size_bytes));
    }
    return 0;
}

/* A walk of drawn tokens until the end is allowed. */
static void walk(struct ash_grammar *grammar, uint64_t seed, struct ash_str *text)
{
    struct ash_matcher *matcher = NULL;
    struct ash_err err = {0};

    assert_int_equal(ash_matcher_open(grammar, vocabulary.trie, &matcher, &err), 0);
    for (uint64_t step = 0;; step++) {
        const uint64_t *mask = ash_matcher_mask(matcher);
        int32_t id;
        assert_non_null(mask);
        if (mask_has(mask, vocabulary.eos)) break;
        id = mask_draw(mask, vocabulary.count, seed, step);
        assert_int_equal(ash_matcher_accept(matcher, id), 0);
        ash_str_add(text, vocabulary.tokens[id].bytes, vocabulary.tokens[id].size_bytes);
        if (step > 2000) fail_msg("no end: %.300s", text->data);
    }
    ash_matcher_close(matcher);
}

static void walks_are_calls(void **state)
{
    (void)state;
    for (int format = ASH_TOOLS_HERMES; format < ASH_TOOL_FORMATS; format++) {
        struct ash_grammar *grammar = build((struct ash_tool_grammar_opts){
            .format = (enum ash_tool_format)format, .choice = ASH_TOOL_REQUIRED, .is_parallel = true});
        for (uint64_t seed = 1; seed <= 40; seed++) {
            struct ash_str text = {0};
            struct seen seen = {0};
            struct ash_tool_parser_opts opts = {
                .format = (enum ash_tool_format)format, .tools = tools, .tool_count = 2, .take = take, .ctx = &seen};
            struct ash_tool_parser *parser = NULL;
            struct ash_err err = {0};
            walk(grammar, seed, &text);
            assert_int_equal(ash_tool_parser_open(&opts, &parser, &err), 0);
            assert_int_equal(ash_tool_parser_push(parser, text.data, text.size_bytes), 0);
            assert_int_equal(ash_tool_parser_finish(parser), 0);
            if (seen.calls == 0 || seen.has_content) fail_msg("format %d, seed %d: %s", format, (int)seed, text.data);
            ash_tool_parser_close(parser);
            ash_str_fini(&seen.arguments);
            ash_str_fini(&text);
        }
        ash_grammar_put(grammar);
    }
}

static void bad_tools_are_refused(void **state)
{
    struct ash_tool bad[] = {{"x", json_loads("{\"properties\": {\"q\": {\"not\": {}}}}", 0, NULL)}};
    struct ash_tool_grammar_opts opts = {.format = ASH_TOOLS_HERMES, .tools = bad, .count = 1, .trie = vocabulary.trie};
    struct ash_grammar *grammar = NULL;
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_tool_grammar(&opts, NULL, &grammar, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "tool 'x': schema #/properties/q/not"));
    bad[0].name = "a\"b";
    assert_int_equal(ash_tool_grammar(&opts, NULL, &grammar, &err), -EINVAL);
    opts.format = ASH_TOOLS_NONE;
    assert_int_equal(ash_tool_grammar(&opts, NULL, &grammar, &err), -ENOTSUP);
    opts.count = 0;
    assert_int_equal(ash_tool_grammar(&opts, NULL, &grammar, &err), -EINVAL);
    json_decref((json_t *)(uintptr_t)bad[0].parameters);
}

/* A mark that is a special token is asked for as that token, and its spelling is not enough. */
static void marks_are_special_tokens_where_the_vocabulary_has_them(void **state)
{
    static struct vocabulary special;
    struct ash_tool_grammar_opts opts = {
        .format = ASH_TOOLS_MISTRAL, .choice = ASH_TOOL_REQUIRED, .tools = tools, .count = 1};
    struct ash_grammar *grammar = NULL;
    struct ash_matcher *matcher = NULL;
    struct ash_err err = {0};

    (void)state;
    vocabulary_init(&special, 1, 0);
    ash_vocab_trie_close(special.trie);
    vocabulary_add(&special, "[TOOL_CALLS]", 12, true);
    assert_int_equal(ash_vocab_trie_from_tokens(special.tokens, special.count, &special.eos, 1, &special.trie, &err),
                     0);
    opts.trie = special.trie;
    assert_int_equal(ash_tool_grammar(&opts, NULL, &grammar, &err), 0);
    assert_int_equal(ash_matcher_open(grammar, special.trie, &matcher, &err), 0);
    for (int32_t id = 0; id < (int32_t)special.count; id++)
        assert_int_equal(mask_has(ash_matcher_mask(matcher), id), id == (int32_t)special.count - 1);
    assert_int_equal(ash_matcher_accept(matcher, (int32_t)special.count - 1), 0);
    assert_int_equal(ash_matcher_accept(matcher, '['), 0);
    ash_matcher_close(matcher);
    ash_grammar_put(grammar);
    vocabulary_fini(&special);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(required_calls),
        cmocka_unit_test(required_calls_in_tags),
        cmocka_unit_test(free_text_until_a_call),
        cmocka_unit_test(walks_are_calls),
        cmocka_unit_test(bad_tools_are_refused),
        cmocka_unit_test(marks_are_special_tokens_where_the_vocabulary_has_them),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
