/* post_priv - the inside of a post-training job, and one opener per method. */
#ifndef ASH_POST_POST_PRIV_H
#define ASH_POST_POST_PRIV_H

#include "model/lora.h"
#include "post/objective/pairs.h"
#include "post/post.h"
#include "post/rl/rl.h"
#include "train/data/examples.h"

struct ash_kto;
struct ash_distill;

/* Pairs as the sequences of a source. */
struct ash_pair_set {
    struct ash_examples *examples;
    struct ash_packed *packed;
    double *reference;             /* [examples]: log-probabilities of the answers under the reference; or NULL */
    struct ash_packed_unit *units; /* [ash_packed_units_max]: scratch */
    size_t seq_tokens;
};

struct ash_post {
    const struct ash_job *job;
    struct ash_group *group;
    const char *dir;
    FILE *screen;              /* NULL: silent; only on the first rank */
    struct ash_lora *lora;     /* NULL: all weights are trained */
    struct ash_policy_run *rl; /* NULL: another method */
    struct ash_examples *train, *valid;
    struct ash_packed *packed, *valid_packed;
    struct ash_train_source source, valid_source;
    struct ash_objective objective;
    struct ash_trainer_parts parts;
    /* pairs: */
    struct ash_pair_set pairs, valid_pairs;
    double *targets;             /* [examples]: how many targets each has */
    uint64_t weighed_step;       /* of step_units; UINT64_MAX: none yet */
    size_t step_units;           /* pairs in that step */
    double step_targets;         /* targets of chosen answers in that step */
    struct ash_kto *kto;         /* NULL: another loss */
    struct ash_distill *distill; /* NULL: another method */
};

/* The adapters whose base is the reference, where the base is held otherwise than in its files; else NULL. own: the
 * reference that the job names; NULL: none. */
static inline const struct ash_lora *ash_post_reference_lora(const struct ash_post *post, const char *own)
{
    return own == NULL && post->lora != NULL && post->lora->quant != ASH_F32 ? post->lora : NULL;
}

/* kto.c: the baseline of dpo.loss=kto; sets the work before a step. On error post is for ash_post_close. */
int ash_kto_open(struct ash_post *post, const char *reference_dir, struct ash_err *err);
/* NULL is a no-op. */
void ash_kto_close(struct ash_kto *kto);
/* The mean gain of other pairs' answers over the reference; at least 0. Of the current step. */
double ash_kto_baseline(const struct ash_kto *kto);

/* distill.c: examples if data.train has any, and the teacher of train.method=distill. On error post is for
 * ash_post_close. */
int ash_post_open_distill(struct ash_post *post, struct ash_err *err);
/* NULL is a no-op. */
void ash_distill_close(struct ash_distill *distill);

/* examples.c: open data.train (and data.valid) as packed examples of a kind. */
int ash_post_open_examples(struct ash_post *post, enum ash_examples_kind kind, struct ash_err *err);
/* pairs.c: pairs, their objective, and the reference that it compares with. */
int ash_post_open_dpo(struct ash_post *post, struct ash_err *err);
/* pairs.c: the same for a reward model. */
int ash_post_open_reward(struct ash_post *post, struct ash_err *err);
/* pair.c: log-probability of the targets of rows [first, first + count), and how many those are. */
struct ash_pair_side ash_pair_side_of(const struct ash_objective_rows *rows, size_t first, size_t count);
/* The loss of a pair by the job's settings. */
struct ash_pair_value ash_post_pair_loss(const struct ash_post *post, const struct ash_pair_side *chosen,
                                         const struct ash_pair_side *rejected);
/* Are both answers the same? Then nothing can be learned from them. */
bool ash_pair_is_same(const struct ash_pair_set *set, size_t pair);
/* pairs_valid.c: weigh_valid of the trainer's parts (train/trainer.h), whose ctx is the post. */
int ash_post_weigh_valid(void *ctx, const float *rows, size_t sequences, double *loss_out,
                         struct ash_pair_figures *figures_out, struct ash_err *err);

#endif
