/* parts - an answer's text in parts: thoughts, content, tool calls. The same parser reads text as it comes
 * and text as a whole, so a stream joins to the unstreamed answer. */
#ifndef ASH_SERVE_API_PARTS_H
#define ASH_SERVE_API_PARTS_H

#include "serve/api/call.h"

enum ash_part_kind {
    ASH_PART_REASONING,
    ASH_PART_CONTENT,
    ASH_PART_CALL,      /* a tool call begins: text is its name */
    ASH_PART_ARGUMENTS, /* of the call: more of its JSON */
};

struct ash_part {
    enum ash_part_kind kind;
    const char *text;
    size_t size_bytes;
    size_t call;    /* which tool call, from 0 */
    const char *id; /* of a call that begins */
};

/* Sees parts in order. Returns 0 or a negative errno, which ends the reading. */
typedef int (*ash_part_fn)(void *ctx, const struct ash_part *part);

struct ash_parts;

/* What a call wants to know of answers. */
struct ash_parts_opts {
    bool has_tools;               /* look for tool calls */
    bool has_reasoning;           /* thoughts are parts of their own; else they stay where they are */
    bool is_thinking;             /* the prompt has opened the thoughts */
    const struct ash_tool *tools; /* borrowed */
    size_t tool_count;
    size_t calls_max; /* tool calls beyond these are left out; 0: no limit */
    uint64_t seed;    /* of the ids of tool calls */
};

/* Does the parser look for marks in an answer, most of them special tokens? Those of Harmony are in all answers. */
bool ash_api_reads_marks(const struct ash_api *api, bool has_tools);
/* A parser for one answer, as the api's options and the chat template say. */
int ash_parts_open(const struct ash_api *api, const struct ash_parts_opts *opts, struct ash_parts **parts_out,
                   struct ash_err *err);
/* NULL is a no-op. */
void ash_parts_close(struct ash_parts *parts);
/* More text. */
int ash_parts_push(struct ash_parts *parts, const char *text, size_t size_bytes, ash_part_fn see, void *ctx);
/* The text is over. */
int ash_parts_finish(struct ash_parts *parts, ash_part_fn see, void *ctx);
/* Bytes of the text up to the end of its thoughts; 0: none. */
size_t ash_parts_thought_bytes(const struct ash_parts *parts);
/* Tool calls so far. */
size_t ash_parts_call_count(const struct ash_parts *parts);

/* An answer with its parts put together. Zero-initialise; free with ash_message_fini. */
struct ash_tool_call {
    char *name, id[48];
    struct ash_str arguments;
};
struct ash_message_parts {
    struct ash_str reasoning, content;
    struct ash_tool_call *calls;
    size_t call_count;
    size_t thought_bytes; /* of the text, up to the end of its thoughts */
};

/* Read a whole text. */
int ash_message_read(const struct ash_api *api, const struct ash_parts_opts *opts, const struct ash_str *text,
                     struct ash_message_parts *message, struct ash_err *err);
/* Free it. */
void ash_message_fini(struct ash_message_parts *message);

#endif
