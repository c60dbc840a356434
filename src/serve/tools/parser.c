/* The parser that all formats share: thoughts first, then text, in which a mark begins calls. It goes byte by byte, so
 * that the pieces it is given cannot matter; events are joined again before they go out. */
#include "serve/tools/tools_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

enum { BEFORE_THOUGHT, THOUGHT, CONTENT, CALLS };

/* ---- events ------------------------------------------------------------------------------------------------------ */

static int emit(struct ash_tool_parser *parser, struct ash_tool_event event)
{
    int rc = parser->opts.take(parser->opts.ctx, &event);

    if (rc < 0 && parser->rc == 0) parser->rc = rc;
    return rc;
}

/* Give out the text that was gathered. */
static int flush(struct ash_tool_parser *parser)
{
    int rc = 0;

    if (parser->delta.size_bytes == 0) return 0;
    rc = emit(parser, (struct ash_tool_event){.kind = parser->kind,
                                              .call = parser->calls > 0 ? parser->calls - 1 : 0,
                                              .text = parser->delta.data,
                                              .size_bytes = parser->delta.size_bytes});
    ash_str_clear(&parser->delta);
    return rc;
}

static int add_text(struct ash_tool_parser *parser, enum ash_tool_event_kind kind, const char *text, size_t size_bytes)
{
    int rc = 0;

    if (size_bytes == 0) return 0;
    if (parser->kind != kind) rc = flush(parser);
    parser->kind = kind;
    if (rc == 0) rc = ash_str_add(&parser->delta, text, size_bytes);
    if (rc < 0 && parser->rc == 0) parser->rc = rc;
    return rc;
}

int ash_tool_begin(struct ash_tool_parser *parser, const char *name)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    size_t count = parser->ops->id_bytes > 0 ? parser->ops->id_bytes : 24, at = 0;
    char id[40] = "";
    int rc = flush(parser);

    if (rc < 0) return rc;
    if (parser->ops->id_bytes == 0) at = (size_t)snprintf(id, sizeof(id), "call_");
    for (size_t i = 0; i < count; i++)
        id[at++] = digits[ash_rng_below(parser->opts.seed, parser->calls, i, sizeof(digits) - 1)];
    parser->calls++;
    parser->is_in_call = true;
    parser->has_arguments = false;
    ash_str_clear(&parser->raw);
    ash_str_clear(&parser->space); /* between text and a call */
    return emit(parser, (struct ash_tool_event){
                            .kind = ASH_TOOL_CALL_BEGIN, .call = parser->calls - 1, .name = name, .id = id});
}

int ash_tool_say(struct ash_tool_parser *parser, enum ash_tool_event_kind kind, const char *text, size_t size_bytes)
{
    return add_text(parser, kind, text, size_bytes);
}

int ash_tool_argue(struct ash_tool_parser *parser, const char *text, size_t size_bytes)
{
    parser->has_arguments = true;
    return add_text(parser, ASH_TOOL_ARGUMENTS, text, size_bytes);
}

int ash_tool_end(struct ash_tool_parser *parser)
{
    int rc = 0;

    if (!parser->is_in_call) return 0;
    if (!parser->has_arguments && !parser->is_cut) rc = ash_tool_argue(parser, "{}", 2);
    if (rc == 0) rc = flush(parser);
    parser->is_in_call = false;
    return rc < 0 ? rc : emit(parser, (struct ash_tool_event){.kind = ASH_TOOL_CALL_END, .call = parser->calls - 1});
}

const struct ash_tool *ash_tool_find(const struct ash_tool_parser *parser, const char *name)
{
    for (size_t i = 0; i < parser->opts.tool_count; i++)
        if (strcmp(parser->opts.tools[i].name, name) == 0) return &parser->opts.tools[i];
    return NULL;
}

