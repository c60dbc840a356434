/* pairs - what reranking and scoring share: pairs of texts, each of which a cross-encoder gives a score. */
#ifndef ASH_SERVE_API_PAIRS_H
#define ASH_SERVE_API_PAIRS_H

#include "serve/api/call.h"

/* One text of a pair, borrowed from the request's JSON. */
struct ash_api_text {
    const char *data;
};

/* Texts of a field: a string, an object with a text, or a list of these. Caller frees *texts_out. Returns how many; 0
 * with request->err set. */
size_t ash_pairs_read_texts(struct ash_api_request *request, const char *key, struct ash_api_text **texts_out);
/* A call that scores pairs: the sampling that it needs. Sets request->err if the model gives no scores. */
void ash_pairs_begin(struct ash_api_call *call, struct ash_api_request *request);
/* Add the pair; key names the field in errors. *seconds: [capacity] of where second texts begin. */
void ash_pairs_add(struct ash_api_call *call, struct ash_api_request *request, const char *key, const char *first,
                   const char *second, size_t *second_out);
/* All pairs are there: fit them, and take room for scores. seconds [prompts]. */
void ash_pairs_finish(struct ash_api_call *call, struct ash_api_request *request, const char *key,
                      const size_t *seconds);
/* The score of choice i: its logit, or with a sigmoid in 0 ... 1. */
float ash_pairs_score(const struct ash_api_call *call, size_t i, bool is_raw);

#endif
