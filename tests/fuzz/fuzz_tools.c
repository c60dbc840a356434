/* Fuzz target: an answer with tool calls. The first byte says the format, whether there are thoughts, and whether one
 * is open; the rest is the answer. In pieces it must give the same events as whole. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/rng.h"
#include "base/str.h"
#include "serve/tools/tools.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

struct transcript {
    struct ash_str text;
    int last;
    size_t calls;
    bool is_in_call;
};

/* Kinds as letters before their text; neighbours of a kind joined. */
static int take(void *ctx, const struct ash_tool_event *event)
{
    struct transcript *transcript = ctx;
    char letter = (char)('0' + event->kind);

    if ((int)event->kind != transcript->last || event->kind == ASH_TOOL_CALL_BEGIN)
        ash_assert(ash_str_add(&transcript->text, &letter, 1) == 0);
    transcript->last = (int)event->kind;
    ash_assert((event->kind == ASH_TOOL_ARGUMENTS || event->kind == ASH_TOOL_CALL_END) == transcript->is_in_call);
    if (event->kind == ASH_TOOL_CALL_BEGIN) {
        ash_assert(event->name[0] != '\0' && event->id[0] != '\0' && event->call == transcript->calls++);
        transcript->is_in_call = true;
        return ash_str_adds(&transcript->text, event->name);
    }
    if (event->kind == ASH_TOOL_CALL_END) {
        transcript->is_in_call = false;
        return 0;
    }
    ash_assert(event->size_bytes > 0);
    return ash_str_add(&transcript->text, event->text, event->size_bytes);
}

static void parse(struct ash_tool_parser_opts opts, const uint8_t *text, size_t size_bytes, uint64_t seed,
                  struct transcript *transcript)
{
    struct ash_tool_parser *parser = NULL;
    struct ash_err err = {0};

    *transcript = (struct transcript){.last = -1};
    opts.take = take;
    opts.ctx = transcript;
    ash_assert(ash_tool_parser_open(&opts, &parser, &err) == 0);
    for (size_t at = 0, bytes; at < size_bytes; at += bytes) {
        bytes = seed == 0 ? size_bytes : 1 + (size_t)ash_rng_below(seed, 0, at, 9);
        if (bytes > size_bytes - at) bytes = size_bytes - at;
        ash_assert(ash_tool_parser_push(parser, (const char *)text + at, bytes) == 0);
    }
    ash_assert(ash_tool_parser_finish(parser) == 0);
    ash_assert(!transcript->is_in_call && ash_tool_parser_calls(parser) == transcript->calls);
    ash_tool_parser_close(parser);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    static struct ash_tool tools[] = {{"add", NULL}, {"f", NULL}};
    struct ash_tool_parser_opts opts = {.tools = tools, .tool_count = 2, .seed = 1};
    struct transcript whole, pieces;

    if (size_bytes == 0) return 0;
    if (tools[0].parameters == NULL)
        tools[0].parameters = json_loads("{\"properties\": {\"s\": {\"type\": \"string\"}, \"i\": {\"type\": "
                                         "\"integer\"}, \"n\": {\"anyOf\": [{\"type\": \"string\"}, {\"type\": "
                                         "\"null\"}]}}}",
                                         0, NULL);
    opts.format = (enum ash_tool_format)(data[0] % 16 % ASH_TOOL_FORMATS);
    if (data[0] / 16 % 2 != 0) opts.tags = (struct ash_thought_tags){"<think>", "</think>"};
    opts.is_thinking = data[0] / 32 % 2 != 0;
    parse(opts, data + 1, size_bytes - 1, 0, &whole);
    parse(opts, data + 1, size_bytes - 1, ash_hash_bytes(data, size_bytes, 1) | 1, &pieces);
    ash_assert(whole.text.size_bytes == pieces.text.size_bytes &&
               (whole.text.size_bytes == 0 || memcmp(whole.text.data, pieces.text.data, whole.text.size_bytes) == 0));
    ash_str_fini(&whole.text);
    ash_str_fini(&pieces.text);
    return 0;
}
