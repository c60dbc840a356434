/* Strings: lengths are counted; a pattern, a format or several of them together become one automaton. */
#include "serve/grammar/schema_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "serve/grammar/pda_priv.h"

/* lang and another condition, which is used up; either may be NULL. */
static int both(struct ash_schema *schema, struct ash_lang **lang, struct ash_lang *other)
{
    struct ash_lang *joined = NULL;
    int rc = 0;

    if (*lang == NULL) {
        *lang = other;
        return 0;
    }
    rc = ash_lang_combine(*lang, other, false, schema->limits, &joined, schema->err);
    ash_lang_close(other);
    if (rc < 0) return rc;
    ash_lang_close(*lang);
    *lang = joined;
    return 0;
}

/* May a pattern that no automaton can follow be left out? A known format constrains the string instead. */
static bool can_drop(const struct ash_schema *schema, const json_t *part)
{
    const char *format = json_string_value(json_object_get(part, "format"));

    return schema->is_lenient || (format != NULL && ash_schema_format(format) != NULL);
}

static int add_pattern(struct ash_schema *schema, const json_t *part, struct ash_lang **lang)
{
    const json_t *pattern = json_object_get(part, "pattern");
    struct ash_lang *own = NULL;
    int rc;

    if (pattern == NULL) return 0;
    rc = ash_pda_draft_check(schema->draft, schema->err);
    if (rc < 0) return rc;
    rc = ash_lang_from_regex(json_string_value(pattern), json_string_length(pattern), ASH_LANG_PART, schema->limits,
                             &own, schema->err);
    if (rc == -ENOTSUP && can_drop(schema, part)) return 0;
    if (rc == 0) rc = both(schema, lang, own);
    return rc < 0 ? ash_schema_wrap(schema, rc, part, "pattern") : 0;
}

static int add_format(struct ash_schema *schema, const json_t *part, struct ash_lang **lang)
{
    const char *name = json_string_value(json_object_get(part, "format")), *expression;
    struct ash_lang *own = NULL;
    int rc;

    if (name == NULL) return 0;
    expression = ash_schema_format(name);
    if (expression == NULL || expression[0] == '\0') return 0;
    rc = ash_lang_from_regex(expression, strlen(expression), ASH_LANG_WHOLE, schema->limits, &own, schema->err);
    if (rc == 0) rc = both(schema, lang, own);
    return rc < 0 ? ash_schema_wrap(schema, rc, part, "format") : 0;
}

/* What the set says of strings: lengths, and a language or NULL, which the caller owns. */
static int gather(struct ash_schema *schema, const struct ash_schema_set *set, uint32_t *min, uint32_t *max,
                  struct ash_lang **lang)
{
    int rc = 0;

    *min = 0;
    *max = ASH_PDA_UNBOUNDED;
    for (size_t i = 0; i < set->count && rc == 0; i++) {
        const json_t *part = set->parts[i].schema;
        uint32_t least = 0, most = ASH_PDA_UNBOUNDED;
        rc = ash_schema_count(schema, part, "minLength", &least);
        if (rc == 0) rc = ash_schema_count(schema, part, "maxLength", &most);
        if (rc == 0) rc = add_pattern(schema, part, lang);
        if (rc == 0) rc = add_format(schema, part, lang);
        if (least > *min) *min = least;
        if (most < *max) *max = most;
    }
    return rc;
}

/* The lengths become part of the language. */
static int add_length(struct ash_schema *schema, uint32_t min, uint32_t max, struct ash_lang **lang)
{
    struct ash_lang *length = NULL;
    int rc;

    if (min == 0 && max == ASH_PDA_UNBOUNDED) return 0;
    rc = ash_lang_from_length(min, max, schema->limits, &length, schema->err);
    return rc < 0 ? rc : both(schema, lang, length);
}

int ash_schema_draw_string(struct ash_schema *schema, const struct ash_schema_set *set, struct ash_schema_place place)
{
    struct ash_pda_draft *draft = schema->draft;
    struct ash_lang *lang = NULL;
    uint32_t min, max, inside, after;
    int rc = gather(schema, set, &min, &max, &lang);

    if (rc == 0 && min > max) { /* nothing fits */
        ash_lang_close(lang);
        return 0;
    }
    if (rc == 0 && lang == NULL && min == 0 && max == ASH_PDA_UNBOUNDED) {
        ash_pda_add_call(draft, place.from, place.to, ash_schema_text_rule(schema));
        return 0;
    }
    if (rc == 0 && lang != NULL) rc = add_length(schema, min, max, &lang);
    if (rc == 0) {
        inside = ash_pda_add_state(draft);
        after = ash_pda_add_state(draft);
        ash_pda_add_text(draft, place.from, inside, "\"", 1);
        if (lang != NULL)
            ash_lang_draw(lang, ASH_LANG_JSON, draft, inside, after);
        else
            ash_pda_add_repeat(draft, inside, after, ash_schema_character_rule(schema), min, max);
        ash_pda_add_text(draft, after, place.to, "\"", 1);
    }
    ash_lang_close(lang);
    return rc;
}

