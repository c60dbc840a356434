/* Host lists: a pattern is expanded bracket by bracket, the last one fastest, in one buffer for the name. */
#include "infra/topology/hostlist.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS_MAX 9
#define BRACKETS_MAX 4

struct walk {
    char name[ASH_HOSTLIST_NAME_MAX + 1];
    int count;
    ash_hostlist_fn visit;
    void *ctx;
    struct ash_err *err;
};

static int expand(struct walk *walk, size_t length, int brackets, const char *at, const char *end);

static int append(struct walk *walk, size_t *length, const char *text, size_t bytes)
{
    if (*length + bytes > ASH_HOSTLIST_NAME_MAX)
        return ash_err_set(walk->err, -EINVAL, "a host name is longer than %d bytes: %.40s...", ASH_HOSTLIST_NAME_MAX,
                           walk->name);
    memcpy(walk->name + *length, text, bytes);
    *length += bytes;
    walk->name[*length] = '\0';
    return 0;
}

/* A number of at most DIGITS_MAX digits; its digits, or 0 where there is none. */
static size_t read_number(const char *at, const char *end, long *value_out)
{
    size_t digits = 0;
    long value = 0;

    while (at + digits < end && isdigit((unsigned char)at[digits]) && digits < DIGITS_MAX)
        value = value * 10 + (at[digits++] - '0');
    *value_out = value;
    return digits;
}

/* One range of a bracket, "3" or "08-12", each followed by what follows the bracket. Returns where it ends. */
static int expand_range(struct walk *walk, size_t length, int brackets, const char **at, const char *close,
                        const char *end)
{
    long first, last;
    size_t width = read_number(*at, close, &first), digits;

    *at += width;
    last = first;
    if (width > 0 && *at < close && **at == '-') {
        digits = read_number(*at + 1, close, &last);
        *at += 1 + digits;
        if (digits == 0) width = 0;
    }
    if (width == 0 || last < first || last - first >= ASH_HOSTLIST_NAMES_MAX || (*at < close && **at != ','))
        return ash_err_set(walk->err, -EINVAL, "brackets hold numbers and ranges as in n[0-3,7], not '%.*s'",
                           (int)(close - *at < 40 ? close - *at : 40), *at);
    for (long number = first; number <= last; number++) {
        size_t longer = length;
        char text[24];
        int bytes = snprintf(text, sizeof(text), "%0*ld", (int)width, number);
        int rc = append(walk, &longer, text, (size_t)bytes);

        if (rc == 0) rc = expand(walk, longer, brackets + 1, close + 1, end);
        if (rc < 0) return rc;
    }
    if (*at < close) (*at)++;
    return 0;
}

/* The first length bytes of the name are final; [at, end) is still to be read. */
static int expand(struct walk *walk, size_t length, int brackets, const char *at, const char *end)
{
    const char *open = memchr(at, '[', (size_t)(end - at)), *close;
    int rc = append(walk, &length, at, (size_t)((open != NULL ? open : end) - at));

    if (rc < 0) return rc;
    if (open == NULL) {
        if (walk->count++ >= ASH_HOSTLIST_NAMES_MAX)
            return ash_err_set(walk->err, -EINVAL, "more than %d hosts", ASH_HOSTLIST_NAMES_MAX);
        return walk->visit(walk->ctx, walk->name, walk->err);
    }
    close = memchr(open, ']', (size_t)(end - open));
    if (close == NULL || close == open + 1 || brackets >= BRACKETS_MAX)
        return ash_err_set(walk->err, -EINVAL, "'%.*s' has brackets that are empty, not closed, or more than %d",
                           (int)(end - open < 40 ? end - open : 40), open, BRACKETS_MAX);
    for (const char *range = open + 1; rc == 0 && range < close;)
        rc = expand_range(walk, length, brackets, &range, close, end);
    return rc;
}

static int is_gap(char c)
{
    return c == ',' || isspace((unsigned char)c);
}

/* Where the name that begins at `at` ends: a gap outside brackets. */
static const char *end_of_name(const char *at)
{
    int inside = 0;

    for (; *at != '\0' && (inside || !is_gap(*at)); at++)
        inside = *at == '[' ? 1 : *at == ']' ? 0 : inside;
    return at;
}

int ash_hostlist_each(const char *text, ash_hostlist_fn visit, void *ctx, struct ash_err *err)
{
    struct walk walk = {.visit = visit, .ctx = ctx, .err = err};

    while (*text != '\0') {
        const char *end;
        int rc;

        if (is_gap(*text)) {
            text++;
            continue;
        }
        if (*text == '#') {
            text += strcspn(text, "\n");
            continue;
        }
        end = end_of_name(text);
        rc = expand(&walk, 0, 0, text, end);
        if (rc < 0) return rc;
        text = end;
    }
    return 0;
}
