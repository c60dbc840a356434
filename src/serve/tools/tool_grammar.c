/* Grammars that make a model call tools in its own format: the marks as they are, the arguments by their schemas. Where
 * a call is not required, text is free until a mark comes. */
#include "serve/tools/tools.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"
#include "serve/grammar/pda.h"
#include "serve/grammar/schema.h"
#include "serve/tools/tagged.h"
#include "serve/tools/tool_draw.h"
#include "serve/tools/tools_priv.h"

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* How a format writes calls: first, then for each call `before`, its name, `middle`, its arguments and `after`, with
 * `between` from one to the next, and last. */
static const struct form {
    const char *first, *before, *middle, *after, *between, *last; /* between NULL: there is one call */
} forms[ASH_TOOL_FORMATS] = {
    [ASH_TOOLS_HERMES] = {ASH_HERMES_OPEN, "\n{\"name\": \"", "\", \"arguments\": ", "}\n" ASH_HERMES_CLOSE,
                          "\n" ASH_HERMES_OPEN, ""},
    [ASH_TOOLS_LLAMA3] = {NULL, "{\"name\": \"", "\", \"parameters\": ", "}", "; ", ""},
    [ASH_TOOLS_MISTRAL] = {ASH_MISTRAL_CALLS, "{\"name\": \"", "\", \"arguments\": ", "}", ", ", "]"},
    [ASH_TOOLS_MISTRAL_NAMED] = {ASH_MISTRAL_CALLS, "", ASH_MISTRAL_ARGS, "", ASH_MISTRAL_CALLS, ""},
    [ASH_TOOLS_DEEPSEEK_V3] = {ASH_DEEPSEEK_CALLS_BEGIN, ASH_DEEPSEEK_CALL_BEGIN "function" ASH_DEEPSEEK_SEP,
                               "\n```json\n", "\n```" ASH_DEEPSEEK_CALL_END, "\n", ASH_DEEPSEEK_CALLS_END},
    [ASH_TOOLS_DEEPSEEK_V31] = {ASH_DEEPSEEK_CALLS_BEGIN, ASH_DEEPSEEK_CALL_BEGIN, ASH_DEEPSEEK_SEP,
                                ASH_DEEPSEEK_CALL_END, "", ASH_DEEPSEEK_CALLS_END},
    [ASH_TOOLS_QWEN3_CODER] = {ASH_HERMES_OPEN, "\n<function=", ">\n", "</function>\n" ASH_HERMES_CLOSE,
                               "\n" ASH_HERMES_OPEN, ""},
    [ASH_TOOLS_DEEPSEEK_V32] = {ASH_DSML_CALLS, "\n<｜DSML｜invoke name=\"", "\">\n", "</｜DSML｜invoke>", "",
                                "\n</｜DSML｜function_calls>"},
    [ASH_TOOLS_DEEPSEEK_V4] = {ASH_DSML4_CALLS, "\n<｜DSML｜invoke name=\"", "\">\n", "</｜DSML｜invoke>", "",
                               "\n</｜DSML｜tool_calls>"},
    [ASH_TOOLS_GLM] = {ASH_HERMES_OPEN, "", "\n", ASH_HERMES_CLOSE, "\n" ASH_HERMES_OPEN, ""},
    [ASH_TOOLS_HARMONY] = {ASH_HARMONY_CHANNEL "commentary to=functions.", "", " <|constrain|>json" ASH_HARMONY_MESSAGE,
                           "", NULL, ""},
};

/* A piece of a form. GLM's newer models write no newlines. */
static uint32_t draw_piece(struct ash_tool_builder *builder, uint32_t at, const char *piece)
{
    if (builder->opts->format == ASH_TOOLS_GLM && piece[0] == '\n')
        return ash_tool_draw_mark(builder, ash_tool_draw_line(builder, at), piece + 1);
    return ash_tool_draw_mark(builder, at, piece);
}

/* A call of any of the tools, as a rule. */
static uint32_t any_call(struct ash_tool_builder *builder)
{
    const struct form *form = &forms[builder->opts->format];
    uint32_t rule = ash_pda_add_rule(builder->draft);

    for (size_t i = 0; i < builder->opts->count; i++) {
        uint32_t at = draw_piece(builder, ash_pda_rule_start(builder->draft, rule), form->before);

        at = draw_piece(builder, ash_tool_draw_text(builder, at, builder->opts->tools[i].name), form->middle);
        at = draw_piece(builder, ash_tool_draw_call(builder, at, builder->arguments[i]), form->after);
        ash_pda_add_empty(builder->draft, at, ash_pda_rule_end(builder->draft, rule));
    }
    return rule;
}

