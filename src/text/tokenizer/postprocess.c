/* Post-processors: what goes around the ids of a text. ByteLevel only trims offsets, which are not used here. */
#include "text/tokenizer/tokenizer_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define TEMPLATE_IDS_MAX 4096

static int template_add(struct ash_tok_post *post, int32_t id, struct ash_err *err)
{
    int32_t *grown;

    if (post->count == TEMPLATE_IDS_MAX)
        return ash_err_set(err, -E2BIG, "more than %d ids in a template", TEMPLATE_IDS_MAX);
    grown = realloc(post->ids, (post->count + 1) * sizeof(*grown));
    if (grown == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a template");
    post->ids = grown;
    post->ids[post->count++] = id;
    return 0;
}

static int pair_add(struct ash_tok_post *post, int32_t id, bool is_second, struct ash_err *err)
{
    struct ash_tok_pair_item *grown;

    if (post->pair_count == TEMPLATE_IDS_MAX)
        return ash_err_set(err, -E2BIG, "more than %d ids in a template", TEMPLATE_IDS_MAX);
    grown = realloc(post->pair, (post->pair_count + 1) * sizeof(*grown));
    if (grown == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a template");
    post->pair = grown;
    post->pair[post->pair_count++] = (struct ash_tok_pair_item){id, is_second};
    return 0;
}

/* Where ids of a template go: the single text's, or the pair's, of which is_second. */
struct template
{
    struct ash_tok_post *post;
    bool is_pair, is_second;
};

static int template_put(const struct template *to, int32_t id, struct ash_err *err)
{
    return to->is_pair ? pair_add(to->post, id, to->is_second, err) : template_add(to->post, id, err);
}

/* {"SpecialToken": {"id": "<s>"}}: the ids are in "special_tokens". */
static int template_special(const struct template *to, const json_t *processor, const json_t *piece,
                            struct ash_err *err)
{
    const char *name = NULL;
    const json_t *ids = NULL;
    size_t index;
    json_t *id;
    int rc = ash_json_string(piece, "id", &name, err);

    if (rc >= 0 && name != NULL)
        rc = ash_json_array(json_object_get(json_object_get(processor, "special_tokens"), name), "ids", &ids, err);
    if (rc < 0) return rc;
    if (ids == NULL) return ash_err_set(err, -EINVAL, "special token '%.64s' has no 'ids'", name != NULL ? name : "");
    json_array_foreach(ids, index, id) {
        json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value > ASH_TOK_ID_MAX)
            return ash_err_set(err, -EINVAL, "special token '%.64s' has an id that is no integer from 0 to %d", name,
                               ASH_TOK_ID_MAX);
        rc = template_put(to, (int32_t)value, err);
        if (rc < 0) return rc;
    }
    return 0;
}

/* One piece of "single" or "pair". */
static int template_piece(struct template *to, const json_t *processor, const json_t *piece, struct ash_err *err)
{
    const json_t *sequence = json_object_get(piece, "Sequence"), *special = json_object_get(piece, "SpecialToken");
    const char *name = "", *where = to->is_pair ? "pair" : "single";
    int64_t type = 0;
    int rc;

    if (sequence == NULL && special == NULL)
        return ash_err_set(err, -ENOTSUP, "'%s' holds neither a Sequence nor a SpecialToken", where);
    rc = ash_json_int(sequence != NULL ? sequence : special, "type_id", 0, INT32_MAX, &type, err);
    if (rc < 0) return rc;
    to->is_second = type > 0;
    if (sequence == NULL) return template_special(to, processor, special, err);
    rc = ash_json_string(sequence, "id", &name, err);
    if (rc < 0) return rc;
    if (to->is_pair && strcmp(name, "B") == 0) return template_put(to, ASH_TOK_SECOND, err);
    if (strcmp(name, "A") != 0)
        return ash_err_set(err, -EINVAL, "'%s' names the sequence '%.64s'; there is only A%s", where, name,
                           to->is_pair ? " and B" : "");
    return template_put(to, ASH_TOK_SEQUENCE, err);
}

static int load_template(struct ash_tok_post *post, const json_t *processor, struct ash_err *err)
{
    const json_t *single = NULL, *pair = NULL;
    struct template to = {.post = post};
    size_t index;
    json_t *piece;
    int rc = ash_json_array(processor, "single", &single, err);

    if (rc >= 0) rc = ash_json_array(processor, "pair", &pair, err);
    if (rc < 0) return rc;
    if (single == NULL) return ash_err_set(err, -EINVAL, "'single' is missing");
    if (post->has_template) return ash_err_set(err, -ENOTSUP, "a second template is not supported");
    post->has_template = true;
    json_array_foreach(single, index, piece) {
        rc = template_piece(&to, processor, piece, err);
        if (rc < 0) return rc;
    }
    to.is_pair = true;
    json_array_foreach(pair, index, piece) {
        rc = template_piece(&to, processor, piece, err);
        if (rc < 0) return rc;
    }
    return 0;
}

/* ["[CLS]", 101] at key. */
static int add_named(struct ash_tok_post *post, const json_t *processor, const char *key, struct ash_err *err)
{
    const json_t *id = json_array_get(json_object_get(processor, key), 1);
    json_int_t value = json_integer_value(id);

    if (!json_is_integer(id) || value < 0 || value > ASH_TOK_ID_MAX)
        return ash_err_set(err, -EINVAL, "'%s' is not a token and its id", key);
    return template_add(post, (int32_t)value, err);
}

/* Pairs: cls A sep B sep, B and what follows it apart; or (roberta) cls A sep sep B sep. */
static int load_around_pair(struct ash_tok_post *post, bool is_roberta, struct ash_err *err)
{
    int32_t cls = post->ids[0], sep = post->ids[2];
    int rc = pair_add(post, cls, false, err);

    if (rc == 0) rc = pair_add(post, ASH_TOK_SEQUENCE, false, err);
    if (rc == 0) rc = pair_add(post, sep, false, err);
    if (rc == 0 && is_roberta) rc = pair_add(post, sep, false, err);
    if (rc == 0) rc = pair_add(post, ASH_TOK_SECOND, !is_roberta, err);
    return rc == 0 ? pair_add(post, sep, !is_roberta, err) : rc;
}

/* BertProcessing and RobertaProcessing: cls, the text, sep. */
static int load_around(struct ash_tok_post *post, const json_t *processor, bool is_roberta, struct ash_err *err)
{
    int rc;

    if (post->has_template) return ash_err_set(err, -ENOTSUP, "a second template is not supported");
    post->has_template = true;
    rc = add_named(post, processor, "cls", err);
    if (rc == 0) rc = template_add(post, ASH_TOK_SEQUENCE, err);
    if (rc == 0) rc = add_named(post, processor, "sep", err);
    return rc == 0 ? load_around_pair(post, is_roberta, err) : rc;
}

static int load_step(void *ctx, const json_t *step, const char *type, struct ash_err *err)
{
    if (strcmp(type, "ByteLevel") == 0) return 0;
    if (strcmp(type, "TemplateProcessing") == 0) return load_template(ctx, step, err);
    if (strcmp(type, "BertProcessing") == 0) return load_around(ctx, step, false, err);
    if (strcmp(type, "RobertaProcessing") == 0) return load_around(ctx, step, true, err);
    return ash_err_set(err, -ENOTSUP, "type '%.64s' is not supported", type);
}

int ash_tok_post_load(struct ash_tok_post *post, const json_t *root, struct ash_err *err)
{
    return ash_tok_each_step(json_object_get(root, "post_processor"), "post_processor", "processors", load_step, post,
                             err);
}

int ash_tok_post_begin(struct ash_tokenizer *tokenizer, int32_t id, struct ash_err *err)
{
    struct ash_tok_post *post = &tokenizer->post;
    int rc;

    if (id < 0) return 0; /* a token that the vocabulary lacks is left out */
    post->has_template = true;
    rc = template_add(post, id, err);
    if (rc == 0) rc = template_add(post, ASH_TOK_SEQUENCE, err);
    tokenizer->hash = ash_hash_bytes(&id, sizeof(id), tokenizer->hash);
    return rc;
}

void ash_tok_post_fini(struct ash_tok_post *post)
{
    free(post->ids);
    free(post->pair);
    *post = (struct ash_tok_post){0};
}
