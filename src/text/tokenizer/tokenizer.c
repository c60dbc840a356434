/* The tokenizer as a whole: reading its JSON, looking tokens up, and encoding. */
#include "text/tokenizer/tokenizer_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/utf8.h"

#define VERSION "1.0"

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Sums commute: the order in which a file lists its tokens does not matter. */
static uint64_t hash_model(const struct ash_tok_model *model)
{
    uint64_t sum = (uint64_t)model->byte_level << 0 | (uint64_t)model->fuse_unknown << 1 |
                   (uint64_t)model->byte_fallback << 2 | (uint64_t)model->ignore_merges << 3 |
                   (uint64_t)model->has_unknown << 4 | (uint64_t)(uint32_t)model->unknown_id << 5;

    if (model->is_word_piece)
        sum += ash_hash_bytes(model->subword_prefix.data, model->subword_prefix.size_bytes, model->word_chars_max);
    for (size_t id = 0; model->scores != NULL && id < model->vocab.token_count; id++)
        sum += ash_hash_mix(ash_hash_bytes(&model->scores[id], sizeof(double), id));
    for (size_t id = 0; id < model->vocab.entry_count; id++) {
        const struct ash_tok_entry *entry = &model->vocab.entries[id];
        if (entry->content != NULL) sum += ash_hash_mix(ash_hash_bytes(entry->content, entry->size_bytes, id));
    }
    for (size_t i = 0; i <= model->merges.mask; i++) {
        const struct ash_tok_merge *merge = &model->merges.slots[i];
        if (merge->rank != ASH_TOK_NO_RANK) sum += ash_hash_mix(ash_hash_bytes(merge, sizeof(*merge), 1));
    }
    return sum;
}

/* The other parts decide the ids too; they are small, so their text is hashed. */
static int hash_parts(struct ash_tokenizer *tokenizer, const json_t *root, struct ash_err *err)
{
    static const char *const keys[] = {"added_tokens", "normalizer", "pre_tokenizer", "post_processor"};

    tokenizer->hash = ash_hash_mix(hash_model(&tokenizer->model));
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        char *text = json_dumps(json_object_get(root, keys[i]), JSON_SORT_KEYS | JSON_COMPACT | JSON_ENCODE_ANY);
        if (text == NULL && json_object_get(root, keys[i]) != NULL)
            return ash_err_set(err, -ENOMEM, "out of memory for '%s'", keys[i]);
        if (text != NULL) tokenizer->hash = ash_hash_bytes(text, strlen(text), tokenizer->hash);
        free(text);
    }
    return 0;
}

static int check_version(const json_t *root, struct ash_err *err)
{
    const char *version = VERSION;
    int rc = json_is_object(root) ? ash_json_string(root, "version", &version, err)
                                  : ash_err_set(err, -EINVAL, "it is not a JSON object");

    if (rc < 0) return rc;
    if (strcmp(version, VERSION) != 0)
        return ash_err_set(err, -ENOTSUP, "version '%.64s' is not supported, only " VERSION " is", version);
    return 0;
}

