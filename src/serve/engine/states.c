/* States of rows after the last layer. Of prompts, where requests want them: all, the first, the last, or their mean;
 * and the score that a classifier makes of one. Of all rows, where a head drafts. */
#include "base/math.h"
#include "model/pass/pass.h"
#include "serve/engine/core_priv.h"
#include "serve/engine/ranks.h"

/* One row's state, the next of its prompt. */
static void pool_row(const struct ash_core *core, struct ash_seq *seq, const float *state)
{
    const struct ash_request *request = seq->request;
    size_t hidden = core->hidden;
    float *out = request->hidden + (request->pooling == ASH_POOLING_ALL ? seq->pooled * hidden : 0);
    bool adds = request->pooling == ASH_POOLING_MEAN && seq->pooled > 0;

    if (seq->pooled++ > 0 && request->pooling == ASH_POOLING_FIRST) return;
    for (size_t i = 0; i < hidden; i++)
        out[i] = adds ? out[i] + state[i] : state[i];
    for (size_t i = 0; i < hidden && request->pooling == ASH_POOLING_MEAN && seq->pooled == request->prompt_count; i++)
        out[i] = out[i] / (float)request->prompt_count;
}

static int pool_seq(struct ash_core *core, struct ash_seq *seq, struct ash_err *err)
{
    size_t prompt = seq->request->prompt_count, end = ash_min(seq->computed + seq->rows, prompt);

    if (seq->request->pooling == ASH_POOLING_LAST && seq->pooled == 0) seq->pooled = prompt - 1;
    for (size_t first = ash_max(seq->pooled, seq->computed); first < end;) {
        size_t count = ash_min(end - first, ash_min(core->piece_rows, ASH_CORE_STATE_ROWS));
        int rc;

        for (size_t i = 0; i < count; i++)
            core->piece[i] = seq->first_row + first + i - seq->computed;
        rc = ash_ranks_infer_states(core->opts.ranks, core->pass, core->piece, count, core->states, err);
        if (rc < 0) return rc;
        for (size_t i = 0; i < count; i++)
            pool_row(core, seq, core->states + i * core->hidden);
        first += count;
    }
    if (seq->request->wants_score && end == prompt) return ash_pass_score(core->pass, seq->request->hidden, err);
    return 0;
}

int ash_core_pool_states(struct ash_core *core, struct ash_err *err)
{
    for (size_t d = 0; d < core->doc_count; d++) {
        struct ash_seq *seq = core->doc_seqs[d];
        int rc = seq->request->pooling == ASH_POOLING_NONE ? 0 : pool_seq(core, seq, err);

        if (rc < 0) return rc;
    }
    return 0;
}

/* ---- for a head -------------------------------------------------------------------------------------------------- */

/* The states of some of its rows. */
static int copy_states(struct ash_core *core, const struct ash_seq *seq, size_t rows, float *out, struct ash_err *err)
{
    for (size_t first = 0, count; first < rows; first += count) {
        int rc;

        count = ash_min(rows - first, core->piece_rows);
        for (size_t i = 0; i < count; i++)
            core->piece[i] = seq->first_row + first + i;
        rc = ash_ranks_infer_states(core->opts.ranks, core->pass, core->piece, count, out + first * core->hidden, err);
        if (rc < 0) return rc;
    }
    return 0;
}

static int feed_seq(struct ash_core *core, struct ash_seq *seq, struct ash_err *err)
{
    size_t rows = seq->rows - seq->drafts + seq->accepted;
    struct ash_draft_text text = {.tokens = seq->tokens, .count = seq->count, .state = &seq->draft};
    float *out = ash_draft_model_feed(core->draft, &seq->draft, seq->computed, rows);
    int rc;

    if (out == NULL) return 0;
    rc = ash_draft_model_captures(core->draft)
             ? ash_draft_model_fuse(core->draft, core->pass, seq->first_row, rows, out, err)
             : copy_states(core, seq, rows, out, err);
    if (rc == 0) ash_draft_model_fed(core->draft, &text, rows);
    return rc;
}

/* Will tokens be drafted for it? */
static bool may_draft(const struct ash_seq *seq)
{
    return seq->answer_limit > 1 && seq->finish == ASH_FINISH_NOT_YET;
}

int ash_core_feed_states(struct ash_core *core, struct ash_err *err)
{
    int rc = 0;

    if (core->draft == NULL || !ash_draft_model_is_head(core->draft)) return 0;
    if (core->is_ahead || core->ahead.count > 0) return 0; /* the rows are those of another step: a gap */
    for (size_t d = 0; d < core->doc_count && rc == 0; d++)
        if (may_draft(core->doc_seqs[d])) rc = feed_seq(core, core->doc_seqs[d], err);
    return rc;
}
