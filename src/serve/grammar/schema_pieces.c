/* The pieces that JSON is made of: strings, commas, colons, space, and values as they are. */
#include "serve/grammar/schema_priv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/str.h"
#include "serve/grammar/pda_priv.h"

/* \uXXXX: any but surrogates, or a pair of them. */
static void draw_unicode(struct ash_pda_draft *draft, uint32_t from, uint32_t to)
{
    uint32_t hex = ash_pda_add_rule(draft), start = ash_pda_rule_start(draft, hex), end = ash_pda_rule_end(draft, hex);
    uint32_t first = ash_pda_add_state(draft), rest = ash_pda_add_state(draft), d = ash_pda_add_state(draft);
    uint32_t high = ash_pda_add_state(draft), low = ash_pda_add_state(draft), low_d = ash_pda_add_state(draft);
    uint32_t tail = ash_pda_add_state(draft);

    ash_pda_add_bytes(draft, start, end, '0', '9');
    ash_pda_add_bytes(draft, start, end, 'a', 'f');
    ash_pda_add_bytes(draft, start, end, 'A', 'F');
    ash_pda_add_text(draft, from, first, "u", 1);
    ash_pda_add_bytes(draft, first, rest, '0', '9'); /* not D: three more digits */
    for (const char *letter = "abcefABCEF"; *letter != '\0'; letter++)
        ash_pda_add_text(draft, first, rest, letter, 1);
    ash_pda_add_repeat(draft, rest, to, hex, 3, 3);
    ash_pda_add_text(draft, first, d, "d", 1);
    ash_pda_add_text(draft, first, d, "D", 1);
    ash_pda_add_bytes(draft, d, tail, '0', '7');
    ash_pda_add_repeat(draft, tail, to, hex, 2, 2);
    for (const char *letter = "89abAB"; *letter != '\0'; letter++)
        ash_pda_add_text(draft, d, high, letter, 1);
    ash_pda_add_repeat(draft, high, low, hex, 2, 2);
    ash_pda_add_text(draft, low, low_d, "\\ud", 3);
    ash_pda_add_text(draft, low, low_d, "\\uD", 3);
    for (const char *letter = "cdefCDEF"; *letter != '\0'; letter++)
        ash_pda_add_text(draft, low_d, tail, letter, 1);
}

uint32_t ash_schema_character_rule(struct ash_schema *schema)
{
    struct ash_pda_draft *draft = schema->draft;
    uint32_t start, end, escape;

    if (schema->character != ASH_PDA_NONE) return schema->character;
    schema->character = ash_pda_add_rule(draft);
    start = ash_pda_rule_start(draft, schema->character);
    end = ash_pda_rule_end(draft, schema->character);
    escape = ash_pda_add_state(draft);
    ash_pda_add_points(draft, start, end, 0x20, '"' - 1);
    ash_pda_add_points(draft, start, end, '"' + 1, '\\' - 1);
    ash_pda_add_points(draft, start, end, '\\' + 1, 0x10ffff);
    ash_pda_add_text(draft, start, escape, "\\", 1);
    for (const char *letter = "\"\\/bfnrt"; *letter != '\0'; letter++)
        ash_pda_add_text(draft, escape, end, letter, 1);
    draw_unicode(draft, escape, end);
    ash_pda_mark_text(draft, schema->character);
    return schema->character;
}

uint32_t ash_schema_text_rule(struct ash_schema *schema)
{
    struct ash_pda_draft *draft = schema->draft;
    uint32_t inside, after;

    if (schema->text != ASH_PDA_NONE) return schema->text;
    schema->text = ash_pda_add_rule(draft);
    inside = ash_pda_add_state(draft);
    after = ash_pda_add_state(draft);
    ash_pda_add_text(draft, ash_pda_rule_start(draft, schema->text), inside, "\"", 1);
    ash_pda_add_repeat(draft, inside, after, ash_schema_character_rule(schema), 0, ASH_PDA_UNBOUNDED);
    ash_pda_add_text(draft, after, ash_pda_rule_end(draft, schema->text), "\"", 1);
    return schema->text;
}

/* ---- space ------------------------------------------------------------------------------------------------------- */

void ash_schema_draw_space(struct ash_schema *schema, uint32_t from, uint32_t to)
{
    struct ash_pda_draft *draft = schema->draft;

    if (schema->space == ASH_JSON_SPACE_COMPACT) {
        ash_pda_add_empty(draft, from, to);
        return;
    }
    if (schema->space_rule == ASH_PDA_NONE) {
        schema->space_rule = ash_pda_add_rule(draft);
        for (const char *c = " \t\n\r"; *c != '\0'; c++)
            ash_pda_add_text(draft, ash_pda_rule_start(draft, schema->space_rule),
                             ash_pda_rule_end(draft, schema->space_rule), c, 1);
    }
    ash_pda_add_repeat(draft, from, to, schema->space_rule, 0, ASH_JSON_SPACE_MAX);
}

/* A rule for a mark with the space around it. */
static uint32_t mark_rule(struct ash_schema *schema, const char *mark)
{
    struct ash_pda_draft *draft = schema->draft;
    uint32_t rule = ash_pda_add_rule(draft), before = ash_pda_add_state(draft), after = ash_pda_add_state(draft);

    ash_schema_draw_space(schema, ash_pda_rule_start(draft, rule), before);
    ash_pda_add_text(draft, before, after, mark, 1);
    ash_schema_draw_space(schema, after, ash_pda_rule_end(draft, rule));
    if (schema->space == ASH_JSON_SPACE_COMPACT) ash_pda_add_text(draft, after, ash_pda_rule_end(draft, rule), " ", 1);
    return rule;
}

