/* JSON schemas: sets of schemas become rules, and each rule draws the values that fit all of its set. */
#include "serve/grammar/schema_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/hash.h"
#include "base/json.h"
#include "serve/grammar/pda_priv.h"

/* ---- sets -------------------------------------------------------------------------------------------------------- */

void ash_schema_set_fini(struct ash_schema_set *set)
{
    free(set->parts);
    *set = (struct ash_schema_set){0};
}

static int set_put(struct ash_schema *schema, struct ash_schema_set *set, struct ash_schema_part part)
{
    if (ash_array_reserve(&set->parts, &set->capacity, set->count + 1, sizeof(part)) < 0)
        return ash_err_set(schema->err, -ENOMEM, "out of memory for a grammar");
    set->parts[set->count++] = part;
    return 0;
}

/* What part brings in; path: the schemas that led here. */
struct path {
    const json_t *part;
    const struct path *before;
    size_t depth;
};

static int add_part(struct ash_schema *schema, struct ash_schema_set *set, const json_t *part,
                    const struct path *before);

static int add_referred(struct ash_schema *schema, struct ash_schema_set *set, const json_t *part,
                        const struct path *path)
{
    const json_t *target = NULL, *all_of = json_object_get(part, "allOf");
    int rc = 0;

    if (json_object_get(part, "$ref") != NULL) {
        rc = ash_schema_refer(schema, part, &target);
        if (rc == 0) rc = add_part(schema, set, target, path);
    }
    for (size_t i = 0; i < json_array_size(all_of) && rc == 0; i++)
        rc = add_part(schema, set, json_array_get(all_of, i), path);
    return rc;
}

static int add_part(struct ash_schema *schema, struct ash_schema_set *set, const json_t *part,
                    const struct path *before)
{
    struct path path = {.part = part, .before = before, .depth = before != NULL ? before->depth + 1 : 0};
    int rc;

    if (json_is_true(part)) return 0;
    if (json_is_false(part)) set->is_never = true;
    if (json_is_false(part)) return 0;
    if (path.depth > schema->limits->depth)
        return ash_schema_fail(schema, -E2BIG, part, NULL, "more than %zu schemas in each other",
                               schema->limits->depth);
    for (const struct path *at = before; at != NULL; at = at->before)
        if (at->part == part)
            return ash_schema_fail(schema, -EINVAL, part, NULL, "it refers to itself, and to nothing else");
    for (size_t i = 0; i < set->count; i++) {
        if (set->parts[i].schema != part) continue;
        if (set->parts[i].decided == 0) return 0;
        return ash_schema_fail(schema, -EINVAL, part, NULL, "one of its alternatives is itself");
    }
    rc = ash_schema_check(schema, part);
    if (rc == 0 && json_object_size(part) > 0) rc = set_put(schema, set, (struct ash_schema_part){.schema = part});
    return rc < 0 ? rc : add_referred(schema, set, part, &path);
}

int ash_schema_set_add(struct ash_schema *schema, struct ash_schema_set *set, const json_t *part)
{
    return add_part(schema, set, part, NULL);
}

static int compare_parts(const void *a, const void *b)
{
    const struct ash_schema_part *left = a, *right = b;
    uintptr_t x = (uintptr_t)left->schema, y = (uintptr_t)right->schema;

    return x != y ? (x > y) - (x < y) : (left->decided > right->decided) - (left->decided < right->decided);
}

static uint64_t set_hash(const struct ash_schema_set *set)
{
    uint64_t hash = set->is_never;

    for (size_t i = 0; i < set->count; i++) /* in any order: properties keep theirs */
        hash += ash_hash_mix((uint64_t)(uintptr_t)set->parts[i].schema * 4 + set->parts[i].decided + 1);
    return ash_hash_mix(hash);
}

