/* golden_post.h - what the checks of post-training share. */
#ifndef TESTS_GOLDEN_GOLDEN_POST_H
#define TESTS_GOLDEN_GOLDEN_POST_H

#include "golden.h"

#include "model/pass/pass.h"

#define SEQ_MAX 16384
#define DOCS_MAX 1024

/* Documents as one batch, packed one after the other. */
struct post_docs {
    int32_t ids[SEQ_MAX], targets[SEQ_MAX];
    float losses[SEQ_MAX], entropies[SEQ_MAX], scales[SEQ_MAX], entropy_scales[SEQ_MAX];
    struct ash_doc docs[DOCS_MAX];
    size_t rows, count;
    float sharpness;
    const struct ash_teacher *teacher; /* NULL: none; with one, nothing is weighed but the mean over targets */
    bool has_entropy;
    float *grads;
};

/* The folder of a base model, into path. */
const char *post_find_model(const struct golden *g, const char *name, char path[4096]);
/* A text of the reference; "" where there is none. */
const char *post_text(const struct golden *g, const char *key);
/* A number of an object. */
double post_number(const json_t *object, const char *key);
/* A tensor of the reference; ends the program where there is none. */
const struct ash_tensor_view *post_tensor(const struct golden *g, const char *name);
/* Open the model that the reference names, to be trained. */
int post_open_base(struct golden *g, struct ash_err *err);
/* Add a document without targets. Returns its first row; ends the program where there is no room. */
size_t post_add_doc(struct post_docs *docs, const int32_t *ids, size_t count);
/* Losses of the rows; weigh then writes scales, and gradients follow. */
int post_run_docs(struct golden *g, struct post_docs *docs, void (*weigh)(struct post_docs *docs, void *ctx), void *ctx,
                  struct ash_err *err);
/* One over the number of targets. */
float post_mean_scale(const struct post_docs *docs);
/* Gradients against the tensors whose names begin with prefix. */
void post_check_gradients(struct golden *g, const char *prefix, const float *grads);
/* Relative difference; small numbers count as 0.01. */
double post_off(double value, double wanted);
/* The larger of *worst and |difference|. */
void post_note(double *worst, double difference);

/* One for each part. */
void post_check_sft(struct golden *g);
void post_check_dpo(struct golden *g);
void post_check_reward(struct golden *g);
void post_check_distill(struct golden *g);
void post_check_rl(struct golden *g);
void post_check_arrays(struct golden *g);
void post_check_lora(struct golden *g);
void post_check_masks(struct golden *g);

#endif
