/* Decoders, as a chain of steps that tokens flow through one at a time. A step is given a token in pieces (the last one
 * marked), so that what joins all tokens into one (Fuse, ByteLevel) can still let text go as soon as it is certain.
 * Decoding everything at once is the same walk: the two cannot differ. */
#include "text/tokenizer/tokenizer_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"
#include "text/tokenizer/token_bytes_priv.h"

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* ---- state ------------------------------------------------------------------------------------------------------- */

struct step_state {
    struct ash_str partial; /* a token whose end has not come yet */
    struct ash_str held;    /* bytes that may still change: the beginning of a character, a run of bytes */
    size_t prompt_bytes;    /* of held: the beginning of a character that the prompt left unfinished; 0..3 */
    size_t tokens;          /* that were complete */
    size_t stripped;        /* strip: characters taken off the present token */
    bool past_start;        /* strip: the present token has begun to pass */
};

struct ash_decoder {
    const struct ash_tokenizer *tokenizer;
    bool skip_special;
    struct step_state states[ASH_TOK_STEPS_MAX];
    struct ash_str *out; /* of the call at work */
    struct ash_err *err;
};

static int pass(struct ash_decoder *decoder, size_t step, const char *text, size_t size_bytes, bool ends);

/* ---- byte level -------------------------------------------------------------------------------------------------- */

/* Bytes from at on that begin a character which the next byte breaks off: one U+FFFD stands for them all. */
static size_t broken_size(const char *text, size_t size_bytes)
{
    for (size_t size = size_bytes < 3 ? size_bytes : 3; size > 1; size--)
        if (ash_utf8_incomplete_tail(text, size) == size) return size;
    return 1;
}

/* Pass on the held bytes as text; invalid UTF-8 becomes U+FFFD. The beginning of a character stays unless all
 * must go. */
static int flush_bytes(struct ash_decoder *decoder, size_t step, bool all)
{
    struct step_state *state = &decoder->states[step];
    struct ash_str *held = &state->held;
    size_t end, at = 0;
    int rc = 0;

    if (held->size_bytes == 0) return 0;
    end = held->size_bytes - (all ? 0 : ash_utf8_incomplete_tail(held->data, held->size_bytes));
    while (rc == 0 && at < end) {
        size_t good = ash_utf8_valid_prefix(held->data + at, end - at);
        if (good > 0) rc = pass(decoder, step + 1, held->data + at, good, false);
        at += good;
        if (rc < 0 || at == end) break;
        at += broken_size(held->data + at, end - at);
        if (at > state->prompt_bytes) rc = pass(decoder, step + 1, REPLACEMENT, strlen(REPLACEMENT), false);
    }
    if (rc < 0) return rc;
    if (end > 0) state->prompt_bytes = 0;
    memmove(held->data, held->data + end, held->size_bytes - end);
    held->size_bytes -= end;
    return 0;
}

static int take_bytes(struct ash_decoder *decoder, size_t step, const char *text, size_t size_bytes)
{
    int rc = ash_tok_add_level_bytes(&decoder->states[step].held, text, size_bytes);

    return rc < 0 ? rc : flush_bytes(decoder, step, false);
}

/* ---- byte fallback ----------------------------------------------------------------------------------------------- */

static bool is_text(const char *bytes, size_t count)
{
    return ash_utf8_valid_prefix(bytes, count) == count;
}

/* A run of byte tokens ends: it is text when all of it is, otherwise each byte becomes U+FFFD. Bytes of the prompt are
 * part of the run only where they turn into a character with it. */
static int flush_fallback(struct ash_decoder *decoder, size_t step)
{
    struct step_state *state = &decoder->states[step];
    const char *bytes = state->held.data;
    size_t count = state->held.size_bytes;
    int rc = 0;

    ash_assert(state->prompt_bytes <= count);
    if (state->prompt_bytes > 0 && !is_text(bytes, count)) {
        bytes += state->prompt_bytes;
        count -= state->prompt_bytes;
    }
    state->prompt_bytes = 0;
    state->held.size_bytes = 0;
    if (count == 0) return 0;
    if (is_text(bytes, count)) return pass(decoder, step + 1, bytes, count, true);
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = pass(decoder, step + 1, REPLACEMENT, strlen(REPLACEMENT), true);
    return rc;
}

