/* Drawn grammars as trees: written as GBNF and as regular expressions, and matched by a plain recursive matcher that
 * tries everything, which is what masks are held to. */
#ifndef TEST_DRAWN_H
#define TEST_DRAWN_H

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/rng.h"
#include "base/str.h"

#define DRAWN_NODES_MAX 400
#define DRAWN_RULES 4
#define DRAWN_STEPS_MAX 20000

enum { DRAWN_TEXT, DRAWN_CLASS, DRAWN_SEQUENCE, DRAWN_EITHER, DRAWN_REPEAT, DRAWN_RULE };

struct drawn_node {
    int kind;
    const char *text; /* text; class: its characters, ASCII */
    bool is_other;    /* class: all ASCII but those */
    int left, right;
    int min, max; /* repeat; max -1: unbounded */
    int rule;
};

struct drawn {
    struct drawn_node nodes[DRAWN_NODES_MAX];
    int count;
    int rules[DRAWN_RULES];
    uint64_t seed, counter;
    bool has_rules;
};

static inline uint64_t drawn_below(struct drawn *drawn, uint64_t bound)
{
    return ash_rng_below(drawn->seed, 2, drawn->counter++, bound);
}

static inline int drawn_add(struct drawn *drawn, struct drawn_node node)
{
    ash_assert(drawn->count < DRAWN_NODES_MAX);
    drawn->nodes[drawn->count] = node;
    return drawn->count++;
}

/* A tree for rule `rule`. is_first: nothing was read before it, so only later rules may be called. */
static inline int drawn_tree(struct drawn *drawn, int depth, int rule, bool is_first)
{
    static const char *const texts[] = {"a", "b", "ab", "ba\"", "0", "19", "{", "}", ", ", "a0"};
    static const char *const classes[] = {"ab", "09", "abc019", "\"{", "x", "a}"};
    uint64_t kind = depth == 0 || drawn->count > 40 ? drawn_below(drawn, 2) : drawn_below(drawn, 9);
    struct drawn_node node = {.kind = DRAWN_TEXT};

    if (kind < 2) {
        node.kind = kind == 0 ? DRAWN_TEXT : DRAWN_CLASS;
        node.text =
            kind == 0 ? texts[drawn_below(drawn, ASH_COUNT(texts))] : classes[drawn_below(drawn, ASH_COUNT(classes))];
        node.is_other = kind == 1 && drawn_below(drawn, 5) == 0;
    } else if (kind < 5) {
        node.kind = DRAWN_SEQUENCE;
        node.left = drawn_tree(drawn, depth - 1, rule, is_first);
        node.right = drawn_tree(drawn, depth - 1, rule, is_first && drawn->nodes[node.left].kind > DRAWN_CLASS);
    } else if (kind < 6) {
        node.kind = DRAWN_EITHER;
        node.left = drawn_tree(drawn, depth - 1, rule, is_first);
        node.right = drawn_tree(drawn, depth - 1, rule, is_first);
    } else if (kind < 8) {
        node.kind = DRAWN_REPEAT;
        node.left = drawn_tree(drawn, depth - 1, rule, is_first);
        node.min = (int)drawn_below(drawn, 3);
        node.max = drawn_below(drawn, 2) == 0 ? -1 : node.min + (int)drawn_below(drawn, 3);
    } else if (drawn->has_rules && (!is_first || rule + 1 < DRAWN_RULES)) {
        node.kind = DRAWN_RULE;
        node.rule = is_first ? rule + 1 + (int)drawn_below(drawn, (uint64_t)(DRAWN_RULES - rule - 1))
                             : (int)drawn_below(drawn, DRAWN_RULES);
    } else {
        node.text = "c";
    }
    return drawn_add(drawn, node);
}

/* Every rule has a way out: its first alternative is a text. */
static inline void drawn_init(struct drawn *drawn, uint64_t seed, bool has_rules)
{
    *drawn = (struct drawn){.seed = seed, .has_rules = has_rules};
    for (int i = 0; i < (has_rules ? DRAWN_RULES : 1); i++) {
        int exit = drawn_add(drawn, (struct drawn_node){.kind = DRAWN_TEXT, .text = "c"});
        int tree = drawn_tree(drawn, 4, i, true);
        drawn->rules[i] = drawn_add(drawn, (struct drawn_node){.kind = DRAWN_EITHER, .left = exit, .right = tree});
    }
}

/* ---- as text ----------------------------------------------------------------------------------------------------- */

