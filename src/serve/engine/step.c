/* A step: schedule, pass, choose, hand out. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/math.h"
#include "compute/backends/backends.h"
#include "serve/engine/core_priv.h"
#include "serve/engine/ranks.h"
#include "serve/engine/prompt_blocks.h"

#define PACK_TOKENS_MIN 16 /* of an answer: what packing the weights takes is won back after about as many */
#define COST_KEEP 0.7      /* of the average cost of rows, at each step */
#define NS_PER_S 1e9

/* ---- ends -------------------------------------------------------------------------------------------------------- */

static double seconds(uint64_t from_ns, uint64_t to_ns)
{
    return from_ns == 0 || to_ns <= from_ns ? 0.0 : (double)(to_ns - from_ns) / NS_PER_S;
}

static void record_end(struct ash_core *core, const struct ash_seq *seq, uint64_t now_ns)
{
    bool is_cancelled = seq->finish == ASH_FINISH_CANCELLED, has_failed = seq->finish == ASH_FINISH_FAILED;
    struct ash_request_record end = {.last_ns = seq->last_ns,
                                     .end_ns = now_ns,
                                     .answer_tokens = ash_seq_answer_count(seq),
                                     .outcome = is_cancelled ? ASH_OUTCOME_CANCELLED
                                                : has_failed ? ASH_OUTCOME_FAILED
                                                             : ASH_OUTCOME_ANSWERED};

    ash_recorder_end(core->opts.recorder, seq->record, &end);
}

void ash_core_end(struct ash_core *core, struct ash_seq *seq)
{
    struct ash_request *request = seq->request;
    struct ash_request_end *end = &request->end;
    uint64_t now_ns = ash_clock_ns();

    ash_core_leave_followers(core, seq);
    ash_core_forget_ahead(core, seq);
    ash_core_release(core, seq);
    if (core->kv != NULL && request->job != 0) ash_kv_tell_job(core->kv, request->job, 0, true);
    if (request->job != 0) core->has_answered = true; /* a prefill server's answers are prompts */
    seq->owner->alive--;
    *end = seq->end;
    end->finish = seq->finish;
    end->prompt_tokens = request->prompt_count;
    end->cached_tokens = ash_min(seq->shared, request->prompt_count);
    end->answer_tokens = ash_seq_answer_count(seq);
    end->queued_s = seconds(seq->submit_ns, seq->start_ns != 0 ? seq->start_ns : now_ns);
    end->prefill_s = seconds(seq->start_ns, seq->first_ns != 0 ? seq->first_ns : now_ns);
    end->first_token_s = seconds(seq->submit_ns, seq->first_ns);
    end->decode_s = seconds(seq->first_ns, seq->last_ns);
    if (end->rc < 0 && core->failure == 0) {
        core->failure = end->rc;
        core->failure_err = end->err;
    }
    record_end(core, seq, now_ns);
    ash_seq_close(seq);
    if (request->done != NULL) request->done(request->ctx, end);
}

/* Those of running whose answer is over leave it, and then end: done() may submit. */
static void end_finished(struct ash_core *core)
{
    size_t kept = 0, over = 0;

    for (size_t i = 0; i < core->running_count; i++) {
        struct ash_seq *seq = core->running[i];

        if (seq->finish == ASH_FINISH_NOT_YET)
            core->running[kept++] = seq;
        else
            core->doc_seqs[over++] = seq; /* the current step is over */
    }
    core->running_count = kept;
    for (size_t i = 0; i < over; i++)
        ash_core_end(core, core->doc_seqs[i]);
}

/* Cancelled ones that wait. Ending one may change the owners, so the search starts again. */
static struct ash_seq *find_cancelled_waiting(const struct ash_core *core)
{
    for (const struct ash_owner *owner = core->queue.owners; owner != NULL; owner = owner->next)
        for (size_t i = 0; i < owner->count; i++)
            if (core->ends_all || atomic_load(&owner->heap[i]->request->is_cancelled)) return owner->heap[i];
    return NULL;
}

