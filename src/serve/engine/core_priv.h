/* core_priv - the inside of the engine loop: sequences, the queue, the current step. */
#ifndef ASH_SERVE_ENGINE_CORE_PRIV_H
#define ASH_SERVE_ENGINE_CORE_PRIV_H

#include <stdatomic.h>

#include "model/files/eagle.h"
#include "model/pass/cache.h"
#include "model/pass/pass.h"
#include "serve/engine/core.h"
#include "serve/engine/draft.h"
#include "serve/engine/draft_model.h"
#include "serve/engine/page_events.h"
#include "serve/engine/prefix.h"
#include "serve/engine/recorder.h"
#include "serve/grammar/grammar.h"

/* ---- a sequence -------------------------------------------------------------------------------------------------- */

/* A token that a step chose, before it is handed out. */
struct ash_chosen {
    int32_t id;
    float logprob;
};

enum ash_seq_state { ASH_SEQ_WAITING, ASH_SEQ_RUNNING, ASH_SEQ_OVER };

/* A request and its tokens. */
struct ash_seq {
    struct ash_request *request;
    enum ash_seq_state state;
    struct ash_owner *owner;
    uint64_t number;      /* in the order of arrival */
    uint64_t admitted;    /* in the order of admission */
    size_t heap_place;    /* while it waits */
    struct ash_seq *next; /* on its way to the core (runner.c) */
    int32_t *tokens;      /* [capacity]: prompt, answer; then drafts, which do not count */
    size_t count;         /* tokens of prompt and answer */
    size_t capacity;      /* the most they can be */
    size_t answer_limit;  /* tokens of the answer at most */
    size_t computed;      /* tokens whose keys and values its pages hold */
    size_t shared;        /* of the prompt: those that came from the cache when it was first admitted */
    struct ash_block_table table;
    bool may_share;                 /* all its pages are nodes of the tree, and it has computed nothing */
    bool uses_cache;                /* its whole computed pages are nodes of the prefix tree */
    struct ash_kv_load *load;       /* brings pages of its prompt from a tier, or NULL */
    bool has_loaded;                /* or has tried to, since it runs */
    bool has_told;                  /* pages that it took over were given to those that wait for them */
    struct ash_seq *leader;         /* computes a prefix that this one waits for, or NULL */
    size_t leader_tokens;           /* of that prefix */
    struct ash_token_counts counts; /* with penalties */
    struct ash_drafter drafter;     /* with speculation by prompt lookup */
    struct ash_draft_state draft;   /* with a draft model */
    size_t noted_blocks;            /* of request->blocks, which page events have got */
    size_t proposed;                /* tokens that it wrote for this step */
    struct ash_matcher *matcher;    /* with a grammar */
    size_t prompt_told; /* log-probabilities up to this token of the prompt were handed out, or were not requested */
    size_t pooled;      /* rows of the prompt that are in request->hidden */
    /* this step: */
    bool is_in_step, is_passed_over; /* the latter: it gets no rows */
    size_t rows, drafts;             /* rows of it, of which the last `drafts` are drafted */
    size_t first_row;                /* of the batch */
    struct ash_chosen *chosen;       /* [speculate + 1] */
    struct ash_top_logprob *tops;    /* [speculate + 1, top_logprobs] */
    int32_t *kept;                   /* [kept_room]: with wants_kept, what the filters left of the last choice */
    size_t kept_count, kept_room;
    struct ash_chosen *prompt_chosen;    /* [piece_rows]: tokens of the prompt, with log-probabilities */
    struct ash_top_logprob *prompt_tops; /* [piece_rows, prompt_top_logprobs] */
    size_t prompt_chosen_count;
    size_t chosen_count;
    bool has_missed; /* a draft was wrong: what follows is not looked at */
    size_t accepted;
    /* its end: */
    enum ash_finish finish;
    struct ash_request_end end;
    uint64_t submit_ns, start_ns, first_ns, last_ns;
    uint64_t record; /* its number at the recorder; 0: none */
};

/* seq.c: a sequence for a checked request. Returns 0 or -ENOMEM. */
int ash_seq_open(const struct ash_core *core, struct ash_request *request, struct ash_seq **seq_out,
                 struct ash_err *err);
/* Free it; its pages must have been given back. NULL is a no-op. */
void ash_seq_close(struct ash_seq *seq);
/* Tokens that the pages lack. */
size_t ash_seq_missing(const struct ash_seq *seq);
/* Tokens of the answer so far. */
size_t ash_seq_answer_count(const struct ash_seq *seq);
/* Add a token to the answer: counts and drafter follow. */
void ash_seq_add(struct ash_seq *seq, int32_t id);
/* Its text for the prefix tree: its first `count` tokens. */
struct ash_prefix_text ash_seq_text(const struct ash_seq *seq, size_t count);

/* ---- the queue --------------------------------------------------------------------------------------------------- */

/* Who requests belong to. Waiting sequences of one are a heap by priority and arrival. */
struct ash_owner {
    uint64_t id;
    double served; /* rows computed for it */
    struct ash_seq **heap;
    size_t count, capacity;
    size_t alive; /* sequences, waiting or running */
    struct ash_owner *next;
};