/* Parts come in the order in which they were added; sorted copies are compared. */
static bool sets_equal(const struct ash_schema_set *left, const struct ash_schema_set *right)
{
    if (left->count != right->count || left->is_never != right->is_never) return false;
    for (size_t i = 0; i < left->count; i++) {
        size_t j = 0;
        while (j < right->count && compare_parts(&left->parts[i], &right->parts[j]) != 0)
            j++;
        if (j == right->count) return false;
    }
    return true;
}

static int grow_slots(struct ash_schema *schema)
{
    size_t count = schema->slot_count > 0 ? 2 * schema->slot_count : 64;
    uint32_t *slots = calloc(count, sizeof(*slots));

    if (slots == NULL) return -ENOMEM;
    for (uint32_t i = 0; i < schema->rule_count; i++) {
        size_t at = set_hash(&schema->rules[i].set) & (count - 1);
        while (slots[at] != 0)
            at = (at + 1) & (count - 1);
        slots[at] = i + 1;
    }
    free(schema->slots);
    schema->slots = slots;
    schema->slot_count = count;
    return 0;
}

int ash_schema_find_rule(struct ash_schema *schema, struct ash_schema_set *set, uint32_t *rule_out)
{
    size_t at;
    int rc = 0;

    if (2 * (schema->rule_count + 1) > schema->slot_count) rc = grow_slots(schema);
    if (rc == 0)
        rc = ash_array_reserve(&schema->rules, &schema->rule_capacity, schema->rule_count + 1, sizeof(*schema->rules));
    if (rc < 0) {
        ash_schema_set_fini(set);
        return ash_err_set(schema->err, rc, "out of memory for a grammar");
    }
    at = set_hash(set) & (schema->slot_count - 1);
    for (; schema->slots[at] != 0; at = (at + 1) & (schema->slot_count - 1)) {
        const struct ash_schema_rule *there = &schema->rules[schema->slots[at] - 1];
        if (!sets_equal(&there->set, set)) continue;
        ash_schema_set_fini(set);
        *rule_out = there->rule;
        return 0;
    }
    *rule_out = ash_pda_add_rule(schema->draft);
    schema->rules[schema->rule_count++] = (struct ash_schema_rule){.set = *set, .rule = *rule_out};
    schema->slots[at] = (uint32_t)schema->rule_count;
    *set = (struct ash_schema_set){0};
    return 0;
}

/* ---- types ------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    unsigned types;
} type_names[] = {{"null", ASH_SCHEMA_NULL},       {"boolean", ASH_SCHEMA_BOOLEAN},
                  {"integer", ASH_SCHEMA_INTEGER}, {"number", ASH_SCHEMA_INTEGER | ASH_SCHEMA_FRACTION},
                  {"string", ASH_SCHEMA_STRING},   {"array", ASH_SCHEMA_ARRAY},
                  {"object", ASH_SCHEMA_OBJECT}};

static int type_bits(struct ash_schema *schema, const json_t *part, const json_t *name, unsigned *types)
{
    for (size_t i = 0; json_is_string(name) && i < ASH_COUNT(type_names); i++)
        if (strcmp(json_string_value(name), type_names[i].name) == 0) {
            *types |= type_names[i].types;
            return 0;
        }
    return ash_schema_fail(schema, -EINVAL, part, "type",
                           "must be one of null, boolean, integer, number, string, array, object, or an array of them");
}

/* A schema without a type is about the type that its keywords speak of. */
static unsigned implied_types(const json_t *part)
{
    static const struct {
        const char *keyword;
        unsigned types;
    } implied[] = {{"properties", ASH_SCHEMA_OBJECT},
                   {"required", ASH_SCHEMA_OBJECT},
                   {"additionalProperties", ASH_SCHEMA_OBJECT},
                   {"patternProperties", ASH_SCHEMA_OBJECT},
                   {"propertyNames", ASH_SCHEMA_OBJECT},
                   {"minProperties", ASH_SCHEMA_OBJECT},
                   {"maxProperties", ASH_SCHEMA_OBJECT},
                   {"items", ASH_SCHEMA_ARRAY},
                   {"prefixItems", ASH_SCHEMA_ARRAY},
                   {"minItems", ASH_SCHEMA_ARRAY},
                   {"maxItems", ASH_SCHEMA_ARRAY},
                   {"pattern", ASH_SCHEMA_STRING},
                   {"format", ASH_SCHEMA_STRING},
                   {"minLength", ASH_SCHEMA_STRING},
                   {"maxLength", ASH_SCHEMA_STRING},
                   {"minimum", ASH_SCHEMA_INTEGER | ASH_SCHEMA_FRACTION},
                   {"maximum", ASH_SCHEMA_INTEGER | ASH_SCHEMA_FRACTION},
                   {"exclusiveMinimum", ASH_SCHEMA_INTEGER | ASH_SCHEMA_FRACTION},
                   {"exclusiveMaximum", ASH_SCHEMA_INTEGER | ASH_SCHEMA_FRACTION},
                   {"multipleOf", ASH_SCHEMA_INTEGER | ASH_SCHEMA_FRACTION}};
    unsigned types = 0;

    for (size_t i = 0; i < ASH_COUNT(implied); i++)
        if (json_object_get(part, implied[i].keyword) != NULL) types |= implied[i].types;
    return types;
}

