/* pda - a pushdown automaton over bytes, drawn state by state. A rule is a piece of it between a start and an end state
 * that edges can call, itself too. All that describes a form of text ends here. */
#ifndef ASH_SERVE_GRAMMAR_PDA_H
#define ASH_SERVE_GRAMMAR_PDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "serve/grammar/grammar.h"

#define ASH_PDA_UNBOUNDED UINT32_MAX

/* Borrowed bytes. */
struct ash_pda_text {
    const char *bytes;
    size_t size_bytes;
};

struct ash_pda;       /* finished: immutable */
struct ash_pda_draft; /* being drawn; one owner thread */

/* An empty draft under these limits; its time starts now. NULL when out of memory. */
struct ash_pda_draft *ash_pda_draft_open(const struct ash_grammar_limits *limits);
/* NULL is a no-op. */
void ash_pda_draft_close(struct ash_pda_draft *draft);
/* 0, or why drawing stopped: -ENOMEM, or -E2BIG beyond a limit. Later states are lost, so that it is enough
 * to ask now and then, and always before the end; err says it in words. */
int ash_pda_draft_check(struct ash_pda_draft *draft, struct ash_err *err);
/* The limits it was opened with. */
const struct ash_grammar_limits *ash_pda_draft_limits(const struct ash_pda_draft *draft);

/* A new state, in no rule yet: it belongs to the rule that edges connect it with. */
uint32_t ash_pda_add_state(struct ash_pda_draft *draft);
/* A new rule; no edge may leave its end. */
uint32_t ash_pda_add_rule(struct ash_pda_draft *draft);
/* Where rule starts. */
uint32_t ash_pda_rule_start(const struct ash_pda_draft *draft, uint32_t rule);
/* Where rule ends. */
uint32_t ash_pda_rule_end(const struct ash_pda_draft *draft, uint32_t rule);

/* Each adds a way from one state to another. First, by one byte in [low, high]. */
void ash_pda_add_bytes(struct ash_pda_draft *draft, uint32_t from, uint32_t to, uint8_t low, uint8_t high);
/* By these bytes, which may be none. */
void ash_pda_add_text(struct ash_pda_draft *draft, uint32_t from, uint32_t to, const void *bytes, size_t size_bytes);
/* By nothing. */
void ash_pda_add_empty(struct ash_pda_draft *draft, uint32_t from, uint32_t to);
/* By what rule matches. */
void ash_pda_add_call(struct ash_pda_draft *draft, uint32_t from, uint32_t to, uint32_t rule);
/* By what rule matches, min to max (or ASH_PDA_UNBOUNDED) times; counted, not copied. */
void ash_pda_add_repeat(struct ash_pda_draft *draft, uint32_t from, uint32_t to, uint32_t rule, uint32_t min,
                        uint32_t max);
/* By one character in [low, high] as UTF-8; surrogates are left out. */
void ash_pda_add_points(struct ash_pda_draft *draft, uint32_t from, uint32_t to, uint32_t low, uint32_t high);
/* By one of the texts; beginnings that they share are shared. Sorts texts. */
void ash_pda_add_choice(struct ash_pda_draft *draft, uint32_t from, uint32_t to, struct ash_pda_text *texts,
                        size_t count);

/* rule matches any one plain character (what JSON strings hold without an escape, no DEL), among others: masks of its
 * repetitions take all plain tokens at once. */
void ash_pda_mark_text(struct ash_pda_draft *draft, uint32_t rule);

/* Finish with what root matches. The draft is used up but not closed. -EINVAL when nothing matches or a rule calls
 * itself before it reads anything (names, may be NULL, has the name of each rule for messages); -E2BIG, -ENOMEM. */
int ash_pda_finish(struct ash_pda_draft *draft, uint32_t root, const char *const *names, struct ash_pda **pda_out,
                   struct ash_err *err);
/* NULL is a no-op. */
void ash_pda_close(struct ash_pda *pda);

/* A grammar of a finished automaton, which it owns from now on, also on error. */
int ash_grammar_from_pda(struct ash_pda *pda, const struct ash_grammar_limits *limits, struct ash_grammar **grammar_out,
                         struct ash_err *err);

#endif