static int load_parts(struct ash_tokenizer *tokenizer, const json_t *root, bool may_be_raw, ash_tok_model_fn load_model,
                      void *ctx, struct ash_err *err)
{
    bool raw_bytes;
    int rc = ash_tok_norms_load(&tokenizer->norms, root, err);

    if (rc >= 0) rc = ash_tok_pres_load(&tokenizer->pres, root, err);
    if (rc < 0) return rc;
    raw_bytes = ash_tok_pres_end_in_bytes(&tokenizer->pres) && may_be_raw;
    ash_tok_pres_set_raw(&tokenizer->pres, raw_bytes);
    rc = load_model(ctx, &tokenizer->model, raw_bytes, err);
    if (rc >= 0) rc = ash_tok_post_load(&tokenizer->post, root, err);
    if (rc >= 0) rc = ash_tok_decs_load(&tokenizer->decs, root, err);
    if (rc >= 0) rc = hash_parts(tokenizer, root, err);
    if (rc < 0) return rc;
    tokenizer->idle = ash_tok_scratch_open();
    if (tokenizer->idle == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    return ash_tok_added_load(&tokenizer->added, root, &tokenizer->model.vocab, &tokenizer->norms, tokenizer->idle,
                              err);
}

int ash_tok_assemble(const json_t *root, bool may_be_raw, ash_tok_model_fn load_model, void *ctx, const char *name,
                     struct ash_tokenizer **tokenizer_out, struct ash_err *err)
{
    struct ash_tokenizer *tokenizer = calloc(1, sizeof(*tokenizer));
    int rc;

    if (tokenizer == NULL || pthread_mutex_init(&tokenizer->lock, NULL) != 0) {
        free(tokenizer);
        return ash_err_set(err, -ENOMEM, "%s: out of memory", name);
    }
    tokenizer->fim = (struct ash_fim_marks){-1, -1, -1};
    rc = load_parts(tokenizer, root, may_be_raw, load_model, ctx, err);
    if (rc < 0) {
        ash_tokenizer_close(tokenizer);
        return ash_err_prefix(err, rc, "%s", name);
    }
    *tokenizer_out = tokenizer;
    return 0;
}

static int load_json_model(void *ctx, struct ash_tok_model *model, bool byte_level, struct ash_err *err)
{
    return ash_tok_model_load(model, ctx, byte_level, err);
}

int ash_tokenizer_parse(const char *json, size_t size_bytes, const char *name, struct ash_tokenizer **tokenizer_out,
                        struct ash_err *err)
{
    const json_t *model = NULL;
    json_t *root = NULL;
    bool fallback = false;
    int rc = ash_json_parse(json, size_bytes, name, &root, err);

    if (rc < 0) return rc;
    rc = check_version(root, err);
    if (rc >= 0) rc = ash_json_object(root, "model", &model, err);
    if (rc >= 0 && model == NULL) rc = ash_err_set(err, -EINVAL, "'model' is missing");
    if (rc >= 0) rc = ash_json_bool(model, "byte_fallback", &fallback, err);
    if (rc < 0) {
        json_decref(root);
        return ash_err_prefix(err, rc, "%s", name);
    }
    /* with a fallback <0x..> names bytes of characters, not of text */
    rc = ash_tok_assemble(root, !fallback, load_json_model, (void *)model, name, tokenizer_out, err);
    json_decref(root);
    return rc;
}

void ash_tokenizer_close(struct ash_tokenizer *tokenizer)
{
    if (tokenizer == NULL) return;
    while (tokenizer->idle != NULL) {
        struct ash_tok_scratch *next = tokenizer->idle->next;
        ash_tok_scratch_close(tokenizer->idle);
        tokenizer->idle = next;
    }
    ash_tok_added_fini(&tokenizer->added);
    ash_tok_model_fini(&tokenizer->model);
    ash_tok_norms_fini(&tokenizer->norms);
    ash_tok_pres_fini(&tokenizer->pres);
    ash_tok_post_fini(&tokenizer->post);
    ash_tok_decs_fini(&tokenizer->decs);
    pthread_mutex_destroy(&tokenizer->lock);
    free(tokenizer);
}

/* ---- looking up -------------------------------------------------------------------------------------------------- */

size_t ash_tokenizer_vocab_size(const struct ash_tokenizer *tokenizer)
{
    return tokenizer->model.vocab.entry_count;
}

int32_t ash_tokenizer_id(const struct ash_tokenizer *tokenizer, const char *content)
{
    int32_t id = ash_tok_added_find(&tokenizer->added, content);

    return id >= 0 ? id : ash_tok_vocab_find(&tokenizer->model.vocab, content, strlen(content));
}

const char *ash_tokenizer_content(const struct ash_tokenizer *tokenizer, int32_t id)
{
    if (id < 0 || (size_t)id >= tokenizer->model.vocab.entry_count) return NULL;
    return tokenizer->model.vocab.entries[id].content;
}

bool ash_tokenizer_is_special(const struct ash_tokenizer *tokenizer, int32_t id)
{
    int32_t added;

    if (ash_tokenizer_content(tokenizer, id) == NULL) return false;
    added = tokenizer->model.vocab.entries[id].added;
    return added >= 0 && tokenizer->added.tokens[added].special;
}

uint64_t ash_tokenizer_hash(const struct ash_tokenizer *tokenizer)
{
    return tokenizer->hash;
}

/* ---- encoding ---------------------------------------------------------------------------------------------------- */

struct encoding {
    struct ash_tok_run run;
    bool at_start; /* the piece that is being normalized begins where the text begins */
};

/* A part of normalized text, or a token that was looked for in it. */
static int encode_normalized(void *ctx, struct ash_tok_span piece, const struct ash_tok_added_token *token,
                             size_t offset)
{
    struct encoding *encoding = ctx;

    if (token != NULL) return ash_ids_add(encoding->run.ids, token->id);
    return ash_tok_pres_encode(&encoding->run, piece, encoding->at_start && offset == 0);
}

/* A part of the text as it came, or a token that was looked for in it. */
static int encode_raw(void *ctx, struct ash_tok_span piece, const struct ash_tok_added_token *token, size_t offset)
{
    struct encoding *encoding = ctx;
    const struct ash_tokenizer *tokenizer = encoding->run.tokenizer;
    int rc;

    if (token != NULL) return ash_ids_add(encoding->run.ids, token->id);
    encoding->at_start = offset == 0;
    rc = ash_tok_norms_apply(&tokenizer->norms, encoding->run.scratch, piece, &piece, encoding->run.err);
    if (rc < 0) return rc;
    return ash_tok_added_cut(&tokenizer->added, tokenizer->added.normalized, piece, encode_normalized, encoding);
}

static int encode_text(struct encoding *encoding, struct ash_tok_span text)
{
    const struct ash_tok_added *added = &encoding->run.tokenizer->added;

    return ash_tok_added_cut(added, added->raw, text, encode_raw, encoding);
}

/* The text with its template around it. A template that names the text twice gets it twice. */
static int encode_template(struct encoding *encoding, struct ash_tok_span text, bool add_special)
{
    const struct ash_tok_post *post = &encoding->run.tokenizer->post;
    struct ash_ids *ids = encoding->run.ids;
    size_t start = 0, count = SIZE_MAX;
    int rc = 0;

    if (!post->has_template) return encode_text(encoding, text);
    for (size_t i = 0; rc == 0 && i < post->count; i++) {
        if (post->ids[i] != ASH_TOK_SEQUENCE) {
            if (add_special) rc = ash_ids_add(ids, post->ids[i]);
        } else if (count == SIZE_MAX) {
            start = ids->count;
            rc = encode_text(encoding, text);
            count = ids->count - start;
        } else {
            for (size_t k = 0; rc == 0 && k < count; k++)
                rc = ash_ids_add(ids, ids->data[start + k]);
        }
    }
    return rc;
}

/* Two texts with the template of pairs around them. */
static int encode_pair(struct encoding *encoding, const char *const texts[2], size_t *second_out)
{
    const struct ash_tok_post *post = &encoding->run.tokenizer->post;
    struct ash_ids *ids = encoding->run.ids;
    size_t before = ids->count;
    int rc = 0;

    *second_out = 0;
    for (size_t i = 0; rc == 0 && i < post->pair_count; i++) {
        const struct ash_tok_pair_item *item = &post->pair[i];
        const char *text = texts[item->id == ASH_TOK_SECOND];

        if (item->is_second && *second_out == 0) *second_out = ids->count - before;
        if (item->id >= 0)
            rc = ash_ids_add(ids, item->id);
        else
            rc = encode_text(encoding, (struct ash_tok_span){text, strlen(text)});
    }
    return rc;
}

/* Is it a text that can be cut? */
static int check_text(const char *text, size_t size_bytes, struct ash_err *err)
{
    size_t valid;

    if (size_bytes > ASH_TOK_TEXT_BYTES_MAX)
        return ash_err_set(err, -E2BIG, "a text of %zu bytes is too long; cut it into parts of at most %zu", size_bytes,
                           ASH_TOK_TEXT_BYTES_MAX);
    valid = ash_utf8_valid_prefix(text, size_bytes);
    if (valid == size_bytes) return 0;
    return ash_err_set(err, -EILSEQ, "byte %zu of the text (0x%02x) is not UTF-8", valid, (uint8_t)text[valid]);
}

int ash_tokenizer_encode_pair(const struct ash_tokenizer *tokenizer, const char *first, const char *second,
                              struct ash_ids *ids, size_t *second_out, struct ash_err *err)
{
    struct encoding encoding = {.run = {.tokenizer = tokenizer, .ids = ids, .err = err}};
    const char *const texts[2] = {first, second};
    size_t before = ids->count, bytes = strlen(first) + strlen(second);
    int rc;

    if (tokenizer->post.pair == NULL)
        return ash_err_set(err, -ENOTSUP, "the tokenizer has no template for pairs of texts");
    for (size_t i = 0; i < 2; i++) {
        rc = check_text(texts[i], strlen(texts[i]), err);
        if (rc < 0) return rc;
    }
    encoding.run.scratch = ash_tok_scratch_get(tokenizer);
    if (encoding.run.scratch == NULL) return ash_err_set(err, -ENOMEM, "out of memory while encoding");
    ash_tok_scratch_limit(encoding.run.scratch, bytes);
    rc = encode_pair(&encoding, texts, second_out);
    ash_tok_scratch_put(tokenizer, encoding.run.scratch);
    if (rc >= 0) return 0;
    ids->count = before;
    return rc == -ENOMEM ? ash_err_set(err, rc, "out of memory while encoding %zu bytes", bytes) : rc;
}

int ash_tokenizer_encode(const struct ash_tokenizer *tokenizer, const char *text, size_t size_bytes, bool add_special,
                         struct ash_ids *ids, struct ash_err *err)
{
    struct encoding encoding = {.run = {.tokenizer = tokenizer, .ids = ids, .err = err}};
    size_t before;
    int rc;

    ash_assert(ids != NULL && (text != NULL || size_bytes == 0));
    before = ids->count;
    rc = check_text(text, size_bytes, err);
    if (rc < 0) return rc;
    encoding.run.scratch = ash_tok_scratch_get(tokenizer);
    if (encoding.run.scratch == NULL) return ash_err_set(err, -ENOMEM, "out of memory while encoding");
    ash_tok_scratch_limit(encoding.run.scratch, size_bytes);
    rc = encode_template(&encoding, (struct ash_tok_span){text, size_bytes}, add_special);
    ash_tok_scratch_put(tokenizer, encoding.run.scratch);
    if (rc >= 0) return 0;
    ids->count = before;
    return rc == -ENOMEM ? ash_err_set(err, rc, "out of memory while encoding %zu bytes", size_bytes) : rc;
}

int ash_tokenizer_cut(const struct ash_tokenizer *tokenizer, const char *text, size_t size_bytes,
                      ash_tokenizer_word_fn word, void *ctx, struct ash_err *err)
{
    struct ash_tok_run run = {.tokenizer = tokenizer, .word = word, .word_ctx = ctx, .err = err};
    struct ash_tok_span whole = {text, size_bytes};
    int rc = check_text(text, size_bytes, err);

    if (rc < 0) return rc;
    run.scratch = ash_tok_scratch_get(tokenizer);
    if (run.scratch == NULL) return ash_err_set(err, -ENOMEM, "out of memory while cutting a text");
    ash_tok_scratch_limit(run.scratch, size_bytes);
    rc = ash_tok_norms_apply(&tokenizer->norms, run.scratch, whole, &whole, err);
    if (rc >= 0) rc = ash_tok_pres_encode(&run, whole, true);
    ash_tok_scratch_put(tokenizer, run.scratch);
    if (rc >= 0) return 0;
    return rc == -ENOMEM ? ash_err_set(err, rc, "out of memory while cutting %zu bytes", size_bytes) : rc;
}
