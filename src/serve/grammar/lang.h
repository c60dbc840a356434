/* lang - regular languages over characters, as deterministic automata: what regular expressions, formats and numbers
 * match, and what several of them match together. */
#ifndef ASH_SERVE_GRAMMAR_LANG_H
#define ASH_SERVE_GRAMMAR_LANG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "serve/grammar/pda.h"

struct ash_lang; /* immutable; one owner */

/* How much of a text an expression must match. */
enum ash_lang_span {
    ASH_LANG_WHOLE, /* all of it, as if written ^(?:...)$ */
    ASH_LANG_PART   /* some part of it, as in JSON schemas */
};

/* How characters are written. */
enum ash_lang_form {
    ASH_LANG_RAW, /* as UTF-8 */
    ASH_LANG_JSON /* as UTF-8 in a JSON string, escaped only if necessary */
};

/* The language of an expression in the dialect of ECMAScript with flag u. Constructs without an automaton (references,
 * assertions but ^ and $) are -ENOTSUP and named; -EINVAL for an invalid expression; -E2BIG, -ENOMEM. */
int ash_lang_from_regex(const char *pattern, size_t size_bytes, enum ash_lang_span span,
                        const struct ash_grammar_limits *limits, struct ash_lang **lang_out, struct ash_err *err);
/* These texts (UTF-8). Sorts texts. -EINVAL where one is not UTF-8. */
int ash_lang_from_texts(struct ash_pda_text *texts, size_t count, struct ash_lang **lang_out, struct ash_err *err);
/* Texts of min to max (or ASH_PDA_UNBOUNDED) characters. */
int ash_lang_from_length(uint32_t min, uint32_t max, const struct ash_grammar_limits *limits,
                         struct ash_lang **lang_out, struct ash_err *err);
/* An automaton of ASCII characters as a table: next[state * count + i] is the state after chars[i], or 0 for none;
 * states from 1 on, of which 1 is the start. is_final by state. Borrows nothing. */
struct ash_lang_table {
    const char *chars;
    const uint32_t *next;
    const bool *is_final;
    size_t state_count; /* with the unused 0 */
};
/* The language of a table. */
int ash_lang_from_table(const struct ash_lang_table *table, struct ash_lang **lang_out, struct ash_err *err);
/* What both match, or where wants_minus what left matches and right does not. */
int ash_lang_combine(const struct ash_lang *left, const struct ash_lang *right, bool wants_minus,
                     const struct ash_grammar_limits *limits, struct ash_lang **lang_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_lang_close(struct ash_lang *lang);

/* Does it match no text at all? */
bool ash_lang_is_empty(const struct ash_lang *lang);
/* Does it match this text (UTF-8)? */
bool ash_lang_has(const struct ash_lang *lang, const char *text, size_t size_bytes);
/* Draw it between two states. */
void ash_lang_draw(const struct ash_lang *lang, enum ash_lang_form form, struct ash_pda_draft *draft, uint32_t from,
                   uint32_t to);

#endif
