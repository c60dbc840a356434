/* verifier: rewards as weights, for one thread at a time. */
#include "post/search/verifier.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/str.h"
#include "text/tokenizer/tokenizer.h"

struct ash_verifier {
    struct ash_rewards *rewards;
    const struct ash_tokenizer *tokenizer;
    pthread_mutex_t lock; /* of rewards */
};

int ash_verifier_open(const struct ash_opt_list *items, const struct ash_verifier_opts *opts,
                      struct ash_verifier **verifier_out, struct ash_err *err)
{
    struct ash_verifier *verifier = calloc(1, sizeof(*verifier));
    int rc;

    ash_assert(items->count > 0);
    if (verifier == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a verifier");
    pthread_mutex_init(&verifier->lock, NULL);
    verifier->tokenizer = ash_engine_tokenizer(opts->engine);
    rc = ash_rewards_open((const char *const *)items->items, items->count, &verifier->rewards, err);
    if (rc == 0 && !opts->knows_answers && ash_rewards_need_wanted(verifier->rewards))
        rc = ash_err_set(err, -EINVAL, "arithmetic and exact compare with an answer that is not known here");
    if (rc == 0)
        rc = ash_rewards_use(verifier->rewards, opts->exec, ash_tokenizer_hash(verifier->tokenizer), opts->max_tokens,
                             err);
    if (rc < 0) {
        ash_verifier_close(verifier);
        return ash_err_prefix(err, rc, "--verifier");
    }
    *verifier_out = verifier;
    return 0;
}

void ash_verifier_close(struct ash_verifier *verifier)
{
    if (verifier == NULL) return;
    ash_rewards_close(verifier->rewards);
    pthread_mutex_destroy(&verifier->lock);
    free(verifier);
}

int ash_verifier_weigh(struct ash_verifier *verifier, const struct ash_rewarded *answer, double *weight_out,
                       struct ash_err *err)
{
    struct ash_rewarded rewarded = *answer;
    struct ash_str prompt = {0};
    int rc = ash_str_adds(&prompt, "") < 0 ? ash_err_set(err, -ENOMEM, "out of memory for a prompt") : 0;

    if (rc == 0 && answer->prompt == NULL)
        rc = ash_tokenizer_decode(verifier->tokenizer, answer->prompt_ids, answer->prompt_tokens, true, &prompt, err);
    if (answer->prompt == NULL) rewarded.prompt = prompt.data;
    if (rc == 0) {
        pthread_mutex_lock(&verifier->lock);
        rc = ash_rewards_get(verifier->rewards, &rewarded, weight_out, err);
        pthread_mutex_unlock(&verifier->lock);
    }
    ash_str_fini(&prompt);
    return rc;
}
