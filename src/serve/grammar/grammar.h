/* grammar - answers that must have a form: a JSON schema, any JSON object, a regular expression, one of some texts, or
 * a grammar in llama.cpp's GBNF. All become one pushdown automaton over bytes. A matcher follows one answer through it
 * and says which tokens may come next. What the forms mean here: docs/constrained-output.md. */
#ifndef ASH_SERVE_GRAMMAR_GRAMMAR_H
#define ASH_SERVE_GRAMMAR_GRAMMAR_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/str.h"
#include "text/tokenizer/tokenizer.h"

/* ---- the vocabulary ---------------------------------------------------------------------------------------------- */

struct ash_vocab_trie; /* the bytes of every token as a trie; read-only, shared by threads */

#define ASH_VOCAB_SPECIAL_BYTE 0xff /* stands before the content of a special token: no text has it */

/* One token for ash_vocab_trie_from_tokens. Without bytes, or with that byte in them, it is never allowed. */
struct ash_vocab_token {
    const char *bytes;
    size_t size_bytes;
    bool is_special; /* automata see ASH_VOCAB_SPECIAL_BYTE, then bytes */
};

/* The trie of a tokenizer, for a model with vocab ids (at least the tokenizer's; more are never allowed). eos_ids end
 * an answer: they are allowed only after a complete text. Made once per model. Borrows nothing. -EINVAL for an eos id
 * that does not exist, -ENOMEM. */
int ash_vocab_trie_open(const struct ash_tokenizer *tokenizer, size_t vocab, const int32_t *eos_ids, size_t eos_count,
                        struct ash_vocab_trie **trie_out, struct ash_err *err);
/* The same from a list with the token of each id. Borrows nothing. */
int ash_vocab_trie_from_tokens(const struct ash_vocab_token *tokens, size_t count, const int32_t *eos_ids,
                               size_t eos_count, struct ash_vocab_trie **trie_out, struct ash_err *err);
/* Free it; no matcher may be using it. NULL is a no-op. */
void ash_vocab_trie_close(struct ash_vocab_trie *trie);
/* Words of 64 bits in a mask of this vocabulary. */
size_t ash_vocab_trie_mask_words(const struct ash_vocab_trie *trie);
/* Is text the content of a special token? Grammars name such a token by ASH_VOCAB_SPECIAL_BYTE and its content. */
bool ash_vocab_trie_has_special(const struct ash_vocab_trie *trie, const char *text);

/* ---- grammars ---------------------------------------------------------------------------------------------------- */

struct ash_grammar; /* immutable, reference counted, with masks by state that all its matchers share; any thread */

/* What compiling may take. Sources come from users: beyond these it is -E2BIG. */
struct ash_grammar_limits {
    size_t source_bytes; /* of the schema or grammar as text */
    size_t states;       /* of the automaton, and of each automaton on the way to it */
    size_t depth;        /* of schemas, groups and alternatives in each other */
    double seconds;      /* that the thread may run for it: a loaded machine refuses no more than an idle one */
    size_t cache_bytes;  /* of states and masks that one grammar keeps */
};
/* 1 MiB, 200,000 states, depth 128, 2 seconds, 64 MiB. */
struct ash_grammar_limits ash_grammar_default_limits(void);

/* Where JSON has spaces. */
enum ash_json_space {
    ASH_JSON_SPACE_COMPACT, /* after "," and ":" one space or none, nowhere else */
    ASH_JSON_SPACE_ANY      /* between any two tokens, up to ASH_JSON_SPACE_MAX characters of it */
};
#define ASH_JSON_SPACE_MAX 64

/* How to compile. */
struct ash_grammar_opts {
    struct ash_grammar_limits limits;
    enum ash_json_space space;
    bool is_lenient; /* keywords and patterns of a schema that are not supported are ignored */
    /* Of caches: rather -EAGAIN than to compile for longer than about this, a source that is large, or one that another
     * thread compiles. 0: wait, and compile within the limits. */
    double patience_s;
};
/* Default limits, compact, not lenient, patient. */
struct ash_grammar_opts ash_grammar_default_opts(void);

/* JSON of a schema (an object, or true or false). A keyword that is not supported is -ENOTSUP and named by its JSON
 * pointer, unless opts say that it is ignored; an invalid schema, or one that no value fits, is -EINVAL; also -E2BIG
 * and
 * -ENOMEM. opts NULL: the defaults. The caller owns *grammar_out (ash_grammar_put). */
int ash_grammar_from_json_schema(const json_t *schema, const struct ash_grammar_opts *opts,
                                 struct ash_grammar **grammar_out, struct ash_err *err);
/* Any JSON object. Errors as above. */
int ash_grammar_json_object(const struct ash_grammar_opts *opts, struct ash_grammar **grammar_out, struct ash_err *err);
/* Text that a regular expression matches as a whole. */
int ash_grammar_from_regex(const char *pattern, size_t size_bytes, const struct ash_grammar_opts *opts,
                           struct ash_grammar **grammar_out, struct ash_err *err);
