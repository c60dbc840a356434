/* votes - which of several answers to a prompt counts. Pure functions. */
#ifndef ASH_SERVE_VOTES_H
#define ASH_SERVE_VOTES_H

#include <stddef.h>
#include "base/str.h"

/* How one of n answers is chosen. */
enum ash_strategy {
    ASH_STRATEGY_GREEDY,   /* one answer, the most likely tokens */
    ASH_STRATEGY_BEST,     /* the one with the largest weight */
    ASH_STRATEGY_MAJORITY, /* the most frequent one */
    ASH_STRATEGY_WEIGHTED, /* the one with the largest sum of weights */
};
extern const char *const ash_strategy_names[];

/* Which part of an answer votes: equal parts are one answer. */
enum ash_vote_on {
    ASH_VOTE_ON_ALL,         /* all of it, without blanks around */
    ASH_VOTE_ON_LAST_LINE,   /* its last line that is not blank */
    ASH_VOTE_ON_LAST_NUMBER, /* its last number, without commas between digits */
};
extern const char *const ash_vote_on_names[];
/* Append that part of a text; thoughts, up to the last </think>, have none. Returns 0 or -ENOMEM. */
int ash_vote_part(const char *text, enum ash_vote_on on, struct ash_str *out);

/* One answer. */
struct ash_vote {
    const char *text; /* the part that votes; "" votes for nothing */
    double weight;    /* a score, a probability; in a sum those below 0 count as 0 */
};
/* The answer that counts of votes [count > 0]: an index. Ties go to the first; the first one also wins without votes.
 * */
size_t ash_votes_choose(const struct ash_vote *votes, size_t count, enum ash_strategy strategy);
/* The sum of the votes for what vote i is for: how many, or with weighted their weights. */
double ash_votes_sum(const struct ash_vote *votes, size_t count, enum ash_strategy strategy, size_t i);

#endif
