/* spelling - how far one name is from another, for messages that ask "did you mean". */
#ifndef ASH_BASE_SPELLING_H
#define ASH_BASE_SPELLING_H

#include <stddef.h>

#define ASH_SPELLING_BYTES 128 /* of a name that count; what follows is not compared */

/* Edits (insert, delete, replace, swap neighbours) that turn a into b. '-' and '_', and letters of both cases are
 * equal. */
size_t ash_spelling_distance(const char *a, const char *b);

#endif
