/* Objects: the properties that schemas name come in their order, then the others. */
#include "serve/grammar/schema_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "serve/grammar/pda_priv.h"

#define PATTERNS_MAX 6  /* of patternProperties: keys are told apart by which of them they match */
#define GRID_MAX 100000 /* states of an object whose properties are counted */

struct property {
    const char *name;
    bool is_required;
    uint32_t rule; /* of its value */
};

struct pattern {
    const json_t *part, *schema; /* the keyword's schema, and its values' one */
    struct ash_lang *lang;
};

struct object {
    struct ash_schema *schema;
    const struct ash_schema_set *set;
    struct property *properties;
    size_t count, capacity;
    struct pattern patterns[PATTERNS_MAX];
    size_t pattern_count;
    uint32_t min, max;
    struct ash_lang *names; /* the keys that propertyNames allows; NULL: all */
    bool is_open;           /* properties without a name in the schema are allowed */
    bool is_counted;        /* max matters: the number of properties is counted exactly */
    uint32_t extra;         /* the rule of one such property; ASH_PDA_NONE: none */
};

/* ---- which keys -------------------------------------------------------------------------------------------------- */

/* propertyNames of all parts: strings by pattern, format, length and enum. A type says nothing: keys are strings. */
static int find_names(struct object *object)
{
    struct ash_schema *schema = object->schema;
    struct ash_schema_set names = {0};
    int rc = 0;

    for (size_t i = 0; i < object->set->count && rc == 0; i++) {
        const json_t *part = object->set->parts[i].schema, *own = json_object_get(part, "propertyNames");
        if (own != NULL) rc = ash_schema_set_add(schema, &names, own);
    }
    if (rc == 0) rc = ash_schema_string_lang(schema, &names, &object->names);
    ash_schema_set_fini(&names);
    return rc;
}

/* ---- which properties -------------------------------------------------------------------------------------------- */

static int add_property(struct object *object, const char *name, bool is_required)
{
    for (size_t i = 0; i < object->count; i++) {
        if (strcmp(object->properties[i].name, name) != 0) continue;
        object->properties[i].is_required |= is_required;
        return 0;
    }
    if (ash_array_reserve(&object->properties, &object->capacity, object->count + 1, sizeof(*object->properties)) < 0)
        return ash_err_set(object->schema->err, -ENOMEM, "out of memory for a grammar");
    object->properties[object->count++] = (struct property){.name = name, .is_required = is_required};
    return 0;
}

static int add_pattern(struct object *object, const json_t *part, const char *expression, const json_t *schema)
{
    struct pattern *pattern = &object->patterns[object->pattern_count];
    int rc;

    if (object->pattern_count == PATTERNS_MAX)
        return ash_schema_fail(object->schema, -ENOTSUP, part, "patternProperties", "more than %d patterns",
                               PATTERNS_MAX);
    *pattern = (struct pattern){.part = part, .schema = schema};
    rc = ash_lang_from_regex(expression, strlen(expression), ASH_LANG_PART, object->schema->limits, &pattern->lang,
                             object->schema->err);
    if (rc < 0) return ash_schema_wrap(object->schema, rc, part, "patternProperties");
    object->pattern_count++;
    return 0;
}

/* Names, patterns and counts of all parts. */
static int gather(struct object *object)
{
    bool has_names = false, has_additional = false;
    int rc = 0;

    object->max = ASH_PDA_UNBOUNDED;
    for (size_t i = 0; i < object->set->count && rc == 0; i++) {
        const json_t *part = object->set->parts[i].schema, *required = json_object_get(part, "required");
        uint32_t min = 0, max = ASH_PDA_UNBOUNDED;
        const char *name;
        json_t *value;
        json_object_foreach(json_object_get(part, "properties"), name, value)
            if (rc == 0) rc = add_property(object, name, false);
        json_object_foreach(json_object_get(part, "patternProperties"), name, value)
            if (rc == 0) rc = add_pattern(object, part, name, value);
        for (size_t r = 0; r < json_array_size(required) && rc == 0; r++)
            rc = add_property(object, json_string_value(json_array_get(required, r)), true);
        if (rc == 0) rc = ash_schema_count(object->schema, part, "minProperties", &min);
        if (rc == 0) rc = ash_schema_count(object->schema, part, "maxProperties", &max);
        has_names |= json_object_get(part, "properties") != NULL;
        has_additional |= json_object_get(part, "additionalProperties") != NULL;
        if (min > object->min) object->min = min;
        if (max < object->max) object->max = max;
    }
    object->is_open = has_additional || !has_names;
    return rc;
}

