/* Numbers. Without conditions they have an exponent or not; with conditions they are plain decimals, and each condition
 * is an expression over their digits: all of them together are one automaton. */
#include "serve/grammar/schema_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "base/str.h"
#include "serve/grammar/pda_priv.h"

/* No number that reads as infinite: 21 digits, or one digit with an exponent of at most 307. */
#define INTEGER "-?[1-9]\\d{0,18}|0"
#define NUMBER "-?(?:0|[1-9]\\d{0,20})(?:\\.\\d{1,17})?|-?[1-9](?:\\.\\d{1,17})?[eE][+-]?(?:[0-2]?\\d{1,2}|30[0-7])"
#define DIGITS_MAX 15 /* that a double tells apart */
#define BEYOND 1e19   /* more than any number of the plain form, which has 19 digits before the point */

/* A bound as decimal digits: |value| = whole.fraction, without needless zeros. */
struct bound {
    bool is_set, is_negative, is_exclusive;
    double value;
    char whole[24], fraction[40];
};

/* ---- decimals ---------------------------------------------------------------------------------------------------- */

/* Split a JSON number. -ERANGE when it has more digits than can be handled. */
static int split_decimal(const json_t *number, struct bound *bound)
{
    char text[400], *point, *end;
    double value = json_number_value(number);

    bound->value = value;
    bound->is_negative = value < 0;
    if (json_is_integer(number)) {
        int64_t whole = json_integer_value(number);
        snprintf(text, sizeof(text), "%" PRIu64, whole < 0 ? 0 - (uint64_t)whole : (uint64_t)whole);
    } else {
        int digits = 0;
        if (fabs(value) >= BEYOND) return -ERANGE;
        do /* the fewest digits that read back */
            snprintf(text, sizeof(text), "%.*f", digits, fabs(value));
        while (strtod(text, NULL) != fabs(value) && ++digits < 38);
        if (strtod(text, NULL) != fabs(value)) return -ERANGE;
    }
    point = strchr(text, '.');
    if (point != NULL) {
        *point = '\0';
        end = point + strlen(point + 1);
        while (end > point && *end == '0')
            *end-- = '\0';
        snprintf(bound->fraction, sizeof(bound->fraction), "%.39s", point + 1);
    } else {
        bound->fraction[0] = '\0';
    }
    snprintf(bound->whole, sizeof(bound->whole), "%.23s", text);
    bound->is_set = true;
    return 0;
}

/* Keep the tighter of two bounds; sign 1 for minima, -1 for maxima. */
static void tighten(struct bound *kept, const struct bound *other, int sign)
{
    double difference = (other->value - kept->value) * sign;

    if (!kept->is_set || difference > 0 || (difference == 0 && other->is_exclusive)) *kept = *other;
}

/* ---- expressions ------------------------------------------------------------------------------------------------- */

/* [low-high] of digits. */
static void add_digits(struct ash_str *out, char low, char high)
{
    if (low == high)
        ash_str_add(out, &low, 1);
    else
        ash_str_addf(out, "[%c-%c]", low, high);
}

/* Whole numbers of as many digits as `whole` that are greater (or less). At least one alternative, each with a bar
 * after it. */
static void add_whole_beyond(struct ash_str *out, const char *whole, bool wants_greater)
{
    size_t count = strlen(whole);

    for (size_t i = 0; i < count; i++) {
        char digit = whole[i], lowest = i == 0 && count > 1 ? '1' : '0';

        if (wants_greater ? digit == '9' : digit == lowest) continue;
        ash_str_add(out, whole, i);
        add_digits(out, wants_greater ? digit + 1 : lowest, wants_greater ? '9' : digit - 1);
        ash_str_addf(out, "\\d{%zu}|", count - i - 1);
    }
}

/* Fractions (after the point) greater or less than `fraction`, each with a bar after it; not equal ones. */
static void add_fraction_beyond(struct ash_str *out, const char *fraction, bool wants_greater)
{
    for (size_t i = 0; fraction[i] != '\0'; i++) {
        if (!wants_greater && i > 0) ash_str_addf(out, "%.*s|", (int)i, fraction); /* it stops short */
        if (wants_greater ? fraction[i] == '9' : fraction[i] == '0') continue;
        ash_str_add(out, fraction, i);
        add_digits(out, wants_greater ? fraction[i] + 1 : '0', wants_greater ? '9' : fraction[i] - 1);
        ash_str_adds(out, "\\d*|");
    }
}