static inline void drawn_write(const struct drawn *drawn, int index, bool is_gbnf, struct ash_str *out)
{
    const struct drawn_node *node = &drawn->nodes[index];
    const char *open = is_gbnf ? "(" : "(?:";

    switch (node->kind) {
    case DRAWN_TEXT:
        if (is_gbnf) ash_str_adds(out, "\"");
        for (const char *c = node->text; *c != '\0'; c++)
            ash_str_addf(out, "%s%c", strchr(is_gbnf ? "\"\\" : "{}\\", *c) != NULL ? "\\" : "", *c);
        ash_str_adds(out, is_gbnf ? "\" " : "");
        break;
    case DRAWN_CLASS:
        ash_str_addf(out, "[%s%s%s]%s", node->is_other ? "^" : "", node->text,
                     node->is_other ? "\\x80-\\U0010ffff" : "", is_gbnf ? " " : "");
        break;
    case DRAWN_SEQUENCE:
    case DRAWN_EITHER:
        ash_str_adds(out, open);
        drawn_write(drawn, node->left, is_gbnf, out);
        if (node->kind == DRAWN_EITHER) ash_str_adds(out, "|");
        drawn_write(drawn, node->right, is_gbnf, out);
        ash_str_adds(out, ")");
        break;
    case DRAWN_REPEAT:
        ash_str_adds(out, open);
        drawn_write(drawn, node->left, is_gbnf, out);
        if (node->max < 0)
            ash_str_addf(out, "){%d,}", node->min);
        else
            ash_str_addf(out, "){%d,%d}", node->min, node->max);
        break;
    default:
        ash_str_addf(out, "r%d ", node->rule);
        break;
    }
}

static inline void drawn_gbnf(const struct drawn *drawn, struct ash_str *out)
{
    ash_str_adds(out, "root ::= r0\n");
    for (int i = 0; i < DRAWN_RULES; i++) {
        ash_str_addf(out, "r%d ::= ", i);
        drawn_write(drawn, drawn->rules[i], true, out);
        ash_str_adds(out, "\n");
    }
}

/* ---- matching ---------------------------------------------------------------------------------------------------- */

/* What is still to be matched: a node, or the rest of a repetition of it. */
struct drawn_goal {
    int node;
    int done;     /* repetitions so far; -1: the node itself */
    size_t since; /* where the last repetition began */
    const struct drawn_goal *next;
};

struct drawn_match {
    const struct drawn *drawn;
    const char *text;
    size_t size_bytes;
    bool is_prefix, is_whole; /* found so far */
    long steps;
};

static inline void drawn_try(struct drawn_match *match, const struct drawn_goal *goal, size_t at)
{
    const struct drawn_node *node = goal != NULL ? &match->drawn->nodes[goal->node] : NULL;
    size_t left = match->size_bytes - at;

    if (++match->steps > DRAWN_STEPS_MAX || (match->is_prefix && match->is_whole)) return;
    if (goal == NULL) {
        if (left == 0) match->is_prefix = match->is_whole = true;
        return;
    }
    if (goal->done >= 0) { /* on, or once more */
        struct drawn_goal more = {.node = goal->node, .done = goal->done + 1, .since = at, .next = goal->next};
        struct drawn_goal body = {.node = node->left, .done = -1, .next = &more};
        if (goal->done >= node->min) drawn_try(match, goal->next, at);
        if (node->max >= 0 && goal->done >= node->max) return;
        if (goal->done >= node->min && goal->done > 0 && goal->since == at) return; /* empty repetitions lead nowhere */
        drawn_try(match, &body, at);
        return;
    }
    switch (node->kind) {
    case DRAWN_TEXT: {
        size_t size = strlen(node->text), common = left < size ? left : size;
        if (memcmp(match->text + at, node->text, common) != 0) return;
        if (left < size)
            match->is_prefix = true;
        else
            drawn_try(match, goal->next, at + size);
        return;
    }
    case DRAWN_CLASS: {
        uint8_t c = left > 0 ? (uint8_t)match->text[at] : 0;
        if (left == 0)
            match->is_prefix = true;
        else if (c < 0x80 && (c != 0 && strchr(node->text, c) != NULL) != node->is_other)
            drawn_try(match, goal->next, at + 1);
        return;
    }
    case DRAWN_SEQUENCE: {
        struct drawn_goal right = {.node = node->right, .done = -1, .next = goal->next};
        struct drawn_goal both = {.node = node->left, .done = -1, .next = &right};
        drawn_try(match, &both, at);
        return;
    }
    case DRAWN_EITHER: {
        struct drawn_goal first = {.node = node->left, .done = -1, .next = goal->next};
        struct drawn_goal second = {.node = node->right, .done = -1, .next = goal->next};
        drawn_try(match, &first, at);
        drawn_try(match, &second, at);
        return;
    }
    case DRAWN_REPEAT: {
        struct drawn_goal none = {.node = goal->node, .done = 0, .since = at, .next = goal->next};
        drawn_try(match, &none, at);
        return;
    }
    default: {
        struct drawn_goal called = {.node = match->drawn->rules[node->rule], .done = -1, .next = goal->next};
        drawn_try(match, &called, at);
        return;
    }
    }
}

/* Is text the beginning of something that the drawn grammar has, or all of it? false: it took too many steps. */
static inline bool drawn_matches(const struct drawn *drawn, const char *text, size_t size_bytes, bool *is_prefix,
                                 bool *is_whole)
{
    struct drawn_match match = {.drawn = drawn, .text = text, .size_bytes = size_bytes};
    struct drawn_goal root = {.node = drawn->rules[0], .done = -1};

    drawn_try(&match, &root, 0);
    *is_prefix = match.is_prefix;
    *is_whole = match.is_whole;
    return match.steps <= DRAWN_STEPS_MAX;
}

#endif
