/* A tokenizer as the metadata of a GGUF file, so that llama.cpp gives the same ids. Its "gpt2" kind merges by rank, as
 * byte-level tokenizers do. Its "llama" kind merges by the score of what a merge makes, wherever two neighbours make a
 * token: scores that fall in the order of the merges say the same where every way to make a token is listed, together
 * with its others, as in the files of models whose vocabulary SentencePiece made. */
#include "text/tokenizer/gguf_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 32
#define SCORE_NEVER (-1e6f) /* of a token that no merge makes */

struct export
{
    const struct ash_tokenizer *tokenizer;
    size_t vocab;
    struct ash_arena *arena;
    struct ash_gguf_entries *entries;
    struct ash_str *notes; /* or NULL */
};

static int out_of_memory(struct ash_err *err)
{
    return ash_err_set(err, -ENOMEM, "out of memory for the vocabulary");
}

static int note(struct export *export, const char *sentence)
{
    if (export->notes == NULL) return 0;
    if (export->notes->size_bytes > 0 && ash_str_adds(export->notes, "\n") < 0) return -ENOMEM;
    return ash_str_adds(export->notes, sentence);
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

static enum ash_tok_gguf_type type_of(const struct ash_tokenizer *tokenizer, int32_t id)
{
    const struct ash_tok_entry *entry = &tokenizer->model.vocab.entries[id];

    if (id == tokenizer->model.unknown_id) return ASH_TOK_GGUF_UNKNOWN;
    if (entry->added < 0) return ASH_TOK_GGUF_NORMAL;
    return tokenizer->added.tokens[entry->added].special ? ASH_TOK_GGUF_CONTROL : ASH_TOK_GGUF_USER_DEFINED;
}

/* Every row of the embedding has a token: those that the tokenizer does not know are filled up. */
static int add_tokens(struct export *export, struct ash_err *err)
{
    const struct ash_tok_model *model = &export->tokenizer->model;
    const char **texts = ash_arena_calloc(export->arena, export->vocab, sizeof(*texts));
    int32_t *types = ash_arena_calloc(export->arena, export->vocab, sizeof(*types));
    char(*fill)[NAME_BYTES] = ash_arena_calloc(export->arena, export->vocab, NAME_BYTES);

    if (texts == NULL || types == NULL || fill == NULL) return out_of_memory(err);
    for (size_t id = 0; id < export->vocab; id++) {
        texts[id] = ash_tokenizer_content(export->tokenizer, (int32_t)id);
        if (texts[id] != NULL) {
            types[id] = (int32_t)type_of(export->tokenizer, (int32_t)id);
            continue;
        }
        snprintf(fill[id], NAME_BYTES, "[PAD%zu]", id);
        texts[id] = fill[id];
        types[id] = ASH_TOK_GGUF_UNUSED;
    }
    for (size_t byte = 0; byte < 256 && model->byte_fallback; byte++)
        if (model->bytes[byte] >= 0) types[model->bytes[byte]] = ASH_TOK_GGUF_BYTE;
    ash_gguf_add_array(export->entries, "tokenizer.ggml.tokens", ASH_GGUF_STRING, texts, export->vocab);
    ash_gguf_add_array(export->entries, "tokenizer.ggml.token_type", ASH_GGUF_I32, types, export->vocab);
    return 0;
}

/* ---- merges ------------------------------------------------------------------------------------------------------ */

static int by_rank(const void *a, const void *b)
{
    uint32_t x = ((const struct ash_tok_merge *)a)->rank, y = ((const struct ash_tok_merge *)b)->rank;

    return (x > y) - (x < y);
}

/* The merges in the order of their ranks, and how many there are. NULL when out of memory. */
static struct ash_tok_merge *sorted_merges(struct export *export, size_t *count_out)
{
    const struct ash_tok_merges *merges = &export->tokenizer->model.merges;
    struct ash_tok_merge *list = ash_arena_calloc(export->arena, merges->mask + 1, sizeof(*list));
    size_t count = 0;

    for (size_t i = 0; list != NULL && i <= merges->mask; i++)
        if (merges->slots[i].rank != ASH_TOK_NO_RANK) list[count++] = merges->slots[i];
    if (list != NULL) qsort(list, count, sizeof(*list), by_rank);
    *count_out = count;
    return list;
}

/* Each as "a b". */
static int add_merges(struct export *export, struct ash_err *err)
{
    const struct ash_tok_entry *entries = export->tokenizer->model.vocab.entries;
    size_t count = 0, bytes = 0;
    const struct ash_tok_merge *merges = sorted_merges(export, &count);
    const char **texts = ash_arena_calloc(export->arena, count, sizeof(*texts));
    char *to;

    for (size_t i = 0; merges != NULL && i < count; i++)
        bytes += entries[merges[i].left].size_bytes + entries[merges[i].right].size_bytes + 2;
    to = ash_arena_alloc(export->arena, bytes);
    if (merges == NULL || texts == NULL || to == NULL) return out_of_memory(err);
    for (size_t i = 0; i < count; i++) {
        const struct ash_tok_entry *left = &entries[merges[i].left], *right = &entries[merges[i].right];
        size_t size = (size_t)left->size_bytes + right->size_bytes + 2;

        snprintf(to, size, "%s %s", left->content, right->content);
        texts[i] = to;
        to += size;
    }
    ash_gguf_add_array(export->entries, "tokenizer.ggml.merges", ASH_GGUF_STRING, texts, count);
    return 0;
}

/* Is every pair of tokens that makes this token a merge? */
static bool all_splits_merge(const struct ash_tok_model *model, const struct ash_tok_entry *entry)
{
    for (size_t at = 1; at < entry->size_bytes; at++) {
        int32_t left, right;

        if (((uint8_t)entry->content[at] & 0xc0) == 0x80) continue; /* inside a character */
        left = ash_tok_vocab_find(&model->vocab, entry->content, at);
        right = ash_tok_vocab_find(&model->vocab, entry->content + at, entry->size_bytes - at);
        if (left >= 0 && right >= 0 &&
            ash_tok_merges_find(&model->merges, (uint32_t)left, (uint32_t)right)->rank == ASH_TOK_NO_RANK)
            return false;
    }
    return true;
}

/* Scores fall in the order of the merges. *exact_out: merging by them is merging by rank. */
static int add_scores(struct export *export, bool *exact_out, struct ash_err *err)
{
    const struct ash_tok_model *model = &export->tokenizer->model;
    size_t count = 0, order = 0;
    const struct ash_tok_merge *merges = sorted_merges(export, &count);
    float *scores = ash_arena_calloc(export->arena, export->vocab, sizeof(*scores));
    bool exact = true;

    if (merges == NULL || scores == NULL) return out_of_memory(err);
    for (size_t i = 0; i < export->vocab; i++)
        scores[i] = SCORE_NEVER;
    for (size_t i = 0; i < count; i++) {
        if (scores[merges[i].result] == SCORE_NEVER)
            scores[merges[i].result] = -(float)order++;
        else if (merges[i].result != merges[i - 1].result)
            exact = false;
    }
    for (size_t id = 0; exact && id < model->vocab.entry_count; id++)
        if (scores[id] != SCORE_NEVER) exact = all_splits_merge(model, &model->vocab.entries[id]);
    ash_gguf_add_array(export->entries, "tokenizer.ggml.scores", ASH_GGUF_F32, scores, export->vocab);
    *exact_out = exact;
    return 0;
}

/* ---- the two kinds ----------------------------------------------------------------------------------------------- */

static bool has_nfc_alone(const struct ash_tok_norms *norms)
{
    return norms->count == 1 && norms->steps[0].kind == ASH_TOK_FORM;
}

static int add_byte_level(struct export *export, struct ash_err *err)
{
    const struct ash_tokenizer *tokenizer = export->tokenizer;
    const struct ash_tok_gguf_words *words = ash_tok_gguf_words_of(&tokenizer->pres, tokenizer->model.ignore_merges);
    int rc = 0;

    ash_gguf_add_text(export->entries, "tokenizer.ggml.model", "gpt2");
    ash_gguf_add_text(export->entries, "tokenizer.ggml.pre", words != NULL ? words->name : "default");
    if (words == NULL)
        rc = note(export,
                  "GGUF files have no name for this tokenizer's way to cut words: 'default' is written, and llama.cpp "
                  "may give other ids");
    else if (words->nfc ? !has_nfc_alone(&tokenizer->norms) : tokenizer->norms.count > 0)
        rc = note(export, "GGUF files cannot say what this tokenizer's normalizer does: llama.cpp may give other ids");
    return rc < 0 ? out_of_memory(err) : add_merges(export, err);
}

/* Are spaces marked in the way that "llama" means, and is there a mark before the text? */
static bool marks_spaces(const struct ash_tokenizer *tokenizer, bool *prefix_out)
{
    const struct ash_tok_norms *norms = &tokenizer->norms;
    const struct ash_tok_pres *pres = &tokenizer->pres;
    const struct ash_tok_norm *replace = norms->count > 0 ? &norms->steps[norms->count - 1] : NULL;

    *prefix_out = false;
    if (norms->count == 0) {
        if (pres->count != 1 || pres->steps[0].kind != ASH_TOK_METASPACE) return false;
        *prefix_out = pres->steps[0].prepend != ASH_TOK_PREPEND_NEVER;
        return strcmp(pres->steps[0].pattern.text.data, ASH_TOK_SPACE_MARK) == 0;
    }
    if (pres->count > 0 || norms->count > 2) return false;
    *prefix_out = norms->steps[0].kind == ASH_TOK_PREPEND;
    return replace->kind == ASH_TOK_REPLACE && replace->pattern.kind == ASH_TOK_LITERAL &&
           strcmp(replace->pattern.text.data, " ") == 0 && strcmp(replace->content.data, ASH_TOK_SPACE_MARK) == 0 &&
           (norms->count == 1 || (*prefix_out && strcmp(norms->steps[0].content.data, ASH_TOK_SPACE_MARK) == 0));
}

static int add_scored(struct export *export, struct ash_err *err)
{
    bool prefix = false, exact = false, marked = marks_spaces(export->tokenizer, &prefix);
    int rc = add_scores(export, &exact, err);

    if (rc < 0) return rc;
    ash_gguf_add_text(export->entries, "tokenizer.ggml.model", "llama");
    ash_gguf_add_text(export->entries, "tokenizer.ggml.pre", "default");
    ash_gguf_add_bool(export->entries, "tokenizer.ggml.add_space_prefix", prefix);
    if (!exact)
        rc = note(export, "this tokenizer lists only some ways to merge into a token, and llama.cpp takes all: it may "
                          "give other ids");
    if (rc == 0 && !marked)
        rc = note(export, "this tokenizer does not mark spaces as llama.cpp does: it may give other ids");
    if (rc == 0 && !export->tokenizer->model.all_bytes)
        rc = note(export, "this vocabulary has no tokens for bytes: llama.cpp fails on characters that it lacks");
    return rc < 0 ? out_of_memory(err) : 0;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* What goes around a text: one id before it, one after it, as far as a GGUF file can say. */
static int add_template(struct export *export, int32_t bos, struct ash_err *err)
{
    const struct ash_tok_post *post = &export->tokenizer->post;
    size_t before = 0, after = 0;

    while (before < post->count && post->ids[before] != ASH_TOK_SEQUENCE)
        before++;
    while (after + before < post->count && post->ids[post->count - 1 - after] != ASH_TOK_SEQUENCE)
        after++;
    if (before > 0) bos = post->ids[before - 1];
    if (bos >= 0) ash_gguf_add_number(export->entries, "tokenizer.ggml.bos_token_id", (uint32_t)bos);
    ash_gguf_add_bool(export->entries, "tokenizer.ggml.add_bos_token", before > 0);
    ash_gguf_add_bool(export->entries, "tokenizer.ggml.add_eos_token", after > 0);
    if (before <= 1 && after <= 1 && before + after + 1 >= post->count) return 0;
    return note(export,
                "GGUF files cannot say all that this tokenizer puts around a text: llama.cpp may give other ids") < 0
               ? out_of_memory(err)
               : 0;
}

int ash_tokenizer_to_gguf(const struct ash_tokenizer *tokenizer, size_t vocab, int32_t bos, struct ash_arena *arena,
                          struct ash_gguf_entries *entries, struct ash_str *notes, struct ash_err *err)
{
    struct export export = {tokenizer, vocab, arena, entries, notes};
    int rc;

    if (ash_tokenizer_vocab_size(tokenizer) > vocab)
        return ash_err_set(err, -EINVAL, "the tokenizer has ids up to %zu, but the model only %zu tokens",
                           ash_tokenizer_vocab_size(tokenizer) - 1, vocab);
    if (tokenizer->model.is_word_piece)
        return ash_err_set(err, -ENOTSUP, "a vocabulary of word pieces cannot be written into a GGUF file");
    if (tokenizer->model.scores != NULL)
        return ash_err_set(err, -ENOTSUP, "a unigram vocabulary cannot be written into a GGUF file");
    rc = tokenizer->model.byte_level ? add_byte_level(&export, err) : add_scored(&export, err);
    if (rc == 0) rc = add_tokens(&export, err);
    if (rc == 0) rc = add_template(&export, bos, err);
    if (rc == 0 && tokenizer->model.unknown_id >= 0)
        ash_gguf_add_number(entries, "tokenizer.ggml.unknown_token_id", (uint32_t)tokenizer->model.unknown_id);
    return rc;
}
