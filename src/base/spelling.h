/* spelling - whether two names are one, and how far one is from another, for messages that ask "did you mean". */
#ifndef ASH_BASE_SPELLING_H
#define ASH_BASE_SPELLING_H

#include <stdbool.h>
#include <stddef.h>

#define ASH_SPELLING_BYTES 128 /* of a name that count; what follows is not compared */

/* Edits (insert, delete, replace, swap neighbours) that turn a into b. '-' and '_', and letters of both cases are
 * equal. */
size_t ash_spelling_distance(const char *a, const char *b);

/* How near name, an unknown one, is to candidate, for "did you mean": smaller is nearer, SIZE_MAX is not near. A
 * candidate that begins with name goes before any misspelling; of misspellings a third of name's letters may differ. */
size_t ash_spelling_nearness(const char *name, const char *candidate);

/* Are the letters and digits the same in order, whatever their case and the other characters between them? "Seq Len" is
 * "seq_len", "H100 SXM5-80GB" is "h100-sxm5-80gb". */
bool ash_spelling_same(const char *a, const char *b);

#endif
