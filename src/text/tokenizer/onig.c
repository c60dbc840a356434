/* Tokenizer files write regular expressions in Oniguruma's dialect (Ruby flavour), because that is what the Hugging
 * Face library runs; here PCRE2 runs them. This rewrites one into the other. What cannot be said in PCRE2 is refused by
 * name. */
#include "text/tokenizer/onig_priv.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"

/* A lone \w also takes the Latin-1 digits, as Oniguruma's does outside a class. */
#define WORD_ALONE "[\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}" ASH_ONIG_WORD_SET "]"
#define NOT_WORD_ALONE "[^\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}" ASH_ONIG_WORD_SET "]"
#define BOUNDARY "(?:(?<!" WORD_ALONE ")(?=" WORD_ALONE ")|(?<=" WORD_ALONE ")(?!" WORD_ALONE "))"
#define NOT_BOUNDARY "(?:(?<!" WORD_ALONE ")(?!" WORD_ALONE ")|(?<=" WORD_ALONE ")(?=" WORD_ALONE "))"

static void begin_atom(struct ash_onig_reader *reader)
{
    reader->atom = reader->out->size_bytes;
    reader->repeat = ASH_ONIG_ONCE;
}

static void translate_class(struct ash_onig_reader *reader)
{
    struct ash_onig_class klass = {{0}, false};

    begin_atom(reader);
    if (ash_onig_read_class(reader, 1, &klass)) {
        if (klass.plain) ash_onig_emit(reader, reader->out, "[");
        ash_onig_emit(reader, reader->out, klass.text.data);
        if (klass.plain) ash_onig_emit(reader, reader->out, "]");
    }
    ash_str_fini(&klass.text);
}

/* Escapes that are neither a character nor a set that a class could hold. */
static bool translate_special_escape(struct ash_onig_reader *reader)
{
    static const struct {
        char name;
        const char *text;
    } specials[] = {
        {'w', WORD_ALONE}, {'W', NOT_WORD_ALONE}, {'b', BOUNDARY}, {'B', NOT_BOUNDARY},
        {'A', "\\A"},      {'z', "\\z"},          {'Z', "\\Z"},    {'R', "\\R"},
    };

    for (size_t i = 0; i < ASH_COUNT(specials); i++) {
        if (specials[i].name != *reader->at) continue;
        reader->at++;
        ash_onig_emit(reader, reader->out, specials[i].text);
        return true;
    }
    return false;
}

static void translate_escape(struct ash_onig_reader *reader)
{
    struct ash_str set = {0};
    bool negated = false;
    uint32_t point;

    reader->at++;
    begin_atom(reader);
    if (reader->at == reader->end) {
        ash_onig_refuse(reader, -EINVAL, "a lone backslash");
    } else if (translate_special_escape(reader)) {
        return;
    } else if (ash_onig_read_escaped_set(reader, &set, &negated)) {
        ash_onig_emit(reader, reader->out, negated ? "[^" : "[");
        ash_onig_emit(reader, reader->out, set.data);
        ash_onig_emit(reader, reader->out, "]");
    } else if (reader->rc == 0 && ash_onig_read_escaped_point(reader, false, &point)) {
        ash_onig_emit_point(reader, reader->out, point);
    } else {
        ash_onig_refuse(reader, -ENOTSUP, "an escape that is not supported");
    }
    ash_str_fini(&set);
}

/* A group that sets options: (?i) or (?i:…). Ruby's m is PCRE2's s. */
static void translate_options(struct ash_onig_reader *reader)
{
    bool isolated;

    ash_onig_emit(reader, reader->out, "(?");
    for (; reader->at < reader->end && *reader->at != ')' && *reader->at != ':'; reader->at++) {
        if (strchr("im-", *reader->at) == NULL) {
            ash_onig_refuse(reader, -ENOTSUP, "this group or option");
            return;
        }
        ash_onig_emit(reader, reader->out, *reader->at == 'i' ? "i" : *reader->at == 'm' ? "s" : "-");
    }
    if (reader->at == reader->end) {
        ash_onig_refuse(reader, -EINVAL, "')' is missing");
        return;
    }
    isolated = *reader->at == ')';
    ash_onig_emit(reader, reader->out, ":");
    reader->at++;
    if (isolated) { /* it holds until the group around it ends */
        reader->group_count--;
        reader->group_closers[reader->group_count - 1]++;
    }
}

