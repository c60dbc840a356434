/* The schedule: which sequences run, and which rows a step has. Running answers come first, one row each and their
 * drafts; parts of prompts get the remaining rows and time, owners in turn. If pages run out, the sequence that
 * matters least gives its own back and is computed again later. */
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/math.h"
#include "serve/engine/core_priv.h"
#include "serve/engine/ranks.h"

#define PAGE ASH_CACHE_PAGE_TOKENS
#define LEAST_PREFILL_ROWS 16 /* of a step, whatever they cost: fewer do not use the machine */
#define PASSED_OVER_MOST 32   /* prompts that turn out to have to wait: the others are asked in the next step */
#define FIRST_PREFILL_ROWS 64 /* of the first one, when their cost is unknown */

/* ---- pages ------------------------------------------------------------------------------------------------------- */

/* Pages that could be had now. */
static size_t available_pages(const struct ash_core *core)
{
    return ash_cache_free_count(core->cache) + (core->prefix != NULL ? ash_prefix_cached_count(core->prefix) : 0);
}

void ash_core_release(struct ash_core *core, struct ash_seq *seq)
{
    struct ash_prefix_text text = ash_seq_text(seq, seq->computed);

    ash_core_leave_tiers(core, seq);
    if (core->draft != NULL) ash_draft_model_forget(core->draft, &seq->draft);
    if (seq->uses_cache && seq->computed > 0) ash_prefix_insert_tail(core->prefix, &text, &seq->table);
    ash_prefix_release(core->prefix, core->cache, &seq->table);
    seq->computed = 0;
    seq->noted_blocks = 0;
    seq->leader = NULL;
}

void ash_core_leave_followers(struct ash_core *core, const struct ash_seq *seq)
{
    for (size_t i = 0; i < core->running_count; i++)
        if (core->running[i]->leader == seq) core->running[i]->leader = NULL;
}

/* ---- who runs ---------------------------------------------------------------------------------------------------- */

static void remove_running(struct ash_core *core, size_t index)
{
    core->running_count--;
    memmove(core->running + index, core->running + index + 1, (core->running_count - index) * sizeof(core->running[0]));
}

static void preempt(struct ash_core *core, size_t index)
{
    struct ash_seq *seq = core->running[index];

    ash_assert(!seq->is_in_step);
    remove_running(core, index);
    ash_core_leave_followers(core, seq);
    ash_core_release(core, seq);
    ash_queue_push(&core->queue, seq);
    core->stats.preemptions++;
}

/* Pages for `tokens` tokens of running[index], if need be those of sequences that come after it and are not in the step
 * yet. */
static bool grow_or_preempt(struct ash_core *core, size_t index, size_t tokens)
{
    struct ash_seq *seq = core->running[index];

    ash_assert(index < core->running_count);
    for (size_t victim = core->running_count; !ash_core_grow(core, seq, tokens); victim--) {
        while (victim > index + 1 && core->running[victim - 1]->is_in_step)
            victim--;
        if (victim <= index + 1) return false;
        preempt(core, victim - 1);
    }
    return true;
}

/* ---- prefixes ---------------------------------------------------------------------------------------------------- */

static size_t count_same(const int32_t *a, const int32_t *b, size_t first, size_t end)
{
    size_t at = first;

    while (at < end && a[at] == b[at])
        at++;
    return at;
}

/* Tokens that it need not compute if the cache has them: the last one it must, for its logits, and those whose rows
 * are asked for. */
static size_t reusable_tokens(const struct ash_seq *seq)
{
    const struct ash_request *request = seq->request;
    bool wants_states = request->pooling > ASH_POOLING_LAST && seq->pooled < request->prompt_count;

    if (wants_states || !seq->uses_cache) return 0;
    if (request->wants_prompt_logprobs && seq->prompt_told + 1 < request->prompt_count) return seq->prompt_told;
    return seq->count - 1;
}

/* What the running sequences have in common with seq, beyond the pages that it has: *part_out, a page of one that is
 * longer than it was; and who will compute most of it. Sequences that share a prefix share its nodes, so the last page
 * tells. */
