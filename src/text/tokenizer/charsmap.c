/* charsmap: SentencePiece's compiled rules of what characters become: a double array of byte strings, and the texts
 * that replace them. Applied as the Hugging Face library does: to short graphemes as a whole, else to each character.
 * Of rules that fit, the shortest counts. */
#include "text/tokenizer/tokenizer_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/assert.h"
#include "base/utf8.h"
#include "text/tokenizer/unigram_priv.h"

#define GRAPHEME_BYTES_MAX 5 /* longer ones are looked up character by character */

struct ash_tok_charsmap {
    uint32_t *units; /* [unit_count]: Darts' double array */
    size_t unit_count;
    char *texts; /* NUL-terminated, one after the other */
    size_t text_bytes;
};

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static int base64_value(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c != '\0' ? strchr(digits, c) : NULL;

    return at != NULL ? (int)(at - digits) : -1;
}

/* Decode in place. Returns the bytes, or -1. */
static ptrdiff_t decode_base64(char *text)
{
    size_t length = strlen(text), out = 0;
    uint32_t bits = 0;
    int count = 0;

    while (length > 0 && text[length - 1] == '=')
        length--;
    for (size_t i = 0; i < length; i++) {
        int value = base64_value(text[i]);

        if (value < 0) return -1;
        bits = bits << 6 | (uint32_t)value;
        count += 6;
        if (count < 8) continue;
        count -= 8;
        text[out++] = (char)(bits >> count);
    }
    return (ptrdiff_t)out;
}

static uint32_t read_u32(const char *at)
{
    const uint8_t *b = (const uint8_t *)at;

    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* Its size, the double array, the texts. */
static int take_parts(struct ash_tok_charsmap *map, const char *data, size_t size_bytes, struct ash_err *err)
{
    size_t array_bytes = size_bytes >= 4 ? read_u32(data) : 0;

    if (array_bytes < 4 || array_bytes % 4 != 0 || array_bytes > size_bytes - 4)
        return ash_err_set(err, -EINVAL, "precompiled_charsmap of %zu bytes is damaged", size_bytes);
    map->unit_count = array_bytes / 4;
    map->text_bytes = size_bytes - 4 - array_bytes;
    map->units = malloc(array_bytes);
    map->texts = malloc(map->text_bytes + 1);
    if (map->units == NULL || map->texts == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory for precompiled_charsmap");
    for (size_t i = 0; i < map->unit_count; i++)
        map->units[i] = read_u32(data + 4 + 4 * i);
    memcpy(map->texts, data + 4 + array_bytes, map->text_bytes);
    map->texts[map->text_bytes] = '\0';
    if (ash_utf8_valid_prefix(map->texts, map->text_bytes) < map->text_bytes)
        return ash_err_set(err, -EINVAL, "precompiled_charsmap has a text that is not UTF-8");
    return 0;
}

int ash_tok_charsmap_open(const char *base64, struct ash_tok_charsmap **map_out, struct ash_err *err)
{
    struct ash_tok_charsmap *map = calloc(1, sizeof(*map));
    char *data = strdup(base64);
    ptrdiff_t size_bytes = data != NULL ? decode_base64(data) : 0;
    int rc;

    if (map == NULL || data == NULL)
        rc = ash_err_set(err, -ENOMEM, "out of memory for precompiled_charsmap");
    else if (size_bytes < 0)
        rc = ash_err_set(err, -EINVAL, "precompiled_charsmap is not base64");
    else
        rc = size_bytes > 0 ? take_parts(map, data, (size_t)size_bytes, err) : 0; /* empty: no rules */
    free(data);
    if (rc < 0)
        ash_tok_charsmap_close(map);
    else
        *map_out = map;
    return rc;
}

void ash_tok_charsmap_close(struct ash_tok_charsmap *map)
{
    if (map == NULL) return;
    free(map->units);
    free(map->texts);
    free(map);
}

/* ---- applying ---------------------------------------------------------------------------------------------------- */

/* How far its children are from a unit, which has the byte that leads to it in its lowest bits. */
static size_t unit_offset(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & 512) >> 6);
}

