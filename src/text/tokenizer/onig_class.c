/* Sets and character classes of Oniguruma's dialect. Sets are spelled out because PCRE2 means other
 * characters by the same letters; a class inside a class and && have no equal in PCRE2 and become alternatives and
 * lookaheads. */
#include "text/tokenizer/onig_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"

/* The last item of a set is a range or a property: a hyphen that follows cannot make a new range of it. */
#define SPACE_SET                                                                                                      \
    "\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}\\x{2000}-\\x{200a}\\x{9}-\\x{d}"
#define HEX_SET "0-9A-Fa-f"

/* ---- properties -------------------------------------------------------------------------------------------------- */

struct named_set {
    const char *name, *set;
};

static const struct named_set posix_sets[] = {
    {"alnum", "\\p{Alphabetic}\\p{Nd}"}, {"alpha", "\\p{Alphabetic}"},   {"ascii", "\\x{0}-\\x{7f}"},
    {"blank", "\\x{9}\\p{Zs}"},          {"cntrl", "\\p{Cc}"},           {"digit", "\\p{Nd}"},
    {"lower", "\\p{Lowercase}"},         {"punct", "$+<=>\\^`|~\\p{P}"}, {"space", SPACE_SET},
    {"upper", "\\p{Uppercase}"},         {"word", ASH_ONIG_WORD_SET},    {"xdigit", HEX_SET},
};

/* Categories by their long names, letters only and lower case. */
static const struct named_set categories[] = {
    {"letter", "\\p{L}"},
    {"uppercaseletter", "\\p{Lu}"},
    {"lowercaseletter", "\\p{Ll}"},
    {"titlecaseletter", "\\p{Lt}"},
    {"modifierletter", "\\p{Lm}"},
    {"otherletter", "\\p{Lo}"},
    {"mark", "\\p{M}"},
    {"nonspacingmark", "\\p{Mn}"},
    {"spacingmark", "\\p{Mc}"},
    {"enclosingmark", "\\p{Me}"},
    {"number", "\\p{N}"},
    {"decimalnumber", "\\p{Nd}"},
    {"letternumber", "\\p{Nl}"},
    {"othernumber", "\\p{No}"},
    {"punctuation", "\\p{P}"},
    {"symbol", "\\p{S}"},
    {"mathsymbol", "\\p{Sm}"},
    {"currencysymbol", "\\p{Sc}"},
    {"modifiersymbol", "\\p{Sk}"},
    {"othersymbol", "\\p{So}"},
    {"separator", "\\p{Z}"},
    {"spaceseparator", "\\p{Zs}"},
    {"lineseparator", "\\p{Zl}"},
    {"paragraphseparator", "\\p{Zp}"},
    {"other", "\\p{C}"},
    {"control", "\\p{Cc}"},
    {"format", "\\p{Cf}"},
    {"unassigned", "\\p{Cn}"},
    {"privateuse", "\\p{Co}"},
};

static const char *find_set(const struct named_set *sets, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(sets[i].name, name) == 0) return sets[i].set;
    return NULL;
}

static bool compiles(const char *expression)
{
    int error;
    size_t offset;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)expression, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &error, &offset, NULL);

    pcre2_code_free(code);
    return code != NULL;
}

/* Append what \p{name} is inside a class. From PCRE2 10.40 on a bare script name also means characters that the
 * script shares with others; sc: means the script alone, as Oniguruma does. */
static void emit_property(struct ash_onig_reader *reader, struct ash_str *out, const char *name, const char *loose)
{
    const char *set = find_set(posix_sets, ASH_COUNT(posix_sets), loose);
    struct ash_str script = {0};

    if (set == NULL) set = find_set(categories, ASH_COUNT(categories), loose);
    if (set != NULL) {
        ash_onig_emit(reader, out, set);
        return;
    }
    if (ash_str_addf(&script, "\\p{sc:%s}", name) < 0)
        reader->rc = ash_err_set(reader->err, -ENOMEM, "out of memory for a regular expression");
    else if (strlen(name) > 2 && compiles(script.data))
        ash_onig_emit(reader, out, script.data);
    else if (ash_str_addf(out, "\\p{%s}", name) < 0)
        reader->rc = ash_err_set(reader->err, -ENOMEM, "out of memory for a regular expression");
    ash_str_fini(&script);
}

