/* json_priv - between the files of base/json. */
#ifndef ASH_BASE_JSON_PRIV_H
#define ASH_BASE_JSON_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include "base/str.h"

/* Append text to out, with what Python's json module reads and jansson refuses written so that jansson reads it:
 *
 *   in the text                              in out
 *   an integer outside int64_t               the same digits as a real number
 *   a number beyond the largest double       that largest double, with its sign (Python: infinity)
 *   Infinity, -Infinity                      the largest double, with its sign (jansson has no infinity)
 *   NaN                                      null (jansson has no NaN)
 *   \uD800 to \uDFFF without a partner       \uFFFD
 *   \u0000                                   ASH_JSON_NUL, where nul_too is set
 *
 * Line numbers stay as they are. Returns 1 where something was rewritten, 0 where nothing was, or -ENOMEM. */
int ash_json_rewrite(const char *text, size_t size_bytes, bool nul_too, struct ash_str *out);

#endif