static void ask_running(struct ash_core *core, struct ash_seq *seq, size_t end, struct ash_prefix_part *part)
{
    size_t pages = seq->table.count, first = pages * PAGE;

    for (size_t i = 0; i < core->running_count; i++) {
        struct ash_seq *other = core->running[i];
        size_t same;

        if (other == seq || !other->uses_cache || other->request->salt != seq->request->salt) continue;
        if (pages > 0 && (other->table.count < pages || other->table.pages[pages - 1] != seq->table.pages[pages - 1]))
            continue;
        same = count_same(seq->tokens, other->tokens, first, ash_min(end, other->count));
        if (other->table.count > pages && ash_min(same, other->computed) > first + part->tokens)
            *part = (struct ash_prefix_part){other->table.pages[pages],
                                             ash_min(ash_min(same, other->computed) - first, PAGE)};
        if (same > other->computed && same > seq->leader_tokens && other->admitted < seq->admitted &&
            other->request->priority <= seq->request->priority) {
            seq->leader = other;
            seq->leader_tokens = same;
        }
    }
}

/* Its first tokens inside a page that others have too: a copy of that page. */
static void copy_part(struct ash_core *core, struct ash_seq *seq, struct ash_prefix_part part)
{
    ash_prefix_touch(core->prefix, part.page);
    ash_cache_ref(core->cache, part.page); /* it may be evicted to make room for its copy */
    if (ash_core_make_free(core, 1)) {
        int32_t page = ash_cache_take(core->cache);
        struct ash_err ignored = {0}; /* a group that is over ends the step */

        (void)ash_ranks_send_copy(core->opts.ranks, part.page, page, &ignored);
        ash_cache_copy_page(core->cache, part.page, page);
        seq->table.pages[seq->table.count++] = page;
        seq->computed += part.tokens;
        seq->may_share = false; /* it has a page that is no node */
    }
    ash_cache_unref(core->cache, part.page);
}

/* Take over whole pages of its tokens that the cache has. Returns what continues them. */
static struct ash_prefix_part match_pages(struct ash_core *core, struct ash_seq *seq)
{
    struct ash_prefix_text text = ash_seq_text(seq, reusable_tokens(seq));
    struct ash_prefix_part part = {.page = -1};

    seq->leader = NULL;
    seq->may_share = text.count > 0;
    if (text.count > 0) seq->computed = ash_prefix_match(core->prefix, &text, &seq->table, &part);
    return part;
}

/* Take over what others have computed of its tokens, or what tiers have; or wait (it has a leader or a load then) for
 * what one of them is at. */
static void share_prefix(struct ash_core *core, struct ash_seq *seq)
{
    struct ash_prefix_part part = match_pages(core, seq);
    bool has_states = ash_core_has_states(core->model); /* a page has the one after its last token */

    seq->leader_tokens = seq->computed + part.tokens;
    ask_running(core, seq, reusable_tokens(seq), &part);
    if (seq->leader == NULL && ash_core_load(core, seq, reusable_tokens(seq))) {
        if (seq->load != NULL) return;
        part = match_pages(core, seq);
    }
    if (seq->leader == NULL && part.tokens > 0 && !has_states) copy_part(core, seq, part);
}

/* ---- admission --------------------------------------------------------------------------------------------------- */

/* Pages that a sequence still needs for the tokens that it has. */
static size_t missing_pages(const struct ash_seq *seq)
{
    size_t pages = ash_cache_pages_for(seq->count);

    return pages - ash_min(seq->table.count, pages);
}

/* The same of all that run. */
static size_t promised_pages(const struct ash_core *core)
{
    size_t pages = 0;

    for (size_t i = 0; i < core->running_count; i++)
        pages += missing_pages(core->running[i]);
    return pages;
}

/* Running sequences will grow: a few pages are kept for them. */
static bool fits(const struct ash_core *core, const struct ash_seq *seq, size_t promised)
{
    size_t wanted = ash_cache_pages_for(seq->count + 1), spare = ash_cache_page_count(core->cache) / 100;

    if (core->running_count == 0) return true;
    return available_pages(core) + seq->table.count >= wanted + promised + spare;
}

static void start_running(struct ash_core *core, struct ash_seq *seq)
{
    size_t at = core->running_count++;

    for (; at > 0 && core->running[at - 1]->request->priority > seq->request->priority; at--)
        core->running[at] = core->running[at - 1];
    core->running[at] = seq;
    seq->state = ASH_SEQ_RUNNING;
}