/* The types that all parts allow. */
static int find_types(struct ash_schema *schema, const struct ash_schema_set *set, unsigned *types_out)
{
    unsigned both = ASH_SCHEMA_ALL_TYPES, implied = 0;
    bool has_type = false;

    for (size_t i = 0; i < set->count; i++) {
        const json_t *part = set->parts[i].schema, *type = json_object_get(part, "type");
        unsigned types = 0;
        int rc = 0;
        if (json_object_get(part, "enum") != NULL || json_object_get(part, "const") != NULL) has_type = true;
        implied |= implied_types(part);
        if (type == NULL) continue;
        if (!json_is_array(type)) rc = type_bits(schema, part, type, &types);
        for (size_t t = 0; t < json_array_size(type) && rc == 0; t++)
            rc = type_bits(schema, part, json_array_get(type, t), &types);
        if (rc < 0) return rc;
        if (json_is_true(json_object_get(part, "nullable"))) types |= ASH_SCHEMA_NULL;
        both &= types;
        has_type = true;
    }
    *types_out = has_type || implied == 0 ? both : implied;
    return 0;
}

/* ---- rules ------------------------------------------------------------------------------------------------------- */

/* The branches of the first anyOf or oneOf that is not decided: a rule each. 1: there was one. */
static int draw_branches(struct ash_schema *schema, const struct ash_schema_set *set, struct ash_schema_place place)
{
    static const struct {
        const char *keyword;
        unsigned bit;
    } kinds[] = {{"anyOf", ASH_SCHEMA_ANY_OF}, {"oneOf", ASH_SCHEMA_ONE_OF}};

    for (size_t i = 0; i < 2 * set->count; i++) {
        const struct ash_schema_part *part = &set->parts[i / 2];
        const json_t *branches = json_object_get(part->schema, kinds[i % 2].keyword);
        if (branches == NULL || (part->decided & kinds[i % 2].bit) != 0) continue;
        for (size_t b = 0; b < json_array_size(branches); b++) {
            struct ash_schema_set own = {.is_never = set->is_never};
            uint32_t rule;
            int rc = ash_pda_draft_check(schema->draft, schema->err);
            for (size_t p = 0; p < set->count && rc == 0; p++)
                rc = set_put(schema, &own, set->parts[p]);
            if (rc == 0) own.parts[i / 2].decided |= kinds[i % 2].bit;
            if (rc == 0) rc = ash_schema_set_add(schema, &own, json_array_get(branches, b));
            if (rc == 0) rc = ash_schema_find_rule(schema, &own, &rule);
            ash_schema_set_fini(&own);
            if (rc < 0) return rc;
            ash_pda_add_call(schema->draft, place.from, place.to, rule);
        }
        return 1;
    }
    return 0;
}

