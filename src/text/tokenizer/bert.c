/* What BERT's normalizer does to characters. */
#include "text/tokenizer/tokenizer_priv.h"

#include <utf8proc.h>

#include "base/assert.h"
#include "base/utf8.h"

static bool is_han(uint32_t point)
{
    static const uint32_t ranges[][2] = {{0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0x20000, 0x2a6df},
                                         {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf},
                                         {0xf900, 0xfaff},   {0x2f800, 0x2fa1f}};

    for (size_t i = 0; i < ASH_COUNT(ranges); i++)
        if (point >= ranges[i][0] && point <= ranges[i][1]) return true;
    return false;
}

/* Control, format, private and unassigned characters. */
static bool is_other(uint32_t point)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)point);

    return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_CS ||
           category == UTF8PROC_CATEGORY_CO || category == UTF8PROC_CATEGORY_CN;
}

static int add_cleaned(struct ash_str *out, uint32_t point, const char *text, size_t size)
{
    if (point == '\t' || point == '\n' || point == '\r') return ash_str_adds(out, " ");
    if (point == 0 || point == 0xfffd || is_other(point)) return 0;
    return ash_tok_is_space(point) ? ash_str_adds(out, " ") : ash_str_add(out, text, size);
}

static int add_spaced(struct ash_str *out, uint32_t point, const char *text, size_t size)
{
    int rc = is_han(point) ? ash_str_adds(out, " ") : 0;

    if (rc == 0) rc = ash_str_add(out, text, size);
    return rc == 0 && is_han(point) ? ash_str_adds(out, " ") : rc;
}

int ash_tok_bert_apply(enum ash_tok_norm_kind kind, struct ash_tok_span text, struct ash_str *out)
{
    int rc = 0;

    for (size_t at = 0, size; rc == 0 && at < text.size_bytes; at += size) {
        uint32_t point = 0;

        size = (size_t)ash_utf8_decode(text.data + at, text.size_bytes - at, &point);
        if (kind == ASH_TOK_CLEAN)
            rc = add_cleaned(out, point, text.data + at, size);
        else if (kind == ASH_TOK_SPACE_HAN)
            rc = add_spaced(out, point, text.data + at, size);
        else if (utf8proc_category((utf8proc_int32_t)point) != UTF8PROC_CATEGORY_MN)
            rc = ash_str_add(out, text.data + at, size);
    }
    return rc;
}