static int take_fallback(struct ash_decoder *decoder, size_t step, const char *text, size_t size_bytes)
{
    int value = ash_tok_fallback_byte(text, size_bytes), rc;
    char byte = (char)value;

    if (value >= 0) return ash_str_add(&decoder->states[step].held, &byte, 1);
    rc = flush_fallback(decoder, step);
    return rc < 0 ? rc : pass(decoder, step + 1, text, size_bytes, true);
}

/* ---- the other steps --------------------------------------------------------------------------------------------- */

static int take_replace(struct ash_decoder *decoder, size_t step, const char *text, size_t size_bytes)
{
    const struct ash_tok_dec *dec = &decoder->tokenizer->decs.steps[step];
    struct ash_tok_scratch *scratch = ash_tok_scratch_get(decoder->tokenizer);
    struct ash_str replaced = {0};
    int rc = -ENOMEM;

    if (scratch != NULL) {
        ash_tok_scratch_limit(scratch, size_bytes);
        rc = ash_tok_replace(&dec->pattern, scratch, (struct ash_tok_span){text, size_bytes}, &dec->content, &replaced,
                             decoder->err);
    }
    if (rc == 0) rc = pass(decoder, step + 1, replaced.data, replaced.size_bytes, true);
    ash_str_fini(&replaced);
    ash_tok_scratch_put(decoder->tokenizer, scratch);
    return rc;
}

/* The first token loses its marks, in the others they become spaces. */
static int take_metaspace(struct ash_decoder *decoder, size_t step, const char *text, size_t size_bytes)
{
    const struct ash_tok_dec *dec = &decoder->tokenizer->decs.steps[step];
    bool drop = dec->drop_first && decoder->states[step].tokens == 0;
    int rc = 0;

    for (size_t at = 0; rc == 0 && at < size_bytes;) {
        const char *mark = memmem(text + at, size_bytes - at, dec->content.data, dec->content.size_bytes);
        size_t end = mark != NULL ? (size_t)(mark - text) : size_bytes;
        rc = pass(decoder, step + 1, text + at, end - at, false);
        if (rc == 0 && mark != NULL && !drop) rc = pass(decoder, step + 1, " ", 1, false);
        at = end + (mark != NULL ? dec->content.size_bytes : 0);
    }
    return rc < 0 ? rc : pass(decoder, step + 1, NULL, 0, true);
}

static int take_join(struct ash_decoder *decoder, size_t step, const char *text, size_t size_bytes)
{
    int rc = decoder->states[step].tokens > 0 ? pass(decoder, step + 1, " ", 1, false) : 0;

    return rc < 0 ? rc : pass(decoder, step + 1, text, size_bytes, true);
}

/* A piece goes on with the word before it, another token begins one. */
static int take_word_piece(struct ash_decoder *decoder, size_t step, const char *text, size_t size_bytes)
{
    const struct ash_tok_dec *dec = &decoder->tokenizer->decs.steps[step];
    bool is_first = decoder->states[step].tokens == 0, goes_on = false;
    struct ash_str token = {0};
    int rc = 0;

    if (!is_first && size_bytes >= dec->content.size_bytes && dec->content.size_bytes > 0)
        goes_on = memcmp(text, dec->content.data, dec->content.size_bytes) == 0;
    if (goes_on) {
        text += dec->content.size_bytes;
        size_bytes -= dec->content.size_bytes;
    }
    if (!is_first && !goes_on) rc = ash_str_adds(&token, " ");
    if (rc == 0) rc = ash_str_add(&token, text, size_bytes);
    if (rc == 0 && dec->cleans) rc = ash_tok_word_piece_clean(&token);
    if (rc == 0) rc = pass(decoder, step + 1, token.data, token.size_bytes, true);
    ash_str_fini(&token);
    return rc;
}

/* Take characters off the start as the token comes in; nothing has to wait for its end. */
static int strip_start(struct ash_decoder *decoder, size_t step, const char *text, size_t size_bytes, bool ends)
{
    const struct ash_tok_dec *dec = &decoder->tokenizer->decs.steps[step];
    struct step_state *state = &decoder->states[step];

    while (!state->past_start && size_bytes > 0) {
        if (state->stripped == dec->strip_start || size_bytes < dec->content.size_bytes ||
            memcmp(text, dec->content.data, dec->content.size_bytes) != 0) {
            state->past_start = true;
            break;
        }
        state->stripped++;
        text += dec->content.size_bytes;
        size_bytes -= dec->content.size_bytes;
    }
    if (ends) {
        state->past_start = false;
        state->stripped = 0;
    }
    return pass(decoder, step + 1, text, size_bytes, ends);
}