struct ash_queue {
    struct ash_owner *owners; /* a list: they are few */
    size_t count;             /* sequences that wait */
};

/* queue.c: the owner of this id, made if there is none; others that have no work may be forgotten. NULL without
 * memory. */
struct ash_owner *ash_queue_owner(struct ash_queue *queue, uint64_t id);
/* Room for one more waiting sequence of the owner: a push never fails. Returns 0 or -ENOMEM. */
int ash_queue_reserve(struct ash_owner *owner);
/* Put a sequence in; it waits. */
void ash_queue_push(struct ash_queue *queue, struct ash_seq *seq);
/* The sequence that is next: the best priority, then the owner served least, then the first. NULL: none waits. */
struct ash_seq *ash_queue_first(struct ash_queue *queue);
/* Take one out. */
void ash_queue_remove(struct ash_queue *queue, struct ash_seq *seq);
/* Free the owners; nothing waits. */
void ash_queue_fini(struct ash_queue *queue);

/* ---- the core ---------------------------------------------------------------------------------------------------- */

/* A row of the step whose logits are wanted. */
struct ash_wanted_row {
    struct ash_seq *seq;
    size_t row;     /* of the batch */
    size_t index;   /* of its token in the sequence */
    bool is_prompt; /* for the log-probability of the prompt's next token; else to choose the next one */
};

#define ASH_CORE_STATE_ROWS 32

/* A step that was enqueued before the one in front of it was over: ahead.c. */
struct ash_step_ahead {
    struct ash_seq **seqs; /* [max_seqs]: whose rows they are; NULL: its answer is over */
    size_t count;          /* 0: there is none */
    unsigned fetch;        /* as which its tokens come */
};

struct ash_core {
    struct ash_core_opts opts; /* with defaults filled in */
    struct ash_model *model;   /* NULL: a null model */
    struct ash_exec *exec;
    const struct ash_null_model *null;
    size_t vocab;  /* width of a row of logits */
    size_t hidden; /* of a state */
    struct ash_pass *pass;
    struct ash_cache *cache;
    struct ash_prefix *prefix;      /* NULL: no prefix cache */
    struct ash_page_events *events; /* NULL: what it has is not published */
    struct ash_kv *kv;              /* NULL: no tiers below the pool */
    struct ash_draft_model *draft;  /* NULL: none */
    struct ash_eagle eagle;         /* the same as a head of EAGLE-3; zero: it is none */
    struct ash_queue queue;
    struct ash_seq **running; /* [max_seqs], by priority, then in the order of admission */
    size_t running_count;
    struct ash_sampler **samplers; /* [threads] */
    uint64_t next_number, next_admitted;
    bool is_in_step, ends_all;
    bool is_held; /* nothing that waits is admitted */
    atomic_bool has_cancels;
    bool has_answered; /* a token was handed out */
    struct ash_step_ahead ahead;
    /* the current step: */
    bool is_ahead;             /* it was enqueued ahead: only its tokens are waited for */
    unsigned fetch;            /* as which its tokens come from a device */
    uint64_t end_ns;           /* of the step before */
    int32_t *ids;              /* [rows] */
    struct ash_doc *docs;      /* [max_seqs] */
    struct ash_seq **doc_seqs; /* [max_seqs]: whose they are */
    size_t doc_count, row_count, prefill_rows;
    struct ash_wanted_row *wanted; /* [rows] */
    size_t wanted_count;
    size_t piece_rows;              /* rows whose logits exist at once */
    float *logits;                  /* [piece_rows, vocab] */
    size_t *piece;                  /* [piece_rows]: their rows */
    int32_t *best;                  /* [piece_rows]: the most likely id, or -1; or the one that a device chose */
    struct ash_sample_row *choices; /* [piece_rows] */
    float *log_sums;                /* [piece_rows]: logits minus their largest, log of the sum of exponentials */
    size_t *runs;                   /* [piece_rows + 1]: where in the piece the rows of the next sequence begin */
    size_t run_count;
    float *states; /* [ASH_CORE_STATE_ROWS, hidden] */
    int failure;   /* of the first request that has failed since ash_core_finish */
    struct ash_err failure_err;
    /* what rows cost: */
    double decode_s, row_s;
    struct ash_core_stats stats;
};

/* schedule.c: admit what waits, and gather the step's rows. */
void ash_core_schedule(struct ash_core *core);
/* Give a sequence's pages back; computed pages go to the prefix cache. */
void ash_core_release(struct ash_core *core, struct ash_seq *seq);
/* No sequence waits for seq's pages any more. */
void ash_core_leave_followers(struct ash_core *core, const struct ash_seq *seq);

/* Have that many pages free, if need be some that only the prefix cache holds. Returns whether there are. */
bool ash_core_make_free(struct ash_core *core, size_t pages);
/* Pages for the sequence's first `tokens` tokens, without taking any from others. Returns whether it has them. */
bool ash_core_grow(struct ash_core *core, struct ash_seq *seq, size_t tokens);