void ash_core_end_cancelled(struct ash_core *core)
{
    struct ash_seq *seq;

    while (atomic_exchange(&core->has_cancels, false)) {
        for (size_t i = 0; i < core->running_count; i++)
            if (core->ends_all || atomic_load(&core->running[i]->request->is_cancelled))
                core->running[i]->finish = ASH_FINISH_CANCELLED;
        end_finished(core);
        while ((seq = find_cancelled_waiting(core)) != NULL) {
            ash_queue_remove(&core->queue, seq);
            seq->finish = ASH_FINISH_CANCELLED;
            ash_core_end(core, seq);
        }
    }
}

/* ---- after the pass ---------------------------------------------------------------------------------------------- */

/* A page is whole: the tree has it, and tiers that outlive the process get it. */
static void keep_page(struct ash_core *core, struct ash_seq *seq, const struct ash_prefix_text *text, size_t index)
{
    struct ash_kv_page page = {
        .salt = text->salt, .tokens = text->tokens, .count = (index + 1) * ASH_CACHE_PAGE_TOKENS};

    ash_prefix_insert(core->prefix, text, &seq->table, index);
    page.page = seq->table.pages[index];
    if (core->kv != NULL) ash_kv_keep(core->kv, &page);
}

/* Blocks of the prompt that end in the first `pages` pages, which are nodes, are told with these. */
static void note_blocks(struct ash_core *core, struct ash_seq *seq, size_t pages)
{
    const struct ash_prompt_blocks *blocks = seq->request->blocks;

    if (core->events == NULL || blocks == NULL) return;
    for (; seq->noted_blocks < blocks->count; seq->noted_blocks++) {
        size_t end = ash_prompt_blocks_end(blocks, seq->noted_blocks, seq->request->prompt_count);
        size_t page = (end - 1) / ASH_CACHE_PAGE_TOKENS;

        if (page >= pages) return;
        ash_page_events_add_block(core->events, seq->table.pages[page], blocks->hashes[seq->noted_blocks]);
    }
}

/* Tokens of the step are in the pages; whole pages go into the prefix tree. */
static void keep_rows(struct ash_core *core, struct ash_seq *seq)
{
    size_t first = seq->computed / ASH_CACHE_PAGE_TOKENS;
    struct ash_prefix_text text;

    seq->computed += seq->rows - seq->drafts + seq->accepted;
    text = ash_seq_text(seq, seq->computed);
    if (seq->uses_cache) note_blocks(core, seq, first);
    for (size_t page = first; seq->uses_cache && (page + 1) * ASH_CACHE_PAGE_TOKENS <= seq->computed; page++) {
        keep_page(core, seq, &text, page);
        note_blocks(core, seq, page + 1);
    }
    ash_core_tell_pages(core, seq);
    seq->draft.computed = ash_min(seq->draft.computed, seq->computed);
    if (seq->drafts == 0) return;
    if (core->draft != NULL)
        ash_draft_model_learn(core->draft, seq->drafts, seq->accepted);
    else
        ash_drafter_learn(&seq->drafter, seq->drafts, seq->accepted);
    seq->end.drafted += seq->drafts;
    seq->end.accepted += seq->accepted;
    core->stats.drafted += seq->drafts;
    core->stats.accepted += seq->accepted;
}