/* Magnitudes at or above the bound. */
static void add_above(struct ash_str *out, const struct bound *bound)
{
    ash_str_adds(out, "(?:(?:");
    add_whole_beyond(out, bound->whole, true);
    ash_str_addf(out, "[1-9]\\d{%zu,})(?:\\.\\d+)?|%s(?:", strlen(bound->whole), bound->whole);
    if (bound->fraction[0] == '\0') {
        ash_str_adds(out, bound->is_exclusive ? "\\.\\d*[1-9]\\d*))" : "(?:\\.\\d+)?))");
        return;
    }
    ash_str_adds(out, "\\.(?:");
    add_fraction_beyond(out, bound->fraction, true);
    ash_str_addf(out, "%s%s)))", bound->fraction, bound->is_exclusive ? "\\d*[1-9]\\d*" : "\\d*");
}

/* Magnitudes at or below the bound. */
static void add_below(struct ash_str *out, const struct bound *bound)
{
    bool is_zero = strcmp(bound->whole, "0") == 0;

    ash_str_adds(out, "(?:");
    if (!is_zero) {
        ash_str_adds(out, "(?:");
        add_whole_beyond(out, bound->whole, false);
        if (strlen(bound->whole) > 1) ash_str_addf(out, "[1-9]\\d{0,%zu}|", strlen(bound->whole) - 2);
        ash_str_adds(out, "0)(?:\\.\\d+)?|");
    }
    ash_str_addf(out, "%s(?:", bound->whole);
    if (bound->fraction[0] == '\0') {
        ash_str_adds(out, bound->is_exclusive ? "[]))" : "(?:\\.0+)?))"); /* []: no character, so nothing */
        return;
    }
    ash_str_adds(out, "|\\.(?:");
    add_fraction_beyond(out, bound->fraction, false);
    ash_str_addf(out, "%s%s)))", bound->fraction, bound->is_exclusive ? "[]" : "0*");
}

/* All numbers that a minimum (sign 1) or maximum (sign -1) allows. */
static int add_bound(struct ash_str *out, const struct bound *bound, int sign)
{
    bool is_minimum = sign > 0;

    if (is_minimum != bound->is_negative) {
        if (!is_minimum) ash_str_adds(out, "-");
        add_above(out, bound);
        return out->rc;
    }
    if (is_minimum)
        ash_str_adds(out, "\\d+(?:\\.\\d+)?|-");
    else
        ash_str_adds(out, bound->value == 0 && bound->is_exclusive ? "-\\d*\\.?\\d*[1-9]\\d*(?:\\.\\d*)?|"
                                                                   : "-\\d+(?:\\.\\d+)?|");
    add_below(out, bound);
    return out->rc;
}

/* ---- multiples --------------------------------------------------------------------------------------------------- */

#define MULTIPLE_STATES_MAX 20000

/* multipleOf as factor / 10^places. */
static int split_multiple(const json_t *number, uint32_t *factor_out, uint32_t *places_out)
{
    struct bound bound = {0};
    char text[64];
    int rc = split_decimal(number, &bound);

    if (rc < 0 || bound.value <= 0) return -ERANGE;
    snprintf(text, sizeof(text), "%.20s%.20s", bound.whole, bound.fraction);
    if (strlen(bound.whole) + strlen(bound.fraction) > 9) return -ERANGE;
    *factor_out = (uint32_t)strtoul(text, NULL, 10);
    *places_out = (uint32_t)strlen(bound.fraction);
    return (uint64_t)*factor_out * (*places_out + 1) > MULTIPLE_STATES_MAX ? -ERANGE : 0;
}

/* Decimals by their remainder: state 1 is the start, 2 is after "-", then places + 1 blocks of factor remainders, by
 * the digits after the point so far; the first block also has a state each after the point. */