/* All calls after the first mark, up to where text could continue. */
static uint32_t all_calls(struct ash_tool_builder *builder, uint32_t at)
{
    const struct form *form = &forms[builder->opts->format];
    uint32_t rule = any_call(builder), start, end;

    if (builder->opts->format == ASH_TOOLS_MISTRAL) {
        start = ash_tool_draw_text(builder, at, "[");
        ash_pda_add_text(builder->draft, at, start, " [", 2);
        at = start;
    }
    start = ash_pda_add_state(builder->draft);
    ash_pda_add_empty(builder->draft, at, start);
    end = ash_tool_draw_call(builder, start, rule);
    if (builder->opts->is_parallel && form->between != NULL)
        ash_pda_add_empty(builder->draft, draw_piece(builder, end, form->between), start);
    return draw_piece(builder, end, form->last);
}

/* What follows thoughts: space, or the next message. */
static uint32_t after_thoughts(struct ash_tool_builder *builder, uint32_t from)
{
    if (builder->opts->format == ASH_TOOLS_HARMONY)
        return ash_tool_draw_mark(builder, from, ASH_HARMONY_START "assistant");
    return ash_tool_draw_space(builder, from);
}

/* Thoughts come first, where the model has them. Returns the state after them. */
static uint32_t thoughts(struct ash_tool_builder *builder, uint32_t from)
{
    const struct ash_thought_tags *tags = &builder->opts->tags;
    uint32_t inside, after;

    if (tags->open == NULL) return from;
    inside = builder->opts->is_thinking ? ash_tool_draw_text(builder, from, "")
                                        : ash_tool_draw_mark(builder, from, tags->open);
    inside = ash_tool_draw_until(builder, inside, tags->close, ASH_PDA_UNBOUNDED);
    after = after_thoughts(builder, inside);
    if (!builder->opts->is_thinking) ash_pda_add_empty(builder->draft, from, after);
    return after;
}

/* ---- choices ----------------------------------------------------------------------------------------------------- */

static void draw_required(struct ash_tool_builder *builder, uint32_t from, uint32_t to)
{
    const char *first = forms[builder->opts->format].first;
    uint32_t at = thoughts(builder, from);

    if (first != NULL) at = ash_tool_draw_mark(builder, at, first);
    ash_pda_add_empty(builder->draft, all_calls(builder, at), to);
}

/* The text up to the arguments in calls of Llama 3, as a tree: states, and what follows each by byte (0: nothing). */
struct tree {
    struct {
        uint32_t state;
        bool is_last;
        uint32_t next[256];
    } * nodes;
    size_t count, capacity;
};

/* Add the text of one tool; its arguments and what follows them lead to `after`. */
static void add_beginning(struct ash_tool_builder *builder, struct tree *tree, size_t tool, uint32_t after)
{
    const char *parts[] = {"{\"name\": \"", builder->opts->tools[tool].name, "\", \"parameters\": "};
    uint32_t at = 0;

    for (size_t p = 0; p < 3; p++)
        for (const char *c = parts[p]; *c != '\0'; c++) {
            uint32_t *next = &tree->nodes[at].next[(uint8_t)*c];
            if (*next == 0) {
                *next = (uint32_t)tree->count;
                tree->nodes[tree->count++].state =
                    ash_tool_draw_text(builder, tree->nodes[at].state, (const char[]){*c, '\0'});
            }
            at = *next;
        }
    if (tree->nodes[at].is_last) return; /* the same name again */
    tree->nodes[at].is_last = true;
    ash_pda_add_text(builder->draft, ash_tool_draw_call(builder, tree->nodes[at].state, builder->arguments[tool]),
                     after, "}", 1);
}

/* Llama 3 has no mark: an answer that begins like a call of a known tool must continue as one. Any other is free. */
static int draw_auto_llama(struct ash_tool_builder *builder, uint32_t from, uint32_t to)
{
    struct tree tree = {.count = 1, .capacity = 1};
    uint32_t after = ash_pda_add_state(builder->draft), other = ash_pda_add_state(builder->draft);

    for (size_t i = 0; i < builder->opts->count; i++)
        tree.capacity += strlen(builder->opts->tools[i].name) + 40;
    tree.nodes = calloc(tree.capacity, sizeof(*tree.nodes));
    if (tree.nodes == NULL) return ash_err_set(builder->err, -ENOMEM, "out of memory for a grammar");
    tree.nodes[0].state = ash_tool_draw_text(builder, from, "");
    for (size_t i = 0; i < builder->opts->count; i++)
        add_beginning(builder, &tree, i, after);
    for (size_t n = 0; n < tree.count; n++) {
        if (tree.nodes[n].is_last) continue;
        ash_pda_add_empty(builder->draft, tree.nodes[n].state, to);
        for (int byte = 0; byte < 256; byte++)
            if (tree.nodes[n].next[byte] == 0)
                ash_pda_add_bytes(builder->draft, tree.nodes[n].state, other, (uint8_t)byte, (uint8_t)byte);
    }
    free(tree.nodes);
    ash_pda_add_bytes(builder->draft, other, other, 0, 255);
    ash_pda_add_empty(builder->draft, other, to);
    ash_pda_add_empty(builder->draft, after, to);
    if (builder->opts->is_parallel) {
        uint32_t next = ash_tool_draw_text(builder, after, "; ");
        ash_pda_add_call(builder->draft, next, after, any_call(builder));
    }
    return 0;
}

