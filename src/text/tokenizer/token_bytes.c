/* The bytes that one token adds to a text, whatever stands around it: what the steps of the decoder make of it
 * alone. */
#include "text/tokenizer/tokenizer_priv.h"

#include <errno.h>
#include <string.h>

#include "base/utf8.h"
#include "text/tokenizer/token_bytes_priv.h"

int ash_tok_add_level_bytes(struct ash_str *out, const char *text, size_t size_bytes)
{
    size_t before = out->size_bytes;

    for (size_t at = 0; at < size_bytes;) {
        uint32_t point = 0;
        char byte;
        int size = ash_utf8_decode(text + at, size_bytes - at, &point), value = ash_tok_byte_from_point(point);
        if (size == 0 || value < 0) {
            ash_str_cut(out, before);
            return ash_str_add(out, text, size_bytes);
        }
        byte = (char)value;
        if (ash_str_add(out, &byte, 1) < 0) return -ENOMEM;
        at += (size_t)size;
    }
    return 0;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int ash_tok_fallback_byte(const char *text, size_t size_bytes)
{
    int high, low;

    if (size_bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    high = text[3] == '+' ? 0 : hex_value(text[3]);
    low = hex_value(text[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/* text with each mark of a metaspace step as a space. */
static int add_spaced(const struct ash_tok_dec *dec, const struct ash_str *text, struct ash_str *out)
{
    int rc = ash_str_adds(out, "");

    for (size_t at = 0; rc == 0 && at < text->size_bytes;) {
        const char *mark = memmem(text->data + at, text->size_bytes - at, dec->content.data, dec->content.size_bytes);
        size_t end = mark != NULL ? (size_t)(mark - text->data) : text->size_bytes;
        rc = ash_str_add(out, text->data + at, end - at);
        if (rc == 0 && mark != NULL) rc = ash_str_add(out, " ", 1);
        at = end + (mark != NULL ? dec->content.size_bytes : 0);
    }
    return rc;
}

static int add_replaced(const struct ash_tokenizer *tokenizer, const struct ash_tok_dec *dec,
                        const struct ash_str *text, struct ash_str *out)
{
    struct ash_tok_scratch *scratch = ash_tok_scratch_get(tokenizer);
    int rc = scratch == NULL ? -ENOMEM : ash_str_adds(out, "");

    if (rc == 0) {
        ash_tok_scratch_limit(scratch, text->size_bytes);
        rc = ash_tok_replace(&dec->pattern, scratch, (struct ash_tok_span){text->data, text->size_bytes}, &dec->content,
                             out, NULL);
    }
    ash_tok_scratch_put(tokenizer, scratch);
    return rc;
}

/* What one step makes of text. 1: it is bytes now, and no further step looks at it. */
static int add_step(const struct ash_tokenizer *tokenizer, const struct ash_tok_dec *dec, const struct ash_str *text,
                    struct ash_str *out)
{
    int value;

    switch (dec->kind) {
    case ASH_TOK_DEC_BYTES:
        return ash_tok_add_level_bytes(out, text->data, text->size_bytes) < 0 ? -ENOMEM : 1;
    case ASH_TOK_DEC_FALLBACK:
        value = ash_tok_fallback_byte(text->data, text->size_bytes);
        if (value >= 0) return ash_str_add(out, &(char){(char)value}, 1) < 0 ? -ENOMEM : 1;
        return ash_str_add(out, text->data, text->size_bytes);
    case ASH_TOK_DEC_METASPACE:
        return add_spaced(dec, text, out);
    case ASH_TOK_DEC_REPLACE:
        return add_replaced(tokenizer, dec, text, out);
    case ASH_TOK_DEC_WORD_PIECE:
        if (text->size_bytes >= dec->content.size_bytes && dec->content.size_bytes > 0 &&
            memcmp(text->data, dec->content.data, dec->content.size_bytes) == 0)
            return ash_str_add(out, text->data + dec->content.size_bytes, text->size_bytes - dec->content.size_bytes);
        if (ash_str_adds(out, " ") < 0) return -ENOMEM;
        return ash_str_add(out, text->data, text->size_bytes);
    case ASH_TOK_DEC_JOIN:
        if (ash_str_adds(out, " ") < 0) return -ENOMEM;
        return ash_str_add(out, text->data, text->size_bytes);
    default: /* fuse joins tokens, strip looks at the start of a text */
        return ash_str_add(out, text->data, text->size_bytes);
    }
}

int ash_tokenizer_add_bytes(const struct ash_tokenizer *tokenizer, int32_t id, struct ash_str *bytes)
{
    const char *content = ash_tokenizer_content(tokenizer, id);
    struct ash_str text[2] = {{0}, {0}};
    size_t at = 0;
    int rc = content == NULL ? 0 : ash_str_adds(&text[0], content);

    for (size_t i = 0; rc == 0 && content != NULL && i < tokenizer->decs.count; i++, at ^= 1) {
        ash_str_clear(&text[at ^ 1]);
        rc = ash_tokenizer_is_special(tokenizer, id)
                 ? ash_str_add(&text[at ^ 1], text[at].data, text[at].size_bytes)
                 : add_step(tokenizer, &tokenizer->decs.steps[i], &text[at], &text[at ^ 1]);
    }
    if (rc >= 0 && content != NULL) rc = ash_str_add(bytes, text[at].data, text[at].size_bytes);
    ash_str_fini(&text[0]);
    ash_str_fini(&text[1]);
    return rc;
}
