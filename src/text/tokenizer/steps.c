/* Parts of a tokenizer.json that are one step or a sequence of them: normalizers, pre-tokenizers, decoders, ... */
#include "text/tokenizer/tokenizer_priv.h"

#include <errno.h>
#include <string.h>

static int each_step(const json_t *object, const char *list_key, int depth, ash_tok_step_fn load, void *ctx,
                     struct ash_err *err)
{
    const char *type = NULL;
    const json_t *list = NULL;
    size_t index;
    json_t *item;
    int rc;

    if (object == NULL || json_is_null(object)) return 0;
    rc = ash_json_string(object, "type", &type, err);
    if (rc < 0) return rc;
    if (type == NULL) return ash_err_set(err, -EINVAL, "'type' is missing");
    if (strcmp(type, "Sequence") != 0) return load(ctx, object, type, err);
    if (depth == ASH_TOK_NESTING_MAX) return ash_err_set(err, -E2BIG, "sequences inside sequences are nested too deep");
    rc = ash_json_array(object, list_key, &list, err);
    if (rc >= 0 && list == NULL) return ash_err_set(err, -EINVAL, "a Sequence lacks '%s'", list_key);
    json_array_foreach(list, index, item) {
        if (rc >= 0) rc = each_step(item, list_key, depth + 1, load, ctx, err);
    }
    return rc < 0 ? rc : 0;
}

int ash_tok_each_step(const json_t *object, const char *what, const char *list_key, ash_tok_step_fn load, void *ctx,
                      struct ash_err *err)
{
    int rc = each_step(object, list_key, 0, load, ctx, err);

    return rc < 0 ? ash_err_prefix(err, rc, "%s", what) : 0;
}
