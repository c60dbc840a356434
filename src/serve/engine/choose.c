/* From rows of the pass to tokens. Logits of a limited number of rows exist at a time. The rows of a sequence are
 * chosen from in order, by one thread: a drafted row counts only if the token before it was chosen as drafted. So a
 * draft changes no answer, and counts and grammars never have to go back. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/math.h"
#include "serve/engine/core_priv.h"
#include "serve/engine/ranks.h"
#include "serve/engine/think.h"

/* ---- log-probabilities ------------------------------------------------------------------------------------------- */

static bool wants_logprobs(const struct ash_wanted_row *wanted)
{
    const struct ash_request *request = wanted->seq->request;

    return wanted->is_prompt ? request->wants_prompt_logprobs : request->wants_logprobs;
}

struct piece {
    struct ash_core *core;
    const struct ash_wanted_row *wanted; /* of the piece's first row */
    size_t count;
};

static const float *piece_logits(const struct piece *piece, size_t i)
{
    ash_assert(i < piece->core->piece_rows);
    return piece->core->logits + i * piece->core->vocab;
}

/* The most likely id of each row that needs it. */
static void find_best(void *ctx, size_t begin, size_t end, int worker)
{
    const struct piece *piece = ctx;
    struct ash_core *core = piece->core;

    (void)worker;
    for (size_t i = begin; i < end; i++) {
        const float *logits = piece_logits(piece, i);
        int32_t best = 0;

        core->best[i] = -1;
        if (!wants_logprobs(&piece->wanted[i])) continue;
        for (size_t v = 1; v < core->vocab; v++)
            if (logits[v] > logits[best]) best = (int32_t)v;
        core->best[i] = best;
    }
}

/* The trainer's loss of core->best in each of the first rows of logits, into core->log_sums. */
static void find_losses(struct ash_core *core, size_t rows)
{
    /* logits are the host's; the reference gives a device's bits */
    const struct ash_loss_ops *loss = core->exec->memory->host_visible ? core->exec->ops->loss : ash_ops_ref.loss;

    loss->cross_entropy(core->exec, &(struct ash_loss_part){.rows = rows,
                                                            .cols = core->vocab,
                                                            .logits = core->logits,
                                                            .targets = core->best,
                                                            .sharpness = core->opts.logprob_sharpness,
                                                            .loss = core->log_sums});
}

/* The trainer's loss of the most likely id is log(sum) - 0: the log of the sum, to the bit. */
static void find_log_sums(const struct piece *piece)
{
    struct ash_core *core = piece->core;
    bool is_wanted = false;

    for (size_t i = 0; i < piece->count; i++)
        is_wanted |= wants_logprobs(&piece->wanted[i]);
    if (!is_wanted) return;
    ash_workers_run(core->exec->workers, piece->count, 1, find_best, (void *)piece);
    find_losses(core, piece->count);
}

static bool has_kept(const struct ash_wanted_row *wanted)
{
    return !wanted->is_prompt && wanted->seq->request->wants_kept && wanted->seq->kept_count > 0;
}

/* After the choices: the trainer's loss over what each row keeps. */
static void find_kept_logprobs(const struct piece *piece)
{
    struct ash_core *core = piece->core;
    bool is_wanted = false;

    for (size_t i = 0; i < piece->count; i++) {
        if (!has_kept(&piece->wanted[i])) core->best[i] = -1;
        is_wanted |= has_kept(&piece->wanted[i]);
    }
    if (!is_wanted) return;
    find_losses(core, piece->count);
    for (size_t i = 0; i < piece->count; i++)
        if (has_kept(&piece->wanted[i])) piece->wanted[i].seq->chosen[0].logprob = -core->log_sums[i];
}

/* Minus the loss of an id, as cross_entropy computes it. */
static float logprob_of(const struct piece *piece, size_t i, int32_t id)
{
    const float *logits = piece_logits(piece, i);
    float sharpness = piece->core->opts.logprob_sharpness != 0.0f ? piece->core->opts.logprob_sharpness : 1.0f;

    ash_assert(i < piece->core->piece_rows);
    ash_assert(id >= 0);
    ash_assert((size_t)id < piece->core->vocab);
    return -(piece->core->log_sums[i] - (logits[id] * sharpness - logits[piece->core->best[i]] * sharpness));
}

