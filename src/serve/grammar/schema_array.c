/* Arrays: the first items have schemas of their own, the rest share one. */
#include "serve/grammar/schema_priv.h"

#include <errno.h>

#include "serve/grammar/pda_priv.h"

#define PREFIX_MAX 10000

/* The list of first items of one schema, or NULL: prefixItems, or items as an array as older drafts have it. */
static const json_t *prefix_of(const json_t *part)
{
    const json_t *items = json_object_get(part, "items");

    return json_is_array(items) ? items : json_object_get(part, "prefixItems");
}

/* The schema of item `index` that one part asks for, or NULL. */
static const json_t *item_of(const json_t *part, size_t index)
{
    const json_t *prefix = prefix_of(part), *items = json_object_get(part, "items");

    if (index < json_array_size(prefix)) return json_array_get(prefix, index);
    return json_is_array(items) ? json_object_get(part, "additionalItems") : items;
}

/* The rule of item `index`. *is_never_out: no item can stand there. */
static int item_rule(struct ash_schema *schema, const struct ash_schema_set *set, size_t index, uint32_t *rule_out,
                     bool *is_never_out)
{
    struct ash_schema_set own = {0};
    int rc = 0;

    for (size_t i = 0; i < set->count && rc == 0; i++) {
        const json_t *item = item_of(set->parts[i].schema, index);
        if (item != NULL) rc = ash_schema_set_add(schema, &own, item);
    }
    *is_never_out = own.is_never;
    if (rc == 0) rc = ash_schema_find_rule(schema, &own, rule_out);
    ash_schema_set_fini(&own);
    return rc;
}

struct lengths {
    uint32_t min, max;
    size_t prefix;
};

static int find_lengths(struct ash_schema *schema, const struct ash_schema_set *set, struct lengths *lengths)
{
    for (size_t i = 0; i < set->count; i++) {
        const json_t *part = set->parts[i].schema;
        uint32_t min = 0, max = ASH_PDA_UNBOUNDED;
        size_t prefix = json_array_size(prefix_of(part));
        int rc = ash_schema_count(schema, part, "minItems", &min);
        if (rc == 0) rc = ash_schema_count(schema, part, "maxItems", &max);
        if (rc < 0) return rc;
        if (min > lengths->min) lengths->min = min;
        if (max < lengths->max) lengths->max = max;
        if (prefix > lengths->prefix) lengths->prefix = prefix;
    }
    if (lengths->prefix > PREFIX_MAX) return ash_err_set(schema->err, -E2BIG, "more than %d prefixItems", PREFIX_MAX);
    return 0;
}

/* Items of the prefix from *at on, which moves; the array may end after each once it is long enough. Returns how many
 * were drawn, or a negative errno. */
static int draw_prefix(struct ash_schema *schema, const struct ash_schema_set *set, const struct lengths *lengths,
                       uint32_t *at, uint32_t close)
{
    struct ash_pda_draft *draft = schema->draft;

    for (size_t i = 0; i < lengths->prefix; i++) {
        uint32_t rule, start = ash_pda_add_state(draft), end = ash_pda_add_state(draft);
        bool is_never;
        int rc = item_rule(schema, set, i, &rule, &is_never);
        if (rc < 0) return rc;
        if (i >= lengths->min) ash_pda_add_empty(draft, *at, close);
        if (is_never || i >= lengths->max) return (int)i;
        if (i > 0)
            ash_pda_add_call(draft, *at, start, ash_schema_separator_rule(schema));
        else
            ash_pda_add_empty(draft, *at, start);
        ash_pda_add_call(draft, start, end, rule);
        *at = end;
    }
    return (int)lengths->prefix;
}

/* Items after `drawn` ones. */
static int draw_rest(struct ash_schema *schema, const struct ash_schema_set *set, const struct lengths *lengths,
                     uint32_t drawn, struct ash_schema_place place)
{
    struct ash_pda_draft *draft = schema->draft;
    uint32_t rule, min = lengths->min > drawn ? lengths->min - drawn : 0, start = place.from;
    uint32_t max = lengths->max == ASH_PDA_UNBOUNDED ? lengths->max : lengths->max - drawn;
    bool is_never;
    int rc = item_rule(schema, set, drawn, &rule, &is_never);

    if (rc < 0) return rc;
    if (min == 0) ash_pda_add_empty(draft, place.from, place.to);
    if (is_never || max == 0) return 0;
    if (drawn > 0) {
        start = ash_pda_add_state(draft);
        ash_pda_add_call(draft, place.from, start, ash_schema_separator_rule(schema));
    }
    ash_schema_draw_list(schema, rule, min, max, (struct ash_schema_place){start, place.to});
    return 0;
}

int ash_schema_draw_array(struct ash_schema *schema, const struct ash_schema_set *set, struct ash_schema_place place)
{
    struct ash_pda_draft *draft = schema->draft;
    struct lengths lengths = {.max = ASH_PDA_UNBOUNDED};
    uint32_t open = ash_pda_add_state(draft), at = ash_pda_add_state(draft), last = ash_pda_add_state(draft);
    uint32_t close = ash_pda_add_state(draft);
    int rc = find_lengths(schema, set, &lengths);

    if (rc < 0 || lengths.min > lengths.max) return rc;
    ash_pda_add_text(draft, place.from, open, "[", 1);
    ash_schema_draw_space(schema, open, at);
    rc = draw_prefix(schema, set, &lengths, &at, last);
    if (rc >= 0 && (size_t)rc == lengths.prefix && (uint32_t)rc <= lengths.max)
        rc = draw_rest(schema, set, &lengths, (uint32_t)rc, (struct ash_schema_place){at, last});
    if (rc < 0) return rc;
    ash_schema_draw_space(schema, last, close);
    ash_pda_add_text(draft, close, place.to, "]", 1);
    return 0;
}