/* The strings of one part's enum or const become a condition. */
static int add_values(struct ash_schema *schema, const json_t *part, struct ash_lang **lang)
{
    const json_t *single = json_object_get(part, "const"), *list = json_object_get(part, "enum");
    size_t count = 0, length = single != NULL ? 1 : json_array_size(list);
    struct ash_lang *own = NULL;
    struct ash_pda_text *texts;
    int rc;

    if (single == NULL && list == NULL) return 0;
    texts = calloc(length + 1, sizeof(*texts));
    if (texts == NULL) return ash_err_set(schema->err, -ENOMEM, "out of memory for a grammar");
    for (size_t i = 0; i < length; i++) {
        const json_t *value = single != NULL ? single : json_array_get(list, i);
        if (json_is_string(value))
            texts[count++] = (struct ash_pda_text){json_string_value(value), json_string_length(value)};
    }
    rc = ash_lang_from_texts(texts, count, &own, schema->err);
    free(texts);
    return rc == 0 ? both(schema, lang, own) : rc;
}

int ash_schema_string_lang(struct ash_schema *schema, const struct ash_schema_set *set, struct ash_lang **lang_out)
{
    uint32_t min, max;
    int rc = gather(schema, set, &min, &max, lang_out);

    for (size_t i = 0; i < set->count && rc == 0; i++) {
        const json_t *part = set->parts[i].schema;
        const char *keyword = json_object_get(part, "anyOf") != NULL ? "anyOf" : "oneOf";
        rc = add_values(schema, part, lang_out);
        if (rc == 0 && json_object_get(part, keyword) != NULL && !schema->is_lenient)
            rc = ash_schema_fail(schema, -ENOTSUP, part, keyword, "is not supported in propertyNames");
    }
    if (rc == 0 && (set->is_never || min > max)) {
        struct ash_lang *none = NULL;
        struct ash_pda_text text;
        rc = ash_lang_from_texts(&text, 0, &none, schema->err);
        return rc == 0 ? both(schema, lang_out, none) : rc;
    }
    return rc == 0 ? add_length(schema, min, max, lang_out) : rc;
}

int ash_schema_fits_string(struct ash_schema *schema, const struct ash_schema_set *set, const char *text, size_t bytes)
{
    struct ash_lang *lang = NULL;
    uint32_t min, max, length = 0;
    int rc = gather(schema, set, &min, &max, &lang);

    for (size_t i = 0; i < bytes; i++)
        length += ((uint8_t)text[i] & 0xc0) != 0x80;
    if (rc == 0) rc = length >= min && length <= max && (lang == NULL || ash_lang_has(lang, text, bytes));
    ash_lang_close(lang);
    return rc;
}

/* ---- formats ----------------------------------------------------------------------------------------------------- */

#define DATE                                                                                                           \
    "(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|"                    \
    "02-(?:0[1-9]|1\\d|2[0-8]))|(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
#define TIME "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,59}[A-Za-z0-9])?"
#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define DOMAIN_LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
#define BYTE "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define HEX4 "[0-9A-Fa-f]{1,4}"
#define PATH_CHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define PERIOD_TIME "T(?:\\d{1,9}H(?:\\d{1,9}M)?(?:\\d{1,9}S)?|\\d{1,9}M(?:\\d{1,9}S)?|\\d{1,9}S)"

const char *ash_schema_format(const char *name)
{
    static const struct {
        const char *name, *expression;
    } formats[] = {
        {"date", DATE},
        {"time", TIME},
        {"date-time", DATE "T" TIME},
        {"duration", "P(?:\\d{1,9}W|(?:\\d{1,9}Y(?:\\d{1,9}M)?(?:\\d{1,9}D)?|\\d{1,9}M(?:\\d{1,9}D)?|\\d{1,9}D)"
                     "(?:" PERIOD_TIME ")?|" PERIOD_TIME ")"},
        {"email", ATOM "(?:\\." ATOM ")*@(?:" DOMAIN_LABEL "\\.)+" DOMAIN_LABEL},
        {"hostname", LABEL "(?:\\." LABEL "){0,3}"},
        {"ipv4", BYTE "(?:\\." BYTE "){3}"},
        {"ipv6", "(?:" HEX4 ":){7}" HEX4 "|(?:" HEX4 ":){1,7}:|(?:" HEX4 ":){1,6}:" HEX4 "|(?:" HEX4 ":){1,5}(?::" HEX4
                 "){1,2}|(?:" HEX4 ":){1,4}(?::" HEX4 "){1,3}|(?:" HEX4 ":){1,3}(?::" HEX4 "){1,4}|(?:" HEX4
                 ":){1,2}(?::" HEX4 "){1,5}|" HEX4 ":(?::" HEX4 "){1,6}|:(?:(?::" HEX4 "){1,7}|:)"},
        {"uuid", "[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}"},
        {"uri",
         "[A-Za-z][A-Za-z0-9+.-]*:(?://(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+(?::\\d{1,5})?(?:/" PATH_CHAR
         "*)*|/?" PATH_CHAR "+(?:/" PATH_CHAR "*)*)(?:\\?(?:" PATH_CHAR "|[/?])*)?(?:#(?:" PATH_CHAR "|[/?])*)?"},
        {"int32", ""}, /* of numbers, in other tools */
        {"int64", ""},
        {"float", ""},
        {"double", ""},
    };

    for (size_t i = 0; i < ASH_COUNT(formats); i++)
        if (strcmp(name, formats[i].name) == 0) return formats[i].expression;
    return NULL;
}