/* The count most likely ids, most likely first; the lower id wins a tie. */
static void find_top(const struct piece *piece, size_t i, size_t count, struct ash_top_logprob *top)
{
    const float *logits = piece_logits(piece, i);
    size_t filled = 0;

    for (size_t v = 0; v < piece->core->vocab && count > 0; v++) {
        size_t at;

        if (filled == count && !(logits[v] > top[filled - 1].logprob)) continue;
        at = filled < count ? filled++ : count - 1;
        for (; at > 0 && logits[v] > top[at - 1].logprob; at--)
            top[at] = top[at - 1];
        top[at] = (struct ash_top_logprob){(int32_t)v, logits[v]};
    }
    for (size_t t = 0; t < filled; t++)
        top[t].logprob = logprob_of(piece, i, top[t].id);
}

/* The log-probability of the token that follows in the prompt. */
static void tell_prompt(const struct piece *piece, size_t i)
{
    const struct ash_wanted_row *wanted = &piece->wanted[i];
    struct ash_seq *seq = wanted->seq;
    size_t n = seq->prompt_chosen_count++, tops = seq->request->prompt_top_logprobs;
    int32_t id = seq->tokens[wanted->index + 1];
    float logprob = logprob_of(piece, i, id);
    struct ash_err err = {0};

    ash_assert(i < piece->count);
    if (isnan(logprob))
        ash_seq_fail(seq,
                     ash_err_set(&err, -EDOM,
                                 "the model's logits at position %zu are not numbers: its weights or its "
                                 "input are broken",
                                 wanted->index),
                     &err);
    seq->prompt_chosen[n] = (struct ash_chosen){id, logprob};
    find_top(piece, i, tops, seq->prompt_tops + n * tops);
}

/* ---- choices ----------------------------------------------------------------------------------------------------- */

static bool is_stop(const struct ash_request *request, int32_t id)
{
    for (size_t i = 0; i < request->stop_id_count; i++)
        if (request->stop_ids[i] == id) return true;
    return false;
}

/* The token is chosen: it ends the answer, or becomes a part of it. */
static void keep_choice(struct ash_seq *seq, int32_t id)
{
    const struct ash_request *request = seq->request;
    bool is_as_drafted = seq->accepted < seq->drafts && seq->tokens[seq->count] == id;
    struct ash_err err = {0};
    int rc;

    seq->has_missed = !is_as_drafted;
    if (is_stop(request, id)) {
        seq->end.stop_id = id;
        seq->finish = ASH_FINISH_EOS;
        return;
    }
    if (seq->matcher != NULL && (rc = ash_matcher_accept(seq->matcher, id)) < 0) {
        ash_seq_fail(seq, ash_err_set(&err, rc, "the grammar cannot continue after token id %d", id), &err);
        return;
    }
    seq->chosen[seq->chosen_count++].id = id;
    ash_seq_add(seq, id);
    if (ash_seq_answer_count(seq) == seq->answer_limit)
        seq->finish = seq->answer_limit == request->max_tokens ? ASH_FINISH_MAX_TOKENS : ASH_FINISH_CONTEXT;
    seq->accepted += is_as_drafted;
}

/* What the grammar allows; the request fails if the mask cannot be computed. NULL without a grammar as well. */
static const uint64_t *find_mask(struct ash_seq *seq)
{
    const uint64_t *mask = seq->matcher != NULL ? ash_matcher_mask(seq->matcher) : NULL;
    struct ash_err err = {0};

    if (seq->matcher != NULL && mask == NULL)
        ash_seq_fail(
            seq, ash_err_set(&err, -E2BIG, "the grammar is too ambiguous to continue at token %zu", seq->count), &err);
    return mask;
}

/* What the filters left: the row's other logits go, and the log-probability is recomputed (find_kept_logprobs). */
static int keep_set(const struct piece *piece, size_t i, const struct ash_sampler *sampler, int32_t id)
{
    struct ash_seq *seq = piece->wanted[i].seq;
    size_t count = ash_sampler_count_kept(sampler);
    struct ash_kept kept = {.count = count};

    ash_assert(i < piece->count);
    seq->kept_count = count;
    if (count == 0) return 0;
    if (ash_array_reserve(&seq->kept, &seq->kept_room, count, sizeof(*seq->kept)) < 0) return -ENOMEM;
    ash_sampler_get_kept(sampler, seq->kept);
    kept.ids = seq->kept;
    ash_kept_mask_row(&kept, 0, piece->core->vocab, piece->core->logits + i * piece->core->vocab);
    piece->core->best[i] = id;
    return 0;
}

struct ash_choice ash_core_choice_at(const struct ash_seq *seq, size_t position)
{
    const struct ash_request *request = seq->request;
    bool may_stop = position - request->prompt_count >= request->min_tokens ||
                    (seq->matcher != NULL && ash_matcher_must_end(seq->matcher)); /* the grammar leaves nothing else */

