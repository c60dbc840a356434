/* Inside of GBNF: the source, character by character. */
#ifndef ASH_SERVE_GRAMMAR_GBNF_PRIV_H
#define ASH_SERVE_GRAMMAR_GBNF_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

#define ASH_GBNF_REPEAT_MAX 100000

/* Where reading is; borrowed text. */
struct ash_gbnf_source {
    const char *at, *end;
    size_t line; /* from 1 on */
    struct ash_err *err;
};

/* -EINVAL with the line, the error and the text there. */
int ash_gbnf_bad(const struct ash_gbnf_source *source, const char *what);
/* Is c the next byte? */
bool ash_gbnf_has(const struct ash_gbnf_source *source, char c);
/* Pass over space and comments; newlines too where a rule may continue over them. */
void ash_gbnf_skip(struct ash_gbnf_source *source, bool with_newlines);
/* Read a character of a literal or a class; escapes are decoded. 0 or -EINVAL. */
int ash_gbnf_point(struct ash_gbnf_source *source, uint32_t *point_out);
/* Read {m}, {m,}, {m,n} or, as llama.cpp has it, {,n}. max may be ASH_PDA_UNBOUNDED. */
int ash_gbnf_braces(struct ash_gbnf_source *source, uint32_t *min_out, uint32_t *max_out);

#endif