/* Let the next waiting sequence run, next to those to which *promised pages are promised. Returns whether it does. */
static bool admit(struct ash_core *core, struct ash_seq *seq, size_t *promised)
{
    if (core->running_count == core->opts.max_seqs) return false;
    seq->admitted = core->next_admitted;
    match_pages(core, seq);
    if (!fits(core, seq, *promised)) {
        ash_core_release(core, seq);
        return false;
    }
    core->next_admitted++;
    seq->is_in_step = seq->is_passed_over = false;
    ash_queue_remove(&core->queue, seq);
    start_running(core, seq);
    *promised += missing_pages(seq);
    return true;
}

static void admit_all(struct ash_core *core)
{
    size_t promised = core->queue.count > 0 ? promised_pages(core) : 0;
    struct ash_seq *seq;

    while (!core->is_held && (seq = ash_queue_first(&core->queue)) != NULL) {
        size_t last = core->running_count;

        if (admit(core, seq, &promised)) continue;
        if (last == 0 || core->running[last - 1]->request->priority <= seq->request->priority) return;
        preempt(core, last - 1);
        promised = promised_pages(core);
    }
}

/* ---- the rows of a step ------------------------------------------------------------------------------------------ */

static void add_rows(struct ash_core *core, struct ash_seq *seq, size_t rows, size_t drafts)
{
    struct ash_request *request = seq->request;

    ash_assert(rows > 0 && core->row_count + rows <= core->opts.max_batch_rows);
    if (seq->start_ns == 0) {
        seq->start_ns = ash_clock_ns();
        seq->shared = seq->computed;
        core->stats.prefix_queries += request->prompt_count;
        core->stats.prefix_hits += seq->shared;
        request->end.cached_tokens = ash_min(seq->shared, request->prompt_count);
        ash_recorder_start(core->opts.recorder, seq->record, seq->start_ns, request->end.cached_tokens);
    }
    seq->is_in_step = true;
    seq->rows = rows;
    seq->drafts = drafts;
    seq->first_row = core->row_count;
    memcpy(core->ids + core->row_count, seq->tokens + seq->computed, rows * sizeof(*core->ids));
    core->doc_seqs[core->doc_count] = seq;
    core->docs[core->doc_count++] = (struct ash_doc){.row = core->row_count,
                                                     .count = rows,
                                                     .pos = seq->computed,
                                                     .second = request->second,
                                                     .pages = seq->table.pages,
                                                     .page_count = seq->table.count,
                                                     .adapters = request->adapters};
    core->row_count += rows;
    seq->owner->served += (double)rows;
    seq->may_share = false;
}

static bool is_prefill(const struct ash_seq *seq)
{
    return ash_seq_missing(seq) > 1 || seq->leader != NULL || seq->load != NULL;
}

/* Have the draft model continue the answers that run. */
static void draft_answers(struct ash_core *core)
{
    size_t depth = core->draft != NULL ? ash_draft_model_depth(core->draft) : 0, count = 0;
    struct ash_draft_text texts[ASH_DRAFT_TEXTS];
    struct ash_seq *whose[ASH_DRAFT_TEXTS];

    for (size_t i = 0; i < core->running_count; i++) {
        struct ash_seq *seq = core->running[i];
        size_t left = seq->answer_limit - ash_min(ash_seq_answer_count(seq) + 1, seq->answer_limit);

        seq->proposed = 0;
        if (depth == 0 || left == 0 || is_prefill(seq) || count == ASH_DRAFT_TEXTS) continue;
        whose[count] = seq;
        texts[count] = (struct ash_draft_text){.tokens = seq->tokens,
                                               .count = seq->count,
                                               .wanted = ash_min(depth, left),
                                               .sampler = &seq->request->sampler,
                                               .state = &seq->draft};
        count++;
    }
    if (count > 0) ash_draft_model_run(core->draft, texts, count);
    for (size_t i = 0; i < count; i++)
        whose[i]->proposed = texts[i].drafted;
}

/* Tokens that may follow, after the sequence's own; as many as rows and the end of the answer allow. */
static size_t draft(struct ash_core *core, struct ash_seq *seq, size_t rows_left)
{
    size_t most = ash_min(core->opts.speculate, seq->answer_limit - ash_seq_answer_count(seq));

    if (core->draft != NULL) return ash_min(seq->proposed, rows_left);
    if (seq->drafter.places == NULL || most <= 1) return 0;
    return ash_drafter_propose(&seq->drafter, seq->tokens, seq->count, ash_min(most - 1, rows_left),
                               seq->tokens + seq->count);
}