/* Hand the chosen tokens out. */
static void hand_out(struct ash_core *core, struct ash_seq *seq, uint64_t now_ns)
{
    const struct ash_request *request = seq->request;
    size_t tops = request->top_logprobs;

    if (seq->chosen_count > 0 || seq->finish == ASH_FINISH_EOS) {
        seq->last_ns = now_ns;
        if (seq->first_ns == 0) {
            seq->first_ns = now_ns;
            ash_recorder_first(core->opts.recorder, seq->record, now_ns);
        }
    }
    for (size_t i = 0; i < seq->chosen_count; i++) {
        struct ash_token token = {.id = seq->chosen[i].id,
                                  .logprob = seq->chosen[i].logprob,
                                  .kept = seq->kept,
                                  .kept_count = seq->kept_count,
                                  .top = seq->tops + i * tops,
                                  .top_count = ash_min(tops, core->vocab)};

        core->stats.answer_tokens++;
        core->has_answered = true;
        if (request->take == NULL || request->take(request->ctx, &token) == 0) continue;
        seq->count -= seq->chosen_count - 1 - i; /* later tokens are dropped */
        seq->finish = ASH_FINISH_STOP;
        seq->end.stop_id = -1;
        break;
    }
}

static void finish_seq(struct ash_core *core, struct ash_seq *seq, uint64_t now_ns)
{
    if (seq->finish == ASH_FINISH_FAILED) return;
    keep_rows(core, seq);
    hand_out(core, seq, now_ns);
    if (seq->answer_limit == 0 && ash_seq_missing(seq) == 0)
        seq->finish = seq->request->max_tokens == 0 ? ASH_FINISH_MAX_TOKENS : ASH_FINISH_CONTEXT;
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

int ash_core_pack_weights(struct ash_core *core, struct ash_err *err)
{
    int rc = ash_ranks_send_pack(core->opts.ranks, err);

    return rc < 0 ? rc : ash_model_pack(core->model, core->exec, err);
}

/* Weights are packed once a first token is out, so that it does not wait for that, and only where enough is to come. */
static int pack_weights(struct ash_core *core, struct ash_err *err)
{
    if (core->model == NULL || core->opts.pack != ASH_CORE_PACK_LATER || !core->has_answered) return 0;
    for (size_t i = 0; i < core->running_count; i++) {
        const struct ash_seq *seq = core->running[i];

        if (seq->answer_limit >= PACK_TOKENS_MIN || seq->request->job != 0) return ash_core_pack_weights(core, err);
    }
    return 0;
}

static int run_pass(struct ash_core *core, struct ash_err *err)
{
    struct ash_batch batch = {
        .rows = core->row_count, .ids = core->ids, .docs = core->docs, .doc_count = core->doc_count};
    int rc = core->is_ahead ? 0 : pack_weights(core, err);

    if (rc < 0) return rc;
    if (core->null == NULL && !core->is_ahead) {
        struct ash_cache *cache = ash_core_is_encoder(core->model) ? NULL : core->cache;

        rc = ash_ranks_infer_layers(core->opts.ranks, core->pass, &batch, cache, err);
        if (rc < 0) return rc;
        rc = ash_core_pool_states(core, err);
        if (rc < 0) return rc;
    }
    return ash_core_choose(core, err);
}

/* Part of a step, on all ranks. They are no longer alike if it fails here: then all of them end. */
static int run_ranks(struct ash_core *core, int (*run)(struct ash_core *core, struct ash_err *err), struct ash_err *err)
{
    int rc = ash_backend_outcome(core->exec, run(core, err), err);

    if (rc < 0 && core->opts.ranks != NULL) ash_ranks_fail(core->opts.ranks, err);
    return rc;
}

static void average(double *cost, double now)
{
    *cost = *cost <= 0.0 ? now : COST_KEEP * *cost + (1.0 - COST_KEEP) * now;
}

/* What rows cost decides how many a step may have. */
static void learn_costs(struct ash_core *core, double pass_s)
{
    bool decodes = core->prefill_rows < core->row_count;
    size_t drafts = 0;

    for (size_t d = 0; d < core->doc_count; d++)
        drafts = ash_max(drafts, core->doc_seqs[d]->drafts);
    if (core->draft != NULL && core->prefill_rows == 0) ash_draft_model_learn_pass(core->draft, drafts, pass_s);
    if (core->prefill_rows == 0)
        average(&core->decode_s, pass_s);
    else if (pass_s > (decodes ? core->decode_s : 0.0))
        average(&core->row_s, (pass_s - (decodes ? core->decode_s : 0.0)) / (double)core->prefill_rows);
}

/* What the pass did for each of its sequences, before they take it over. */
static void record_pieces(struct ash_core *core, uint64_t pass_ns, uint64_t end_ns)
{
    for (size_t d = 0; d < core->doc_count && core->opts.recorder != NULL; d++) {
        const struct ash_seq *seq = core->doc_seqs[d];
        struct ash_piece_record piece = {.request = seq->record,
                                         .start_ns = pass_ns,
                                         .end_ns = end_ns,
                                         .rows = (uint32_t)seq->rows,
                                         .tokens = (uint32_t)seq->chosen_count,
                                         .is_prefill = seq->first_ns == 0};

        ash_recorder_piece(core->opts.recorder, &piece);
    }
}

static void record_pass(struct ash_core *core, struct ash_pass_record *pass)
{
    struct ash_core_stats stats;

    if (core->opts.recorder == NULL) return;
    stats = ash_core_get_stats(core);
    pass->rows = core->row_count;
    pass->prefill_rows = core->prefill_rows;
    pass->tokens = stats.answer_tokens - pass->tokens;
    pass->requests = core->doc_count;
    pass->running = stats.running;
    pass->waiting = stats.waiting;
    pass->pages = stats.pages;
    pass->pages_held = stats.pages_held;
    pass->prefix_queries = stats.prefix_queries;
    pass->prefix_hits = stats.prefix_hits;
    pass->preemptions = stats.preemptions;
    ash_recorder_pass(core->opts.recorder, pass);
}

static void run_step(struct ash_core *core)
{
    uint64_t begin_ns = ash_clock_ns(), pass_ns, end_ns;
    struct ash_pass_record pass = {.schedule_ns = begin_ns, .tokens = core->stats.answer_tokens};
    struct ash_err err = {0};
    int rc;

    if (!ash_core_take_ahead(core)) ash_core_schedule(core);
    if (core->row_count == 0) {
        if (core->running_count > 0) ash_core_wait_loads(core);
        return;
    }
    for (size_t d = 0; d < core->doc_count; d++) {
        struct ash_seq *seq = core->doc_seqs[d];

        seq->chosen_count = seq->prompt_chosen_count = seq->accepted = 0;
        seq->has_missed = false;
    }
    pass_ns = core->is_ahead ? core->end_ns : ash_clock_ns(); /* the device did not wait for us */
    rc = run_ranks(core, run_pass, &err);
    end_ns = core->end_ns = ash_clock_ns();
    if (rc == 0) rc = run_ranks(core, ash_core_feed_states, &err);
    learn_costs(core, seconds(pass_ns, end_ns));
    record_pieces(core, pass_ns, end_ns);
    for (size_t d = 0; d < core->doc_count; d++) {
        if (rc < 0) ash_seq_fail(core->doc_seqs[d], rc, &err);
        finish_seq(core, core->doc_seqs[d], end_ns);
    }
    core->stats.steps++;
    core->stats.rows += core->row_count;
    core->stats.prompt_tokens += core->prefill_rows;
    end_finished(core);
    pass.start_ns = pass_ns;
    pass.end_ns = end_ns;
    record_pass(core, &pass);
    core->stats.step_s = seconds(begin_ns, ash_clock_ns());
    core->stats.schedule_s = core->stats.step_s - seconds(pass_ns, end_ns);
}

int ash_core_step(struct ash_core *core)
{
    ash_assert(!core->is_in_step);
    core->is_in_step = true;
    ash_core_end_cancelled(core);
    if (core->running_count > 0 || core->queue.count > 0) run_step(core);
    ash_core_end_cancelled(core);
    ash_page_events_publish(core->events);
    core->is_in_step = false;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
    ash_assert(ash_core_is_consistent(core));
#endif
    return core->running_count > 0 || core->queue.count > 0;
}
