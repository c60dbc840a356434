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

/* {"SpecialToken": {"id": "<s>"}}: the ids are in "special_tokens". */
static int template_special(struct ash_tok_post *post, const json_t *processor, const json_t *piece,
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
        rc = template_add(post, (int32_t)value, err);
        if (rc < 0) return rc;
    }
    return 0;
}

static int load_template(struct ash_tok_post *post, const json_t *processor, struct ash_err *err)
{
    const json_t *single = NULL;
    size_t index;
    json_t *piece;
    int rc = ash_json_array(processor, "single", &single, err);

    if (rc < 0) return rc;
    if (single == NULL) return ash_err_set(err, -EINVAL, "'single' is missing");
    if (post->has_template) return ash_err_set(err, -ENOTSUP, "a second template is not supported");
    post->has_template = true;
    json_array_foreach(single, index, piece) {
        const json_t *sequence = json_object_get(piece, "Sequence"), *special = json_object_get(piece, "SpecialToken");
        const char *name = "";
        rc = 0;
        if (sequence != NULL) rc = ash_json_string(sequence, "id", &name, err);
        if (rc >= 0 && sequence != NULL && strcmp(name, "A") != 0)
            rc = ash_err_set(err, -EINVAL, "'single' names the sequence '%.64s'; there is only A", name);
        if (rc >= 0 && sequence == NULL && special == NULL)
            rc = ash_err_set(err, -ENOTSUP, "'single' holds neither a Sequence nor a SpecialToken");
        if (rc >= 0)
            rc = sequence != NULL ? template_add(post, ASH_TOK_SEQUENCE, err)
                                  : template_special(post, processor, special, err);
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

/* BertProcessing and RobertaProcessing: cls, the text, sep. */
static int load_around(struct ash_tok_post *post, const json_t *processor, struct ash_err *err)
{
    int rc;

    if (post->has_template) return ash_err_set(err, -ENOTSUP, "a second template is not supported");
    post->has_template = true;
    rc = add_named(post, processor, "cls", err);
    if (rc == 0) rc = template_add(post, ASH_TOK_SEQUENCE, err);
    return rc == 0 ? add_named(post, processor, "sep", err) : rc;
}

static int load_step(void *ctx, const json_t *step, const char *type, struct ash_err *err)
{
    if (strcmp(type, "ByteLevel") == 0) return 0;
    if (strcmp(type, "TemplateProcessing") == 0) return load_template(ctx, step, err);
    if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0)
        return load_around(ctx, step, err);
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
    *post = (struct ash_tok_post){0};
}
