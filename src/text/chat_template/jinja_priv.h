/* jinja_priv - the template language, as far as chat templates go. Text becomes tokens (lexer), tokens a tree (parser,
 * expression), and the tree is walked (exec, eval) with values that live in the arena of one rendering. Every loop,
 * depth and size has a limit: a template is input like any other. */
#ifndef ASH_TEXT_JINJA_PRIV_H
#define ASH_TEXT_JINJA_PRIV_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ashlar/err.h"
#include "base/arena.h"
#include "base/str.h"
#include "text/chat_template/chat_template.h"

#define ASH_JINJA_SOURCE_BYTES_MAX ((size_t)1 << 20)
#define ASH_JINJA_DEPTH_MAX 100                        /* of nested expressions and blocks in the source */
#define ASH_JINJA_RUN_DEPTH_MAX 1000                   /* of nodes under evaluation, macro calls included */
#define ASH_JINJA_STEPS_MAX ((size_t)2 * 1000 * 1000)  /* nodes visited in one rendering */
#define ASH_JINJA_MEMORY_BYTES_MAX ((size_t)256 << 20) /* of values in one rendering */
#define ASH_JINJA_OUTPUT_BYTES_MAX ((size_t)64 << 20)
#define ASH_JINJA_RANGE_MAX 100000
#define ASH_JINJA_BYTES_PER_STEP ((size_t)64)
#define ASH_JINJA_ARGS_MAX 8 /* of one call */

/* Borrowed bytes: of the source, of the caller, or of the arena. */
struct ash_jinja_text {
    const char *data;
    size_t size_bytes;
};

/* ---- values ------------------------------------------------------------------------------------------------------ */

enum ash_jinja_kind {
    ASH_JINJA_UNDEFINED,
    ASH_JINJA_NONE,
    ASH_JINJA_BOOL,
    ASH_JINJA_INT,
    ASH_JINJA_FLOAT,
    ASH_JINJA_STRING,
    ASH_JINJA_LIST,
    ASH_JINJA_DICT,
    ASH_JINJA_NAMESPACE, /* a dict that `set` may change */
    ASH_JINJA_MACRO,
    ASH_JINJA_FUNCTION,
};

struct ash_jinja_list;
struct ash_jinja_dict;
struct ash_jinja_node;
struct ash_jinja_function;

struct ash_jinja_value {
    enum ash_jinja_kind kind;
    union {
        bool flag;
        int64_t integer;
        double real;
        struct ash_jinja_text text; /* string; of an undefined value the name that was looked for */
        struct ash_jinja_list *list;
        struct ash_jinja_dict *dict; /* dict and namespace */
        const struct ash_jinja_node *macro;
        const struct ash_jinja_function *function;
    };
};

struct ash_jinja_list {
    struct ash_jinja_value *items;
    size_t count, capacity;
    bool tuple; /* printed with round brackets */
};

struct ash_jinja_pair {
    struct ash_jinja_text key;
    struct ash_jinja_value value;
};

/* In the order of insertion. */
struct ash_jinja_dict {
    struct ash_jinja_pair *pairs;
    size_t count, capacity;
};

/* ---- the tree ---------------------------------------------------------------------------------------------------- */

enum ash_jinja_type {
    /* expressions */
    ASH_JINJA_CONST,   /* value */
    ASH_JINJA_NAME,    /* name */
    ASH_JINJA_ITEMS,   /* a list: first, chained by next; value true: a tuple */
    ASH_JINJA_PAIRS,   /* a dict: first, keys and values in turn */
    ASH_JINJA_ATTR,    /* a.name */
    ASH_JINJA_INDEX,   /* a[b] */
    ASH_JINJA_SLICE,   /* a[b:c:d] */
    ASH_JINJA_CALL,    /* a(first…); an argument with a name is ASH_JINJA_ARG */
    ASH_JINJA_ARG,     /* name=a; *a when the name is "*" */
    ASH_JINJA_FILTER,  /* a|name(first…) */
    ASH_JINJA_TEST,    /* a is name(first…) */
    ASH_JINJA_UNARY,   /* op a */
    ASH_JINJA_BINARY,  /* a op b */
    ASH_JINJA_COMPARE, /* a op b, and with c the rest of a chain */
    ASH_JINJA_COND,    /* a if b else c */
    ASH_JINJA_CAPTURE, /* the text of body */
    /* statements */
    ASH_JINJA_TEXT,       /* name: the text itself */
    ASH_JINJA_OUTPUT,     /* {{ a }} */
    ASH_JINJA_IF,         /* if a: body, else: other */
    ASH_JINJA_FOR,        /* for first… in a if b: body, else: other */
    ASH_JINJA_SET,        /* set first… = a */
    ASH_JINJA_DEFINE,     /* macro name(first…): body */
    ASH_JINJA_CALLBLOCK,  /* call a: body, which is what caller() gives */
    ASH_JINJA_GENERATION, /* generation: body, what a model learns to write */
    ASH_JINJA_BREAK,
    ASH_JINJA_CONTINUE,
};

