/* draft_model - a small model, or a head of the large one, that guesses tokens of the large one. Each step it writes a
 * few tokens after each text, drawn as the large one draws them (same settings, same random numbers); the large one
 * computes them all in one pass and keeps those that it chooses itself. How many pay is measured: what its own passes
 * take, what rows of drafts cost the large one, how often they hold. Where they do not pay it rests, and tries again
 * now and then. The core's thread. */
#ifndef ASH_SERVE_ENGINE_DRAFT_MODEL_H
#define ASH_SERVE_ENGINE_DRAFT_MODEL_H

#include <stdbool.h>
#include "model/pass/cache.h"
#include "serve/engine/sampler.h"

struct ash_draft_model;
struct ash_eagle;
struct ash_pass;

#define ASH_DRAFT_TEXTS 32 /* that it writes for in a step: with more, rows are no longer cheap */
#define ASH_DRAFT_MOST 16  /* tokens after one text */

/* One text's place in the draft's cache. Zero-initialise. */
struct ash_draft_state {
    struct ash_block_table table;
    size_t computed; /* tokens whose keys and values it has, from `first` on */
    /* Of a head, whose row of a token takes the large model's state of the token before it: */
    size_t first; /* the first token with a row: the large model's state of the one before was known. 0: none was */
    size_t known; /* tokens whose states it was given */
    float
        *states; /* [states_room, hidden]: those that no row has taken yet, of tokens from computed - 1 to known - 1 */
    size_t states_room;
};

/* A text that it shall continue. */
struct ash_draft_text {
    int32_t *tokens; /* [count], and room for `wanted` more, which it writes */
    size_t count, wanted, drafted;
    const struct ash_sampler_opts *sampler;
    struct ash_draft_state *state;
};

struct ash_draft_opts {
    size_t max_rows, max_tokens;   /* of a pass; of a text with its drafts */
    size_t pages;                  /* of its cache, at most */
    size_t vocab;                  /* ids below this */
    size_t hidden;                 /* of the large model's states */
    const struct ash_eagle *eagle; /* the draft, if it is a head of EAGLE-3; or NULL */
    size_t most;                   /* tokens drafted at most */
};

/* A draft model. Borrows model and exec. Returns 0, -EINVAL (its vocabulary is too small) or another negative errno. */
int ash_draft_model_open(struct ash_model *model, struct ash_exec *exec, const struct ash_draft_opts *opts,
                         struct ash_draft_model **draft_out, struct ash_err *err);
/* States must have been forgotten. NULL is a no-op. */
void ash_draft_model_close(struct ash_draft_model *draft);

/* How many tokens to draft in the next step; 0: it rests. Counts as a step of the rest. */
size_t ash_draft_model_depth(struct ash_draft_model *draft);
/* Will it rest in the next step, too? */
bool ash_draft_model_rests(const struct ash_draft_model *draft);
/* Continue texts [count], at most ASH_DRAFT_TEXTS. A long text may take several calls before it has drafts. */
void ash_draft_model_run(struct ash_draft_model *draft, struct ash_draft_text *texts, size_t count);
/* Does it take states? */
bool ash_draft_model_is_head(const struct ash_draft_model *draft);
/* Room for the large model's states (after the final norm) of `rows` tokens of a text from token `at` on. The caller
 * writes [rows, hidden] there and calls ash_draft_model_fed. After a gap the text starts there. NULL: it
 * cannot. */
float *ash_draft_model_feed(struct ash_draft_model *draft, struct ash_draft_state *state, size_t at, size_t rows);
/* Does it read what the large model's pass captures? Then ash_draft_model_fuse writes the states. */
bool ash_draft_model_captures(const struct ash_draft_model *draft);
/* States [count, hidden] of rows of pass from `first` on. Returns 0 or a negative errno. */
int ash_draft_model_fuse(struct ash_draft_model *draft, struct ash_pass *pass, size_t first, size_t count, float *out,
                         struct ash_err *err);
/* They are there. Of many, rows are computed at once. text: its tokens up to the one after them at least. */
void ash_draft_model_fed(struct ash_draft_model *draft, struct ash_draft_text *text, size_t rows);
/* Of `drafted` (> 0) tokens the first `accepted` held. */
void ash_draft_model_learn(struct ash_draft_model *draft, size_t drafted, size_t accepted);
/* A pass of the large model without parts of prompts took this long with `drafts` in its longest answer. */
void ash_draft_model_learn_pass(struct ash_draft_model *draft, size_t drafts, double pass_s);
/* Free the text's place in the draft's cache. */
void ash_draft_model_forget(struct ash_draft_model *draft, struct ash_draft_state *state);

#endif
