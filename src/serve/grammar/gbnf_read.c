/* Reading GBNF: space, comments, characters with their escapes, counts. */
#include "serve/grammar/gbnf_priv.h"

#include <errno.h>
#include <string.h>

#include "serve/grammar/lang_priv.h"

int ash_gbnf_bad(const struct ash_gbnf_source *source, const char *what)
{
    size_t left = (size_t)(source->end - source->at);

    return ash_err_set(source->err, -EINVAL, "line %zu of the grammar: %s at '%.*s'", source->line, what,
                       (int)(left < 20 ? left : 20), source->at);
}

bool ash_gbnf_has(const struct ash_gbnf_source *source, char c)
{
    return source->at < source->end && *source->at == c;
}

void ash_gbnf_skip(struct ash_gbnf_source *source, bool with_newlines)
{
    while (source->at < source->end) {
        char c = *source->at;
        if (c == '#') {
            while (source->at < source->end && *source->at != '\n' && *source->at != '\r')
                source->at++;
        } else if (c == ' ' || c == '\t' || (with_newlines && (c == '\n' || c == '\r'))) {
            source->line += c == '\n';
            source->at++;
        } else {
            return;
        }
    }
}

/* The digits of \x, \u and \U. */
static int read_hex(struct ash_gbnf_source *source, int digits, uint32_t *point_out)
{
    uint32_t point = 0;

    if (source->end - source->at < 2 + digits) return ash_gbnf_bad(source, "it ends too early");
    for (int i = 0; i < digits; i++) {
        char c = source->at[2 + i];
        const char *hex = "0123456789abcdef", *found;
        if (c >= 'A' && c <= 'F') c = (char)(c - 'A' + 'a');
        found = c != '\0' ? strchr(hex, c) : NULL;
        if (found == NULL) return ash_gbnf_bad(source, "an escape without its digits");
        point = point << 4 | (uint32_t)(found - hex);
    }
    if (point >= ASH_LANG_POINTS) return ash_gbnf_bad(source, "no such character");
    source->at += 2 + digits;
    *point_out = point;
    return 0;
}

static int read_escape(struct ash_gbnf_source *source, uint32_t *point_out)
{
    static const char *const letters = "tnr\\\"[]", *const values = "\t\n\r\\\"[]";
    const char *found;

    if (source->end - source->at < 2) return ash_gbnf_bad(source, "it ends too early");
    if (source->at[1] == 'x') return read_hex(source, 2, point_out);
    if (source->at[1] == 'u') return read_hex(source, 4, point_out);
    if (source->at[1] == 'U') return read_hex(source, 8, point_out);
    found = source->at[1] != '\0' ? strchr(letters, source->at[1]) : NULL;
    if (found == NULL) return ash_gbnf_bad(source, "an unknown escape");
    *point_out = (uint8_t)values[found - letters];
    source->at += 2;
    return 0;
}

int ash_gbnf_point(struct ash_gbnf_source *source, uint32_t *point_out)
{
    struct ash_regex_cursor cursor = {source->at, (size_t)(source->end - source->at), 0};

    if (source->at == source->end) return ash_gbnf_bad(source, "it ends too early");
    if (*source->at == '\\') return read_escape(source, point_out);
    if (ash_regex_point(&cursor, point_out, NULL) < 0) return ash_gbnf_bad(source, "a byte that is not UTF-8");
    source->line += *source->at == '\n';
    source->at += cursor.at;
    return 0;
}

static int read_count(struct ash_gbnf_source *source, uint32_t *count_out)
{
    const char *start = source->at;
    uint32_t count = 0;

    for (; source->at < source->end && *source->at >= '0' && *source->at <= '9'; source->at++)
        count = count > ASH_GBNF_REPEAT_MAX ? count : count * 10 + (uint32_t)(*source->at - '0');
    *count_out = count;
    if (source->at == start) return ash_gbnf_bad(source, "no number");
    if (count <= ASH_GBNF_REPEAT_MAX) return 0;
    return ash_err_set(source->err, -E2BIG, "line %zu of the grammar: more than %d repetitions", source->line,
                       ASH_GBNF_REPEAT_MAX);
}

int ash_gbnf_braces(struct ash_gbnf_source *source, uint32_t *min_out, uint32_t *max_out)
{
    int rc = 0;

    source->at++;
    ash_gbnf_skip(source, true);
    *min_out = 0;
    if (!ash_gbnf_has(source, ',')) rc = read_count(source, min_out);
    ash_gbnf_skip(source, true);
    *max_out = *min_out;
    if (rc == 0 && ash_gbnf_has(source, ',')) {
        source->at++;
        ash_gbnf_skip(source, true);
        *max_out = ASH_PDA_UNBOUNDED;
        if (!ash_gbnf_has(source, '}')) rc = read_count(source, max_out);
        ash_gbnf_skip(source, true);
    }
    if (rc < 0) return rc;
    if (!ash_gbnf_has(source, '}')) return ash_gbnf_bad(source, "no '}'");
    if (*min_out > *max_out) return ash_gbnf_bad(source, "a repetition that is the wrong way round, before");
    source->at++;
    return 0;
}