    return (struct ash_choice){.opts = &request->sampler,
                               .position = position,
                               .counts = &seq->counts,
                               .bias = request->bias,
                               .bias_count = request->bias_count,
                               .allowed = request->allowed,
                               .allowed_count = request->allowed_count,
                               .forbidden = request->stop_ids,
                               .forbidden_count = may_stop ? 0 : request->stop_id_count};
}

/* What the choice for row i depends on, beside its logits. Returns false if there is no choice: an earlier row was not
 * as drafted, or the sequence is over. */
static bool begin_choice(const struct piece *piece, size_t i, struct ash_choice *choice_out)
{
    struct ash_seq *seq = piece->wanted[i].seq;

    if (seq->has_missed || seq->finish != ASH_FINISH_NOT_YET) return false;
    ash_assert(piece->wanted[i].index + 1 == seq->count);
    *choice_out = ash_core_choice_at(seq, seq->count);
    choice_out->mask = find_mask(seq);
    return seq->finish != ASH_FINISH_FAILED;
}

static void choose_token(const struct piece *piece, size_t i, int worker)
{
    struct ash_seq *seq = piece->wanted[i].seq;
    const struct ash_request *request = seq->request;
    struct ash_choice choice;
    struct ash_err err = {0};
    int32_t id = -1;
    int rc;

    ash_assert(i < piece->count);
    if (!begin_choice(piece, i, &choice)) return;
    choice.logits = piece_logits(piece, i);
    rc = ash_sampler_next(piece->core->samplers[worker], &choice, &id, &err);
    if (rc < 0) {
        ash_seq_fail(seq, rc, &err);
        return;
    }
    if (request->think != NULL) id = ash_think_choose(request->think, id, is_stop(request, id));
    if (request->wants_logprobs) {
        seq->chosen[seq->chosen_count].logprob = logprob_of(piece, i, id);
        find_top(piece, i, request->top_logprobs, seq->tops + seq->chosen_count * request->top_logprobs);
    }
    if (request->wants_kept && (rc = keep_set(piece, i, piece->core->samplers[worker], id)) < 0) {
        ash_seq_fail(seq, ash_err_set(&err, rc, "no memory for the ids that were kept"), &err);
        return;
    }
    keep_choice(seq, id);
}

/* Rows of the same sequence are one unit. */
static void choose_runs(void *ctx, size_t begin, size_t end, int worker)
{
    const struct piece *piece = ctx;
    const struct ash_core *core = piece->core;

    for (size_t i = core->runs[begin]; i < core->runs[end]; i++)
        if (piece->wanted[i].is_prompt)
            tell_prompt(piece, i);
        else
            choose_token(piece, i, worker);
}

/* ---- the rows of a step ------------------------------------------------------------------------------------------ */

static void want_rows(struct ash_core *core, struct ash_seq *seq)
{
    const struct ash_request *request = seq->request;

    for (size_t r = 0; r < seq->rows; r++) {
        size_t index = seq->computed + r;
        bool is_prompt = index + 1 < request->prompt_count;

        if (is_prompt ? !request->wants_prompt_logprobs || index + 1 <= seq->prompt_told
                      : index + 1 < seq->count || seq->answer_limit == 0)
            continue;
        core->wanted[core->wanted_count++] = (struct ash_wanted_row){seq, seq->first_row + r, index, is_prompt};
    }
}

static void find_rows(struct ash_core *core, const struct piece *piece)
{
    for (size_t i = 0; i < piece->count; i++)
        core->piece[i] = piece->wanted[i].row;
}

static int compute_logits(struct ash_core *core, const struct piece *piece, struct ash_err *err)
{
    find_rows(core, piece);
    if (core->null == NULL)
        return ash_ranks_infer_logits(core->opts.ranks, core->pass, core->piece, piece->count, core->logits, err);
    for (size_t i = 0; i < piece->count && core->null->logits != NULL; i++)
        core->null->logits(core->null->ctx, piece->wanted[i].seq->tokens, piece->wanted[i].index + 1,
                           core->logits + i * core->vocab);
    return 0;
}

static void find_runs(struct ash_core *core, const struct piece *piece)
{
    core->run_count = 0;
    for (size_t i = 0; i < piece->count; i++)
        if (i == 0 || piece->wanted[i].seq != piece->wanted[i - 1].seq) core->runs[core->run_count++] = i;
    core->runs[core->run_count] = piece->count;
}

