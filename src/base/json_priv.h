/* json_priv - between the files of base/json. */
#ifndef ASH_BASE_JSON_PRIV_H
#define ASH_BASE_JSON_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include "base/str.h"

/* How much is rewritten. */
enum ash_json_rewriting {
    ASH_JSON_REWRITE_VALID,  /* JSON that jansson refuses: large integers, halves of characters */
    ASH_JSON_REWRITE_PYTHON, /* also what only Python takes for JSON */
    ASH_JSON_REWRITE_NUL     /* also NUL */
};

/* Append text to out, with what Python's json module reads and jansson refuses written so that jansson reads it:
 *
 *   in the text                              in out
 *   an integer outside int64_t               the same digits as a real number
 *   a number beyond the largest double       that largest double, with its sign (Python: infinity)
 *   Infinity, -Infinity                      the largest double, with its sign (jansson has no infinity)
 *   NaN                                      null (jansson has no NaN)
 *   \uD800 to \uDFFF without a partner       \uFFFD
 *   \u0000                                   ASH_JSON_NUL, with ASH_JSON_REWRITE_NUL
 *
 * Infinity, NaN and numbers beyond the largest double stay with ASH_JSON_REWRITE_VALID. Line numbers stay as they
 * are. Returns 1 where something was rewritten, 0 where nothing was, or -ENOMEM. */
int ash_json_rewrite(const char *text, size_t size_bytes, enum ash_json_rewriting how, struct ash_str *out);

#endif
