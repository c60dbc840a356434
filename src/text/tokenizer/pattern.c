/* Where to cut: regular expressions run by PCRE2's compiler (about 50 ns a word, so nothing is written
 * by hand), literals, and classes of characters. Matches are walked exactly as the Hugging Face library walks
 * them, empty ones included. */
#include "text/tokenizer/tokenizer_priv.h"

#include <errno.h>
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"

/* Steps that one search may take: enough for any run of repeats over a text of this size, far from exponential. */
#define STEPS_MIN 10000u
#define STEPS_PER_BYTE 8u

/* ---- classes of characters --------------------------------------------------------------------------------------- */

bool ash_tok_is_space(uint32_t point)
{
    if (point < 0x80) return point == ' ' || (point >= 0x09 && point <= 0x0d);
    return point == 0x85 || point == 0xa0 || point == 0x1680 || (point >= 0x2000 && point <= 0x200a) ||
           point == 0x2028 || point == 0x2029 || point == 0x202f || point == 0x205f || point == 0x3000;
}

bool ash_tok_is_numeric(uint32_t point)
{
    utf8proc_category_t category;

    if (point < 0x80) return point >= '0' && point <= '9';
    category = utf8proc_category((utf8proc_int32_t)point);
    return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool ash_tok_is_punctuation(uint32_t point)
{
    utf8proc_category_t category;

    if (point < 0x80)
        return (point > ' ' && point < '0') || (point > '9' && point < 'A') || (point > 'Z' && point < 'a') ||
               (point > 'z' && point < 0x7f);
    category = utf8proc_category((utf8proc_int32_t)point);
    return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

/* Letters in circles and squares are symbols by category, yet alphabetic. */
static bool is_enclosed_letter(uint32_t point)
{
    return (point >= 0x24b6 && point <= 0x24e9) || (point >= 0x1f130 && point <= 0x1f149) ||
           (point >= 0x1f150 && point <= 0x1f169) || (point >= 0x1f170 && point <= 0x1f189);
}

bool ash_tok_is_word(uint32_t point)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)point);

    if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) return true; /* letters, marks, Nd, Nl */
    return category == UTF8PROC_CATEGORY_PC || point == 0x200c || point == 0x200d || is_enclosed_letter(point);
}

/* ---- making and freeing ------------------------------------------------------------------------------------------ */

static int compile(struct ash_tok_pattern *pattern, const char *expression, struct ash_err *err)
{
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    char message[160];
    size_t offset;
    int error;

    if (context == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a regular expression");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_bsr(context, PCRE2_BSR_UNICODE);
    pattern->code =
        pcre2_compile((PCRE2_SPTR)expression, PCRE2_ZERO_TERMINATED,
                      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_UTF_CHECK, &error, &offset, context);
    pcre2_compile_context_free(context);
    if (pattern->code == NULL) {
        if (pcre2_get_error_message(error, (PCRE2_UCHAR *)message, sizeof(message)) < 0) message[0] = '\0';
        return ash_err_set(err, -EINVAL, "regular expression '%.200s': %s", pattern->text.data, message);
    }
    pattern->jit =
        pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE) == 0; /* not everywhere allowed; slower without */
    return 0;
}

int ash_tok_pattern_regex(struct ash_tok_pattern *pattern, const char *expression, struct ash_err *err)
{
    struct ash_str translated = {0};
    int rc;

    pattern->kind = ASH_TOK_REGEX;
    if (ash_str_adds(&pattern->text, expression) < 0)
        return ash_err_set(err, -ENOMEM, "out of memory for a regular expression");
    rc = ash_tok_onig_translate(expression, &translated, err);
    if (rc == 0) rc = compile(pattern, translated.data, err);
    ash_str_fini(&translated);
    return rc;
}

int ash_tok_pattern_literal(struct ash_tok_pattern *pattern, const char *literal, size_t size_bytes,
                            struct ash_err *err)
{
    pattern->kind = ASH_TOK_LITERAL;
    if (size_bytes == 0) return ash_err_set(err, -ENOTSUP, "an empty pattern");
    if (ash_str_add(&pattern->text, literal, size_bytes) < 0)
        return ash_err_set(err, -ENOMEM, "out of memory for a pattern");
    return 0;
}

int ash_tok_pattern_load(struct ash_tok_pattern *pattern, const json_t *object, struct ash_err *err)
{
    const json_t *value = json_object_get(object, "pattern");
    const char *regex = NULL, *literal = NULL;
    int rc = ash_json_string(value, "Regex", &regex, err);

    if (rc >= 0) rc = ash_json_string(value, "String", &literal, err);
    if (rc < 0) return rc;
    if ((regex == NULL) == (literal == NULL))
        return ash_err_set(err, -EINVAL, "'pattern' must be {\"Regex\": …} or {\"String\": …}");
    return regex != NULL ? ash_tok_pattern_regex(pattern, regex, err)
                         : ash_tok_pattern_literal(pattern, literal, strlen(literal), err);
}