/* Add to own the constraints of one part on a property of this name: its schema, matching patterns, or the additional
 * ones. */
static int add_part_value(struct object *object, const json_t *part, const char *name, struct ash_schema_set *own)
{
    const json_t *named = json_object_get(json_object_get(part, "properties"), name);
    const json_t *other = json_object_get(part, "additionalProperties");
    bool is_known = named != NULL;
    int rc = named != NULL ? ash_schema_set_add(object->schema, own, named) : 0;

    for (size_t i = 0; i < object->pattern_count && rc == 0; i++) {
        if (object->patterns[i].part != part || !ash_lang_has(object->patterns[i].lang, name, strlen(name))) continue;
        is_known = true;
        rc = ash_schema_set_add(object->schema, own, object->patterns[i].schema);
    }
    if (rc == 0 && !is_known && other != NULL) rc = ash_schema_set_add(object->schema, own, other);
    return rc;
}

/* The rules of the values of named properties. */
static int find_rules(struct object *object)
{
    for (size_t p = 0; p < object->count; p++) {
        const char *name = object->properties[p].name;
        struct ash_schema_set own = {
            .is_never = object->names != NULL && !ash_lang_has(object->names, name, strlen(name)),
        };
        int rc = 0;
        for (size_t i = 0; i < object->set->count && rc == 0; i++)
            rc = add_part_value(object, object->set->parts[i].schema, name, &own);
        if (rc == 0) rc = ash_schema_find_rule(object->schema, &own, &object->properties[p].rule);
        ash_schema_set_fini(&own);
        if (rc < 0) return rc;
    }
    return 0;
}

/* ---- additional properties --------------------------------------------------------------------------------------- */

/* Replace *lang by its intersection with other, or by its difference. */
static int narrow(struct object *object, struct ash_lang **lang, const struct ash_lang *other, bool wants_minus)
{
    struct ash_lang *joined = NULL;
    int rc = ash_lang_combine(*lang, other, wants_minus, object->schema->limits, &joined, object->schema->err);

    if (rc < 0) return rc;
    ash_lang_close(*lang);
    *lang = joined;
    return 0;
}

/* Keys that no property has. */
static int other_keys(struct object *object, struct ash_lang **lang_out)
{
    struct ash_pda_text *texts = calloc(object->count + 1, sizeof(*texts));
    struct ash_lang *names = NULL;
    int rc = texts == NULL ? ash_err_set(object->schema->err, -ENOMEM, "out of memory for a grammar") : 0;

    for (size_t i = 0; i < object->count && rc == 0; i++)
        texts[i] = (struct ash_pda_text){object->properties[i].name, strlen(object->properties[i].name)};
    if (rc == 0) rc = ash_lang_from_length(0, ASH_PDA_UNBOUNDED, object->schema->limits, lang_out, object->schema->err);
    if (rc == 0) rc = ash_lang_from_texts(texts, object->count, &names, object->schema->err);
    if (rc == 0) rc = narrow(object, lang_out, names, true);
    ash_lang_close(names);
    free(texts);
    return rc;
}

/* The schemas of values whose key matches exactly the patterns in `matched` (bits), added to own. */
static int add_extra_values(struct object *object, unsigned matched, struct ash_schema_set *own)
{
    int rc = 0;

    for (size_t i = 0; i < object->pattern_count && rc == 0; i++)
        if ((matched >> i & 1) != 0) rc = ash_schema_set_add(object->schema, own, object->patterns[i].schema);
    for (size_t p = 0; p < object->set->count && rc == 0; p++) {
        const json_t *part = object->set->parts[p].schema, *other = json_object_get(part, "additionalProperties");
        bool is_known = false;
        for (size_t i = 0; i < object->pattern_count; i++)
            is_known |= (matched >> i & 1) != 0 && object->patterns[i].part == part;
        if (other != NULL && !is_known) rc = ash_schema_set_add(object->schema, own, other);
    }
    return rc;
}