/* A whole token: take up to strip_stop characters off its end, then the start. */
static int strip_both(struct ash_decoder *decoder, size_t step, const char *text, size_t size_bytes)
{
    const struct ash_tok_dec *dec = &decoder->tokenizer->decs.steps[step];
    size_t low = 0, mark = dec->content.size_bytes;

    for (size_t i = 0; i < dec->strip_start && size_bytes - low >= mark; i++, low += mark)
        if (memcmp(text + low, dec->content.data, mark) != 0) break;
    for (size_t i = 0; i < dec->strip_stop && size_bytes - low >= mark; i++, size_bytes -= mark)
        if (memcmp(text + size_bytes - mark, dec->content.data, mark) != 0) break;
    return pass(decoder, step + 1, text + low, size_bytes - low, true);
}

/* ---- the chain --------------------------------------------------------------------------------------------------- */

static int take_token(struct ash_decoder *decoder, size_t step, const char *text, size_t size_bytes)
{
    int rc = 0;

    switch (decoder->tokenizer->decs.steps[step].kind) {
    case ASH_TOK_DEC_JOIN:
        rc = take_join(decoder, step, text, size_bytes);
        break;
    case ASH_TOK_DEC_BYTES:
        rc = take_bytes(decoder, step, text, size_bytes);
        break;
    case ASH_TOK_DEC_REPLACE:
        rc = take_replace(decoder, step, text, size_bytes);
        break;
    case ASH_TOK_DEC_FALLBACK:
        rc = take_fallback(decoder, step, text, size_bytes);
        break;
    case ASH_TOK_DEC_FUSE:
        rc = pass(decoder, step + 1, text, size_bytes, false);
        break;
    case ASH_TOK_DEC_STRIP:
        rc = strip_both(decoder, step, text, size_bytes);
        break;
    case ASH_TOK_DEC_METASPACE:
        rc = take_metaspace(decoder, step, text, size_bytes);
        break;
    case ASH_TOK_DEC_WORD_PIECE:
        rc = take_word_piece(decoder, step, text, size_bytes);
        break;
    }
    decoder->states[step].tokens++;
    return rc;
}

/* Give step a piece of a token; ends: it is the last one. */
static int pass(struct ash_decoder *decoder, size_t step, const char *text, size_t size_bytes, bool ends)
{
    const struct ash_tok_dec *dec = &decoder->tokenizer->decs.steps[step];
    struct ash_str *partial = &decoder->states[step].partial;
    int rc;

    if (step == decoder->tokenizer->decs.count) return ash_str_add(decoder->out, text, size_bytes);
    if (dec->kind == ASH_TOK_DEC_FUSE) return pass(decoder, step + 1, text, size_bytes, false);
    if (dec->kind == ASH_TOK_DEC_STRIP && dec->strip_stop == 0)
        return strip_start(decoder, step, text, size_bytes, ends);
    if (ends && partial->size_bytes == 0) return take_token(decoder, step, text, size_bytes);
    rc = ash_str_add(partial, text, size_bytes);
    if (rc < 0 || !ends) return rc;
    rc = take_token(decoder, step, partial->data, partial->size_bytes);
    ash_str_clear(partial);
    return rc;
}

/* No token will come any more. */
static int finish_step(struct ash_decoder *decoder, size_t step)
{
    int rc = 0;

    switch (decoder->tokenizer->decs.steps[step].kind) {
    case ASH_TOK_DEC_FALLBACK:
        return flush_fallback(decoder, step);
    case ASH_TOK_DEC_BYTES:
        rc = flush_bytes(decoder, step, true);
        break;
    case ASH_TOK_DEC_FUSE:
        break;
    default:
        return 0;
    }
    return rc < 0 ? rc : pass(decoder, step + 1, NULL, 0, true); /* the one token that they make ends */
}

static void reset(struct ash_decoder *decoder)
{
    for (size_t i = 0; i < decoder->tokenizer->decs.count; i++) {
        ash_str_fini(&decoder->states[i].partial);
        ash_str_fini(&decoder->states[i].held);
        decoder->states[i] = (struct step_state){0};
    }
}