uint32_t ash_schema_separator_rule(struct ash_schema *schema)
{
    if (schema->separator == ASH_PDA_NONE) schema->separator = mark_rule(schema, ",");
    return schema->separator;
}

uint32_t ash_schema_colon_rule(struct ash_schema *schema)
{
    if (schema->colon == ASH_PDA_NONE) schema->colon = mark_rule(schema, ":");
    return schema->colon;
}

void ash_schema_draw_list(struct ash_schema *schema, uint32_t item, uint32_t min, uint32_t max,
                          struct ash_schema_place place)
{
    struct ash_pda_draft *draft = schema->draft;
    uint32_t further = ash_pda_add_rule(draft), middle = ash_pda_add_state(draft), first = ash_pda_add_state(draft);

    ash_pda_add_call(draft, ash_pda_rule_start(draft, further), middle, ash_schema_separator_rule(schema));
    ash_pda_add_call(draft, middle, ash_pda_rule_end(draft, further), item);
    ash_pda_add_call(draft, place.from, first, item);
    ash_pda_add_repeat(draft, first, place.to, further, min > 0 ? min - 1 : 0,
                       max == ASH_PDA_UNBOUNDED ? max : max - 1);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

int ash_schema_draw_quoted(struct ash_schema *schema, const char *text, size_t size_bytes,
                           struct ash_schema_place place)
{
    json_t *value = json_stringn(text, size_bytes);
    char *dump = value != NULL ? json_dumps(value, JSON_ENCODE_ANY) : NULL;

    if (dump != NULL) ash_pda_add_text(schema->draft, place.from, place.to, dump, strlen(dump));
    free(dump);
    json_decref(value);
    return dump == NULL ? ash_err_set(schema->err, -ENOMEM, "out of memory for a grammar") : 0;
}

/* A real number in its shortest form, and without a fraction if it is integral. */
static int draw_real(struct ash_schema *schema, double value, struct ash_schema_place place)
{
    struct ash_str text = {0};
    char whole[ASH_NUMBER_BYTES];

    if (ash_number_add(&text, value) < 0) return ash_err_set(schema->err, -ENOMEM, "out of memory for a grammar");
    ash_pda_add_text(schema->draft, place.from, place.to, text.data, text.size_bytes);
    if (value == floor(value) && fabs(value) < 1e15) {
        snprintf(whole, sizeof(whole), "%.0f", value);
        if (strcmp(whole, text.data) != 0) ash_pda_add_text(schema->draft, place.from, place.to, whole, strlen(whole));
    }
    ash_str_fini(&text);
    return 0;
}

static int draw_members(struct ash_schema *schema, const json_t *value, struct ash_schema_place place)
{
    struct ash_pda_draft *draft = schema->draft;
    bool is_object = json_is_object(value);
    uint32_t open = ash_pda_add_state(draft), at = ash_pda_add_state(draft), close = ash_pda_add_state(draft);
    void *iter = is_object ? json_object_iter((json_t *)(uintptr_t)value) : NULL;
    size_t count = is_object ? json_object_size(value) : json_array_size(value);
    int rc = 0;

    ash_pda_add_text(draft, place.from, open, is_object ? "{" : "[", 1);
    ash_schema_draw_space(schema, open, at);
    for (size_t i = 0; i < count && rc == 0; i++) {
        uint32_t start = ash_pda_add_state(draft), middle = ash_pda_add_state(draft), end = ash_pda_add_state(draft);
        if (i > 0)
            ash_pda_add_call(draft, at, start, ash_schema_separator_rule(schema));
        else
            ash_pda_add_empty(draft, at, start);
        if (is_object) {
            const char *key = json_object_iter_key(iter);
            uint32_t colon = ash_pda_add_state(draft);
            rc = ash_schema_draw_quoted(schema, key, strlen(key), (struct ash_schema_place){start, colon});
            ash_pda_add_call(draft, colon, middle, ash_schema_colon_rule(schema));
        } else {
            ash_pda_add_empty(draft, start, middle);
        }
        if (rc == 0)
            rc = ash_schema_draw_json(schema, is_object ? json_object_iter_value(iter) : json_array_get(value, i),
                                      (struct ash_schema_place){middle, end});
        if (is_object) iter = json_object_iter_next((json_t *)(uintptr_t)value, iter);
        at = end;
    }
    ash_schema_draw_space(schema, at, close);
    ash_pda_add_text(draft, close, place.to, is_object ? "}" : "]", 1);
    return rc;
}

int ash_schema_draw_json(struct ash_schema *schema, const json_t *value, struct ash_schema_place place)
{
    char *dump;

    if (json_is_object(value) || json_is_array(value)) return draw_members(schema, value, place);
    if (json_is_real(value)) return draw_real(schema, json_real_value(value), place);
    if (json_is_string(value))
        return ash_schema_draw_quoted(schema, json_string_value(value), json_string_length(value), place);
    dump = json_dumps(value, JSON_ENCODE_ANY);
    if (dump == NULL) return ash_err_set(schema->err, -ENOMEM, "out of memory for a grammar");
    ash_pda_add_text(schema->draft, place.from, place.to, dump, strlen(dump));
    free(dump);
    return 0;
}