enum ash_jinja_op {
    ASH_JINJA_ADD,
    ASH_JINJA_SUB,
    ASH_JINJA_MUL,
    ASH_JINJA_DIV,
    ASH_JINJA_FLOORDIV,
    ASH_JINJA_MOD,
    ASH_JINJA_POW,
    ASH_JINJA_CONCAT,
    ASH_JINJA_AND,
    ASH_JINJA_OR,
    ASH_JINJA_NOT,
    ASH_JINJA_EQ,
    ASH_JINJA_NE,
    ASH_JINJA_LT,
    ASH_JINJA_LE,
    ASH_JINJA_GT,
    ASH_JINJA_GE,
    ASH_JINJA_IN,
    ASH_JINJA_NOT_IN,
};

struct ash_jinja_node {
    enum ash_jinja_type type;
    enum ash_jinja_op op;
    int line;
    struct ash_jinja_text name;
    struct ash_jinja_value value;
    struct ash_jinja_node *a, *b, *c, *d;
    struct ash_jinja_node *first; /* of a list of nodes, chained by next */
    struct ash_jinja_node *body, *other;
    struct ash_jinja_node *next;
};

/* ---- lexer ------------------------------------------------------------------------------------------------------- */

enum ash_jinja_token_kind {
    ASH_JINJA_T_TEXT,
    ASH_JINJA_T_OUTPUT_BEGIN,
    ASH_JINJA_T_OUTPUT_END,
    ASH_JINJA_T_BLOCK_BEGIN,
    ASH_JINJA_T_BLOCK_END,
    ASH_JINJA_T_NAME,
    ASH_JINJA_T_STRING, /* text is the string itself, escapes resolved */
    ASH_JINJA_T_INT,
    ASH_JINJA_T_FLOAT,
    ASH_JINJA_T_OP,
    ASH_JINJA_T_END,
};

struct ash_jinja_token {
    enum ash_jinja_token_kind kind;
    int line;
    struct ash_jinja_text text;
    int64_t integer;
    double real;
};

struct ash_jinja_tokens {
    struct ash_jinja_token *items; /* ends with ASH_JINJA_T_END */
    size_t count, capacity;
};

/* Cut source (valid UTF-8) into tokens that live in arena, with trim_blocks and lstrip_blocks as transformers sets
 * them. */
int ash_jinja_lex(struct ash_arena *arena, struct ash_jinja_text source, struct ash_jinja_tokens *tokens_out,
                  struct ash_err *err);

/* ---- parser ------------------------------------------------------------------------------------------------------ */

struct ash_jinja_parser {
    struct ash_arena *arena;
    const struct ash_jinja_token *at;
    struct ash_err *err;
    int depth, loops;
    int rc; /* the first error; NULL is returned from there on */
};

/* The statements of a template, chained by next (NULL: an empty one). Nodes live in arena and borrow from tokens. */
int ash_jinja_parse(struct ash_arena *arena, const struct ash_jinja_tokens *tokens, struct ash_jinja_node **root_out,
                    struct ash_err *err);
