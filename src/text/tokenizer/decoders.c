/* Reading "decoder": the chain that decode.c runs. */
#include "text/tokenizer/tokenizer_priv.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"

/* A key that holds exactly one character. */
static int load_character(const json_t *step, const char *key, struct ash_str *out, struct ash_err *err)
{
    const char *text = NULL;
    uint32_t point;
    int rc = ash_json_string(step, key, &text, err);

    if (rc < 0) return rc;
    if (text == NULL || text[0] == '\0' || ash_utf8_decode(text, strlen(text), &point) != (int)strlen(text))
        return ash_err_set(err, -EINVAL, "'%s' must be one character", key);
    return ash_str_adds(out, text) < 0 ? ash_err_set(err, -ENOMEM, "out of memory for a decoder") : 0;
}

static int load_bytes(struct ash_tok_dec *dec, const json_t *step, struct ash_err *err)
{
    (void)step, (void)err;
    dec->kind = ASH_TOK_DEC_BYTES;
    return 0;
}

static int load_fallback(struct ash_tok_dec *dec, const json_t *step, struct ash_err *err)
{
    (void)step, (void)err;
    dec->kind = ASH_TOK_DEC_FALLBACK;
    return 0;
}

static int load_fuse(struct ash_tok_dec *dec, const json_t *step, struct ash_err *err)
{
    (void)step, (void)err;
    dec->kind = ASH_TOK_DEC_FUSE;
    return 0;
}

static int load_replace(struct ash_tok_dec *dec, const json_t *step, struct ash_err *err)
{
    const char *content = NULL;
    int rc = ash_json_string(step, "content", &content, err);

    dec->kind = ASH_TOK_DEC_REPLACE;
    if (rc < 0) return rc;
    if (content == NULL) return ash_err_set(err, -EINVAL, "'content' is missing");
    if (ash_str_adds(&dec->content, content) < 0) return ash_err_set(err, -ENOMEM, "out of memory for a decoder");
    return ash_tok_pattern_load(&dec->pattern, step, err);
}

static int load_strip(struct ash_tok_dec *dec, const json_t *step, struct ash_err *err)
{
    int64_t start = 0, stop = 0;
    int rc = load_character(step, "content", &dec->content, err);

    dec->kind = ASH_TOK_DEC_STRIP;
    if (rc >= 0) rc = ash_json_int(step, "start", 0, INT32_MAX, &start, err);
    if (rc >= 0) rc = ash_json_int(step, "stop", 0, INT32_MAX, &stop, err);
    dec->strip_start = (size_t)start;
    dec->strip_stop = (size_t)stop;
    return rc;
}

static int load_metaspace(struct ash_tok_dec *dec, const json_t *step, struct ash_err *err)
{
    const char *scheme = "always";
    bool prefix = true;
    int rc = load_character(step, "replacement", &dec->content, err);

    dec->kind = ASH_TOK_DEC_METASPACE;
    if (rc >= 0) rc = ash_json_string(step, "prepend_scheme", &scheme, err);
    if (rc >= 0) rc = ash_json_bool(step, "add_prefix_space", &prefix, err);
    if (rc >= 0 && strcmp(scheme, "always") != 0 && strcmp(scheme, "first") != 0 && strcmp(scheme, "never") != 0)
        return ash_err_set(err, -ENOTSUP, "prepend_scheme '%.64s' is not supported", scheme);
    dec->drop_first = strcmp(scheme, "never") != 0;
    if (rc >= 0 && !prefix && dec->drop_first)
        return ash_err_set(err, -EINVAL, "add_prefix_space false and prepend_scheme '%s' contradict each other",
                           scheme);
    return rc;
}

static int load_word_piece(struct ash_tok_dec *dec, const json_t *step, struct ash_err *err)
{
    const char *prefix = "##";
    int rc = ash_json_string(step, "prefix", &prefix, err);

    dec->kind = ASH_TOK_DEC_WORD_PIECE;
    dec->cleans = true;
    if (rc >= 0) rc = ash_json_bool(step, "cleanup", &dec->cleans, err);
    if (rc >= 0 && ash_str_adds(&dec->content, prefix) < 0)
        return ash_err_set(err, -ENOMEM, "out of memory for a decoder");
    return rc;
}

static int load_step(void *ctx, const json_t *step, const char *type, struct ash_err *err)
{
    static const struct {
        const char *type;
        int (*load)(struct ash_tok_dec *dec, const json_t *step, struct ash_err *err);
    } kinds[] = {
        {"ByteLevel", load_bytes},      {"ByteFallback", load_fallback}, {"Fuse", load_fuse},
        {"Replace", load_replace},      {"Strip", load_strip},           {"Metaspace", load_metaspace},
        {"WordPiece", load_word_piece},
    };
    struct ash_tok_decs *decs = ctx;

    if (decs->count == ASH_TOK_STEPS_MAX) return ash_err_set(err, -E2BIG, "more than %d steps", ASH_TOK_STEPS_MAX);
    for (size_t i = 0; i < ASH_COUNT(kinds); i++)
        if (strcmp(type, kinds[i].type) == 0) return kinds[i].load(&decs->steps[decs->count++], step, err);
    return ash_err_set(err, -ENOTSUP, "type '%.64s' is not supported", type);
}

int ash_tok_decs_load(struct ash_tok_decs *decs, const json_t *root, struct ash_err *err)
{
    const json_t *decoder = json_object_get(root, "decoder");

    if (decoder == NULL || json_is_null(decoder)) {
        decs->steps[0].kind = ASH_TOK_DEC_JOIN;
        decs->count = 1;
        return 0;
    }
    return ash_tok_each_step(decoder, "decoder", "decoders", load_step, decs, err);
}

void ash_tok_decs_fini(struct ash_tok_decs *decs)
{
    for (size_t i = 0; i < decs->count; i++) {
        ash_tok_pattern_fini(&decs->steps[i].pattern);
        ash_str_fini(&decs->steps[i].content);
    }
    decs->count = 0;
}