void ash_tok_pattern_fini(struct ash_tok_pattern *pattern)
{
    pcre2_code_free(pattern->code);
    ash_str_fini(&pattern->text);
    *pattern = (struct ash_tok_pattern){0};
}

/* ---- walking ----------------------------------------------------------------------------------------------------- */

struct ash_tok_finder ash_tok_finder_make(const struct ash_tok_pattern *pattern, struct ash_tok_scratch *scratch,
                                          struct ash_tok_span text)
{
    uint64_t steps = STEPS_MIN + (uint64_t)text.size_bytes * STEPS_PER_BYTE;

    return (struct ash_tok_finder){.pattern = pattern,
                                   .scratch = scratch,
                                   .text = text,
                                   .step_limit = steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX};
}

static int search_failed(const struct ash_tok_finder *finder, int error, struct ash_err *err)
{
    char message[160];

    if (error == PCRE2_ERROR_NOMATCH) return 0;
    if (pcre2_get_error_message(error, (PCRE2_UCHAR *)message, sizeof(message)) < 0) message[0] = '\0';
    return ash_err_set(err, error == PCRE2_ERROR_NOMEMORY ? -ENOMEM : -EOVERFLOW,
                       "regular expression '%.200s' on %zu bytes of text: %s", finder->pattern->text.data,
                       finder->text.size_bytes, message);
}

/* The first match from finder->at on. */
static int search_regex(const struct ash_tok_finder *finder, size_t *start_out, size_t *end_out, struct ash_err *err)
{
    const struct ash_tok_pattern *pattern = finder->pattern;
    struct ash_tok_scratch *scratch = finder->scratch;
    PCRE2_SPTR text = (PCRE2_SPTR)finder->text.data;
    const size_t *bounds;
    int rc;

    pcre2_set_match_limit(scratch->context, finder->step_limit); /* other walks may have begun meanwhile */
    if (pattern->jit)
        rc = pcre2_jit_match(pattern->code, text, finder->text.size_bytes, finder->at, 0, scratch->match,
                             scratch->context);
    else
        rc = pcre2_match(pattern->code, text, finder->text.size_bytes, finder->at, PCRE2_NO_UTF_CHECK, scratch->match,
                         scratch->context);
    if (rc < 0) return search_failed(finder, rc, err);
    bounds = pcre2_get_ovector_pointer(scratch->match);
    if (bounds[1] < bounds[0] || bounds[0] < finder->at) return 0;
    *start_out = bounds[0];
    *end_out = bounds[1];
    return 1;
}

static int search_literal(const struct ash_tok_finder *finder, size_t *start_out, size_t *end_out)
{
    const struct ash_str *literal = &finder->pattern->text;
    const char *from = finder->text.data + finder->at;
    const char *found = memmem(from, finder->text.size_bytes - finder->at, literal->data, literal->size_bytes);

    if (found == NULL) return 0;
    *start_out = (size_t)(found - finder->text.data);
    *end_out = *start_out + literal->size_bytes;
    return 1;
}

static int search_point(const struct ash_tok_finder *finder, size_t *start_out, size_t *end_out)
{
    bool numeric = finder->pattern->kind == ASH_TOK_NUMERIC;
    uint32_t point = 0;

    for (size_t at = finder->at, size; at < finder->text.size_bytes; at += size) {
        size = (size_t)ash_utf8_decode(finder->text.data + at, finder->text.size_bytes - at, &point);
        if (!(numeric ? ash_tok_is_numeric(point) : ash_tok_is_punctuation(point))) continue;
        *start_out = at;
        *end_out = at + size;
        return 1;
    }
    return 0;
}

/* Bytes of the character at offset at, 1 at the end of the text. */
static size_t step_at(const struct ash_tok_finder *finder)
{
    uint32_t point;
    int size = 1;

    if (finder->at < finder->text.size_bytes)
        size = ash_utf8_decode(finder->text.data + finder->at, finder->text.size_bytes - finder->at, &point);
    return size > 0 ? (size_t)size : 1;
}

int ash_tok_finder_next(struct ash_tok_finder *finder, size_t *start_out, size_t *end_out, struct ash_err *err)
{
    while (finder->at <= finder->text.size_bytes) {
        int rc = finder->pattern->kind == ASH_TOK_REGEX     ? search_regex(finder, start_out, end_out, err)
                 : finder->pattern->kind == ASH_TOK_LITERAL ? search_literal(finder, start_out, end_out)
                                                            : search_point(finder, start_out, end_out);
        if (rc <= 0) return rc;
        /* an empty match right after the last one is skipped */
        if (*start_out != *end_out || !finder->has_last || finder->last_end != *end_out) {
            finder->at = finder->last_end = *end_out;
            finder->has_last = true;
            return 1;
        }
        finder->at += step_at(finder);
    }
    return 0;
}
