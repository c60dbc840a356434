/* Tool calls and thoughts in answers: what each format gives out, and the same for every cut into pieces. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/assert.h"
#include "base/rng.h"
#include "base/str.h"
#include "serve/tools/tools.h"

static struct ash_tool known[] = {{"get_weather", NULL}, {"add", NULL}, {"write", NULL}};

static int set_up(void **state)
{
    (void)state;
    known[2].parameters = json_loads(
        "{\"$defs\": {\"zip\": {\"type\": [\"string\", \"null\"]}}, \"properties\": {\"text\": {\"type\": "
        "\"string\"}, \"on\": {\"type\": \"boolean\"}, \"code\": {\"type\": [\"string\", \"null\"]}, \"zip\": "
        "{\"anyOf\": [{\"$ref\": \"#/$defs/zip\"}]}}}",
        0, NULL);
    return known[2].parameters != NULL ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    json_decref((json_t *)(uintptr_t)known[2].parameters);
    return 0;
}
static const struct ash_thought_tags think = {"<think>", "</think>"};

/* Events as text: T[thought] C[content] B[name] A[arguments] E, neighbours of a kind joined. */
struct transcript {
    struct ash_str text;
    int last;
    size_t begun, ended;
    char ids[8][40];
};

static int take(void *ctx, const struct ash_tool_event *event)
{
    static const char *const letters[] = {"C[", "T[", "B[", "A[", "E"};
    struct transcript *transcript = ctx;
    bool is_text = event->kind != ASH_TOOL_CALL_BEGIN && event->kind != ASH_TOOL_CALL_END;

    if (is_text) assert_true(event->size_bytes > 0);
    if (is_text && transcript->last == (int)event->kind) {
        transcript->text.size_bytes--; /* the bracket */
    } else {
        assert_int_equal(ash_str_adds(&transcript->text, letters[event->kind]), 0);
    }
    if (event->kind == ASH_TOOL_CALL_BEGIN) {
        assert_int_equal(event->call, transcript->begun);
        strcpy(transcript->ids[transcript->begun++], event->id);
        assert_int_equal(ash_str_addf(&transcript->text, "%s]", event->name), 0);
    } else if (event->kind == ASH_TOOL_CALL_END) {
        assert_int_equal(event->call, transcript->ended++);
    } else {
        assert_int_equal(ash_str_add(&transcript->text, event->text, event->size_bytes), 0);
        assert_int_equal(ash_str_adds(&transcript->text, "]"), 0);
    }
    transcript->last = (int)event->kind;
    return 0;
}

/* Feed text cut by draw: seed 0 gives it whole, 1 byte by byte. */
static void feed(struct ash_tool_parser_opts opts, const char *text, uint64_t seed, struct transcript *transcript)
{
    struct ash_tool_parser *parser = NULL;
    struct ash_err err = {0};
    size_t size = strlen(text);
    uint64_t counter = 0;

    *transcript = (struct transcript){.last = -1};
    opts.take = take;
    opts.ctx = transcript;
    opts.tools = known;
    opts.tool_count = ASH_COUNT(known);
    opts.seed = 7;
    assert_int_equal(ash_tool_parser_open(&opts, &parser, &err), 0);
    for (size_t at = 0, bytes; at < size; at += bytes) {
        bytes = seed == 0 ? size : seed == 1 ? 1 : 1 + ash_rng_below(seed, 0, counter++, 12);
        if (bytes > size - at) bytes = size - at;
        char *copy = malloc(bytes); /* a sanitizer sees a read beyond it */
        memcpy(copy, text + at, bytes);
        assert_int_equal(ash_tool_parser_push(parser, copy, bytes), 0);
        free(copy);
    }
    assert_int_equal(ash_tool_parser_finish(parser), 0);
    assert_int_equal(ash_tool_parser_calls(parser), transcript->begun);
    assert_int_equal(transcript->begun, transcript->ended);
    ash_tool_parser_close(parser);
}

static void check_opts(struct ash_tool_parser_opts opts, const char *text, const char *expected)
{
    for (uint64_t seed = 0; seed < 30; seed++) {
        struct transcript transcript;
        feed(opts, text, seed, &transcript);
        if (strcmp(transcript.text.data != NULL ? transcript.text.data : "", expected) != 0)
            fail_msg("seed %d, '%s': '%s' instead of '%s'", (int)seed, text, transcript.text.data, expected);
        ash_str_fini(&transcript.text);
    }
}

