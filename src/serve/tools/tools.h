/* tools - what a model's answer is made of: thoughts, text and calls of tools, in the form that its family was trained
 * on. A parser takes the answer in pieces as it is decoded (special tokens included, they mark calls) and gives out
 * events as soon as they are certain; how the text is cut into pieces changes nothing. A grammar makes a model call. */
#ifndef ASH_SERVE_TOOLS_TOOLS_H
#define ASH_SERVE_TOOLS_TOOLS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "serve/grammar/grammar.h"

enum ash_tool_format {
    ASH_TOOLS_NONE,          /* text is text */
    ASH_TOOLS_HERMES,        /* <tool_call>{"name": ..., "arguments": ...}</tool_call>: Hermes, Qwen */
    ASH_TOOLS_LLAMA3,        /* the answer is {"name": ..., "parameters": ...}; several with "; " between */
    ASH_TOOLS_MISTRAL,       /* [TOOL_CALLS][{"name": ..., "arguments": ...}, ...] */
    ASH_TOOLS_MISTRAL_NAMED, /* [TOOL_CALLS]name[ARGS]{...} */
    ASH_TOOLS_DEEPSEEK_V3,   /* <|tool_calls_begin|><|tool_call_begin|>function<|tool_sep|>name and ```json: V3, R1 */
    ASH_TOOLS_DEEPSEEK_V31,  /* the same without "function" and fences: V3.1 */
    ASH_TOOLS_QWEN3_CODER,   /* <tool_call><function=name><parameter=key>value</parameter>...: also Qwen 3.5 */
    ASH_TOOLS_DEEPSEEK_V32,  /* <DSML|function_calls><DSML|invoke name="..."><DSML|parameter name="..." string=...> */
    ASH_TOOLS_DEEPSEEK_V4,   /* the same in <DSML|tool_calls> */
    ASH_TOOLS_GLM,           /* <tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value>...: GLM 4.5 on */
    ASH_TOOLS_HARMONY,       /* <|channel|>commentary to=functions.name <|constrain|>json<|message|>...: gpt-oss */
    ASH_TOOL_FORMATS
};

/* The format by its name, or -1. */
int ash_tool_format_find(const char *name);
/* Its name. */
const char *ash_tool_format_name(enum ash_tool_format format);
/* The format that a chat template speaks of. */
enum ash_tool_format ash_tool_format_detect(const char *template);

/* How thoughts are marked. Both NULL: there are none. */
struct ash_thought_tags {
    const char *open, *close; /* "<think>", "</think>" */
};
/* The tags that a chat template speaks of. */
struct ash_thought_tags ash_thought_tags_detect(const char *template);
/* Does a prompt end inside of a thought that it opened itself? */
bool ash_thought_is_open(struct ash_thought_tags tags, const char *prompt, size_t size_bytes);

/* A tool; borrowed wherever it is given. */
struct ash_tool {
    const char *name;
    const json_t *parameters; /* a schema; NULL: it has none */
};

/* ---- parsing ----------------------------------------------------------------------------------------------------- */

enum ash_tool_event_kind {
    ASH_TOOL_CONTENT,    /* text: more of the answer */
    ASH_TOOL_THOUGHT,    /* text: more of the thoughts (reasoning_content) */
    ASH_TOOL_CALL_BEGIN, /* name, id */
    ASH_TOOL_ARGUMENTS,  /* text: more of the arguments: JSON, as the model wrote it if it writes JSON */
    ASH_TOOL_CALL_END
};

/* Everything is borrowed during the call. text is UTF-8 where the pieces were, but may end inside of a character. */
struct ash_tool_event {
    enum ash_tool_event_kind kind;
    size_t call; /* of calls: which one, from 0 on */
    const char *text;
    size_t size_bytes;
    const char *name, *id; /* NUL-terminated */
};
/* Returns 0, or a negative errno that ends parsing. */
typedef int (*ash_tool_event_fn)(void *ctx, const struct ash_tool_event *event);

struct ash_tool_parser_opts {
    enum ash_tool_format format;
    struct ash_thought_tags tags;
    bool is_thinking;             /* the prompt opened a thought already */
    const struct ash_tool *tools; /* there are; borrowed until close */
    size_t tool_count;
    uint64_t seed; /* of the calls' ids */
    ash_tool_event_fn take;
    void *ctx;
};

struct ash_tool_parser; /* one answer; one owner thread */

/* Copies opts. 0 or -ENOMEM. */
int ash_tool_parser_open(const struct ash_tool_parser_opts *opts, struct ash_tool_parser **parser_out,
                         struct ash_err *err);
/* NULL is a no-op. */
void ash_tool_parser_close(struct ash_tool_parser *parser);
/* The next piece. 0, -ENOMEM, or what take returned. */
int ash_tool_parser_push(struct ash_tool_parser *parser, const char *text, size_t size_bytes);
/* The answer is over: flush the text held back. A call that has begun ends here; the beginning of a mark is text. */
int ash_tool_parser_finish(struct ash_tool_parser *parser);
/* Bytes of the text up to the end of its thoughts, with their tags; while it thinks, all so far; 0: no thoughts. */
size_t ash_tool_parser_thought_bytes(const struct ash_tool_parser *parser);
/* How many calls have begun. */
size_t ash_tool_parser_calls(const struct ash_tool_parser *parser);

/* ---- grammars ---------------------------------------------------------------------------------------------------- */

enum ash_tool_choice {
    ASH_TOOL_AUTO,    /* text, or a call: from its mark on it is constrained */
    ASH_TOOL_REQUIRED /* a call; with one tool in the list, of that one */
};

struct ash_tool_grammar_opts {
    enum ash_tool_format format;
    enum ash_tool_choice choice;
    const struct ash_tool *tools;
    size_t count;
    bool is_parallel;                  /* several calls in one answer */
    struct ash_thought_tags tags;      /* thoughts may come first */
    bool is_thinking;                  /* the prompt opened one already */
    const struct ash_vocab_trie *trie; /* says which marks are special tokens */
};

/* The grammar of an answer. -EINVAL without tools or for a name that has quotes or control characters, -ENOTSUP for
 * ASH_TOOLS_NONE; also the errors of schemas, with the tool's name before them. grammar_opts NULL: the defaults. */
int ash_tool_grammar(const struct ash_tool_grammar_opts *opts, const struct ash_grammar_opts *grammar_opts,
                     struct ash_grammar **grammar_out, struct ash_err *err);

#endif
