/* Parts of an answer, through the parser of the model's family. */
#include "serve/api/parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "serve/tools/tools.h"

struct ash_parts {
    struct ash_parts_opts opts;
    struct ash_tool_parser *parser;
    ash_part_fn see; /* during a call */
    void *ctx;
    size_t call_count;
};

bool ash_api_reads_marks(const struct ash_api *api, bool has_tools)
{
    return api->tool_format == ASH_TOOLS_HARMONY || (has_tools && api->tool_format != ASH_TOOLS_NONE);
}

static int take_event(void *ctx, const struct ash_tool_event *event)
{
    struct ash_parts *parts = ctx;
    struct ash_part part = {.text = event->text, .size_bytes = event->size_bytes, .call = event->call, .id = event->id};

    if (event->kind != ASH_TOOL_CONTENT && event->kind != ASH_TOOL_THOUGHT && parts->opts.calls_max > 0 &&
        event->call >= parts->opts.calls_max)
        return 0;
    switch (event->kind) {
    case ASH_TOOL_THOUGHT:
        part.kind = parts->opts.has_reasoning ? ASH_PART_REASONING : ASH_PART_CONTENT;
        break;
    case ASH_TOOL_CONTENT:
        part.kind = ASH_PART_CONTENT;
        break;
    case ASH_TOOL_CALL_BEGIN:
        part.kind = ASH_PART_CALL;
        part.text = event->name;
        part.size_bytes = strlen(event->name);
        parts->call_count++;
        break;
    case ASH_TOOL_ARGUMENTS:
        part.kind = ASH_PART_ARGUMENTS;
        break;
    default:
        return 0;
    }
    return part.size_bytes > 0 || part.kind == ASH_PART_CALL ? parts->see(parts->ctx, &part) : 0;
}

int ash_parts_open(const struct ash_api *api, const struct ash_parts_opts *opts, struct ash_parts **parts_out,
                   struct ash_err *err)
{
    struct ash_parts *parts = calloc(1, sizeof(*parts));
    enum ash_tool_format format = ash_api_reads_marks(api, opts->has_tools) ? api->tool_format : ASH_TOOLS_NONE;
    struct ash_tool_parser_opts parser = {.format = format,
                                          .is_thinking = opts->has_reasoning && opts->is_thinking,
                                          .tools = opts->tools,
                                          .tool_count = opts->tool_count,
                                          .seed = opts->seed,
                                          .take = take_event,
                                          .ctx = parts};
    int rc;

    if (parts == NULL) return ash_err_set(err, -ENOMEM, "no memory for a parser");
    parts->opts = *opts;
    if (opts->has_reasoning) parser.tags = api->thought_tags;
    rc = ash_tool_parser_open(&parser, &parts->parser, err);
    if (rc < 0) {
        ash_parts_close(parts);
        return rc;
    }
    *parts_out = parts;
    return 0;
}

void ash_parts_close(struct ash_parts *parts)
{
    if (parts == NULL) return;
    ash_tool_parser_close(parts->parser);
    free(parts);
}

int ash_parts_push(struct ash_parts *parts, const char *text, size_t size_bytes, ash_part_fn see, void *ctx)
{
    parts->see = see;
    parts->ctx = ctx;
    return ash_tool_parser_push(parts->parser, text, size_bytes);
}

int ash_parts_finish(struct ash_parts *parts, ash_part_fn see, void *ctx)
{
    parts->see = see;
    parts->ctx = ctx;
    return ash_tool_parser_finish(parts->parser);
}

size_t ash_parts_thought_bytes(const struct ash_parts *parts)
{
    return ash_tool_parser_thought_bytes(parts->parser);
}

size_t ash_parts_call_count(const struct ash_parts *parts)
{
    return parts->call_count;
}
