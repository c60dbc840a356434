/* Inside of tools: the parser that formats share, and what each format adds to it. */
#ifndef ASH_SERVE_TOOLS_TOOLS_PRIV_H
#define ASH_SERVE_TOOLS_TOOLS_PRIV_H

#include "base/str.h"
#include "serve/tools/tools.h"

#define ASH_DEEPSEEK_CALLS_BEGIN "<｜tool▁calls▁begin｜>"
#define ASH_DEEPSEEK_CALLS_END "<｜tool▁calls▁end｜>"
#define ASH_DEEPSEEK_CALL_BEGIN "<｜tool▁call▁begin｜>"
#define ASH_DEEPSEEK_CALL_END "<｜tool▁call▁end｜>"
#define ASH_DEEPSEEK_SEP "<｜tool▁sep｜>"
#define ASH_MISTRAL_CALLS "[TOOL_CALLS]"
#define ASH_MISTRAL_ARGS "[ARGS]"
#define ASH_MISTRAL_CALL_ID "[CALL_ID]"
#define ASH_LLAMA_TAG "<|python_tag|>"
#define ASH_HARMONY_START "<|start|>"
#define ASH_HARMONY_CHANNEL "<|channel|>"
#define ASH_HARMONY_MESSAGE "<|message|>"
#define ASH_HARMONY_ANALYSIS ASH_HARMONY_CHANNEL "analysis" ASH_HARMONY_MESSAGE
#define ASH_HARMONY_END "<|end|>"
#define ASH_HARMONY_CALL "<|call|>"
#define ASH_HERMES_OPEN "<tool_call>"
#define ASH_DSML_CALLS "<｜DSML｜function_calls>"
#define ASH_DSML4_CALLS "<｜DSML｜tool_calls>"
#define ASH_HERMES_CLOSE "</tool_call>"

/* What a byte did to the part of a format that took it. */
enum ash_tool_step {
    ASH_TOOL_MORE,    /* taken */
    ASH_TOOL_DONE,    /* taken, and it was the last */
    ASH_TOOL_AGAIN,   /* done before it: look at it again */
    ASH_TOOL_NOT_ONE, /* this is no call: the text since its mark is content */
    ASH_TOOL_ERROR    /* parser->rc says why */
};

/* A JSON value, byte by byte: its end. Its content is not checked. */
struct ash_tool_value {
    int depth;
    bool has_begun, is_scalar, in_string, is_escaped;
};
/* One byte of a value: ASH_TOOL_MORE, _DONE, _AGAIN (a number or word ended before it) or _NOT_ONE. Space before the
 * value is ASH_TOOL_MORE with has_begun false. */
enum ash_tool_step ash_tool_value_take(struct ash_tool_value *value, char c);

/* An object with a name and arguments, byte by byte. */
struct ash_tool_object {
    int state;
    struct ash_tool_value value;
    struct ash_str key, name, held; /* held: arguments that came before the name */
    bool is_escaped, has_name, has_arguments, is_begun;
    bool wants_known; /* begins only with a known name, when its arguments begin */
    int kind;         /* of the value at work */
};

/* A parameter in tags. */
struct ash_tool_param {
    const struct ash_tool *tool; /* whose; NULL: it is not listed */
    size_t count;                /* parameters of the call so far, with it */
    unsigned types;              /* ASH_TOOL_TYPE_* that it may have */
    bool is_json;                /* its tag says that it is no string */
    bool is_first;               /* no byte of its value came yet */
};

struct ash_tool_parser;

/* A format. */
struct ash_tool_format_ops {
    const char *mark; /* begins calls in a text; NULL: only the beginning of an answer can */
    /* Without a mark: may an answer that begins with this character be a call? */
    bool (*may_begin)(char c);
    /* Calls begin, after the mark. */
    void (*start)(struct ash_tool_parser *parser);
    /* A byte of calls. ASH_TOOL_DONE and ASH_TOOL_AGAIN: text follows. */
    enum ash_tool_step (*take)(struct ash_tool_parser *parser, char c);
    /* The answer is over inside of calls; 0 or a negative errno. NULL: nothing to do. */
    int (*finish)(struct ash_tool_parser *parser);
    size_t id_bytes; /* of call ids: 0: "call_" and 24 digits */
};
/* One in each format's file, by enum ash_tool_format. */
extern const struct ash_tool_format_ops ash_tool_hermes_ops, ash_tool_llama3_ops, ash_tool_mistral_ops,
    ash_tool_deepseek_ops, ash_tool_qwen_ops, ash_tool_dsml_ops, ash_tool_dsml4_ops, ash_tool_glm_ops,
    ash_tool_harmony_ops;
/* The ops of a format; NULL for ASH_TOOLS_NONE. */
const struct ash_tool_format_ops *ash_tool_format_get(enum ash_tool_format format);

struct ash_tool_parser {
    struct ash_tool_parser_opts opts;
    const struct ash_tool_format_ops *ops;
    int rc;
    int phase;
    bool is_fresh;        /* no content came yet */
    bool is_after_calls;  /* space is dropped */
    struct ash_str held;  /* perhaps the beginning of a mark */
    struct ash_str space; /* perhaps the end of the text */
    struct ash_str raw;   /* of a call that has not begun: text, if it is none */
    enum ash_tool_event_kind kind;
    struct ash_str delta;                   /* of that kind, for the next event */
    size_t calls, calls_before;             /* calls_before: when these calls' mark came */
    bool is_in_call, has_arguments, is_cut; /* cut: the answer is over */
    size_t taken_bytes, thought_bytes;      /* of the text; of it, up to the end of the thoughts */
    /* the formats' own */
    int state;
    struct ash_str word; /* a name, or perhaps a mark */
    struct ash_tool_value value;
    struct ash_tool_object object;
    struct ash_tool_param param;
    int message_kind; /* enum ash_tool_event_kind */
};

/* One byte of calls. 0 or a negative errno. */
int ash_tool_take_call(struct ash_tool_parser *parser, char c);
/* Begin the next call. 0 or a negative errno, which is parser->rc too. */
int ash_tool_begin(struct ash_tool_parser *parser, const char *name);
/* More text of thoughts or content, in formats that mark both themselves. */
int ash_tool_say(struct ash_tool_parser *parser, enum ash_tool_event_kind kind, const char *text, size_t size_bytes);
/* More arguments of the call. */
int ash_tool_argue(struct ash_tool_parser *parser, const char *text, size_t size_bytes);
/* The end of the call, whose arguments are {} if none came; a no-op when none has begun. */
int ash_tool_end(struct ash_tool_parser *parser);
/* The listed tool of this name, or NULL. */
const struct ash_tool *ash_tool_find(const struct ash_tool_parser *parser, const char *name);

/* Make an object empty, its memory is kept. */
void ash_tool_object_reset(struct ash_tool_object *object, bool wants_known);
/* Free it. */
void ash_tool_object_fini(struct ash_tool_object *object);
/* One byte of an object, from its brace on (space before it is passed over). ASH_TOOL_DONE: it was the closing brace,
 * and the call, which began if it has a name, has ended. */
enum ash_tool_step ash_tool_object_take(struct ash_tool_parser *parser, struct ash_tool_object *object, char c);

/* parser->word with c: does it have one of the marks (NULL-terminated list) now? Its index, -1 when it may still become
 * one, or -2 when it cannot. */
int ash_tool_match(const struct ash_str *word, const char *const *marks);
/* Is c JSON's white space? */
static inline bool ash_tool_is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

#endif