static bool has_values(const struct ash_schema_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        if (json_object_get(set->parts[i].schema, "enum") != NULL ||
            json_object_get(set->parts[i].schema, "const") != NULL)
            return true;
    return false;
}

static int draw_types(struct ash_schema *schema, const struct ash_schema_set *set, unsigned types,
                      struct ash_schema_place place)
{
    int rc = 0;

    if ((types & ASH_SCHEMA_NULL) != 0) ash_pda_add_text(schema->draft, place.from, place.to, "null", 4);
    if ((types & ASH_SCHEMA_BOOLEAN) != 0) {
        ash_pda_add_text(schema->draft, place.from, place.to, "true", 4);
        ash_pda_add_text(schema->draft, place.from, place.to, "false", 5);
    }
    if ((types & (ASH_SCHEMA_INTEGER | ASH_SCHEMA_FRACTION)) != 0)
        rc = ash_schema_draw_number(schema, set, types, place);
    if (rc == 0 && (types & ASH_SCHEMA_STRING) != 0) rc = ash_schema_draw_string(schema, set, place);
    if (rc == 0 && (types & ASH_SCHEMA_ARRAY) != 0) rc = ash_schema_draw_array(schema, set, place);
    if (rc == 0 && (types & ASH_SCHEMA_OBJECT) != 0) rc = ash_schema_draw_object(schema, set, place);
    return rc;
}

/* Draw one rule. Its set is taken out meanwhile: the list may move. */
static int draw_rule(struct ash_schema *schema, size_t index)
{
    struct ash_schema_set set = schema->rules[index].set;
    struct ash_schema_place place = {ash_pda_rule_start(schema->draft, schema->rules[index].rule),
                                     ash_pda_rule_end(schema->draft, schema->rules[index].rule)};
    unsigned types = 0;
    int rc = ash_pda_draft_check(schema->draft, schema->err);

    if (rc < 0 || set.is_never) return rc;
    rc = draw_branches(schema, &set, place);
    if (rc != 0) return rc < 0 ? rc : 0;
    rc = find_types(schema, &set, &types);
    if (rc < 0) return rc;
    return has_values(&set) ? ash_schema_draw_values(schema, &set, types, place)
                            : draw_types(schema, &set, types, place);
}

int ash_schema_draw(const json_t *root, const struct ash_grammar_opts *opts, struct ash_pda_draft *draft, uint32_t from,
                    uint32_t to, struct ash_err *err)
{
    struct ash_schema schema = {.draft = draft,
                                .limits = ash_pda_draft_limits(draft),
                                .space = opts->space,
                                .is_lenient = opts->is_lenient,
                                .root = root,
                                .err = err,
                                .character = ASH_PDA_NONE,
                                .text = ASH_PDA_NONE,
                                .separator = ASH_PDA_NONE,
                                .number = ASH_PDA_NONE,
                                .integer = ASH_PDA_NONE,
                                .colon = ASH_PDA_NONE,
                                .space_rule = ASH_PDA_NONE};
    struct ash_schema_set set = {0};
    uint32_t rule = 0;
    int rc = 0;

    if (!json_is_object(root) && !json_is_boolean(root))
        return ash_err_set(err, -EINVAL, "a schema must be an object, or true or false");
    rc = ash_schema_set_add(&schema, &set, root);
    if (rc == 0) rc = ash_schema_find_rule(&schema, &set, &rule);
    ash_schema_set_fini(&set);
    if (rc == 0) ash_pda_add_call(draft, from, to, rule);
    for (; rc == 0 && schema.done < schema.rule_count; schema.done++)
        rc = draw_rule(&schema, schema.done);
    if (rc == 0) rc = ash_pda_draft_check(draft, err);
    for (size_t i = 0; i < schema.rule_count; i++)
        ash_schema_set_fini(&schema.rules[i].set);
    free(schema.rules);
    free(schema.slots);
    return rc;
}