int ash_tool_match(const struct ash_str *word, const char *const *marks)
{
    int result = -2;

    for (int i = 0; marks[i] != NULL; i++) {
        size_t size = strlen(marks[i]);
        if (word->size_bytes > size || memcmp(word->data, marks[i], word->size_bytes) != 0) continue;
        if (word->size_bytes == size) return i;
        result = -1;
    }
    return result;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* Text of the answer. Where calls may follow, space waits for what comes after it; after calls it is dropped. */
static int show(struct ash_tool_parser *parser, const char *text, size_t size_bytes)
{
    int rc = 0;

    for (size_t i = 0; i < size_bytes && rc == 0; i++) {
        bool is_space = ash_tool_is_space(text[i]);
        if (is_space && parser->is_after_calls) continue;
        if (is_space && parser->ops != NULL) {
            rc = ash_str_add(&parser->space, &text[i], 1);
            continue;
        }
        if (parser->space.size_bytes > 0)
            rc = add_text(parser, ASH_TOOL_CONTENT, parser->space.data, parser->space.size_bytes);
        ash_str_clear(&parser->space);
        if (rc == 0) rc = add_text(parser, ASH_TOOL_CONTENT, &text[i], 1);
        if (!is_space) parser->is_after_calls = parser->is_fresh = false;
    }
    if (rc < 0 && parser->rc == 0) parser->rc = rc;
    return rc;
}

/* A byte that may be part of mark (or of no mark: NULL). 1: the mark is complete. 0: put is called with the held bytes
 * that turned out to be text. */
static int watch(struct ash_tool_parser *parser, const char *mark, char c,
                 int (*put)(struct ash_tool_parser *parser, const char *text, size_t size_bytes))
{
    struct ash_str *held = &parser->held;
    size_t size = mark != NULL ? strlen(mark) : 0, gone = 0;
    int rc = ash_str_add(held, &c, 1);

    if (rc < 0) return rc;
    while (gone < held->size_bytes &&
           (held->size_bytes - gone > size || memcmp(held->data + gone, mark, held->size_bytes - gone) != 0))
        gone++;
    if (gone > 0) {
        rc = put(parser, held->data, gone);
        memmove(held->data, held->data + gone, held->size_bytes - gone);
        held->size_bytes -= gone;
    }
    if (rc < 0 || mark == NULL || held->size_bytes < size) return rc;
    ash_str_clear(held);
    return 1;
}

/* ---- thoughts ---------------------------------------------------------------------------------------------------- */

/* Thoughts lose the space around them. */
static int think(struct ash_tool_parser *parser, const char *text, size_t size_bytes)
{
    int rc = 0;

    for (size_t i = 0; i < size_bytes && rc == 0; i++) {
        if (ash_tool_is_space(text[i])) {
            if (!parser->is_fresh) rc = ash_str_add(&parser->space, &text[i], 1);
            continue;
        }
        parser->is_fresh = false;
        if (parser->space.size_bytes > 0)
            rc = add_text(parser, ASH_TOOL_THOUGHT, parser->space.data, parser->space.size_bytes);
        ash_str_clear(&parser->space);
        if (rc == 0) rc = add_text(parser, ASH_TOOL_THOUGHT, &text[i], 1);
    }
    return rc;
}

static void start_content(struct ash_tool_parser *parser, bool drops_space)
{
    parser->phase = CONTENT;
    parser->is_fresh = true;
    parser->is_after_calls = drops_space;
    ash_str_clear(&parser->space);
}

static int take_content(struct ash_tool_parser *parser, char c);

/* Before anything but space: does a thought begin? */
static int take_first(struct ash_tool_parser *parser, char c)
{
    const char *marks[] = {parser->opts.tags.open, NULL};
    struct ash_str text = {0};
    int rc, found;

    if (parser->held.size_bytes == 0 && ash_tool_is_space(c)) return ash_str_add(&parser->space, &c, 1);
    rc = ash_str_add(&parser->held, &c, 1);
    found = rc < 0 ? -1 : ash_tool_match(&parser->held, marks);
    if (rc < 0 || found == -1) return rc;
    if (found >= 0) {
        parser->phase = THOUGHT;
        parser->thought_bytes = parser->taken_bytes;
        ash_str_clear(&parser->held);
        ash_str_clear(&parser->space);
        return 0;
    }
    rc = ash_str_add(&text, parser->space.data, parser->space.size_bytes);
    if (rc == 0) rc = ash_str_add(&text, parser->held.data, parser->held.size_bytes);
    ash_str_clear(&parser->held);
    start_content(parser, false);
    for (size_t i = 0; i < text.size_bytes && rc == 0; i++)
        rc = take_content(parser, text.data[i]);
    ash_str_fini(&text);
    return rc;
}

static int take_thought(struct ash_tool_parser *parser, char c)
{
    int rc = watch(parser, parser->opts.tags.close, c, think);

    parser->thought_bytes = parser->taken_bytes;
    if (rc > 0) start_content(parser, true);
    return rc < 0 ? rc : 0;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static int start_calls(struct ash_tool_parser *parser)
{
    parser->phase = CALLS;
    parser->calls_before = parser->calls;
    parser->state = 0;
    ash_str_clear(&parser->raw);
    ash_str_clear(&parser->word);
    parser->value = (struct ash_tool_value){0};
    parser->ops->start(parser);
    return parser->ops->mark != NULL ? ash_str_adds(&parser->raw, parser->ops->mark) : 0;
}

static int take_content(struct ash_tool_parser *parser, char c)
{
    const struct ash_tool_format_ops *ops = parser->ops;
    bool may_begin = parser->is_fresh && parser->calls == 0 && parser->held.size_bytes == 0;
    int rc;

    if (ops != NULL && ops->may_begin != NULL && may_begin && ops->may_begin(c)) {
        rc = start_calls(parser);
        ash_str_clear(&parser->raw);
        return rc < 0 ? rc : ash_tool_take_call(parser, c);
    }
    rc = watch(parser, ops != NULL ? ops->mark : NULL, c, show);
    return rc > 0 ? start_calls(parser) : rc;
}

int ash_tool_take_call(struct ash_tool_parser *parser, char c)
{
    bool was_in_call = parser->is_in_call;
    struct ash_str raw = {0};
    int rc = was_in_call ? 0 : ash_str_add(&parser->raw, &c, 1);
    enum ash_tool_step step;

    if (rc < 0) return rc;
    step = parser->ops->take(parser, c);
    switch (step == ASH_TOOL_NOT_ONE && was_in_call ? ASH_TOOL_AGAIN : step) {
    case ASH_TOOL_MORE:
        return 0;
    case ASH_TOOL_DONE:
        rc = ash_tool_end(parser);
        start_content(parser, true);
        return rc;
    case ASH_TOOL_AGAIN:
        rc = ash_tool_end(parser);
        start_content(parser, true);
        return rc < 0 ? rc : take_content(parser, c);
    case ASH_TOOL_NOT_ONE:
        rc = ash_tool_end(parser);
        raw = parser->raw;
        parser->raw = (struct ash_str){0};
        parser->phase = CONTENT;
        parser->is_fresh = false;
        if (rc == 0) rc = show(parser, raw.data, raw.size_bytes);
        ash_str_fini(&raw);
        return rc;
    default:
        return parser->rc < 0 ? parser->rc : -EINVAL;
    }
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

int ash_tool_parser_open(const struct ash_tool_parser_opts *opts, struct ash_tool_parser **parser_out,
                         struct ash_err *err)
{
    struct ash_tool_parser *parser = calloc(1, sizeof(*parser));

    if (parser == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a parser");
    parser->opts = *opts;
    parser->ops = ash_tool_format_get(opts->format);
    parser->is_fresh = true;
    parser->phase = CONTENT;
    if (opts->tags.open != NULL) parser->phase = opts->is_thinking ? THOUGHT : BEFORE_THOUGHT;
    *parser_out = parser;
    return 0;
}

void ash_tool_object_fini(struct ash_tool_object *object)
{
    ash_str_fini(&object->key);
    ash_str_fini(&object->name);
    ash_str_fini(&object->held);
}

void ash_tool_parser_close(struct ash_tool_parser *parser)
{
    if (parser == NULL) return;
    ash_str_fini(&parser->held);
    ash_str_fini(&parser->space);
    ash_str_fini(&parser->raw);
    ash_str_fini(&parser->delta);
    ash_str_fini(&parser->word);
    ash_tool_object_fini(&parser->object);
    free(parser);
}

int ash_tool_parser_push(struct ash_tool_parser *parser, const char *text, size_t size_bytes)
{
    static int (*const phases[])(struct ash_tool_parser * parser, char c) = {take_first, take_thought, take_content,
                                                                             ash_tool_take_call};
    int rc = parser->rc;

    for (size_t i = 0; i < size_bytes && rc == 0; i++) {
        parser->taken_bytes++;
        rc = phases[parser->phase](parser, text[i]);
    }
    if (rc == 0) rc = flush(parser);
    if (rc < 0 && parser->rc == 0) parser->rc = rc;
    return rc;
}

/* Text that was held back, perhaps for a mark, is text; also calls that never began. */
static int finish_held(struct ash_tool_parser *parser)
{
    int rc = 0;

    if (parser->held.size_bytes > 0)
        rc = (parser->phase == THOUGHT ? think : show)(parser, parser->held.data, parser->held.size_bytes);
    if (rc < 0 || parser->phase != CALLS) return rc;
    if (parser->calls == parser->calls_before) rc = show(parser, parser->raw.data, parser->raw.size_bytes);
    return rc == 0 && parser->ops->finish != NULL ? parser->ops->finish(parser) : rc;
}

int ash_tool_parser_finish(struct ash_tool_parser *parser)
{
    int rc = parser->rc;

    if (rc == 0) rc = finish_held(parser);
    if (rc == 0 && parser->phase != THOUGHT && parser->calls == 0 && !parser->is_in_call)
        rc = add_text(parser, ASH_TOOL_CONTENT, parser->space.data, parser->space.size_bytes);
    parser->is_cut = true;
    if (rc == 0) rc = ash_tool_end(parser);
    return rc == 0 ? flush(parser) : rc;
}

size_t ash_tool_parser_thought_bytes(const struct ash_tool_parser *parser)
{
    return parser->thought_bytes;
}

size_t ash_tool_parser_calls(const struct ash_tool_parser *parser)
{
    return parser->calls;
}
