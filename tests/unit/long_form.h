/* How many cases a test draws. `LONG=1 make test` asks for the long form, everything else for the one that fits a suite of
 * some minutes: the first cases of the same row, so that what fails in the short form fails in the long one. */
#ifndef ASH_TESTS_LONG_FORM_H
#define ASH_TESTS_LONG_FORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Is LONG set in the environment, and not 0? */
static inline bool is_long_form(void)
{
    const char *text = getenv("LONG");

    return text != NULL && text[0] != '\0' && strcmp(text, "0") != 0;
}

/* The first in the short form, the second in the long one. */
static inline size_t few_or_many(size_t few, size_t many)
{
    return is_long_form() ? many : few;
}

#endif