/* The text at offset; NULL if none is there, nor a character's beginning. */
static const char *text_at(const struct ash_tok_charsmap *map, uint32_t offset)
{
    if (offset > map->text_bytes || ((unsigned char)map->texts[offset] & 0xc0) == 0x80) return NULL;
    return map->texts + offset;
}

/* The text of the shortest rule that text begins with (or of the longest), and how much of it that is; or NULL. */
static const char *find_rule(const struct ash_tok_charsmap *map, struct ash_tok_span text, bool is_longest,
                             size_t *used_out)
{
    const char *found = NULL;
    size_t at = map->unit_count > 0 ? unit_offset(map->units[0]) : 0;

    for (size_t i = 0; i < text.size_bytes && map->unit_count > 0; i++) {
        uint8_t byte = (uint8_t)text.data[i];
        uint32_t unit;

        at ^= byte;
        if (byte == 0 || at >= map->unit_count) return found;
        unit = map->units[at];
        if ((unit & (0x80000000u | 0xff)) != byte) return found;
        at ^= unit_offset(unit);
        if ((unit >> 8 & 1) == 0) continue;
        found = at < map->unit_count ? text_at(map, map->units[at] & 0x7fffffffu) : NULL;
        *used_out = i + 1;
        if (!is_longest) return found;
    }
    return found;
}

/* A grapheme that no rule of its own replaces: character by character. */
static int add_chars(const struct ash_tok_charsmap *map, struct ash_tok_span grapheme, struct ash_str *out)
{
    int rc = 0;

    for (size_t at = 0; rc == 0 && at < grapheme.size_bytes;) {
        uint32_t point;
        size_t size = (size_t)ash_utf8_decode(grapheme.data + at, grapheme.size_bytes - at, &point);
        const char *rule = find_rule(map, (struct ash_tok_span){grapheme.data + at, size}, false, &(size_t){0});

        rc = rule != NULL ? ash_str_adds(out, rule) : ash_str_add(out, grapheme.data + at, size);
        at += size;
    }
    return rc;
}

static int add_grapheme(const struct ash_tok_charsmap *map, struct ash_tok_span grapheme, struct ash_str *out)
{
    const char *rule = grapheme.size_bytes <= GRAPHEME_BYTES_MAX ? find_rule(map, grapheme, false, &(size_t){0}) : NULL;

    return rule != NULL ? ash_str_adds(out, rule) : add_chars(map, grapheme, out);
}

/* As SentencePiece itself has it: from left to right, each time the longest rule. */
int ash_tok_charsmap_apply_longest(const struct ash_tok_charsmap *map, struct ash_tok_span text, struct ash_str *out)
{
    int rc = 0;

    for (size_t at = 0; rc == 0 && at < text.size_bytes;) {
        uint32_t point;
        size_t used = (size_t)ash_utf8_decode(text.data + at, text.size_bytes - at, &point);
        const char *rule = find_rule(map, (struct ash_tok_span){text.data + at, text.size_bytes - at}, true, &used);

        rc = rule != NULL ? ash_str_adds(out, rule) : ash_str_add(out, text.data + at, used);
        at += used;
    }
    return rc;
}

int ash_tok_charsmap_apply(const struct ash_tok_charsmap *map, struct ash_tok_span text, struct ash_str *out)
{
    size_t start = 0;
    uint32_t before = 0;
    utf8proc_int32_t state = 0;
    int rc = 0;

    ash_assert(map != NULL);
    for (size_t at = 0; rc == 0 && at < text.size_bytes;) {
        uint32_t point;
        size_t size = (size_t)ash_utf8_decode(text.data + at, text.size_bytes - at, &point);

        if (at > 0 && utf8proc_grapheme_break_stateful((utf8proc_int32_t)before, (utf8proc_int32_t)point, &state)) {
            rc = add_grapheme(map, (struct ash_tok_span){text.data + start, at - start}, out);
            start = at;
        }
        before = point;
        at += size;
    }
    return rc < 0 ? rc : add_grapheme(map, (struct ash_tok_span){text.data + start, text.size_bytes - start}, out);
}