/* Report the known log-probabilities of the prompt. */
static void hand_out_prompt(const struct ash_core *core, struct ash_seq *seq)
{
    const struct ash_request *request = seq->request;
    size_t tops = request->prompt_top_logprobs;

    for (size_t i = 0; i < seq->prompt_chosen_count && seq->finish != ASH_FINISH_FAILED; i++) {
        struct ash_token token = {.id = seq->prompt_chosen[i].id,
                                  .logprob = seq->prompt_chosen[i].logprob,
                                  .top = seq->prompt_tops + i * tops,
                                  .top_count = ash_min(tops, core->vocab)};

        seq->prompt_told++;
        if (request->take_prompt != NULL) request->take_prompt(request->ctx, seq->prompt_told, &token);
    }
    seq->prompt_chosen_count = 0;
}

/* Are all of the piece's rows chosen from where their logits are? Not if logits are read on the host, or a choice
 * depends on the one of the row before it. */
static bool stays_on_device(const struct ash_core *core, const struct piece *piece)
{
    if (core->null != NULL || core->exec->memory->host_visible || core->exec->ops->sample == NULL) return false;
    if (core->opts.ranks != NULL && ash_ranks_parts(core->opts.ranks)->stages > 1)
        return false; /* another rank has the logits */
    for (size_t i = 0; i < piece->count; i++) {
        const struct ash_wanted_row *wanted = &piece->wanted[i];

        if (wanted->is_prompt || wants_logprobs(wanted) || wanted->seq->request->wants_kept || wanted->seq->drafts > 0)
            return false;
    }
    return true;
}

/* The device chooses; only ids will come back. */
static int enqueue_choices(struct ash_core *core, const struct piece *piece, struct ash_err *err)
{
    struct ash_pass_choice how = {core->opts.vocab, core->choices};
    int rc;

    find_rows(core, piece);
    for (size_t i = 0; i < piece->count; i++) {
        struct ash_choice choice;

        core->choices[i] = begin_choice(piece, i, &choice) ? ash_sampler_row(&choice) : (struct ash_sample_row){0};
    }
    rc = ash_ranks_send_choose(core->opts.ranks, core->piece, piece->count, err);
    return rc < 0 ? rc : ash_pass_choose(core->pass, core->piece, piece->count, &how, core->fetch, err);
}

static void take_id(struct ash_seq *seq, int32_t id)
{
    struct ash_err err = {0};

    if (seq->finish != ASH_FINISH_NOT_YET) return;
    if (ash_sampler_check_id(id, seq->count, &err) < 0) {
        ash_seq_fail(seq, -EDOM, &err);
        return;
    }
    if (seq->request->think != NULL) id = ash_think_choose(seq->request->think, id, is_stop(seq->request, id));
    keep_choice(seq, id);
}

static int choose_on_device(struct ash_core *core, const struct piece *piece, struct ash_err *err)
{
    size_t count = core->is_ahead ? core->row_count : piece->count; /* rows of answers that are over are among them */
    int rc = core->is_ahead ? 0 : enqueue_choices(core, piece, err);

    if (rc < 0) return rc;
    ash_core_run_ahead(core);
    rc = ash_pass_chosen(core->pass, core->fetch, count, core->best, err);
    for (size_t i = 0; i < piece->count && rc == 0; i++)
        take_id(piece->wanted[i].seq, core->best[core->is_ahead ? piece->wanted[i].row : i]);
    return rc;
}

static int choose_piece(struct ash_core *core, const struct piece *piece, struct ash_err *err)
{
    int rc;

    if (stays_on_device(core, piece)) return choose_on_device(core, piece, err);
    ash_assert(!core->is_ahead);
    rc = compute_logits(core, piece, err);
    if (rc < 0) return rc;
    find_log_sums(piece);
    find_runs(core, piece);
    ash_workers_run(core->exec->workers, core->run_count, 1, choose_runs, (void *)piece);
    find_kept_logprobs(piece);
    for (size_t run = 0; run < core->run_count; run++)
        if (piece->wanted[core->runs[run]].is_prompt) hand_out_prompt(core, piece->wanted[core->runs[run]].seq);
    return 0;
}

int ash_core_choose(struct ash_core *core, struct ash_err *err)
{
    core->wanted_count = 0;
    for (size_t d = 0; d < core->doc_count; d++)
        want_rows(core, core->doc_seqs[d]);
    for (size_t first = 0; first < core->wanted_count; first += core->piece_rows) {
        struct piece piece = {core, core->wanted + first, ash_min(core->piece_rows, core->wanted_count - first)};
        int rc = choose_piece(core, &piece, err);

        if (rc < 0) return rc;
    }
    return 0;
}