/* ahead.c: room for a step that runs ahead. Returns 0 or -ENOMEM. */
int ash_core_open_ahead(struct ash_core *core, struct ash_err *err);
/* Wait for it and forget it. */
void ash_core_close_ahead(struct ash_core *core);
/* The sequence is over. */
void ash_core_forget_ahead(struct ash_core *core, const struct ash_seq *seq);
/* All of the current step is enqueued: enqueue the next one too, if its rows are known. */
void ash_core_run_ahead(struct ash_core *core);
/* Make the step that was enqueued ahead the current one. Returns false if there is none. */
bool ash_core_take_ahead(struct ash_core *core);

/* pages.c: open the tiers of the options. Returns 0 or a negative errno. */
int ash_core_open_kv(struct ash_core *core, struct ash_err *err);
/* Bring pages of the sequence's first `end` tokens, after those that it has, from a tier. Returns whether that was
 * tried: then it has got some, or waits for some (seq->load), and the prefix tree has changed. */
bool ash_core_load(struct ash_core *core, struct ash_seq *seq, size_t end);
/* Forget what host memory has, and take no evicted page until ash_core_resume_tiers. */
void ash_core_forget_tiers(struct ash_core *core);
/* Take evicted pages again. */
void ash_core_resume_tiers(struct ash_core *core);
/* Sequences that wait for pages take those that came. */
void ash_core_poll_loads(struct ash_core *core);
/* The step has no rows, as all that run wait for pages: wait for some, for a moment. */
void ash_core_wait_loads(struct ash_core *core);
/* The sequence gives its pages back: tiers may still lack some; no page is waited for any more. */
void ash_core_leave_tiers(struct ash_core *core, struct ash_seq *seq);
/* pages.c: others that wait for pages of its prompt are told which are there. */
void ash_core_tell_pages(struct ash_core *core, struct ash_seq *seq);

/* choose.c: what the choice of the sequence's token `position` depends on, beside logits and a grammar. */
struct ash_choice ash_core_choice_at(const struct ash_seq *seq, size_t position);
/* step.c: pack the weights, on all ranks. Returns as ash_model_pack. */
int ash_core_pack_weights(struct ash_core *core, struct ash_err *err);
/* Of the step's rows after the pass: choose tokens, tell the prompt's log-probabilities. Returns 0 or the
 * error of the head, which ends all requests. */
int ash_core_choose(struct ash_core *core, struct ash_err *err);
/* States of the prompts' rows, where they are wanted. */
int ash_core_pool_states(struct ash_core *core, struct ash_err *err);
/* states.c: once tokens are chosen: a head for drafts gets the states of the rows that hold. Returns 0 or the error of
 * the pass. */
int ash_core_feed_states(struct ash_core *core, struct ash_err *err);

/* step.c: the sequence is over and runs or waits nowhere: pages back, done(), memory. */
void ash_core_end(struct ash_core *core, struct ash_seq *seq);
/* End cancelled requests. */
void ash_core_end_cancelled(struct ash_core *core);
/* core.c: 0, or why the core cannot take the request; reads nothing that changes. */
int ash_core_check(const struct ash_core *core, const struct ash_request *request, struct ash_err *err);
/* Queue a sequence of a checked request. Returns 0 or -ENOMEM; then it is the caller's still. */
int ash_core_enqueue(struct ash_core *core, struct ash_seq *seq, struct ash_err *err);
/* One request fails; the others do not notice. */
void ash_seq_fail(struct ash_seq *seq, int rc, const struct ash_err *err);

/* On a GPU: does it all fit? *pages of the cache, which become as many as fit where opts leave that
 * open. On a CPU nothing is checked. Returns 0, or -ENOMEM with the needed and the free memory, and how to need less.
 * */
int ash_core_foresee(const struct ash_core *core, const struct ash_pass_opts *opts, size_t *pages, struct ash_err *err);

/* Is it an encoder, whose prompts are computed whole and keep nothing? model may be NULL. */
static inline bool ash_core_is_encoder(const struct ash_model *model)
{
    return model != NULL && ash_model_get_config(model)->form.both_ways;
}

/* core_draft.c: opts.draft is this head of EAGLE-3; NULL: it is none. */
void ash_core_use_eagle(struct ash_core *core, const struct ash_eagle *eagle);
/* core_draft.c: of passes over the model. */
struct ash_pass_opts ash_core_pass_opts(const struct ash_core *core);
/* core_draft.c: the draft model or head of the options, if there is one. Returns 0 or a negative errno. */
int ash_core_open_draft(struct ash_core *core, struct ash_err *err);
/* core.c: the pool of a model; an encoder's pages hold nothing. */
int ash_core_open_cache(const struct ash_model *model, size_t pages, struct ash_cache **cache_out, struct ash_err *err);

/* Has it recurrent states, which take back no token? model may be NULL. */
static inline bool ash_core_has_states(const struct ash_model *model)
{
    return model != NULL && ash_model_get_config(model)->state.heads > 0;
}

#endif
