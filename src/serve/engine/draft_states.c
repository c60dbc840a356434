/* A text's place in the draft's cache, and the large model's states that rows of a head take: kept until then. If
 * nothing is drafted, rows come in batches: so a head that rests, or a long prompt, costs little, and drafts see all
 * of a text but the tokens that came out of a cache. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/math.h"
#include "serve/engine/draft_priv.h"

#define FEED_ROWS 64 /* states that wait, before their rows are computed */

bool ash_draft_model_is_head(const struct ash_draft_model *draft)
{
    return draft->hidden > 0;
}

bool ash_draft_model_captures(const struct ash_draft_model *draft)
{
    return draft->opts.eagle != NULL;
}

int ash_draft_model_fuse(struct ash_draft_model *draft, struct ash_pass *pass, size_t first, size_t count, float *out,
                         struct ash_err *err)
{
    for (size_t done = 0, some; done < count; done += some) {
        int rc;

        some = ash_min(ash_min(count - done, ASH_DRAFT_CAPTURED_ROWS), draft->opts.max_rows);
        rc = ash_pass_infer_captured(pass, first + done, some, draft->captured, err);
        if (rc == 0) rc = ash_pass_fuse_captured(draft->pass, draft->captured, some, out + done * draft->hidden, err);
        if (rc < 0) return rc;
    }
    return 0;
}

/* States that no row has taken. */
static size_t waiting(const struct ash_draft_state *state)
{
    return state->first == 0 ? 0 : state->known + 1 - state->computed;
}

bool ash_draft_model_knows(const struct ash_draft_model *draft, const struct ash_draft_text *text)
{
    return draft->hidden == 0 || (text->state->first > 0 && text->state->known + 1 == text->count);
}

void ash_draft_model_take_states(const struct ash_draft_model *draft, struct ash_draft_state *state, size_t count,
                                 float *out)
{
    size_t left = waiting(state) - count;

    ash_assert(count <= waiting(state));
    memcpy(out, state->states, count * draft->hidden * sizeof(*out));
    memmove(state->states, state->states + count * draft->hidden, left * draft->hidden * sizeof(*out));
}

void ash_draft_model_forget(struct ash_draft_model *draft, struct ash_draft_state *state)
{
    while (state->table.count > 0)
        ash_cache_unref(draft->cache, state->table.pages[--state->table.count]);
    ash_block_table_fini(&state->table);
    free(state->states);
    *state = (struct ash_draft_state){0};
}

bool ash_draft_model_make_room(struct ash_draft_model *draft, struct ash_draft_text *text)
{
    struct ash_draft_state *state = text->state;

    size_t tokens = text->count + text->wanted - state->first;

    if (tokens > draft->opts.max_tokens) return false;
    if (state->table.pages == NULL && ash_block_table_init(&state->table, draft->opts.max_tokens) < 0) return false;
    return ash_block_table_grow(&state->table, draft->cache, tokens) == 0;
}

void ash_draft_model_add_rows(struct ash_draft_model *draft, struct ash_draft_rows *rows, struct ash_draft_text *text,
                              size_t end, const float *own)
{
    struct ash_batch *batch = &rows->batch;
    struct ash_draft_state *state = text->state;
    size_t count = ash_min(end - state->computed, draft->opts.max_rows - batch->rows);

    ash_assert(end >= state->computed && state->computed >= state->first);
    if (count == 0) return;
    memcpy(draft->ids + batch->rows, text->tokens + state->computed, count * sizeof(*draft->ids));
    rows->docs[batch->doc_count++] = (struct ash_doc){.row = batch->rows,
                                                      .count = count,
                                                      .pos = state->computed - state->first,
                                                      .pages = state->table.pages,
                                                      .page_count = state->table.count};
    if (draft->hidden > 0) {
        float *out = draft->row_states + batch->rows * draft->hidden;

        if (own != NULL)
            memcpy(out, own, draft->hidden * sizeof(*out));
        else
            ash_draft_model_take_states(draft, state, count, out);
    }
    batch->rows += count;
    state->computed += count;
    if (state->computed < end) return;
    rows->texts[rows->wanted_count] = text;
    rows->wanted[rows->wanted_count++] = batch->rows - 1;
}

float *ash_draft_model_feed(struct ash_draft_model *draft, struct ash_draft_state *state, size_t at, size_t rows)
{
    size_t before;

    ash_assert(draft->hidden > 0 && rows > 0);
    if (draft->is_broken) return NULL;
    if (state->first == 0 || at != state->known) {
        ash_draft_model_forget(draft, state);
        state->first = state->computed = at + 1;
        state->known = at;
    }
    before = waiting(state);
    if (ash_array_reserve(&state->states, &state->states_room, before + rows, draft->hidden * sizeof(float)) < 0) {
        ash_draft_model_forget(draft, state);
        return NULL;
    }
    return state->states + before * draft->hidden;
}

/* Compute the rows whose states wait; a text that has no room starts again. */
static void catch_up(struct ash_draft_model *draft, struct ash_draft_text *text)
{
    struct ash_draft_state *state = text->state;
    struct ash_err err = {0};

    if (!ash_draft_model_make_room(draft, text)) ash_draft_model_forget(draft, state);
    while (waiting(state) > 0 && !draft->is_broken) {
        struct ash_draft_rows rows = {.batch = {.ids = draft->ids, .states = draft->row_states}};

        rows.batch.docs = rows.docs;
        ash_draft_model_add_rows(draft, &rows, text, state->known + 1, NULL);
        draft->is_broken = ash_pass_infer_layers(draft->pass, &rows.batch, draft->cache, &err) < 0;
    }
}

void ash_draft_model_fed(struct ash_draft_model *draft, struct ash_draft_text *text, size_t rows)
{
    text->state->known += rows;
    ash_assert(text->state->first > 0 && text->state->known < text->count);
    if (waiting(text->state) >= FEED_ROWS) catch_up(draft, text);
}