/* One of the texts (NUL-terminated, at least one). */
int ash_grammar_from_choice(const char *const *choices, size_t count, const struct ash_grammar_opts *opts,
                            struct ash_grammar **grammar_out, struct ash_err *err);
/* A grammar in llama.cpp's GBNF; the answer is its rule `root`. */
int ash_grammar_from_gbnf(const char *text, size_t size_bytes, const struct ash_grammar_opts *opts,
                          struct ash_grammar **grammar_out, struct ash_err *err);
/* One reference more; returns grammar. */
struct ash_grammar *ash_grammar_get(struct ash_grammar *grammar);
/* One reference less; the last one frees it. NULL is a no-op. */
void ash_grammar_put(struct ash_grammar *grammar);

/* ---- matchers ---------------------------------------------------------------------------------------------------- */

struct ash_matcher; /* where one answer is in its grammar; one owner thread at a time */

#define ASH_MATCHER_ROLLBACK_MAX 256

/* At the start of an answer. Takes a reference to grammar and borrows trie until close. 0, -ENOMEM or -E2BIG. */
int ash_matcher_open(struct ash_grammar *grammar, const struct ash_vocab_trie *trie, struct ash_matcher **matcher_out,
                     struct ash_err *err);
/* NULL is a no-op. */
void ash_matcher_close(struct ash_matcher *matcher);
/* Which ids may come next: a bit each, ash_vocab_trie_mask_words of them. Eos ids are allowed exactly where the text is
 * complete. Borrowed until the next call with this matcher that is not a question. NULL: out of memory, or a grammar so
 * ambiguous that its states exceed the limits; the answer cannot continue. A mask without any bit says that the
 * vocabulary cannot spell what must come next. */
const uint64_t *ash_matcher_mask(struct ash_matcher *matcher);
/* Go on with id. 0, or the matcher is as it was: -EINVAL where the mask forbids it, -ENOMEM, -E2BIG as above. After an
 * eos id nothing is allowed. */
int ash_matcher_accept(struct ash_matcher *matcher, int32_t id);
/* Take the last tokens (at most ASH_MATCHER_ROLLBACK_MAX, and no more than were accepted) back. */
void ash_matcher_rollback(struct ash_matcher *matcher, size_t tokens);
/* Is the text so far a whole answer? */
bool ash_matcher_is_complete(const struct ash_matcher *matcher);
/* Is it one that nothing can be added to? Also after an eos id. */
bool ash_matcher_must_end(struct ash_matcher *matcher);

/* ---- grammars that were compiled before -------------------------------------------------------------------------- */

struct ash_grammar_cache; /* compiled grammars by source; any thread */

/* What ash_grammar_cache_get compiles: a schema as JSON text, an expression, GBNF, or nothing (any JSON object). */
enum ash_grammar_kind { ASH_GRAMMAR_JSON_SCHEMA, ASH_GRAMMAR_JSON_OBJECT, ASH_GRAMMAR_REGEX, ASH_GRAMMAR_GBNF };
struct ash_grammar_source {
    enum ash_grammar_kind kind;
    const char *text;
    size_t size_bytes;
};

/* For at most count grammars; beyond that the one that was not used for longest goes. NULL when out of memory. */
struct ash_grammar_cache *ash_grammar_cache_open(size_t count);
/* Grammars that are still in use live on. NULL is a no-op. */
void ash_grammar_cache_close(struct ash_grammar_cache *cache);
/* The grammar of a source, compiled unless it is there. Threads that ask for the same source at once compile it once.
 * The caller owns a reference. Errors as the compilers'; they are not kept. -EAGAIN: see patience_s. opts NULL: the
 * defaults. */
int ash_grammar_cache_get(struct ash_grammar_cache *cache, const struct ash_grammar_source *source,
                          const struct ash_grammar_opts *opts, struct ash_grammar **grammar_out, struct ash_err *err);

/* Compiles what ctx describes, as the compilers above do. */
typedef int (*ash_grammar_compile_fn)(void *ctx, const struct ash_grammar_opts *opts, struct ash_grammar **grammar_out,
                                      struct ash_err *err);
struct ash_grammar_maker {
    ash_grammar_compile_fn compile;
    void *ctx;
    const struct ash_str *key; /* the same for equal grammars only; borrowed */
};
/* As ash_grammar_cache_get, for any compiler. */
int ash_grammar_cache_make(struct ash_grammar_cache *cache, const struct ash_grammar_maker *maker,
                           const struct ash_grammar_opts *opts, struct ash_grammar **grammar_out, struct ash_err *err);
/* How many grammars it has compiled. */
uint64_t ash_grammar_cache_compiled(struct ash_grammar_cache *cache);

#endif