static void translate_group(struct ash_onig_reader *reader)
{
    static const char *const heads[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    size_t head = 0;

    if (reader->group_count == ASH_ONIG_GROUPS_MAX) {
        ash_onig_refuse(reader, -E2BIG, "groups nested too deep");
        return;
    }
    reader->group_atoms[reader->group_count] = reader->out->size_bytes;
    reader->group_closers[reader->group_count++] = 0;
    reader->atom = SIZE_MAX;
    reader->repeat = ASH_ONIG_ONCE;
    while (head < ASH_COUNT(heads) && !ash_onig_looking_at(reader, heads[head]))
        head++;
    if (head < ASH_COUNT(heads)) {
        ash_onig_emit(reader, reader->out, heads[head]);
        reader->at += strlen(heads[head]);
    } else if (ash_onig_looking_at(reader, "(?")) {
        reader->at += 2;
        translate_options(reader);
    } else {
        ash_onig_emit(reader, reader->out, "(?:"); /* the text of a group is not used */
        reader->at++;
    }
}

static void close_group(struct ash_onig_reader *reader)
{
    int top = reader->group_count - 1;

    for (int i = 0; i < reader->group_closers[top]; i++)
        ash_onig_emit(reader, reader->out, ")");
}

static void translate_group_end(struct ash_onig_reader *reader)
{
    if (reader->group_count == 1) {
        ash_onig_refuse(reader, -EINVAL, "')' without '('");
        return;
    }
    close_group(reader);
    ash_onig_emit(reader, reader->out, ")");
    reader->group_count--;
    reader->atom = reader->group_atoms[reader->group_count];
    reader->repeat = ASH_ONIG_ONCE;
    reader->at++;
}

/* Put "(?:" before the last atom and ")" after it. */
static void wrap_atom(struct ash_onig_reader *reader)
{
    struct ash_str *out = reader->out;

    ash_onig_emit(reader, out, "(?:)");
    if (reader->rc < 0) return;
    memmove(out->data + reader->atom + 3, out->data + reader->atom, out->size_bytes - 4 - reader->atom);
    memcpy(out->data + reader->atom, "(?:", 3);
    out->data[out->size_bytes - 1] = ')';
}

static void translate_repeat(struct ash_onig_reader *reader)
{
    char text[2] = {*reader->at, '\0'};

    if (reader->atom == SIZE_MAX) {
        ash_onig_refuse(reader, -EINVAL, "nothing to repeat");
        return;
    }
    /* {n,m}+ and {n}? are a repeat of a repeat in Ruby's flavour */
    if (reader->repeat == ASH_ONIG_COUNTED && (text[0] != '?' || reader->exact)) {
        wrap_atom(reader);
        reader->repeat = ASH_ONIG_ONCE;
    }
    if (reader->repeat == ASH_ONIG_DONE || (reader->repeat == ASH_ONIG_SIMPLE && text[0] == '*')) {
        ash_onig_refuse(reader, -ENOTSUP, "a repeat of a repeat");
        return;
    }
    ash_onig_emit(reader, reader->out, text);
    reader->repeat = reader->repeat == ASH_ONIG_ONCE ? ASH_ONIG_SIMPLE : ASH_ONIG_DONE;
    reader->at++;
}

/* {n}, {n,}, {n,m} or {,m}: its numbers' text, or false when the brace is just a brace. */
static bool read_counts(const struct ash_onig_reader *reader, char *low, char *high, size_t *size_out)
{
    const char *at = reader->at + 1;
    size_t digits[2] = {0, 0};
    bool comma = false;

    for (; at < reader->end && *at != '}'; at++) {
        if (*at == ',' && !comma) {
            comma = true;
        } else if (*at >= '0' && *at <= '9' && digits[comma] < 6) {
            (comma ? high : low)[digits[comma]++] = *at;
        } else {
            return false;
        }
    }
    if (at == reader->end || digits[0] + digits[1] == 0) return false;
    low[digits[0]] = '\0';
    high[digits[1]] = '\0';
    if (digits[0] == 0) memcpy(low, "0", 2);
    if (!comma) high[0] = '=';
    *size_out = (size_t)(at + 1 - reader->at);
    return true;
}

static void translate_counted(struct ash_onig_reader *reader)
{
    char low[8], high[8] = "";
    size_t size;

    if (!read_counts(reader, low, high, &size)) {
        begin_atom(reader);
        ash_onig_emit(reader, reader->out, "\\{");
        reader->at++;
        return;
    }
    if (reader->atom == SIZE_MAX || reader->repeat != ASH_ONIG_ONCE) {
        ash_onig_refuse(reader, -ENOTSUP, "a repeat of nothing or of a repeat");
        return;
    }
    reader->exact = high[0] == '=';
    if (ash_str_addf(reader->out, reader->exact ? "{%s}" : "{%s,%s}", low, high) < 0)
        reader->rc = ash_err_set(reader->err, -ENOMEM, "out of memory for a regular expression");
    reader->repeat = ASH_ONIG_COUNTED;
    reader->at += size;
}

static void translate_plain(struct ash_onig_reader *reader)
{
    uint32_t point;
    int size = ash_utf8_decode(reader->at, (size_t)(reader->end - reader->at), &point);
    bool special = size == 1 && !ash_onig_is_alnum(*reader->at) && (uint8_t)*reader->at > ' ' && *reader->at != 0x7f;

    begin_atom(reader);
    if (size == 0) {
        ash_onig_refuse(reader, -EILSEQ, "a byte that is not UTF-8");
        return;
    }
    if (special) ash_onig_emit(reader, reader->out, "\\");
    if (reader->rc == 0 && ash_str_add(reader->out, reader->at, (size_t)size) < 0)
        reader->rc = ash_err_set(reader->err, -ENOMEM, "out of memory for a regular expression");
    reader->at += size;
}

static void translate_one(struct ash_onig_reader *reader)
{
    switch (*reader->at) {
    case '\\':
        translate_escape(reader);
        break;
    case '[':
        translate_class(reader);
        break;
    case '(':
        translate_group(reader);
        break;
    case ')':
        translate_group_end(reader);
        break;
    case '*':
    case '+':
    case '?':
        translate_repeat(reader);
        break;
    case '{':
        translate_counted(reader);
        break;
    case '|':
        ash_onig_emit(reader, reader->out, "|");
        reader->atom = SIZE_MAX;
        reader->repeat = ASH_ONIG_ONCE;
        reader->at++;
        break;
    case '.':
    case '^':
    case '$': {
        char text[2] = {*reader->at++, '\0'};
        begin_atom(reader);
        ash_onig_emit(reader, reader->out, text);
        break;
    }
    default:
        translate_plain(reader);
    }
}

int ash_tok_onig_translate(const char *expression, struct ash_str *out, struct ash_err *err)
{
    struct ash_onig_reader reader = {.begin = expression,
                                     .at = expression,
                                     .end = expression + strlen(expression),
                                     .out = out,
                                     .err = err,
                                     .atom = SIZE_MAX,
                                     .group_count = 1};

    if ((size_t)(reader.end - reader.begin) > ASH_TOK_PATTERN_BYTES_MAX)
        return ash_err_set(err, -E2BIG, "a regular expression of %zu bytes is too long",
                           (size_t)(reader.end - reader.begin));
    ash_onig_emit(&reader, out, "");
    while (reader.rc == 0 && reader.at < reader.end)
        translate_one(&reader);
    if (reader.rc == 0 && reader.group_count > 1) ash_onig_refuse(&reader, -EINVAL, "')' is missing");
    if (reader.rc == 0) close_group(&reader);
    return reader.rc;
}