/* Draw keys of lang (NULL: any), a colon and the value into the rule of extra properties. */
static int draw_extra(struct object *object, const struct ash_lang *lang, uint32_t value)
{
    struct ash_pda_draft *draft = object->schema->draft;
    uint32_t from, inside, after, key, colon;

    if (object->extra == ASH_PDA_NONE) object->extra = ash_pda_add_rule(draft);
    from = ash_pda_rule_start(draft, object->extra);
    key = ash_pda_add_state(draft);
    colon = ash_pda_add_state(draft);
    if (lang != NULL) {
        inside = ash_pda_add_state(draft);
        after = ash_pda_add_state(draft);
        ash_pda_add_text(draft, from, inside, "\"", 1);
        ash_lang_draw(lang, ASH_LANG_JSON, draft, inside, after);
        ash_pda_add_text(draft, after, key, "\"", 1);
    } else {
        ash_pda_add_call(draft, from, key, ash_schema_text_rule(object->schema));
    }
    ash_pda_add_call(draft, key, colon, ash_schema_colon_rule(object->schema));
    ash_pda_add_call(draft, colon, ash_pda_rule_end(draft, object->extra), value);
    return 0;
}

/* Keys that match exactly the patterns in `matched`. */
static int find_extra(struct object *object, unsigned matched, const struct ash_lang *keys)
{
    struct ash_schema_set own = {0};
    struct ash_lang *lang = NULL;
    uint32_t value = 0;
    int rc = add_extra_values(object, matched, &own);

    if (rc == 0 && own.is_never) goto out;
    if (rc == 0) rc = ash_schema_find_rule(object->schema, &own, &value);
    if (rc == 0 && keys != NULL) {
        rc = ash_lang_from_length(0, ASH_PDA_UNBOUNDED, object->schema->limits, &lang, object->schema->err);
        if (rc == 0) rc = narrow(object, &lang, keys, false);
    }
    for (size_t i = 0; i < object->pattern_count && rc == 0; i++)
        rc = narrow(object, &lang, object->patterns[i].lang, (matched >> i & 1) == 0);
    if (rc == 0 && (lang == NULL || !ash_lang_is_empty(lang))) rc = draw_extra(object, lang, value);
out:
    ash_lang_close(lang);
    ash_schema_set_fini(&own);
    return rc;
}

static int find_extras(struct object *object)
{
    struct ash_lang *keys = NULL;
    int rc = 0;

    object->extra = ASH_PDA_NONE;
    if (object->count > 0 || object->pattern_count > 0 || object->names != NULL) rc = other_keys(object, &keys);
    if (rc == 0 && object->names != NULL) rc = narrow(object, &keys, object->names, false);
    for (unsigned matched = 0; matched < 1u << object->pattern_count && rc == 0; matched++)
        if (matched > 0 || object->is_open) rc = find_extra(object, matched, keys);
    ash_lang_close(keys);
    return rc;
}

/* ---- drawing ----------------------------------------------------------------------------------------------------- */

/* A property from `from` to `to`, with a comma before it unless it is the first. */
static int draw_property(struct object *object, const struct property *property, bool is_first,
                         struct ash_schema_place place)
{
    struct ash_pda_draft *draft = object->schema->draft;
    uint32_t start = place.from, key = ash_pda_add_state(draft), value = ash_pda_add_state(draft);
    int rc;

    if (!is_first) {
        start = ash_pda_add_state(draft);
        ash_pda_add_call(draft, place.from, start, ash_schema_separator_rule(object->schema));
    }
    rc = ash_schema_draw_quoted(object->schema, property->name, strlen(property->name),
                                (struct ash_schema_place){start, key});
    ash_pda_add_call(draft, key, value, ash_schema_colon_rule(object->schema));
    ash_pda_add_call(draft, value, place.to, property->rule);
    return rc;
}

/* What may follow `count` properties when all named ones are done. */
static void draw_extras(struct object *object, uint32_t count, struct ash_schema_place place)
{
    struct ash_pda_draft *draft = object->schema->draft;
    uint32_t min = object->min > count ? object->min - count : 0, start = place.from;
    uint32_t max = object->max == ASH_PDA_UNBOUNDED || !object->is_counted ? ASH_PDA_UNBOUNDED : object->max - count;

    if (min == 0) ash_pda_add_empty(draft, place.from, place.to);
    if (object->extra == ASH_PDA_NONE || max == 0 || min > 1)
        return; /* keys may be equal: only one is certain to count */
    if (count > 0) {
        start = ash_pda_add_state(draft);
        ash_pda_add_call(draft, place.from, start, ash_schema_separator_rule(object->schema));
    }
    ash_schema_draw_list(object->schema, object->extra, min, max, (struct ash_schema_place){start, place.to});
}

