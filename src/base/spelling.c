/* The distance of Damerau and Levenshtein with neighbours swapped once: three rows of its table are enough. */
#include "base/spelling.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

static char fold(char c)
{
    return c == '-' ? '_' : (char)tolower((unsigned char)c);
}

size_t ash_spelling_distance(const char *a, const char *b)
{
    size_t rows[3][ASH_SPELLING_BYTES + 1];
    size_t *before = rows[0], *above = rows[1], *row = rows[2];
    size_t a_count = strnlen(a, ASH_SPELLING_BYTES), b_count = strnlen(b, ASH_SPELLING_BYTES);

    for (size_t j = 0; j <= b_count; j++)
        above[j] = j;
    for (size_t i = 1; i <= a_count; i++) {
        row[0] = i;
        for (size_t j = 1; j <= b_count; j++) {
            size_t best = above[j - 1] + (fold(a[i - 1]) != fold(b[j - 1]));
            if (above[j] + 1 < best) best = above[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            row[j] = best;
        }
        size_t *free_row = before;
        before = above, above = row, row = free_row;
    }
    return above[b_count];
}

/* Does candidate begin with name? */
static bool begins_with(const char *candidate, const char *name)
{
    while (*name != '\0' && fold(*name) == fold(*candidate))
        name++, candidate++;
    return *name == '\0';
}

#define PREFIX_MIN 2   /* letters; one is the beginning of everything */
#define PREFIX_SCORE 2 /* between a name that is the same and one with a letter wrong */
#define EDIT_SCORE 4

size_t ash_spelling_nearness(const char *name, const char *candidate)
{
    size_t distance = ash_spelling_distance(name, candidate), length = strlen(name);

    if (distance == 0) return 0;
    if (length >= PREFIX_MIN && begins_with(candidate, name)) return PREFIX_SCORE;
    return distance <= length / 3 + (length < 3) ? EDIT_SCORE * distance : SIZE_MAX;
}

bool ash_spelling_same(const char *a, const char *b)
{
    while (true) {
        while (*a != '\0' && !isalnum((unsigned char)*a))
            a++;
        while (*b != '\0' && !isalnum((unsigned char)*b))
            b++;
        if (*a == '\0' || *b == '\0') return *a == *b;
        if (tolower((unsigned char)*a++) != tolower((unsigned char)*b++)) return false;
    }
}