static void check(enum ash_tool_format format, const char *text, const char *expected)
{
    check_opts((struct ash_tool_parser_opts){.format = format}, text, expected);
}

static void hermes_calls(void **state)
{
    (void)state;
    check(ASH_TOOLS_HERMES, "", "");
    check(ASH_TOOLS_HERMES, "Hello <b>there</b>. ", "C[Hello <b>there</b>. ]");
    check(ASH_TOOLS_HERMES, "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": [1, \"}\\\"\"]}}\n</tool_call>",
          "B[add]A[{\"a\": [1, \"}\\\"\"]}]E");
    check(ASH_TOOLS_HERMES,
          "Let me see.\n\n<tool_call>{\"name\": \"a\", \"arguments\": {}}</tool_call>\n<tool_call>\n{\"arguments\": "
          "{\"x\": 1}, \"name\": \"b\\u0063\"}\n</tool_call>\nDone.",
          "C[Let me see.]B[a]A[{}]EB[bc]A[{\"x\": 1}]EC[Done.]");
    check(ASH_TOOLS_HERMES, "<tool_call>{\"name\": \"a\"}</tool_call>", "B[a]A[{}]E");
    check(ASH_TOOLS_HERMES, "<tool_call>nonsense</tool_call> x", "C[<tool_call>nonsense</tool_call> x]");
    check(ASH_TOOLS_HERMES, "<tool_call>{\"name\": 5, \"arguments\": {}}",
          "C[<tool_call>{\"name\": 5, \"arguments\": {}}]");
    check(ASH_TOOLS_HERMES, "<tool_call>{\"name\": \"a\", \"arguments\": {\"x\": ", "B[a]A[{\"x\": ]E");
    check(ASH_TOOLS_HERMES, "a <tool_cal", "C[a <tool_cal]");
    check(ASH_TOOLS_HERMES, "<tool_call>{\"name\": \"a\", \"arguments\": {\"x\": 1}</tool_call>ok",
          "B[a]A[{\"x\": 1}]EC[ok]");
    check(ASH_TOOLS_HERMES, "<<tool_call>{\"name\": \"a\", \"arguments\": 12 }<</tool_call>", "C[<]B[a]A[12]E");
}

static void llama3_calls(void **state)
{
    (void)state;
    check(ASH_TOOLS_LLAMA3, "{\"name\": \"add\", \"parameters\": {\"a\": 1}}", "B[add]A[{\"a\": 1}]E");
    check(ASH_TOOLS_LLAMA3, "<|python_tag|>{\"type\": \"function\", \"name\": \"add\", \"parameters\": {}}",
          "B[add]A[{}]E");
    check(ASH_TOOLS_LLAMA3,
          "\n{\"name\": \"add\", \"parameters\": {}}; {\"name\": \"get_weather\", \"arguments\": {\"c\": \"x\"}}",
          "B[add]A[{}]EB[get_weather]A[{\"c\": \"x\"}]E");
    check(ASH_TOOLS_LLAMA3, "{\"name\": \"Bob\", \"age\": 5}", "C[{\"name\": \"Bob\", \"age\": 5}]");
    check(ASH_TOOLS_LLAMA3, "{\"name\": \"Bob\", \"parameters\": {}} ", "C[{\"name\": \"Bob\", \"parameters\": {}} ]");
    check(ASH_TOOLS_LLAMA3, "Use {\"name\": \"add\", \"parameters\": {}}",
          "C[Use {\"name\": \"add\", \"parameters\": {}}]");
    check(ASH_TOOLS_LLAMA3, "  hello", "C[  hello]");
    check(ASH_TOOLS_LLAMA3, "<|python_tag|>print(1)", "C[<|python_tag|>print(1)]");
    check(ASH_TOOLS_LLAMA3, "{\"name\": \"add\"}", "C[{\"name\": \"add\"}]");
    check(ASH_TOOLS_LLAMA3, "{\"name\": \"ad", "C[{\"name\": \"ad]");
}

static void mistral_calls(void **state)
{
    (void)state;
    check(ASH_TOOLS_MISTRAL,
          "[TOOL_CALLS] [{\"name\": \"a\", \"arguments\": {\"x\": [1]}}, {\"name\": \"b\", "
          "\"arguments\": {}, \"id\": \"123456789\"}]",
          "B[a]A[{\"x\": [1]}]EB[b]A[{}]E");
    check(ASH_TOOLS_MISTRAL, "Sure [1].[TOOL_CALLS][{\"name\":\"a\",\"arguments\":{}}]", "C[Sure [1].]B[a]A[{}]E");
    check(ASH_TOOLS_MISTRAL_NAMED, "[TOOL_CALLS]add[ARGS]{\"a\": 1}[TOOL_CALLS]get_weather{\"c\": {}}",
          "B[add]A[{\"a\": 1}]EB[get_weather]A[{\"c\": {}}]E");
    check(ASH_TOOLS_MISTRAL_NAMED, "[TOOL_CALLS]add[CALL_ID]abc123XYZ[ARGS]{\"a\": 1}", "B[add]A[{\"a\": 1}]E");
    check(ASH_TOOLS_MISTRAL, "[TOOL_CALLS] [5]", "C[[TOOL_CALLS] [5]]");
    check(ASH_TOOLS_MISTRAL, "[TOOL_CAL", "C[[TOOL_CAL]");
}

#define BEGIN "<｜tool▁calls▁begin｜>"
#define END "<｜tool▁calls▁end｜>"
#define ONE "<｜tool▁call▁begin｜>"
#define ONE_END "<｜tool▁call▁end｜>"
#define SEP "<｜tool▁sep｜>"

static void deepseek_calls(void **state)
{
    (void)state;
    check(ASH_TOOLS_DEEPSEEK_V3,
          "I will look." BEGIN ONE "function" SEP "get_weather\n```json\n{\"c\": \"x\"}\n```" ONE_END "\n" ONE
          "function" SEP "add\n```json\n{}\n```" ONE_END END,
          "C[I will look.]B[get_weather]A[{\"c\": \"x\"}]EB[add]A[{}]E");
    check(ASH_TOOLS_DEEPSEEK_V31, BEGIN ONE "add" SEP "{\"a\": {\"b\": 1}}" ONE_END ONE "x" SEP "{}" ONE_END END "\nok",
          "B[add]A[{\"a\": {\"b\": 1}}]EB[x]A[{}]EC[ok]");
    check(ASH_TOOLS_DEEPSEEK_V3, "a " BEGIN "text", "C[a " BEGIN "text]");
    check(ASH_TOOLS_DEEPSEEK_V3, "<｜tool", "C[<｜tool]");
}

/* The texts are those that the models' own templates write for these calls. */
static void calls_in_tags(void **state)
{
    (void)state;
    check(ASH_TOOLS_QWEN3_CODER,
          "I look.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nNew \"York\"\n</parameter>\n"
          "<parameter=days>\n3\n</parameter>\n<parameter=tags>\n[\"a\", {\"b\": 1}]\n</parameter>\n</function>\n"
          "</tool_call>",
          "C[I look.]B[get_weather]A[{\"city\": \"New \\\"York\\\"\", \"days\": 3, \"tags\": [\"a\", {\"b\": 1}]}]E");
    check(
        ASH_TOOLS_QWEN3_CODER,
        "<tool_call>\n<function=clock>\n</function>\n</tool_call>\n<tool_call>\n<function=write>\n<parameter=text>\n\n"
        "  a <b>\n</param\n</parameter>\n<parameter=on>\nTrue\n</parameter>\n<parameter=code>\n12\n</parameter>\n"
        "<parameter=zip>\nnull\n</parameter>\n</function>\n</tool_call> ok",
        "B[clock]A[{}]EB[write]A[{\"text\": \"\\n  a <b>\\n</param\", \"on\": true, \"code\": \"12\", \"zip\": null}]"
        "EC[ok]");
    check(ASH_TOOLS_QWEN3_CODER, "<tool_call>\n{\"name\": 1}", "C[<tool_call>\n{\"name\": 1}]");
    check(ASH_TOOLS_QWEN3_CODER, "<tool_call>\n<function=write>\n<parameter=text>\nab", "B[write]A[{\"text\": \"ab]E");
    check(
        ASH_TOOLS_DEEPSEEK_V32,
        "Sure.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" "
        "string=\"true\">12</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">3</｜DSML｜parameter>\n"
        "</｜DSML｜invoke>\n<｜DSML｜invoke name=\"clock\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        "C[Sure.]B[get_weather]A[{\"city\": \"12\", \"days\": 3}]EB[clock]A[{}]E");
    check(
        ASH_TOOLS_DEEPSEEK_V4,
        "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"write\">\n<｜DSML｜parameter name=\"text\">é\n</｜DSML｜parameter>\n"
        "</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
        "B[write]A[{\"text\": \"é\\n\"}]E");
    check(
        ASH_TOOLS_GLM,
        "\nOn it.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Bern</arg_value>\n<arg_key>days</arg_key>\n"
        "<arg_value>3</arg_value>\n</tool_call>\n<tool_call>clock\n</tool_call>",
        "C[\nOn it.]B[get_weather]A[{\"city\": \"Bern\", \"days\": 3}]EB[clock]A[{}]E");
    check(
        ASH_TOOLS_GLM,
        "<tool_call>write<arg_key>text</arg_key><arg_value>a</arg_key></arg_value><arg_key>on</arg_key><arg_value>false"
        "</arg_value></tool_call>",
        "B[write]A[{\"text\": \"a</arg_key>\", \"on\": false}]E");
    check(ASH_TOOLS_GLM, "<tool_call>{\"name\": 1}</tool_call>", "C[<tool_call>{\"name\": 1}</tool_call>]");
}

static void harmony_messages(void **state)
{
    (void)state;
    check(ASH_TOOLS_HARMONY,
          "<|channel|>analysis<|message|>Weather < 5?<|end|><|start|>assistant<|channel|>commentary "
          "to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Bern\"}<|call|>",
          "T[Weather < 5?]B[get_weather]A[{\"city\": \"Bern\"}]E");
    check(ASH_TOOLS_HARMONY,
          "<|channel|>analysis<|message|>So.<|end|><|start|>assistant<|channel|>final<|message|>Hi <|you",
          "T[So.]C[Hi <|you]");
    check(ASH_TOOLS_HARMONY, " to=functions.add<|channel|>commentary json<|message|>{}<|call|>", "B[add]A[{}]E");
    check(ASH_TOOLS_HARMONY,
          "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant to=functions.add<|channel|>commentary "
          "json<|message|>{\"a\": 1}",
          "C[I look.]B[add]A[{\"a\": 1}]E");
    check(ASH_TOOLS_HARMONY, "Plain <b>text</b>", "C[Plain <b>text</b>]");
    check(ASH_TOOLS_HARMONY, "<b>text</b>", "C[<b>text</b>]");
    check(ASH_TOOLS_HARMONY, "<|channel|>final", "");
    check_opts(
        (struct ash_tool_parser_opts){.format = ASH_TOOLS_HARMONY,
                                      .tags = {"<|channel|>analysis<|message|>", "<|end|>"}},
        "<|channel|>analysis<|message|>So.<|end|><|start|>assistant<|channel|>analysis<|message|>More.<|end|><|start|>"
        "assistant<|channel|>final<|message|>Hi",
        "T[So.More.]C[Hi]");
    check(ASH_TOOLS_HARMONY, "<|channel|>final<|message|>a<|return|>rest", "C[a]");
}

static void thoughts(void **state)
{
    struct ash_tool_parser_opts opts = {.format = ASH_TOOLS_HERMES, .tags = think}, open = opts, plain = opts;

    (void)state;
    open.is_thinking = true;
    plain.format = ASH_TOOLS_NONE;
    check_opts(opts, "<think>\nI <b>think</b>.\n</think>\n\nHi  there ", "T[I <b>think</b>.]C[Hi  there ]");
    check_opts(plain, "\n<think>a</think>b\n", "T[a]C[b\n]");
    check_opts(open, "so\nI am</thin</think>\n\n<tool_call>{\"name\": \"a\", \"arguments\": {}}</tool_call>",
               "T[so\nI am</thin]B[a]A[{}]E");
    check_opts(open, "never closed <tool_call>", "T[never closed <tool_call>]");
    check_opts(opts, "<thinking aloud", "C[<thinking aloud]");
    check_opts(plain, " <th", "C[ <th]");
    check_opts(opts, "<think></think>x", "C[x]");
    check_opts(opts, "no <think>a</think>", "C[no <think>a</think>]");
}

static void templates_say_the_format(void **state)
{
    static const struct {
        const char *template;
        enum ash_tool_format format;
        bool thinks;
    } cases[] = {
        {"{{ '<tool_call>\\n{\"name\": ' }} {% if x %}<think>", ASH_TOOLS_HERMES, true},
        {"[AVAILABLE_TOOLS] ... [TOOL_CALLS] [{\"name\"", ASH_TOOLS_MISTRAL, false},
        {"[TOOL_CALLS]' + name + '[ARGS]", ASH_TOOLS_MISTRAL_NAMED, false},
        {BEGIN ONE "' + tool['type'] + '" SEP "\\n```json", ASH_TOOLS_DEEPSEEK_V3, false},
        {BEGIN ONE "' + name + '" SEP "</think>", ASH_TOOLS_DEEPSEEK_V31, true},
        {"<|start_header_id|> {\"name\": function name, \"parameters\": dictionary", ASH_TOOLS_LLAMA3, false},
        {"<|header_start|>assistant<|header_end|>\n\n{\"name\": \"x\", \"parameters\": ", ASH_TOOLS_LLAMA3, false},
        {"<|im_start|>", ASH_TOOLS_NONE, false},
        {"<tool_call>\n<function=", ASH_TOOLS_NONE, false},
        {"<tool_call>\n<function=x>\n<parameter=y>", ASH_TOOLS_QWEN3_CODER, false},
        {"set dsml = '｜DSML｜' ... dsml + 'function_calls>'", ASH_TOOLS_DEEPSEEK_V32, false},
        {"set dsml = '｜DSML｜' ... dsml + 'tool_calls>' <think>", ASH_TOOLS_DEEPSEEK_V4, true},
        {"<tool_call>{name}\n<arg_key>{key}</arg_key>", ASH_TOOLS_GLM, false},
        {"<|start|>assistant to=' ~ name ~ '<|channel|>commentary json<|message|>{}<|call|>", ASH_TOOLS_HARMONY, false},
    };

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        assert_int_equal(ash_tool_format_detect(cases[i].template), cases[i].format);
        assert_int_equal(ash_thought_tags_detect(cases[i].template).open != NULL, cases[i].thinks);
    }
    assert_int_equal(ash_tool_format_find("mistral_named"), ASH_TOOLS_MISTRAL_NAMED);
    assert_int_equal(ash_tool_format_find("other"), -1);
    assert_true(ash_thought_is_open(think, "assistant\n<think>\n", 18));
    assert_false(ash_thought_is_open(think, "<think>\n\n</think>\n\n", 19));
    assert_false(ash_thought_is_open((struct ash_thought_tags){0}, "x", 1));
}

static void ids_differ_and_come_back(void **state)
{
    const char *text = "[TOOL_CALLS][{\"name\":\"a\",\"arguments\":{}},{\"name\":\"b\",\"arguments\":{}}]";
    struct transcript first, second;

    (void)state;
    feed((struct ash_tool_parser_opts){.format = ASH_TOOLS_MISTRAL}, text, 0, &first);
    feed((struct ash_tool_parser_opts){.format = ASH_TOOLS_MISTRAL}, text, 1, &second);
    assert_string_equal(first.ids[0], second.ids[0]);
    assert_string_not_equal(first.ids[0], first.ids[1]);
    assert_int_equal(strlen(first.ids[0]), 9);
    ash_str_fini(&first.text);
    ash_str_fini(&second.text);
}

static int refuse_event(void *ctx, const struct ash_tool_event *event)
{
    (void)ctx, (void)event;
    return -EPIPE;
}

static void an_error_of_the_taker_ends_it(void **state)
{
    struct ash_tool_parser_opts opts = {.format = ASH_TOOLS_HERMES, .take = refuse_event};
    struct ash_tool_parser *parser = NULL;
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_tool_parser_open(&opts, &parser, &err), 0);
    assert_int_equal(ash_tool_parser_push(parser, "hello", 5), -EPIPE);
    assert_int_equal(ash_tool_parser_push(parser, "hello", 5), -EPIPE);
    assert_int_equal(ash_tool_parser_finish(parser), -EPIPE);
    ash_tool_parser_close(parser);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hermes_calls),
        cmocka_unit_test(llama3_calls),
        cmocka_unit_test(mistral_calls),
        cmocka_unit_test(deepseek_calls),
        cmocka_unit_test(calls_in_tags),
        cmocka_unit_test(harmony_messages),
        cmocka_unit_test(thoughts),
        cmocka_unit_test(templates_say_the_format),
        cmocka_unit_test(ids_differ_and_come_back),
        cmocka_unit_test(an_error_of_the_taker_ends_it),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