/* One expression; tuple: commas make a list of it. NULL on error. */
struct ash_jinja_node *ash_jinja_parse_expression(struct ash_jinja_parser *parser, bool tuple);
/* What a loop runs over: an expression without an inline if, since an if after it filters the loop. */
struct ash_jinja_node *ash_jinja_parse_iterable(struct ash_jinja_parser *parser);
/* A zeroed node at the present line, or NULL without memory (rc). */
struct ash_jinja_node *ash_jinja_node_new(struct ash_jinja_parser *parser, enum ash_jinja_type type);
/* Note the first error, with the present line. Always NULL, for callers that return the same. */
struct ash_jinja_node *ash_jinja_parse_fail(struct ash_jinja_parser *parser, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Is the present token this operator? */
bool ash_jinja_is_op(const struct ash_jinja_parser *parser, const char *op);
/* Is the present token this word? */
bool ash_jinja_is_name(const struct ash_jinja_parser *parser, const char *name);
/* Pass over this operator if it is next; returns whether it was. */
bool ash_jinja_accept_op(struct ash_jinja_parser *parser, const char *op);
/* Pass over this word if it is next; returns whether it was. */
bool ash_jinja_accept_name(struct ash_jinja_parser *parser, const char *name);
/* Parse `(` arguments `)` after a callee; returns the first, NULL when there are none or on error (rc). */
struct ash_jinja_node *ash_jinja_parse_args(struct ash_jinja_parser *parser);
/* An operand: a constant, a name, a list, a dict, or an expression in parentheses. NULL after an error. */
struct ash_jinja_node *ash_jinja_parse_primary(struct ash_jinja_parser *parser);
/* What follows an operand directly: .name, [index], (arguments). NULL after an error. */
struct ash_jinja_node *ash_jinja_parse_postfix(struct ash_jinja_parser *parser, struct ash_jinja_node *node);
/* One filter, whose bar was taken, of a value. */
struct ash_jinja_node *ash_jinja_parse_filter(struct ash_jinja_parser *parser, struct ash_jinja_node *value);
/* The filters and tests that follow. NULL after an error. */
struct ash_jinja_node *ash_jinja_parse_filters(struct ash_jinja_parser *parser, struct ash_jinja_node *node);
/* A node of two operands (b NULL: of one). NULL: out of memory, which the parser then says. */
struct ash_jinja_node *ash_jinja_node_binary(struct ash_jinja_parser *parser, enum ash_jinja_type type,
                                             enum ash_jinja_op op, struct ash_jinja_node *a, struct ash_jinja_node *b);

/* ---- running ----------------------------------------------------------------------------------------------------- */

struct ash_jinja_scope {
    struct ash_jinja_scope *parent;
    struct ash_jinja_dict names;
};

struct ash_jinja_run {
    struct ash_arena *arena;
    struct ash_str *out;
    const struct ash_str *text;   /* the result: equal to out except inside of macros and set blocks */
    struct ash_chat_spans *spans; /* of generation blocks in text; NULL: not wanted */
    struct ash_err *err;
    struct ash_jinja_scope *globals, *scope;
    const struct ash_jinja_node *caller; /* for the macro that is called next: the text of a call block */
    size_t steps;
    int depth, line;
};

/* Arguments of a call, evaluated: those without a name first. */
struct ash_jinja_args {
    struct ash_jinja_value values[ASH_JINJA_ARGS_MAX];
    struct ash_jinja_text names[ASH_JINJA_ARGS_MAX]; /* size 0: by position */
    size_t count;
};

typedef int (*ash_jinja_call_fn)(struct ash_jinja_run *run, struct ash_jinja_value self,
                                 const struct ash_jinja_args *args, struct ash_jinja_value *out);

/* A filter, a method or a function by name. */
struct ash_jinja_function {
    const char *name;
    ash_jinja_call_fn call;
};

/* Fail at the present line. */
int ash_jinja_fail(struct ash_jinja_run *run, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Count a step of work. 0, or -EOVERFLOW over the limit. */
int ash_jinja_step(struct ash_jinja_run *run);
/* Count the steps that going over this many bytes is worth. 0 or -EOVERFLOW. */
int ash_jinja_spend(struct ash_jinja_run *run, size_t size_bytes);
int ash_jinja_enter(struct ash_jinja_run *run); /* one level deeper, or -E2BIG; pairs with leave */
/* One level up again. */
void ash_jinja_leave(struct ash_jinja_run *run);

/* Run body and give its output as a string. */
int ash_jinja_capture(struct ash_jinja_run *run, const struct ash_jinja_node *body, struct ash_jinja_value *out);
/* Run statements. 0, 1 after break, 2 after continue, or a negative errno. */
int ash_jinja_exec(struct ash_jinja_run *run, const struct ash_jinja_node *statements);
/* The value of an expression. */
int ash_jinja_eval(struct ash_jinja_run *run, const struct ash_jinja_node *node, struct ash_jinja_value *out);
/* Call anything that can be called. */
int ash_jinja_call(struct ash_jinja_run *run, struct ash_jinja_value callee, const struct ash_jinja_args *args,
                   struct ash_jinja_value *out);
/* The values of the arguments of a call, chained from first (NULL: none). */
int ash_jinja_eval_args(struct ash_jinja_run *run, const struct ash_jinja_node *first, struct ash_jinja_args *args);
/* Call a macro: its text. */
int ash_jinja_call_macro(struct ash_jinja_run *run, const struct ash_jinja_node *macro,
                         const struct ash_jinja_args *args, struct ash_jinja_value *out);
/* left op right: arithmetic, joining and repeating. -EINVAL for kinds that do not go together. */
int ash_jinja_binary(struct ash_jinja_run *run, enum ash_jinja_op op, struct ash_jinja_value left,
                     struct ash_jinja_value right, struct ash_jinja_value *out);
/* left op right: equality, order and membership. */
int ash_jinja_compare(struct ash_jinja_run *run, enum ash_jinja_op op, struct ash_jinja_value left,
                      struct ash_jinja_value right, bool *out);
/* value.name, undefined if there is none. */
int ash_jinja_attr(struct ash_jinja_run *run, struct ash_jinja_value value, struct ash_jinja_text name,
                   struct ash_jinja_value *out);
/* value[key], undefined if there is none. */
int ash_jinja_index(struct ash_jinja_run *run, struct ash_jinja_value value, struct ash_jinja_value key,
                    struct ash_jinja_value *out);
/* value[start:stop:step] of a list or a string; a bound that is none is left open. */
int ash_jinja_slice(struct ash_jinja_run *run, struct ash_jinja_value value, const struct ash_jinja_value bounds[3],
                    struct ash_jinja_value *out);

/* value|name(args). -ENOTSUP when there is no such filter. */
int ash_jinja_filter(struct ash_jinja_run *run, struct ash_jinja_text name, struct ash_jinja_value value,
                     const struct ash_jinja_args *args, struct ash_jinja_value *out);
/* value is name(args). -ENOTSUP when there is no such test. */
int ash_jinja_test(struct ash_jinja_run *run, struct ash_jinja_text name, struct ash_jinja_value value,
                   const struct ash_jinja_args *args, bool *out);
/* self.name(args). -ENOTSUP when there is no such method. */
int ash_jinja_method(struct ash_jinja_run *run, struct ash_jinja_value self, struct ash_jinja_text name,
                     const struct ash_jinja_args *args, struct ash_jinja_value *out);
/* The string methods that are filters too. NULL when there is none of that name. */
ash_jinja_call_fn ash_jinja_string_method(struct ash_jinja_text name);
/* "{} {name}".format(...). */
int ash_jinja_format(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                     struct ash_jinja_value *out);
/* A dict as a list of pairs in the order of its keys. */
int ash_jinja_dictsort(struct ash_jinja_run *run, struct ash_jinja_value self, const struct ash_jinja_args *args,
                       struct ash_jinja_value *out);
/* A filter of lists by name, or NULL. */
ash_jinja_call_fn ash_jinja_list_filter(struct ash_jinja_text name);
/* A global function, or NULL. */
const struct ash_jinja_function *ash_jinja_find_function(struct ash_jinja_text name);
/* The argument at position, or called name; NULL when it was not given. */
const struct ash_jinja_value *ash_jinja_arg(const struct ash_jinja_args *args, size_t position, const char *name);

/* ---- values: making, asking, printing ---------------------------------------------------------------------------- */

/* Borrow a NUL-terminated text. */
struct ash_jinja_text ash_jinja_text_of(const char *text);
/* Is it this NUL-terminated text? */
bool ash_jinja_text_is(struct ash_jinja_text text, const char *other);
/* Are they the same bytes? */
bool ash_jinja_text_equal(struct ash_jinja_text a, struct ash_jinja_text b);

/* What a name without a value gives; name is for messages. */
struct ash_jinja_value ash_jinja_undefined(struct ash_jinja_text name);
/* Python's None. */
struct ash_jinja_value ash_jinja_none(void);
/* A truth value. */
struct ash_jinja_value ash_jinja_bool(bool flag);
/* An integer value. */
struct ash_jinja_value ash_jinja_int(int64_t integer);
/* A real number. */
struct ash_jinja_value ash_jinja_float(double real);
/* A string that borrows text. */
struct ash_jinja_value ash_jinja_string(struct ash_jinja_text text);

/* Memory of the rendering. NULL: over the limit or out of memory; ash_jinja_fail was called. */
void *ash_jinja_alloc(struct ash_jinja_run *run, size_t size_bytes);
/* A copy of bytes as a string value. */
int ash_jinja_copy(struct ash_jinja_run *run, const char *data, size_t size_bytes, struct ash_jinja_value *out);
/* An empty list, in the memory of the rendering. */
int ash_jinja_list_new(struct ash_jinja_run *run, struct ash_jinja_value *out);
/* Append value to list. 0 or -ENOMEM. */
int ash_jinja_list_add(struct ash_jinja_run *run, struct ash_jinja_list *list, struct ash_jinja_value value);
/* An empty dict, or another kind that has named members. */
int ash_jinja_dict_new(struct ash_jinja_run *run, enum ash_jinja_kind kind, struct ash_jinja_value *out);
/* Set a member; its place stays that of the first time. 0 or -ENOMEM. */
int ash_jinja_dict_set(struct ash_jinja_run *run, struct ash_jinja_dict *dict, struct ash_jinja_text key,
                       struct ash_jinja_value value);
/* A member, borrowed, or NULL. */
const struct ash_jinja_value *ash_jinja_dict_get(const struct ash_jinja_dict *dict, struct ash_jinja_text key);
/* A value as the key of a dict, and back: strings are themselves; an integer gets a byte before it that no text has.
 * Other kinds are -ENOTSUP. */
int ash_jinja_key(struct ash_jinja_run *run, struct ash_jinja_value value, struct ash_jinja_text *key_out);
struct ash_jinja_value ash_jinja_key_value(struct ash_jinja_text key); /* the other way */
/* JSON as a value; strings stay borrowed from json. */
int ash_jinja_from_json(struct ash_jinja_run *run, const json_t *json, struct ash_jinja_value *out);

/* Python's truth: false for undefined, none, zero and empty values. */
bool ash_jinja_truthy(struct ash_jinja_value value);
/* Python's ==. depth is 0 for callers from outside: beyond a limit values are not equal. */
bool ash_jinja_equal(struct ash_jinja_value left, struct ash_jinja_value right, int depth);
/* "a string", "undefined ('tools')", …: for messages. */
const char *ash_jinja_kind_name(struct ash_jinja_value value);
/* As Python's str() and repr(). */
int ash_jinja_print(struct ash_jinja_run *run, struct ash_str *out, struct ash_jinja_value value);
/* How JSON is written. */
struct ash_jinja_json_style {
    int indent;                         /* < 0: on one line */
    bool ascii;                         /* other characters become \\u escapes */
    struct ash_jinja_text comma, colon; /* between members, and after keys */
};
/* As Python's json.dumps in that style. */
int ash_jinja_print_json(struct ash_jinja_run *run, struct ash_str *out, struct ash_jinja_value value,
                         struct ash_jinja_json_style style);
/* value as a string value. */
int ash_jinja_to_string(struct ash_jinja_run *run, struct ash_jinja_value value, struct ash_jinja_value *out);
/* The members of a list, the characters of a string, the keys of a dict, nothing of an undefined value. */
int ash_jinja_to_list(struct ash_jinja_run *run, struct ash_jinja_value value, struct ash_jinja_list **out);
/* Characters, members or keys; -EINVAL for a value without length. */
int ash_jinja_length(struct ash_jinja_run *run, struct ash_jinja_value value, size_t *out);

/* ---- source: a model's template and the special tokens that it may name ------------------------------------------ */

#define ASH_JINJA_TOKENS 4
extern const char *const ash_jinja_token_names[ASH_JINJA_TOKENS];

struct ash_jinja_source {
    char *text;
    size_t size_bytes;
    char *tokens[ASH_JINJA_TOKENS]; /* NULL: undefined */
    bool adds_bos;                  /* texts that do not begin with bos_token get it */
    char name[4096];                /* for messages */
};

/* Fill a zeroed source from a folder or a GGUF file; -ENOENT when there is no template. fini frees it, after failure
 * too. */
int ash_jinja_source_find(struct ash_jinja_source *source, const char *path, struct ash_err *err);
/* The same from a file, path, with the special tokens of a model: what the model's own template would get. */
int ash_jinja_source_read(struct ash_jinja_source *source, const char *path, const char *model, struct ash_err *err);
/* Free what find or read filled in. */
void ash_jinja_source_fini(struct ash_jinja_source *source);

#endif
