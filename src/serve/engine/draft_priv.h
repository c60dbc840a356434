/* draft_priv - the inside of a draft model: its passes, what pays, and the states of a head. */
#ifndef ASH_SERVE_ENGINE_DRAFT_PRIV_H
#define ASH_SERVE_ENGINE_DRAFT_PRIV_H

#include "model/pass/pass.h"
#include "serve/engine/draft_model.h"

#define ASH_DRAFT_CAPTURED_ROWS 64 /* at once */

struct ash_draft_model {
    struct ash_draft_opts opts;
    struct ash_exec *exec;
    struct ash_pass *pass;
    struct ash_cache *cache;
    struct ash_sampler *sampler;
    size_t width;  /* of a row of logits */
    float *logits; /* [ASH_DRAFT_TEXTS, width] */
    int32_t *ids;  /* [max_rows] */
    bool is_broken;
    /* of a head: */
    size_t hidden;     /* of a state; 0: it takes none */
    float *row_states; /* [max_rows, hidden]: of a pass */
    float *own_states; /* [ASH_DRAFT_TEXTS, hidden]: after each text's last row */
    /* of a head of EAGLE-3: */
    float *captured; /* [ASH_DRAFT_CAPTURED_ROWS, captured] */
    float *spread;   /* [opts.vocab]: logits of all tokens */
    /* what pays: */
    double accept;                     /* share of drafted tokens that hold */
    double own_s;                      /* a pass of one row a text */
    double pass_s[ASH_DRAFT_MOST + 1]; /* of the large model, by drafts; 0: not measured */
    size_t rest, rest_next;
};

/* Rows of a pass, and the texts that get a token after it. Zero-initialise, with docs as the batch's. */
struct ash_draft_rows {
    struct ash_batch batch;
    struct ash_doc docs[ASH_DRAFT_TEXTS];
    struct ash_draft_text *texts[ASH_DRAFT_TEXTS];
    size_t wanted[ASH_DRAFT_TEXTS], wanted_count;
};

/* draft_gain.c: nothing is known yet. */
void ash_draft_model_begin_gain(struct ash_draft_model *draft);
/* A pass of one row a text took this long. */
void ash_draft_model_learn_own(struct ash_draft_model *draft, double own_s);

/* draft_states.c: pages for a text and its drafts. Returns whether there are. */
bool ash_draft_model_make_room(struct ash_draft_model *draft, struct ash_draft_text *text);
/* Rows that a text lacks up to token `end`, as far as they fit; own: the state after its last row, if
 * that was a drafted token's. */
void ash_draft_model_add_rows(struct ash_draft_model *draft, struct ash_draft_rows *rows, struct ash_draft_text *text,
                              size_t end, const float *own);

/* Does the head know the states of all rows that the text lacks? True of a draft model. */
bool ash_draft_model_knows(const struct ash_draft_model *draft, const struct ash_draft_text *text);
/* Move the states of the next `count` rows of a text to out. */
void ash_draft_model_take_states(const struct ash_draft_model *draft, struct ash_draft_state *state, size_t count,
                                 float *out);

#endif
