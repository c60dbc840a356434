/* Normalizers: each rewrites the text that the one before left. */
#include "text/tokenizer/tokenizer_priv.h"

#include <errno.h>
#include <string.h>
#include <utf8proc.h>

#include "base/assert.h"
#include "base/utf8.h"
#include "text/tokenizer/unigram_priv.h"

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static int load_string(const json_t *step, const char *key, struct ash_str *out, struct ash_err *err)
{
    const char *text = NULL;
    int rc = ash_json_string(step, key, &text, err);

    if (rc < 0) return rc;
    if (text == NULL) return ash_err_set(err, -EINVAL, "'%s' is missing", key);
    return ash_str_adds(out, text) < 0 ? ash_err_set(err, -ENOMEM, "out of memory for '%s'", key) : 0;
}

static int load_form(struct ash_tok_norm *norm, const char *type, bool *known_out, struct ash_err *err)
{
    static const char *const names[] = {"NFC", "NFD", "NFKC", "NFKD"}; /* in the order of enum ash_tok_form */

    *known_out = false;
    for (size_t i = 0; i < ASH_COUNT(names); i++) {
        if (strcmp(type, names[i]) != 0) continue;
        *known_out = true;
        norm->kind = ASH_TOK_FORM;
        norm->former = ash_tok_former_open((enum ash_tok_form)i);
        if (norm->former == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the normalizer");
    }
    return 0;
}

static struct ash_tok_norm *add_step(struct ash_tok_norms *norms, enum ash_tok_norm_kind kind)
{
    struct ash_tok_norm *norm = norms->count < ASH_TOK_STEPS_MAX ? &norms->steps[norms->count++] : NULL;

    if (norm != NULL) norm->kind = kind;
    return norm;
}

/* BertNormalizer is several steps. */
static int load_bert(struct ash_tok_norms *norms, const json_t *step, struct ash_err *err)
{
    bool cleans = true, spaces = true, lowers = true, strips;
    struct ash_tok_norm *last = NULL;
    int rc = ash_json_bool(step, "clean_text", &cleans, err);

    if (rc >= 0) rc = ash_json_bool(step, "handle_chinese_chars", &spaces, err);
    if (rc >= 0) rc = ash_json_bool(step, "lowercase", &lowers, err);
    strips = lowers; /* if the file does not say */
    if (rc >= 0 && !json_is_null(json_object_get(step, "strip_accents")))
        rc = ash_json_bool(step, "strip_accents", &strips, err);
    if (rc < 0) return rc;
    if (norms->count + 5 > ASH_TOK_STEPS_MAX) return ash_err_set(err, -E2BIG, "more than %d steps", ASH_TOK_STEPS_MAX);
    if (cleans) add_step(norms, ASH_TOK_CLEAN);
    if (spaces) add_step(norms, ASH_TOK_SPACE_HAN);
    if (strips) last = add_step(norms, ASH_TOK_FORM);
    if (last != NULL) last->former = ash_tok_former_open(ASH_TOK_NFD);
    if (last != NULL && last->former == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the normalizer");
    if (strips) add_step(norms, ASH_TOK_STRIP_MARKS);
    if (lowers) add_step(norms, ASH_TOK_LOWERCASE);
    return 0;
}

static int load_charsmap(struct ash_tok_norm *norm, const json_t *step, struct ash_err *err)
{
    const char *text = "";
    int rc = 0;

    norm->kind = ASH_TOK_CHARSMAP;
    if (!json_is_null(json_object_get(step, "precompiled_charsmap")))
        rc = ash_json_string(step, "precompiled_charsmap", &text, err);
    if (rc >= 0) rc = ash_json_bool(step, "longest", &norm->is_longest, err); /* of our own: sentencepiece.c */
    return rc < 0 ? rc : ash_tok_charsmap_open(text, &norm->map, err);
}

static int load_strip(struct ash_tok_norm *norm, const json_t *step, struct ash_err *err)
{
    int rc;

    norm->kind = ASH_TOK_STRIP;
    norm->strips_left = norm->strips_right = true;
    rc = ash_json_bool(step, "strip_left", &norm->strips_left, err);
    if (rc >= 0) rc = ash_json_bool(step, "strip_right", &norm->strips_right, err);
    return rc < 0 ? rc : 0;
}

static int load_step(void *ctx, const json_t *step, const char *type, struct ash_err *err)
{
    struct ash_tok_norms *norms = ctx;
    struct ash_tok_norm *norm = &norms->steps[norms->count];
    bool is_form;
    int rc;

    if (strcmp(type, "BertNormalizer") == 0) return load_bert(norms, step, err);
    if (norms->count == ASH_TOK_STEPS_MAX) return ash_err_set(err, -E2BIG, "more than %d steps", ASH_TOK_STEPS_MAX);
    norms->count++; /* fini frees a half-read one too */
    rc = load_form(norm, type, &is_form, err);
    if (is_form) return rc;
    if (strcmp(type, "Lowercase") == 0) {
        norm->kind = ASH_TOK_LOWERCASE;
        return 0;
    }
    if (strcmp(type, "StripAccents") == 0) {
        norm->kind = ASH_TOK_STRIP_MARKS;
        return 0;
    }
    if (strcmp(type, "ByteLevel") == 0) {
        norm->kind = ASH_TOK_MAP_BYTES;
        return 0;
    }
    if (strcmp(type, "Precompiled") == 0) return load_charsmap(norm, step, err);
    if (strcmp(type, "Strip") == 0) return load_strip(norm, step, err);
    if (strcmp(type, "Prepend") == 0) {
        norm->kind = ASH_TOK_PREPEND;
        return load_string(step, "prepend", &norm->content, err);
    }
    if (strcmp(type, "Replace") == 0) {
        norm->kind = ASH_TOK_REPLACE;
        rc = load_string(step, "content", &norm->content, err);
        return rc < 0 ? rc : ash_tok_pattern_load(&norm->pattern, step, err);
    }
    return ash_err_set(err, -ENOTSUP, "type '%.64s' is not supported", type);
}

int ash_tok_norms_load(struct ash_tok_norms *norms, const json_t *root, struct ash_err *err)
{
    return ash_tok_each_step(json_object_get(root, "normalizer"), "normalizer", "normalizers", load_step, norms, err);
}

void ash_tok_norms_fini(struct ash_tok_norms *norms)
{
    for (size_t i = 0; i < norms->count; i++) {
        ash_tok_former_close(norms->steps[i].former);
        ash_tok_pattern_fini(&norms->steps[i].pattern);
        ash_str_fini(&norms->steps[i].content);
        ash_tok_charsmap_close(norms->steps[i].map);
    }
    norms->count = 0;
}

/* ---- applying ---------------------------------------------------------------------------------------------------- */

int ash_tok_replace(const struct ash_tok_pattern *pattern, struct ash_tok_scratch *scratch, struct ash_tok_span text,
                    const struct ash_str *content, struct ash_str *out, struct ash_err *err)
{
    struct ash_tok_finder finder = ash_tok_finder_make(pattern, scratch, text);
    size_t done = 0, start, end;
    int rc;

    if (text.size_bytes == 0) return 0; /* nothing matches in an empty text, not even the empty match */
    while ((rc = ash_tok_finder_next(&finder, &start, &end, err)) > 0) {
        if (ash_str_add(out, text.data + done, start - done) < 0 ||
            ash_str_add(out, content->data, content->size_bytes) < 0)
            return -ENOMEM;
        done = end;
        if (ash_tok_scratch_check(scratch, out, err) < 0) return -E2BIG;
    }
    return rc < 0 ? rc : ash_str_add(out, text.data + done, text.size_bytes - done);
}

/* Character by character; one capital becomes two characters. */
static int lowercase(struct ash_tok_span text, struct ash_str *out)
{
    static const char dotted_i[] = "i\xcc\x87"; /* of U+0130 */
    int rc = 0;

    for (size_t at = 0; rc == 0 && at < text.size_bytes;) {
        uint32_t point = 0;
        char buf[4];
        at += (size_t)ash_utf8_decode(text.data + at, text.size_bytes - at, &point);
        if (point == 0x130) {
            rc = ash_str_adds(out, dotted_i);
        } else {
            int size = ash_utf8_encode((uint32_t)utf8proc_tolower((utf8proc_int32_t)point), buf);
            rc = ash_str_add(out, buf, (size_t)size);
        }
    }
    return rc;
}

/* White space at the ends goes, on the sides that norm says. */
static int strip(const struct ash_tok_norm *norm, struct ash_tok_span text, struct ash_str *out)
{
    size_t first = text.size_bytes, end = 0;

    for (size_t at = 0; at < text.size_bytes;) {
        uint32_t point;
        size_t size = (size_t)ash_utf8_decode(text.data + at, text.size_bytes - at, &point);

        if (!ash_tok_is_space(point)) {
            first = first < at ? first : at;
            end = at + size;
        }
        at += size;
    }
    if (!norm->strips_left) first = 0;
    if (!norm->strips_right) end = text.size_bytes;
    return first < end ? ash_str_add(out, text.data + first, end - first) : 0;
}

/* Apply one step into out (cleared). *changed_out false: text stays as it is. */
static int apply_step(const struct ash_tok_norm *norm, struct ash_tok_scratch *scratch, struct ash_tok_span text,
                      struct ash_str *out, bool *changed_out, struct ash_err *err)
{
    int rc = 0;

    *changed_out = true;
    ash_str_clear(out);
    switch (norm->kind) {
    case ASH_TOK_FORM:
        return ash_tok_former_apply(norm->former, text, out, changed_out);
    case ASH_TOK_PREPEND:
        rc = ash_str_add(out, norm->content.data, norm->content.size_bytes);
        return rc < 0 ? rc : ash_str_add(out, text.data, text.size_bytes);
    case ASH_TOK_REPLACE:
        return ash_tok_replace(&norm->pattern, scratch, text, &norm->content, out, err);
    case ASH_TOK_LOWERCASE:
        return lowercase(text, out);
    case ASH_TOK_MAP_BYTES:
        return ash_tok_bytes_map(out, text.data, text.size_bytes);
    case ASH_TOK_CLEAN:
    case ASH_TOK_SPACE_HAN:
    case ASH_TOK_STRIP_MARKS:
        return ash_tok_bert_apply(norm->kind, text, out);
    case ASH_TOK_CHARSMAP:
        return norm->is_longest ? ash_tok_charsmap_apply_longest(norm->map, text, out)
                                : ash_tok_charsmap_apply(norm->map, text, out);
    case ASH_TOK_STRIP:
        return strip(norm, text, out);
    }
    return rc;
}

int ash_tok_norms_apply(const struct ash_tok_norms *norms, struct ash_tok_scratch *scratch, struct ash_tok_span text,
                        struct ash_tok_span *out, struct ash_err *err)
{
    int turn = 0;

    for (size_t i = 0; i < norms->count && text.size_bytes > 0; i++) {
        struct ash_str *to = &scratch->norm[turn];
        bool changed;
        int rc = apply_step(&norms->steps[i], scratch, text, to, &changed, err);
        if (rc == 0 && changed) rc = ash_tok_scratch_check(scratch, to, err);
        if (rc < 0) return rc;
        if (!changed) continue;
        text = (struct ash_tok_span){to->data, to->size_bytes};
        turn ^= 1;
    }
    *out = text;
    return 0;
}