static void add_answers(struct ash_core *core)
{
    size_t decoding = 0;

    draft_answers(core);
    for (size_t i = 0; i < core->running_count; i++)
        decoding += !is_prefill(core->running[i]);
    for (size_t i = 0; i < core->running_count; i++) {
        struct ash_seq *seq = core->running[i];
        size_t drafts;

        if (is_prefill(seq)) continue;
        decoding--;
        drafts = draft(core, seq, core->opts.max_batch_rows - core->row_count - decoding - 1);
        if (drafts > 0 && !ash_core_grow(core, seq, seq->count + drafts)) drafts = 0;
        if (!grow_or_preempt(core, i, seq->count)) continue; /* it runs when others are done */
        add_rows(core, seq, 1 + drafts, drafts);
    }
}

/* Rows of prompts that a step may have, by what they cost so far. */
static size_t prefill_budget(const struct ash_core *core)
{
    double left = core->opts.step_seconds - (core->row_count > 0 ? core->decode_s : 0.0);
    double rows;

    if (core->opts.step_seconds <= 0.0) return SIZE_MAX;
    if (core->row_s <= 0.0) return FIRST_PREFILL_ROWS;
    rows = left / core->row_s;
    if (rows <= LEAST_PREFILL_ROWS) return LEAST_PREFILL_ROWS;
    return rows < 1e6 ? (size_t)rows / LEAST_PREFILL_ROWS * LEAST_PREFILL_ROWS : SIZE_MAX;
}

/* Does it wait for pages of a tier, or for what another one is at? */
static bool is_waiting(const struct ash_seq *seq)
{
    if (seq->load != NULL) return true;
    return seq->leader != NULL && seq->leader->computed < seq->leader_tokens;
}

/* The prompt that gets rows next: the best priority, the owner served least, the first. */
static size_t next_prompt(const struct ash_core *core)
{
    size_t best = SIZE_MAX;

    for (size_t i = 0; i < core->running_count; i++) {
        const struct ash_seq *seq = core->running[i], *than = best != SIZE_MAX ? core->running[best] : NULL;

        if (seq->is_in_step || seq->is_passed_over || !is_prefill(seq) || is_waiting(seq)) continue;
        if (than == NULL) {
            best = i;
            continue;
        }
        if (seq->request->priority > than->request->priority) break; /* they are in that order */
        if (seq->owner->served < than->owner->served) best = i;
    }
    return best;
}

static void add_prompts(struct ash_core *core)
{
    size_t budget = prefill_budget(core), tries = PASSED_OVER_MOST, at;

    while (budget > 0 && core->row_count < core->opts.max_batch_rows && (tries > 0 || core->row_count == 0) &&
           (at = next_prompt(core)) != SIZE_MAX) {
        struct ash_seq *seq = core->running[at];
        size_t rows;

        seq->is_passed_over = true; /* unless it gets rows now */
        tries -= tries > 0;
        if (seq->may_share) share_prefix(core, seq);
        if (is_waiting(seq)) continue;
        seq->leader = NULL;
        rows = ash_min(ash_min(budget, core->opts.max_batch_rows - core->row_count), ash_seq_missing(seq));
        if (ash_core_is_encoder(core->model) && rows < ash_seq_missing(seq)) {
            if (core->row_count > 0) continue; /* in the next step */
            rows = ash_seq_missing(seq);
        }
        if (!grow_or_preempt(core, at, seq->computed + rows)) continue;
        add_rows(core, seq, rows, 0);
        core->prefill_rows += rows;
        budget -= rows;
        tries++;
    }
}

void ash_core_schedule(struct ash_core *core)
{
    core->doc_count = core->row_count = core->prefill_rows = 0;
    for (size_t i = 0; i < core->running_count; i++)
        core->running[i]->is_in_step = core->running[i]->is_passed_over = false;
    ash_core_poll_loads(core);
    admit_all(core);
    add_answers(core);
    add_prompts(core);
    ash_assert(core->running_count == 0 || core->row_count > 0 || core->kv != NULL);
}