static int multiples(struct ash_schema *schema, uint32_t factor, uint32_t places, struct ash_lang **lang_out)
{
    static const char chars[] = "0123456789-.";
    size_t width = sizeof(chars) - 1, states = 3 + (size_t)factor * (places + 2);
    uint32_t *next = calloc(states * width, sizeof(*next));
    bool *is_final = calloc(states, sizeof(*is_final));
    struct ash_lang_table table = {chars, next, is_final, states};
    int rc = -ENOMEM;

    if (next != NULL && is_final != NULL) {
        for (uint32_t digit = 0; digit < 10; digit++)
            next[1 * width + digit] = next[2 * width + digit] = 3 + digit % factor;
        next[1 * width + 10] = 2;
        for (uint32_t block = 0; block <= places; block++)
            for (uint32_t r = 0; r < factor; r++) {
                size_t state = 3 + (size_t)block * factor + r, point = 3 + (size_t)(places + 1) * factor + r;
                uint64_t scaled = r;
                for (uint32_t i = block; i < places; i++)
                    scaled = scaled * 10 % factor;
                is_final[state] = scaled == 0;
                for (uint32_t digit = 0; digit < 10; digit++) {
                    uint32_t after = (uint32_t)(((uint64_t)r * 10 + digit) % factor);
                    if (block == 0) next[state * width + digit] = 3 + after;
                    if (block == 0 && places > 0) next[point * width + digit] = 3 + factor + after;
                    if (block > 0 && block < places) next[state * width + digit] = 3 + (block + 1) * factor + after;
                }
                if (block == 0 && places > 0) next[state * width + 11] = (uint32_t)point;
            }
        rc = ash_lang_from_table(&table, lang_out, schema->err);
    } else {
        ash_err_set(schema->err, rc, "out of memory for a grammar");
    }
    free(next);
    free(is_final);
    return rc;
}

/* ---- together ---------------------------------------------------------------------------------------------------- */

struct conditions {
    struct bound minimum, maximum;
    bool is_plain;         /* a bound that is met by every number of the plain form */
    struct ash_lang *lang; /* the union so far */
};

static int join(struct ash_schema *schema, struct conditions *conditions, struct ash_lang *own)
{
    struct ash_lang *joined = NULL;
    int rc = 0;

    if (conditions->lang == NULL) {
        conditions->lang = own;
        return 0;
    }
    rc = ash_lang_combine(conditions->lang, own, false, schema->limits, &joined, schema->err);
    ash_lang_close(own);
    if (rc < 0) return rc;
    ash_lang_close(conditions->lang);
    conditions->lang = joined;
    return 0;
}

static int join_expression(struct ash_schema *schema, struct conditions *conditions, const char *expression)
{
    struct ash_lang *own = NULL;
    int rc = ash_pda_draft_check(schema->draft, schema->err);

    if (rc == 0)
        rc = ash_lang_from_regex(expression, strlen(expression), ASH_LANG_WHOLE, schema->limits, &own, schema->err);
    return rc < 0 ? rc : join(schema, conditions, own);
}

/* minimum and exclusiveMinimum, or the maxima. */
static int take_bounds(struct ash_schema *schema, const json_t *part, bool is_minimum, struct conditions *conditions)
{
    struct bound *kept = is_minimum ? &conditions->minimum : &conditions->maximum;
    const char *names[] = {is_minimum ? "minimum" : "maximum", is_minimum ? "exclusiveMinimum" : "exclusiveMaximum"};
    bool is_old_style = json_is_boolean(json_object_get(part, names[1])); /* draft 4: true next to minimum */

    for (size_t i = 0; i < 2; i++) {
        const json_t *value = json_object_get(part, names[i]);
        struct bound bound = {.is_exclusive = i == 1};
        if (value == NULL || json_is_boolean(value)) continue;
        if (is_old_style) bound.is_exclusive = json_is_true(json_object_get(part, names[1]));
        if (is_minimum ? json_number_value(value) <= -BEYOND : json_number_value(value) >= BEYOND) {
            conditions->is_plain = true;
            continue;
        }
        if (split_decimal(value, &bound) < 0)
            return ash_schema_fail(schema, -ENOTSUP, part, names[i], "%g has more digits than are supported",
                                   json_number_value(value));
        tighten(kept, &bound, is_minimum ? 1 : -1);
    }
    return 0;
}

static int take_multiple(struct ash_schema *schema, const json_t *part, struct conditions *conditions)
{
    const json_t *value = json_object_get(part, "multipleOf");
    uint32_t factor = 0, places = 0;
    struct ash_lang *own = NULL;
    int rc;

    if (value == NULL) return 0;
    if (json_number_value(value) <= 0) return ash_schema_fail(schema, -EINVAL, part, "multipleOf", "must be over 0");
    if (split_multiple(value, &factor, &places) < 0)
        return ash_schema_fail(schema, -ENOTSUP, part, "multipleOf", "%g is too large or has too many digits",
                               json_number_value(value));
    rc = multiples(schema, factor, places, &own);
    return rc < 0 ? rc : join(schema, conditions, own);
}

