/* Inside of JSON schemas. A rule of the automaton stands for a set of schemas that must all hold: references and allOf
 * add to the set, each branch of anyOf makes another set. Equal sets are one rule, so recursion ends. */
#ifndef ASH_SERVE_GRAMMAR_SCHEMA_PRIV_H
#define ASH_SERVE_GRAMMAR_SCHEMA_PRIV_H

#include "serve/grammar/lang.h"
#include "serve/grammar/schema.h"

enum { ASH_SCHEMA_ANY_OF = 1, ASH_SCHEMA_ONE_OF = 2 };

/* A schema, and which of its alternatives are decided already (ASH_SCHEMA_...): a branch is in the set next to it. */
struct ash_schema_part {
    const json_t *schema;
    unsigned decided;
};

struct ash_schema_set {
    struct ash_schema_part *parts;
    size_t count, capacity;
    bool is_never; /* one of them is false */
};

/* Types as bits; an integer is a number without a fraction. */
enum {
    ASH_SCHEMA_NULL = 1,
    ASH_SCHEMA_BOOLEAN = 2,
    ASH_SCHEMA_INTEGER = 4,
    ASH_SCHEMA_FRACTION = 8,
    ASH_SCHEMA_STRING = 16,
    ASH_SCHEMA_ARRAY = 32,
    ASH_SCHEMA_OBJECT = 64,
    ASH_SCHEMA_ALL_TYPES = 127
};

struct ash_schema_rule {
    struct ash_schema_set set;
    uint32_t rule;
};

struct ash_schema {
    struct ash_pda_draft *draft;
    const struct ash_grammar_limits *limits;
    enum ash_json_space space;
    bool is_lenient;
    const json_t *root;
    struct ash_err *err;
    struct ash_schema_rule *rules; /* drawn up to `done`, the others are still to be */
    size_t rule_count, rule_capacity, done;
    uint32_t *slots;
    size_t slot_count;
    uint32_t character, text, separator; /* rules that were needed before; ASH_PDA_UNBOUNDED: not yet */
    uint32_t number, integer, colon, space_rule;
};

/* Where to draw. */
struct ash_schema_place {
    uint32_t from, to;
};

/* ---- sets -------------------------------------------------------------------------------------------------------- */

/* Add a schema and the ones it refers to; ref chains and allOf are followed. path_left: how deep to go. */
int ash_schema_set_add(struct ash_schema *schema, struct ash_schema_set *set, const json_t *part);
/* Free what a set holds. */
void ash_schema_set_fini(struct ash_schema_set *set);
/* The rule of a set, which is used up. 0 or a negative errno. */
int ash_schema_find_rule(struct ash_schema *schema, struct ash_schema_set *set, uint32_t *rule_out);

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* code with "schema POINTER/keyword: " before the sentence. keyword may be NULL. */
int ash_schema_fail(struct ash_schema *schema, int code, const json_t *part, const char *keyword, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* The same around the sentence that is in err already. */
int ash_schema_wrap(struct ash_schema *schema, int code, const json_t *part, const char *keyword);
/* Refuse unsupported or malformed keywords in one schema object. */
int ash_schema_check(struct ash_schema *schema, const json_t *part);
/* What `$ref` leads to. */
int ash_schema_refer(struct ash_schema *schema, const json_t *part, const json_t **target_out);
/* A keyword that counts, from 0 on; absent keeps *value_out. Larger than 2^31 is unbounded for a maximum. */
int ash_schema_count(struct ash_schema *schema, const json_t *part, const char *keyword, uint32_t *value_out);

/* ---- what each type draws ---------------------------------------------------------------------------------------- */

/* Each draws between the two states of place the values of one type that fit all schemas of set. First, numbers; types
 * says which. */
int ash_schema_draw_number(struct ash_schema *schema, const struct ash_schema_set *set, unsigned types,
                           struct ash_schema_place place);
/* Strings, quotes included. */
int ash_schema_draw_string(struct ash_schema *schema, const struct ash_schema_set *set, struct ash_schema_place place);
/* Arrays. */
int ash_schema_draw_array(struct ash_schema *schema, const struct ash_schema_set *set, struct ash_schema_place place);
/* Objects. */
int ash_schema_draw_object(struct ash_schema *schema, const struct ash_schema_set *set, struct ash_schema_place place);
/* The values of enum and const that fit; types: those allowed. */
int ash_schema_draw_values(struct ash_schema *schema, const struct ash_schema_set *set, unsigned types,
                           struct ash_schema_place place);

/* The strings that fit the set, into *lang_out, which the caller owns also after an error; NULL: all strings. Of anyOf
 * and oneOf it is -ENOTSUP. */
int ash_schema_string_lang(struct ash_schema *schema, const struct ash_schema_set *set, struct ash_lang **lang_out);
/* Does a string fit what the set says of strings? 1, 0 or a negative errno. */
int ash_schema_fits_string(struct ash_schema *schema, const struct ash_schema_set *set, const char *text, size_t bytes);
/* Does a number (its text) fit what the set says of numbers? 1, 0 or a negative errno. */
int ash_schema_fits_number(struct ash_schema *schema, const struct ash_schema_set *set, const json_t *number);

/* The language of a format, or NULL if it is not known: then it is an annotation. */
const char *ash_schema_format(const char *name);

/* ---- pieces of JSON ---------------------------------------------------------------------------------------------- */

/* Any JSON string, quotes included. */
uint32_t ash_schema_text_rule(struct ash_schema *schema);
/* One character of a string. */
uint32_t ash_schema_character_rule(struct ash_schema *schema);
/* "," and ":" with the space that may be around them. */
uint32_t ash_schema_separator_rule(struct ash_schema *schema);
/* ":" likewise. */
uint32_t ash_schema_colon_rule(struct ash_schema *schema);
/* Space inside of brackets: none when compact. */
void ash_schema_draw_space(struct ash_schema *schema, uint32_t from, uint32_t to);
/* A text as a JSON string, quotes included. */
int ash_schema_draw_quoted(struct ash_schema *schema, const char *text, size_t size_bytes,
                           struct ash_schema_place place);
/* A JSON value as it is. */
int ash_schema_draw_json(struct ash_schema *schema, const json_t *value, struct ash_schema_place place);
/* item, commas and further items: min to max (or ASH_PDA_UNBOUNDED) of them, at least one. */
void ash_schema_draw_list(struct ash_schema *schema, uint32_t item, uint32_t min, uint32_t max,
                          struct ash_schema_place place);

#endif
