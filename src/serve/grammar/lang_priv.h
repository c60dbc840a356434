/* Inside of languages: their automata, and the syntax trees that expressions become first. */
#ifndef ASH_SERVE_GRAMMAR_LANG_PRIV_H
#define ASH_SERVE_GRAMMAR_LANG_PRIV_H

#include "serve/grammar/lang.h"

#define ASH_LANG_POINTS 0x110000u /* one more than the last character */

/* Complete and deterministic; state 0 is dead. Class i has the characters from points[i] to before points[i + 1]. */
struct ash_lang {
    uint32_t *points; /* [class_count], the first is 0 */
    size_t class_count;
    uint32_t *next; /* [state_count][class_count] */
    bool *is_final; /* [state_count] */
    size_t state_count;
    uint32_t start;
};

/* An automaton with room for state_count states, all dead; points are copied. NULL when out of memory. */
struct ash_lang *ash_lang_open(const uint32_t *points, size_t class_count, size_t state_count);
/* Room for more states, dead ones. 0 or -ENOMEM. capacity: of states, kept by the caller. */
int ash_lang_reserve(struct ash_lang *lang, size_t *capacity, size_t state_count);
/* The class of a character. */
size_t ash_lang_class(const struct ash_lang *lang, uint32_t point);
/* Take out states from which no final state can be reached. 0 or -ENOMEM. */
int ash_lang_trim(struct ash_lang *lang);

/* ---- expressions ------------------------------------------------------------------------------------------------- */

/* Characters as ascending ranges that do not touch. */
struct ash_lang_set {
    uint32_t (*ranges)[2]; /* first, last */
    size_t count, capacity;
};
/* Add [first, last]; call ash_lang_set_settle afterwards. 0 or -ENOMEM. */
int ash_lang_set_add(struct ash_lang_set *set, uint32_t first, uint32_t last);
/* Sort and join the ranges; then take the complement where wants_others. 0 or -ENOMEM. */
int ash_lang_set_settle(struct ash_lang_set *set, bool wants_others);

enum ash_regex_kind {
    ASH_REGEX_EMPTY,
    ASH_REGEX_SET,
    ASH_REGEX_CONCAT,
    ASH_REGEX_EITHER,
    ASH_REGEX_REPEAT,
    ASH_REGEX_BEGIN, /* ^ */
    ASH_REGEX_END    /* $ */
};

struct ash_regex_node {
    enum ash_regex_kind kind;
    uint32_t left, right; /* concat, either; repeat: left */
    uint32_t min, max;    /* repeat */
    uint32_t set;
};

struct ash_regex {
    struct ash_regex_node *nodes;
    size_t count, capacity;
    struct ash_lang_set *sets;
    size_t set_count, set_capacity;
    uint32_t root;
};

/* Parse an expression into a zeroed regex; fini frees it, on error too. Errors as ash_lang_from_regex. */
int ash_regex_parse(struct ash_regex *regex, const char *pattern, size_t size_bytes, size_t depth, struct ash_err *err);
/* Free what parse made. */
void ash_regex_fini(struct ash_regex *regex);

/* An escape or a class, from *at on, which moves past it. Adds its characters to set. Used inside of [] too. */
struct ash_regex_cursor {
    const char *text;
    size_t size_bytes, at;
};
/* The characters of the escape at cursor (after its backslash). in_class: between []. *single_out: the character when
 * it is exactly one, else UINT32_MAX. */
int ash_regex_escape(struct ash_regex_cursor *cursor, bool in_class, struct ash_lang_set *set, uint32_t *single_out,
                     struct ash_err *err);
/* The characters of the class at cursor (after its opening bracket). */
int ash_regex_class(struct ash_regex_cursor *cursor, struct ash_lang_set *set, struct ash_err *err);
/* The character at cursor, which moves on. -EINVAL at the end or if it is not UTF-8. */
int ash_regex_point(struct ash_regex_cursor *cursor, uint32_t *point_out, struct ash_err *err);

#endif