/* An error of a step, said once; what the call had appended is taken back. */
static int settle(struct ash_decoder *decoder, size_t before, int rc)
{
    if (rc >= 0) return 0;
    ash_str_cut(decoder->out, before);
    return rc == -ENOMEM ? ash_err_set(decoder->err, rc, "out of memory while decoding") : rc;
}

int ash_decoder_push(struct ash_decoder *decoder, int32_t id, struct ash_str *text, struct ash_err *err)
{
    const struct ash_tokenizer *tokenizer = decoder->tokenizer;
    const struct ash_tok_entry *entry;
    const struct ash_tok_added_token *added;

    ash_assert(text != NULL);
    if (ash_tokenizer_content(tokenizer, id) == NULL)
        return ash_err_set(err, -EINVAL, "no token has the id %d (the vocabulary ends at %zu)", id,
                           tokenizer->model.vocab.entry_count);
    if (decoder->skip_special && ash_tokenizer_is_special(tokenizer, id)) return 0;
    decoder->out = text;
    decoder->err = err;
    entry = &tokenizer->model.vocab.entries[id];
    if (entry->added < 0)
        return settle(decoder, text->size_bytes, pass(decoder, 0, entry->content, entry->size_bytes, true));
    added = &tokenizer->added
                 .tokens[entry->added]; /* in the shape that it had in the text, so that the steps can undo it */
    return settle(decoder, text->size_bytes, pass(decoder, 0, added->shape.data, added->shape.size_bytes, true));
}

int ash_decoder_finish(struct ash_decoder *decoder, struct ash_str *text, struct ash_err *err)
{
    size_t before = text->size_bytes;
    int rc = 0;

    decoder->out = text;
    decoder->err = err;
    for (size_t i = 0; rc == 0 && i < decoder->tokenizer->decs.count; i++)
        rc = finish_step(decoder, i);
    reset(decoder);
    return settle(decoder, before, rc);
}

/* The prompt ends here. What a step still holds was shown with the prompt: only the beginning of a character stays, for
 * the answer may finish it. */
static int end_prompt(struct ash_decoder *decoder, size_t step)
{
    struct step_state *state = &decoder->states[step];
    size_t tail = ash_utf8_incomplete_tail(state->held.data, state->held.size_bytes);
    int rc = 0;

    if (state->partial.size_bytes > 0) rc = take_token(decoder, step, state->partial.data, state->partial.size_bytes);
    ash_str_clear(&state->partial);
    if (tail > 0) memmove(state->held.data, state->held.data + state->held.size_bytes - tail, tail);
    state->held.size_bytes = tail;
    state->prompt_bytes = tail;
    return rc;
}

int ash_decoder_start(struct ash_decoder *decoder, const int32_t *prompt, size_t count, struct ash_err *err)
{
    struct ash_str shown = {0};
    int rc = 0;

    ash_assert(prompt != NULL || count == 0);
    reset(decoder);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        ash_str_clear(&shown);
        rc = ash_decoder_push(decoder, prompt[i], &shown, err);
    }
    decoder->out = &shown;
    decoder->err = err;
    for (size_t i = 0; rc == 0 && i < decoder->tokenizer->decs.count; i++)
        rc = settle(decoder, 0, end_prompt(decoder, i));
    ash_str_fini(&shown);
    return rc;
}

int ash_decoder_open(const struct ash_tokenizer *tokenizer, bool skip_special, struct ash_decoder **decoder_out,
                     struct ash_err *err)
{
    struct ash_decoder *decoder = calloc(1, sizeof(*decoder));

    if (decoder == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a decoder");
    decoder->tokenizer = tokenizer;
    decoder->skip_special = skip_special;
    *decoder_out = decoder;
    return 0;
}

void ash_decoder_close(struct ash_decoder *decoder)
{
    if (decoder == NULL) return;
    reset(decoder);
    free(decoder);
}

int ash_tokenizer_decode(const struct ash_tokenizer *tokenizer, const int32_t *ids, size_t count, bool skip_special,
                         struct ash_str *text, struct ash_err *err)
{
    struct ash_decoder *decoder = NULL;
    size_t before = text->size_bytes;
    int rc = ash_decoder_open(tokenizer, skip_special, &decoder, err);

    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = ash_decoder_push(decoder, ids[i], text, err);
    if (rc == 0) rc = ash_decoder_finish(decoder, text, err);
    ash_decoder_close(decoder);
    if (rc < 0) ash_str_cut(text, before);
    return rc;
}