/* Read {name} or {^name} after \p or \P and append its set to out. */
static bool read_property(struct ash_onig_reader *reader, bool upper, struct ash_str *out, bool *negated_out)
{
    char name[64], loose[64];
    size_t size = 0, letters = 0;

    *negated_out = upper;
    if (!ash_onig_looking_at(reader, "{")) return ash_onig_refuse(reader, -ENOTSUP, "a property without braces");
    reader->at++;
    if (ash_onig_looking_at(reader, "^")) {
        *negated_out = !*negated_out;
        reader->at++;
    }
    for (; reader->at < reader->end && *reader->at != '}'; reader->at++) {
        char c = *reader->at;
        if ((!ash_onig_is_alnum(c) && c != '_' && c != ' ' && c != '-') || size + 1 >= sizeof(name))
            return ash_onig_refuse(reader, -ENOTSUP, "a property with an odd name");
        name[size++] = c;
        if (ash_onig_is_alnum(c)) loose[letters++] = (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    if (reader->at == reader->end || letters == 0)
        return ash_onig_refuse(reader, -EINVAL, "a property without an end or a name");
    reader->at++;
    name[size] = '\0';
    loose[letters] = '\0';
    emit_property(reader, out, name, loose);
    return reader->rc == 0;
}

/* The set that an escape letter (s, d, w, h and their upper-case opposites, p and P) names: appended to out. reader
 * is at the letter. False: it names no set, or it was refused (reader->rc). */
bool ash_onig_read_escaped_set(struct ash_onig_reader *reader, struct ash_str *out, bool *negated_out)
{
    char c = *reader->at;
    const char *set = strchr("sS", c)   ? SPACE_SET
                      : strchr("dD", c) ? "\\p{Nd}"
                      : strchr("wW", c) ? ASH_ONIG_WORD_SET
                      : strchr("hH", c) ? HEX_SET
                                        : NULL;

    if (c == 'p' || c == 'P') {
        reader->at++;
        return read_property(reader, c == 'P', out, negated_out);
    }
    if (c == '\0' || set == NULL) return false;
    reader->at++;
    *negated_out = c >= 'A' && c <= 'Z';
    ash_onig_emit(reader, out, set);
    return reader->rc == 0;
}

/* ---- classes ----------------------------------------------------------------------------------------------------- */

/* One side of && in a class: characters that a single [set] can hold, and others as alternatives. */
struct operand {
    struct ash_str set, others;
};

static void operand_fini(struct operand *operand)
{
    ash_str_fini(&operand->set);
    ash_str_fini(&operand->others);
}

static void operand_other(struct ash_onig_reader *reader, struct operand *operand, const char *before, const char *text,
                          const char *after)
{
    if (operand->others.size_bytes > 0) ash_onig_emit(reader, &operand->others, "|");
    ash_onig_emit(reader, &operand->others, before);
    ash_onig_emit(reader, &operand->others, text);
    ash_onig_emit(reader, &operand->others, after);
}

/* Append the operand as an expression for one character. */
static void operand_emit(struct ash_onig_reader *reader, const struct operand *operand, struct ash_str *out)
{
    bool both = operand->set.size_bytes > 0 && operand->others.size_bytes > 0;

    ash_onig_emit(reader, out, "(?:");
    if (operand->set.size_bytes > 0) {
        ash_onig_emit(reader, out, "[");
        ash_onig_emit(reader, out, operand->set.data);
        ash_onig_emit(reader, out, "]");
    }
    if (both) ash_onig_emit(reader, out, "|");
    if (operand->others.size_bytes > 0) ash_onig_emit(reader, out, operand->others.data);
    ash_onig_emit(reader, out, ")");
}

/* Add a set to the operand, as it is or its complement. */
static void operand_set(struct ash_onig_reader *reader, struct operand *operand, const char *set, bool negated)
{
    if (negated)
        operand_other(reader, operand, "[^", set, "]");
    else
        ash_onig_emit(reader, &operand->set, set);
}

/* [:name:] inside a class; false when there is none here. */
static bool read_posix(struct ash_onig_reader *reader, struct operand *operand)
{
    const char *at = reader->at + 2, *close;
    bool negated = false;
    char name[16] = {0};
    const char *set;

    if (!ash_onig_looking_at(reader, "[:")) return false;
    if (at < reader->end && *at == '^') {
        negated = true;
        at++;
    }
    close = memmem(at, (size_t)(reader->end - at), ":]", 2);
    if (close == NULL || close - at >= (ptrdiff_t)sizeof(name)) return false;
    memcpy(name, at, (size_t)(close - at));
    set = find_set(posix_sets, ASH_COUNT(posix_sets), name);
    if (set == NULL) return ash_onig_refuse(reader, -ENOTSUP, "an unknown [:name:]");
    operand_set(reader, operand, set, negated);
    reader->at = close + 2;
    return true;
}

static bool read_nested_class(struct ash_onig_reader *reader, int depth, struct operand *operand)
{
    struct ash_onig_class nested = {{0}, false};
    bool ok = ash_onig_read_class(reader, depth + 1, &nested);

    if (ok && nested.plain) ash_onig_emit(reader, &operand->set, nested.text.data != NULL ? nested.text.data : "");
    if (ok && !nested.plain) operand_other(reader, operand, "", nested.text.data, "");
    ash_str_fini(&nested.text);
    return ok;
}

/* A single character of a class, escaped or not. */
static bool read_class_point(struct ash_onig_reader *reader, uint32_t *point_out)
{
    int size;

    if (ash_onig_looking_at(reader, "\\")) {
        reader->at++;
        if (reader->at == reader->end) return ash_onig_refuse(reader, -EINVAL, "a lone backslash");
        if (ash_onig_read_escaped_point(reader, true, point_out)) return true;
        return ash_onig_refuse(reader, -ENOTSUP, "this escape in a character class");
    }
    size = ash_utf8_decode(reader->at, (size_t)(reader->end - reader->at), point_out);
    if (size == 0) return ash_onig_refuse(reader, -EILSEQ, "a byte that is not UTF-8");
    reader->at += size;
    return true;
}

/* A character or a range. */
static bool read_class_range(struct ash_onig_reader *reader, struct operand *operand)
{
    uint32_t first, last;

    if (!read_class_point(reader, &first)) return false;
    last = first;
    if (ash_onig_looking_at(reader, "-") && reader->at + 1 < reader->end && reader->at[1] != ']' &&
        reader->at[1] != '[' && !(reader->at[1] == '&' && reader->at + 2 < reader->end && reader->at[2] == '&')) {
        reader->at++;
        if (!read_class_point(reader, &last)) return false;
        if (last < first) return ash_onig_refuse(reader, -EINVAL, "a range that runs backwards");
    }
    ash_onig_emit_point(reader, &operand->set, first);
    if (last == first) return reader->rc == 0;
    ash_onig_emit(reader, &operand->set, "-");
    ash_onig_emit_point(reader, &operand->set, last);
    return reader->rc == 0;
}

static bool read_class_item(struct ash_onig_reader *reader, int depth, struct operand *operand)
{
    struct ash_str set = {0};
    bool negated = false, found = false;

    if (ash_onig_looking_at(reader, "[")) {
        if (read_posix(reader, operand)) return true;
        return reader->rc == 0 && read_nested_class(reader, depth, operand);
    }
    if (ash_onig_looking_at(reader, "\\") && reader->at + 1 < reader->end) {
        reader->at++;
        found = ash_onig_read_escaped_set(reader, &set, &negated);
        if (found) operand_set(reader, operand, set.data, negated);
        ash_str_fini(&set);
        if (found || reader->rc < 0) return found;
        reader->at--;
    }
    return read_class_range(reader, operand);
}

/* Put the operands of one class together. */
static void class_finish(struct ash_onig_reader *reader, const struct operand *first, const struct ash_str *ahead,
                         bool negated, struct ash_onig_class *klass)
{
    if (ahead->size_bytes == 0 && first->others.size_bytes == 0) {
        klass->plain = !negated;
        if (negated) ash_onig_emit(reader, &klass->text, "[^");
        ash_onig_emit(reader, &klass->text, first->set.data != NULL ? first->set.data : "");
        if (negated) ash_onig_emit(reader, &klass->text, "]");
        return;
    }
    klass->plain = false;
    ash_onig_emit(reader, &klass->text, negated ? "(?:(?!" : "(?:");
    ash_onig_emit(reader, &klass->text, ahead->data != NULL ? ahead->data : "");
    operand_emit(reader, first, &klass->text);
    ash_onig_emit(reader, &klass->text, negated ? ")(?s:.))" : ")");
}

/* Read operands up to the closing bracket. The first stays in first; the others become lookaheads. */
static bool read_operands(struct ash_onig_reader *reader, int depth, struct operand *first, struct ash_str *ahead)
{
    struct operand more = {{0}, {0}}, *operand = first;
    bool empty = true, ok = true;

    while (ok) {
        bool and_follows = ash_onig_looking_at(reader, "&&");
        if (reader->at == reader->end) {
            ok = ash_onig_refuse(reader, -EINVAL, "']' is missing");
        } else if (and_follows || (*reader->at == ']' && !empty)) {
            if (empty) ok = ash_onig_refuse(reader, -EINVAL, "an empty side of &&");
            if (operand == &more) {
                ash_onig_emit(reader, ahead, "(?=");
                operand_emit(reader, &more, ahead);
                ash_onig_emit(reader, ahead, ")");
            }
            operand_fini(&more);
            operand = &more;
            empty = true;
            reader->at += and_follows ? 2 : 1;
            if (!and_follows) break;
        } else {
            ok = read_class_item(reader, depth, operand);
            empty = false;
        }
    }
    operand_fini(&more);
    return ok && reader->rc == 0;
}

/* Read a class from its opening bracket on. */
bool ash_onig_read_class(struct ash_onig_reader *reader, int depth, struct ash_onig_class *klass)
{
    struct operand first = {{0}, {0}};
    struct ash_str ahead = {0};
    bool negated, ok;

    if (depth > ASH_ONIG_CLASSES_MAX) return ash_onig_refuse(reader, -E2BIG, "too many classes inside classes");
    reader->at++;
    negated = ash_onig_looking_at(reader, "^");
    if (negated) reader->at++;
    ok = read_operands(reader, depth, &first, &ahead);
    if (ok) class_finish(reader, &first, &ahead, negated, klass);
    operand_fini(&first);
    ash_str_fini(&ahead);
    return ok && reader->rc == 0;
}
