/* The next step, ahead of the host: where all sequences only continue, its rows are known before the tokens are that
 * this step chooses, and the device has those already. So it is enqueued before this one's tokens are waited for, and
 * the device never waits for the host. What a sequence computes does not depend on who shares its batch: one that ends
 * with the token that was waited for leaves a row that is ignored. */
#include "serve/engine/core_priv.h"

#include <errno.h>
#include <stdlib.h>

int ash_core_open_ahead(struct ash_core *core, struct ash_err *err)
{
    core->ahead.seqs = calloc(core->opts.max_seqs, sizeof(struct ash_seq *));
    return core->ahead.seqs != NULL ? 0 : ash_err_set(err, -ENOMEM, "core: out of memory");
}

void ash_core_close_ahead(struct ash_core *core)
{
    if (core->ahead.count > 0) ash_exec_wait(core->exec, NULL); /* it writes to pages that will be freed */
    free(core->ahead.seqs);
}

void ash_core_forget_ahead(struct ash_core *core, const struct ash_seq *seq)
{
    for (size_t i = 0; i < core->ahead.count; i++)
        if (core->ahead.seqs[i] == seq) core->ahead.seqs[i] = NULL;
}

/* Has the sequence a row in the next step for sure, unless this step's token ends it, and is its next choice a function
 * of the logits alone? Counts, grammars and thoughts look at the token first. */
static bool may_continue(const struct ash_seq *seq)
{
    const struct ash_request *request = seq->request;

    return seq->drafter.places == NULL && seq->matcher == NULL && request->think == NULL && request->adapters == NULL &&
           !ash_sampler_has_penalties(&request->sampler) && ash_seq_answer_count(seq) + 1 < seq->answer_limit;
}

/* Rows of the next step may hold drafts. */
static bool is_drafting(const struct ash_core *core)
{
    return core->draft != NULL && !ash_draft_model_rests(core->draft);
}

/* A request waits that may run now. */
static bool has_place(const struct ash_core *core)
{
    return core->queue.count > 0 && core->running_count < core->opts.max_seqs;
}

/* Is the next step this one again, a token later? Requests that wait for a place wait one step longer. */
static bool may_run_ahead(struct ash_core *core)
{
    size_t count = core->doc_count;
    bool may_admit = has_place(core);

    if (count == 0 || core->row_count != count || core->wanted_count != count || count > core->piece_rows ||
        core->running_count != count || may_admit || is_drafting(core) || atomic_load(&core->has_cancels))
        return false;
    if (core->opts.pack == ASH_CORE_PACK_LATER && !core->has_answered) return false; /* weights are packed first */
    for (size_t i = 0; i < count; i++)
        if (!may_continue(core->doc_seqs[i])) return false;
    for (size_t i = 0; i < count; i++)
        if (!ash_core_grow(core, core->doc_seqs[i], core->doc_seqs[i]->count + 1)) return false;
    return true;
}

static int enqueue(struct ash_core *core, struct ash_err *err)
{
    size_t count = core->doc_count;
    struct ash_batch batch = {
        .rows = count, .ids = core->ids, .follows_choice = true, .docs = core->docs, .doc_count = count};
    struct ash_pass_choice how = {core->opts.vocab, core->choices};
    int rc;

    for (size_t i = 0; i < count; i++) {
        struct ash_seq *seq = core->doc_seqs[i];
        struct ash_choice choice = ash_core_choice_at(seq, seq->count + 1);

        core->docs[i] = (struct ash_doc){
            .row = i, .count = 1, .pos = seq->computed + 1, .pages = seq->table.pages, .page_count = seq->table.count};
        core->choices[i] = ash_sampler_row(&choice);
        core->piece[i] = i;
        core->ahead.seqs[i] = seq;
    }
    rc = ash_pass_infer_layers(core->pass, &batch, core->cache, err);
    if (rc < 0) return rc;
    core->ahead.fetch = !core->fetch;
    return ash_pass_choose(core->pass, core->piece, count, &how, core->ahead.fetch, err);
}

void ash_core_run_ahead(struct ash_core *core)
{
    struct ash_err err = {0};

    if (core->opts.ranks != NULL || !may_run_ahead(core)) return; /* other ranks get ids in their message */
    if (enqueue(core, &err) < 0) return; /* the current step ends; the next one meets the failure itself */
    core->ahead.count = core->doc_count;
    core->stats.ahead++;
}

bool ash_core_take_ahead(struct ash_core *core)
{
    size_t rows = core->ahead.count;

    core->is_ahead = false;
    if (rows == 0) return false;
    core->ahead.count = core->doc_count = core->prefill_rows = 0;
    for (size_t i = 0; i < core->running_count; i++)
        core->running[i]->is_in_step = core->running[i]->is_passed_over = false;
    for (size_t i = 0; i < rows; i++) {
        struct ash_seq *seq = core->ahead.seqs[i];

        if (seq == NULL) continue;
        seq->is_in_step = true;
        seq->rows = 1;
        seq->drafts = 0;
        seq->first_row = i;
        seq->owner->served += 1.0;
        core->doc_seqs[core->doc_count++] = seq;
    }
    if (core->doc_count == 0) { /* no sequence is left; its writes must not come after later ones */
        ash_exec_wait(core->exec, NULL);
        return false;
    }
    core->row_count = rows;
    core->fetch = core->ahead.fetch;
    core->is_ahead = true;
    if (core->draft != NULL) (void)ash_draft_model_depth(core->draft); /* it rests: a step less */
    return true;
}
