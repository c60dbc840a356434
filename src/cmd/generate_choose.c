/* One of several answers of `ashlar generate --strategy`: the best one, the most frequent one, or the one with the
 * largest weight. A verifier gives weights; without one the model does, by its own probabilities. */
#include "cmd/generate_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/math.h"
#include "post/search/verifier.h"
#include "serve/votes.h"

int ash_generate_chooser_open(struct ash_generate_chooser *chooser, const struct ash_generate *generate,
                              size_t max_tokens, struct ash_err *err)
{
    const struct ash_verifier_opts opts = {
        .engine = generate->engine, .exec = ash_engine_exec(generate->engine), .max_tokens = max_tokens};

    *chooser = (struct ash_generate_chooser){.generate = generate};
    return generate->verifier.count > 0 ? ash_verifier_open(&generate->verifier, &opts, &chooser->verifier, err) : 0;
}

void ash_generate_chooser_close(struct ash_generate_chooser *chooser)
{
    ash_verifier_close(chooser->verifier);
    *chooser = (struct ash_generate_chooser){0};
}

/* A verifier's score of an answer, or the mean probability of its tokens. */
static int weigh(struct ash_generate_chooser *chooser, const struct ash_generate_candidate *candidate,
                 double *weight_out, struct ash_err *err)
{
    struct ash_rewarded rewarded = {.text = candidate->text,
                                    .answer = "",
                                    .prompt_ids = candidate->prompt,
                                    .prompt_tokens = candidate->prompt_count,
                                    .ids = candidate->ids,
                                    .tokens = candidate->count,
                                    .own_tokens = candidate->count,
                                    .has_ended = candidate->has_ended};

    *weight_out = exp(candidate->logprob / (double)ash_max(1, candidate->count));
    return chooser->verifier != NULL ? ash_verifier_weigh(chooser->verifier, &rewarded, weight_out, err) : 0;
}

static int fill_votes(struct ash_generate_chooser *chooser, const struct ash_generate_candidate *candidates,
                      size_t count, struct ash_vote *votes, struct ash_str *parts, struct ash_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = ash_vote_part(candidates[i].text, (enum ash_vote_on)chooser->generate->vote_on, &parts[i]);
        if (rc < 0) return ash_err_set(err, rc, "no memory for the votes");
        votes[i].text = parts[i].data;
        rc = weigh(chooser, &candidates[i], &votes[i].weight, err);
        if (rc < 0) ash_err_prefix(err, rc, "the verifier, of answer %zu", i);
    }
    return rc;
}

static json_t *votes_json(const struct ash_vote *votes, size_t count)
{
    json_t *list = json_array();

    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_pack("{s:s, s:f}", "for", votes[i].text, "weight", votes[i].weight));
    return list;
}

int ash_generate_choose(struct ash_generate_chooser *chooser, const struct ash_generate_candidate *candidates,
                        size_t count, size_t *chosen_out, json_t **votes_out, struct ash_err *err)
{
    struct ash_vote *votes = calloc(count, sizeof(*votes));
    struct ash_str *parts = calloc(count, sizeof(*parts));
    int rc = votes != NULL && parts != NULL ? fill_votes(chooser, candidates, count, votes, parts, err)
                                            : ash_err_set(err, -ENOMEM, "no memory for the votes");

    if (rc == 0) {
        *chosen_out = ash_votes_choose(votes, count, (enum ash_strategy)chooser->generate->strategy);
        *votes_out = votes_json(votes, count);
    }
    for (size_t i = 0; parts != NULL && i < count; i++)
        ash_str_fini(&parts[i]);
    free(parts);
    free(votes);
    return rc;
}