static int draw_auto(struct ash_tool_builder *builder, uint32_t from, uint32_t to)
{
    const char *first = forms[builder->opts->format].first;
    uint32_t before = ash_pda_add_state(builder->draft), calls;

    if (builder->opts->tags.open != NULL) from = thoughts(builder, from);
    if (first == NULL) return draw_auto_llama(builder, from, to);
    ash_pda_add_empty(builder->draft, from, before);
    calls = all_calls(builder, ash_tool_draw_until(builder, before, first, to));
    ash_pda_add_empty(builder->draft, calls, builder->opts->is_parallel ? before : to);
    return 0;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static int check_name(const struct ash_tool_builder *builder, const char *name)
{
    size_t size = strlen(name);

    for (size_t i = 0; i < size; i++)
        if ((uint8_t)name[i] < 0x20 || name[i] == '"' || name[i] == '\\') size = 0;
    if (size == 0 || size > 256 || ash_utf8_valid_prefix(name, size) < size)
        return ash_err_set(builder->err, -EINVAL, "'%.64s' cannot be the name of a tool", name);
    return 0;
}

/* The rule of each tool's arguments. A tool without a schema has no parameters. */
static int draw_arguments(struct ash_tool_builder *builder)
{
    json_t *empty = json_pack("{s:s, s:{}}", "type", "object", "properties");
    bool is_tagged = ash_tool_tags_get(builder->opts->format) != NULL;
    int rc = empty == NULL ? ash_err_set(builder->err, -ENOMEM, "out of memory for a grammar") : 0;

    for (size_t i = 0; i < builder->opts->count && rc == 0; i++) {
        const struct ash_tool *tool = &builder->opts->tools[i];
        uint32_t rule = builder->arguments[i] = ash_pda_add_rule(builder->draft);
        rc = check_name(builder, tool->name);
        if (rc < 0) break;
        if (is_tagged)
            rc = ash_tool_draw_parameters(builder, tool->parameters != NULL ? tool->parameters : empty, rule);
        else
            rc = ash_schema_draw(tool->parameters != NULL ? tool->parameters : empty, &builder->grammar, builder->draft,
                                 ash_pda_rule_start(builder->draft, rule), ash_pda_rule_end(builder->draft, rule),
                                 builder->err);
        if (rc < 0) ash_err_prefix(builder->err, rc, "tool '%.64s'", tool->name);
    }
    json_decref(empty);
    return rc;
}

static int draw_all(struct ash_tool_builder *builder, struct ash_pda **pda_out)
{
    uint32_t root = ash_pda_add_rule(builder->draft), from = ash_pda_rule_start(builder->draft, root);
    uint32_t to = ash_pda_rule_end(builder->draft, root);
    int rc = draw_arguments(builder);

    if (rc == 0) rc = ash_pda_draft_check(builder->draft, builder->err);
    if (rc < 0) return rc;
    if (builder->opts->choice == ASH_TOOL_AUTO)
        rc = draw_auto(builder, from, to);
    else
        draw_required(builder, from, to);
    return rc < 0 ? rc : ash_pda_finish(builder->draft, root, NULL, pda_out, builder->err);
}

int ash_tool_grammar(const struct ash_tool_grammar_opts *opts, const struct ash_grammar_opts *grammar_opts,
                     struct ash_grammar **grammar_out, struct ash_err *err)
{
    struct ash_tool_builder builder = {
        .opts = opts, .grammar = grammar_opts != NULL ? *grammar_opts : ash_grammar_default_opts(), .err = err};
    struct ash_pda *pda = NULL;
    int rc = 0;

    if (opts->count == 0) return ash_err_set(err, -EINVAL, "there is no tool that could be called");
    if (opts->format == ASH_TOOLS_NONE)
        return ash_err_set(err, -ENOTSUP, "it is not known how this model writes calls of tools");
    builder.draft = ash_pda_draft_open(&builder.grammar.limits);
    builder.arguments = calloc(opts->count, sizeof(*builder.arguments));
    rc = builder.draft == NULL || builder.arguments == NULL ? ash_err_set(err, -ENOMEM, "out of memory for a grammar")
                                                            : draw_all(&builder, &pda);
    ash_pda_draft_close(builder.draft);
    free(builder.arguments);
    return rc < 0 ? rc : ash_grammar_from_pda(pda, &builder.grammar.limits, grammar_out, err);
}