/* One named property, from the states of `now` to those of `after`, by how many properties there were so far: 0 to
 * cap, which stands for that many or more. */
static int draw_column(struct object *object, const struct property *property, const uint32_t *now,
                       const uint32_t *after, uint32_t cap)
{
    int rc = 0;

    for (uint32_t c = 0; c <= cap && rc == 0; c++) {
        if (!property->is_required) ash_pda_add_empty(object->schema->draft, now[c], after[c]);
        if (object->is_counted && c >= object->max) continue;
        rc = draw_property(object, property, c == 0, (struct ash_schema_place){now[c], after[c < cap ? c + 1 : cap]});
    }
    return rc;
}

/* All properties. now and after: room for cap + 1 states each. */
static int draw_grid(struct object *object, uint32_t *now, uint32_t *after, uint32_t cap, struct ash_schema_place place)
{
    struct ash_pda_draft *draft = object->schema->draft;
    int rc = 0;

    now[0] = place.from;
    for (uint32_t c = 1; c <= cap; c++)
        now[c] = ash_pda_add_state(draft);
    for (size_t p = 0; p < object->count && rc == 0; p++) {
        for (uint32_t c = 0; c <= cap; c++)
            after[c] = ash_pda_add_state(draft);
        rc = draw_column(object, &object->properties[p], now, after, cap);
        memcpy(now, after, (cap + 1) * sizeof(*now));
    }
    for (uint32_t c = 0; c <= cap && rc == 0; c++)
        if (!object->is_counted || c <= object->max)
            draw_extras(object, c, (struct ash_schema_place){now[c], place.to});
    return rc;
}

static int draw_properties(struct object *object, struct ash_schema_place place)
{
    uint32_t cap = object->is_counted ? (uint32_t)object->count : object->min > 1 ? object->min : 1, *states;
    int rc;

    if ((uint64_t)cap * object->count > GRID_MAX)
        return ash_err_set(object->schema->err, -E2BIG, "counting %zu properties needs too many states", object->count);
    states = malloc(2 * ((size_t)cap + 1) * sizeof(*states));
    if (states == NULL) return ash_err_set(object->schema->err, -ENOMEM, "out of memory for a grammar");
    rc = draw_grid(object, states, states + cap + 1, cap, place);
    free(states);
    return rc;
}

/* Can min and max be kept? Equal keys count once, so extra properties are worth one at most. */
static int check_counts(struct object *object)
{
    for (size_t i = 0; i < object->set->count && object->min > object->count + 1; i++)
        if (object->extra != ASH_PDA_NONE && json_object_get(object->set->parts[i].schema, "minProperties") != NULL)
            return ash_schema_fail(object->schema, -ENOTSUP, object->set->parts[i].schema, "minProperties",
                                   "%u is more than the %zu named properties and one other", object->min,
                                   object->count);
    return 0;
}

static void object_fini(struct object *object)
{
    for (size_t i = 0; i < object->pattern_count; i++)
        ash_lang_close(object->patterns[i].lang);
    ash_lang_close(object->names);
    free(object->properties);
}

int ash_schema_draw_object(struct ash_schema *schema, const struct ash_schema_set *set, struct ash_schema_place place)
{
    struct ash_pda_draft *draft = schema->draft;
    struct object object = {.schema = schema, .set = set};
    uint32_t open = ash_pda_add_state(draft), first = ash_pda_add_state(draft), last = ash_pda_add_state(draft);
    uint32_t close = ash_pda_add_state(draft);
    int rc = gather(&object);

    if (rc == 0) rc = find_names(&object);
    if (rc == 0) rc = find_rules(&object);
    if (rc == 0) rc = find_extras(&object);
    if (rc == 0) rc = check_counts(&object);
    object.is_counted = object.max < object.count || (object.extra != ASH_PDA_NONE && object.max != ASH_PDA_UNBOUNDED);
    if (rc == 0) {
        ash_pda_add_text(draft, place.from, open, "{", 1);
        ash_schema_draw_space(schema, open, first);
        rc = draw_properties(&object, (struct ash_schema_place){first, last});
        ash_schema_draw_space(schema, last, close);
        ash_pda_add_text(draft, close, place.to, "}", 1);
    }
    object_fini(&object);
    return rc;
}
