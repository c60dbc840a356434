/* A sequence: all memory that it will need is taken when its request comes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/math.h"
#include "serve/engine/core_priv.h"

static int take_memory(const struct ash_core *core, struct ash_seq *seq, struct ash_err *err)
{
    const struct ash_request *request = seq->request;
    size_t speculate = core->opts.speculate;
    int rc = ash_block_table_init(&seq->table, seq->capacity + speculate);

    if (rc < 0) return rc;
    seq->tokens = malloc((seq->capacity + speculate + 1) * sizeof(*seq->tokens));
    seq->chosen = calloc(speculate + 1, sizeof(*seq->chosen));
    seq->tops = calloc((speculate + 1) * request->top_logprobs + 1, sizeof(*seq->tops));
    if (seq->tokens == NULL || seq->chosen == NULL || seq->tops == NULL) return -ENOMEM;
    if (request->wants_prompt_logprobs) {
        size_t rows = ash_min(core->piece_rows, request->prompt_count);

        seq->prompt_chosen = calloc(rows, sizeof(*seq->prompt_chosen));
        seq->prompt_tops = calloc(rows * request->prompt_top_logprobs + 1, sizeof(*seq->prompt_tops));
        if (seq->prompt_chosen == NULL || seq->prompt_tops == NULL) return -ENOMEM;
    }
    if (ash_sampler_has_penalties(&request->sampler)) {
        rc = ash_token_counts_init(&seq->counts, seq->capacity);
        if (rc < 0) return rc;
    }
    if (request->grammar != NULL) {
        rc = ash_matcher_open(request->grammar, core->opts.vocab_trie, &seq->matcher, err);
        if (rc < 0) return rc;
    }
    return speculate > 0 && core->draft == NULL && seq->answer_limit > 1
               ? ash_drafter_init(&seq->drafter, seq->capacity)
               : 0;
}

/* A token at the end of the text. With a window, one leaves it at its other end. */
static void count_token(struct ash_seq *seq, size_t index)
{
    size_t window = seq->request->sampler.repeat_last_n, prompt = seq->request->prompt_count;

    ash_assert(index < seq->capacity);
    if (seq->counts.items == NULL) return;
    ash_token_counts_add(&seq->counts, seq->tokens[index], index >= prompt);
    if (window > 0 && index >= window)
        ash_token_counts_remove(&seq->counts, seq->tokens[index - window], index - window >= prompt);
}

int ash_seq_open(const struct ash_core *core, struct ash_request *request, struct ash_seq **seq_out,
                 struct ash_err *err)
{
    size_t room = core->opts.max_tokens - ash_min(request->prompt_count, core->opts.max_tokens);
    struct ash_seq *seq = calloc(1, sizeof(*seq));
    int rc = ash_err_set(err, -ENOMEM, "no memory for a request of %zu tokens", request->prompt_count);

    if (seq == NULL) return rc;
    seq->request = request;
    seq->answer_limit = ash_min(request->max_tokens, room);
    seq->capacity = request->prompt_count + seq->answer_limit;
    seq->uses_cache = core->prefix != NULL && !request->skips_cache;
    seq->submit_ns = ash_clock_ns();
    seq->prompt_told = ash_max(request->prompt_logprobs_from, 1) - 1;
    seq->end.stop_id = -1;
    rc = take_memory(core, seq, err);
    if (rc < 0) goto fail;
    memcpy(seq->tokens, request->prompt, request->prompt_count * sizeof(*seq->tokens));
    for (seq->count = 0; seq->count < request->prompt_count; seq->count++)
        count_token(seq, seq->count);
    if (seq->drafter.places != NULL) ash_drafter_extend(&seq->drafter, seq->tokens, seq->count);
    *seq_out = seq;
    return 0;

fail:
    ash_seq_close(seq);
    return rc;
}

void ash_seq_close(struct ash_seq *seq)
{
    if (seq == NULL) return;
    ash_assert(seq->table.count == 0);
    ash_block_table_fini(&seq->table);
    ash_token_counts_fini(&seq->counts);
    ash_drafter_fini(&seq->drafter);
    ash_matcher_close(seq->matcher);
    free(seq->tokens);
    free(seq->chosen);
    free(seq->tops);
    free(seq->kept);
    free(seq->prompt_chosen);
    free(seq->prompt_tops);
    free(seq);
}

size_t ash_seq_missing(const struct ash_seq *seq)
{
    return seq->count - seq->computed;
}

size_t ash_seq_answer_count(const struct ash_seq *seq)
{
    return seq->count - seq->request->prompt_count;
}

void ash_seq_add(struct ash_seq *seq, int32_t id)
{
    ash_assert(seq->count < seq->capacity);
    seq->tokens[seq->count] = id;
    count_token(seq, seq->count);
    seq->count++;
    if (seq->drafter.places != NULL) ash_drafter_extend(&seq->drafter, seq->tokens, seq->count);
}

struct ash_prefix_text ash_seq_text(const struct ash_seq *seq, size_t count)
{
    ash_assert(count <= seq->capacity);
    return (struct ash_prefix_text){.tokens = seq->tokens, .count = count, .salt = seq->request->salt};
}

void ash_seq_fail(struct ash_seq *seq, int rc, const struct ash_err *err)
{
    ash_assert(rc < 0);
    if (seq->finish == ASH_FINISH_FAILED) return;
    seq->finish = ASH_FINISH_FAILED;
    seq->end.rc = rc;
    seq->end.err = *err;
}
