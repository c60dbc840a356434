/* JSON as Python writes it, rewritten for jansson. One walk over the text that copies everything unknown; it checks
 * nothing, because jansson reads the result. */
#include "base/json_priv.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/json.h"

#define LARGEST_DOUBLE "1.7976931348623157e308"
#define ESCAPE_BYTES ((size_t)6) /* of \uXXXX */

struct walk {
    const char *at, *end;
    struct ash_str *out;
    enum ash_json_rewriting how;
    bool has_changed;
};

/* Copy size_bytes of the text. */
static int copy(struct walk *walk, size_t size_bytes)
{
    int rc = ash_str_add(walk->out, walk->at, size_bytes);

    walk->at += size_bytes;
    return rc;
}

/* Write text in place of the next size_bytes. */
static int replace(struct walk *walk, size_t size_bytes, const char *text)
{
    walk->has_changed = true;
    walk->at += size_bytes;
    return ash_str_adds(walk->out, text);
}

static bool begins_with(const struct walk *walk, const char *word)
{
    size_t size_bytes = strlen(word);

    return (size_t)(walk->end - walk->at) >= size_bytes && memcmp(walk->at, word, size_bytes) == 0;
}

/* The value of the \uXXXX at `at`, or -1. */
static long escape_value(const char *at, const char *end)
{
    char digits[5] = {0};

    if ((size_t)(end - at) < ESCAPE_BYTES || at[0] != '\\' || at[1] != 'u') return -1;
    memcpy(digits, at + 2, 4);
    for (int i = 0; i < 4; i++)
        if (!isxdigit((unsigned char)digits[i])) return -1;
    return strtol(digits, NULL, 16);
}

static int rewrite_escape(struct walk *walk)
{
    long first = escape_value(walk->at, walk->end);
    long second = first >= 0 ? escape_value(walk->at + ESCAPE_BYTES, walk->end) : -1;

    if (first == 0 && walk->how == ASH_JSON_REWRITE_NUL) return replace(walk, ESCAPE_BYTES, ASH_JSON_NUL);
    if (first < 0xd800 || first > 0xdfff) return copy(walk, walk->end - walk->at > 1 ? 2 : 1);
    if (first < 0xdc00 && second >= 0xdc00 && second <= 0xdfff) return copy(walk, 2 * ESCAPE_BYTES);
    return replace(walk, ESCAPE_BYTES, "\\ufffd");
}

/* From one quote to the next. */
static int rewrite_string(struct walk *walk)
{
    int rc = copy(walk, 1);

    while (rc == 0 && walk->at < walk->end && *walk->at != '"') {
        size_t plain = 0;

        while (walk->at + plain < walk->end && walk->at[plain] != '"' && walk->at[plain] != '\\')
            plain++;
        rc = plain > 0 ? copy(walk, plain) : rewrite_escape(walk);
    }
    return rc < 0 || walk->at == walk->end ? rc : copy(walk, 1);
}

/* What a number becomes: the text that takes its place, or that is added to it. */
struct change {
    const char *instead, *suffix; /* NULL: none */
};

/* number is NUL-terminated, of the characters that numbers have. */
static struct change change_of(const char *number)
{
    bool is_negative = number[0] == '-';
    const char *digits = number + is_negative;

    if (isinf(strtod(number, NULL)))
        return (struct change){.instead = is_negative ? "-" LARGEST_DOUBLE : LARGEST_DOUBLE};
    errno = 0;
    (void)strtoll(number, NULL, 10);
    if (errno == ERANGE && digits[strspn(digits, "0123456789")] == '\0') return (struct change){.suffix = "e0"};
    return (struct change){0};
}

static int rewrite_number(struct walk *walk)
{
    static const char characters[] = "+-.0123456789eE";
    size_t size_bytes = 0;
    struct change change;
    char *number;

    while (walk->at + size_bytes < walk->end &&
           memchr(characters, walk->at[size_bytes], sizeof(characters) - 1) != NULL)
        size_bytes++;
    number = strndup(walk->at, size_bytes);
    if (number == NULL) return -ENOMEM;
    change = change_of(number);
    free(number);
    if (walk->how == ASH_JSON_REWRITE_VALID) change.instead = NULL;
    if (change.instead != NULL) return replace(walk, size_bytes, change.instead);
    if (copy(walk, size_bytes) < 0) return -ENOMEM;
    return change.suffix != NULL ? replace(walk, 0, change.suffix) : 0;
}

static int rewrite_value(struct walk *walk)
{
    static const struct {
        const char *word, *text;
    } words[] = {{"NaN", "null"}, {"Infinity", LARGEST_DOUBLE}, {"-Infinity", "-" LARGEST_DOUBLE}};

    for (size_t i = 0; i < ASH_COUNT(words) && walk->how != ASH_JSON_REWRITE_VALID; i++)
        if (begins_with(walk, words[i].word)) return replace(walk, strlen(words[i].word), words[i].text);
    if (*walk->at == '"') return rewrite_string(walk);
    if (*walk->at == '-' || isdigit((unsigned char)*walk->at)) return rewrite_number(walk);
    return copy(walk, 1);
}

int ash_json_rewrite(const char *text, size_t size_bytes, enum ash_json_rewriting how, struct ash_str *out)
{
    struct walk walk = {.at = text, .end = text + size_bytes, .out = out, .how = how};
    int rc = 0;

    while (rc == 0 && walk.at < walk.end)
        rc = rewrite_value(&walk);
    return rc < 0 ? rc : walk.has_changed;
}