/* The plain form that conditions are put on. */
static int join_shape(struct ash_schema *schema, struct conditions *conditions, unsigned types)
{
    size_t whole = ash_max(strlen(conditions->minimum.whole), strlen(conditions->maximum.whole));
    size_t digits = whole < DIGITS_MAX ? DIGITS_MAX - whole : 1;
    char shape[128];

    digits = ash_max(digits, ash_max(strlen(conditions->minimum.fraction), strlen(conditions->maximum.fraction)));
    if ((types & ASH_SCHEMA_FRACTION) != 0)
        snprintf(shape, sizeof(shape), "-?(?:0|[1-9]\\d{0,%d})(?:\\.\\d{1,%zu})?", 18, digits);
    else
        snprintf(shape, sizeof(shape), "%s", INTEGER);
    return join_expression(schema, conditions, shape);
}

static int join_bound(struct ash_schema *schema, struct conditions *conditions, const struct bound *bound, int sign)
{
    struct ash_str text = {0};
    int rc = bound->is_set ? add_bound(&text, bound, sign) : 0;

    if (rc < 0) ash_err_set(schema->err, rc, "out of memory for a grammar");
    if (rc == 0 && bound->is_set) rc = join_expression(schema, conditions, text.data);
    ash_str_fini(&text);
    return rc;
}

/* All that the set says of numbers. lang NULL: nothing. */
static int gather(struct ash_schema *schema, const struct ash_schema_set *set, unsigned types,
                  struct conditions *conditions)
{
    int rc = 0;

    for (size_t i = 0; i < set->count && rc == 0; i++) {
        rc = take_bounds(schema, set->parts[i].schema, true, conditions);
        if (rc == 0) rc = take_bounds(schema, set->parts[i].schema, false, conditions);
        if (rc == 0) rc = take_multiple(schema, set->parts[i].schema, conditions);
    }
    if (rc < 0 || (conditions->lang == NULL && !conditions->is_plain && !conditions->minimum.is_set &&
                   !conditions->maximum.is_set))
        return rc;
    rc = join_shape(schema, conditions, types);
    if (rc == 0) rc = join_bound(schema, conditions, &conditions->minimum, 1);
    return rc < 0 ? rc : join_bound(schema, conditions, &conditions->maximum, -1);
}

/* A separate rule for the plain forms, which many places share. */
static int plain_rule(struct ash_schema *schema, const char *expression, uint32_t *rule)
{
    struct ash_lang *lang = NULL;
    int rc;

    if (*rule != ASH_PDA_NONE) return 0;
    rc = ash_lang_from_regex(expression, strlen(expression), ASH_LANG_WHOLE, schema->limits, &lang, schema->err);
    if (rc < 0) return rc;
    *rule = ash_pda_add_rule(schema->draft);
    ash_lang_draw(lang, ASH_LANG_RAW, schema->draft, ash_pda_rule_start(schema->draft, *rule),
                  ash_pda_rule_end(schema->draft, *rule));
    ash_lang_close(lang);
    return 0;
}

int ash_schema_draw_number(struct ash_schema *schema, const struct ash_schema_set *set, unsigned types,
                           struct ash_schema_place place)
{
    bool has_fraction = (types & ASH_SCHEMA_FRACTION) != 0;
    uint32_t *plain = has_fraction ? &schema->number : &schema->integer;
    struct conditions conditions = {0};
    int rc = gather(schema, set, types, &conditions);

    if (rc == 0 && conditions.lang != NULL) {
        ash_lang_draw(conditions.lang, ASH_LANG_RAW, schema->draft, place.from, place.to);
    } else if (rc == 0) {
        rc = plain_rule(schema, has_fraction ? NUMBER : INTEGER, plain);
        if (rc == 0) ash_pda_add_call(schema->draft, place.from, place.to, *plain);
    }
    ash_lang_close(conditions.lang);
    return rc;
}

int ash_schema_fits_number(struct ash_schema *schema, const struct ash_schema_set *set, const json_t *number)
{
    struct conditions conditions = {0};
    struct bound decimal = {0};
    struct ash_str text = {0};
    int rc = gather(schema, set, ASH_SCHEMA_INTEGER | ASH_SCHEMA_FRACTION, &conditions);

    if (rc == 0 && conditions.lang == NULL) return 1;
    if (rc == 0 && split_decimal(number, &decimal) == 0)
        rc = ash_str_addf(&text, "%s%s%s%s", decimal.is_negative ? "-" : "", decimal.whole,
                          decimal.fraction[0] != '\0' ? "." : "", decimal.fraction);
    if (rc == 0) rc = text.data != NULL && ash_lang_has(conditions.lang, text.data, text.size_bytes);
    ash_str_fini(&text);
    ash_lang_close(conditions.lang);
    return rc;
}
