/* The ways to cut text into words that GGUF files have names for, as far as tokenizers of the supported models use
 * them. */
#include "text/tokenizer/gguf_priv.h"

#include <string.h>

#include "base/assert.h"

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
#define WORDS(numbers)                                                                                                 \
    CONTRACTIONS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" numbers                                                              \
                 "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

#define MARKED_WORDS                                                                                                   \
    CONTRACTIONS "[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"     \
                 "|\\s+(?!\\S)|\\s+"
/* Words end where a small letter is followed by a capital one. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED_WORDS                                                                                                    \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER                                \
    "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* Of those that cut alike the first is written. */
static const struct ash_tok_gguf_words words[] = {
    {.name = "llama-bpe", .expression = WORDS("\\p{N}{1,3}"), .ignore_merges = true},
    {.name = "llama3", .expression = WORDS("\\p{N}{1,3}"), .ignore_merges = true},
    {.name = "llama-v3", .expression = WORDS("\\p{N}{1,3}"), .ignore_merges = true},
    {.name = "smaug-bpe", .expression = WORDS("\\p{N}{1,3}")},
    {.name = "dbrx", .expression = WORDS("\\p{N}{1,3}")},
    {.name = "qwen2", .expression = WORDS("\\p{N}"), .nfc = true},
    {.name = "deepseek-r1-qwen", .expression = WORDS("\\p{N}"), .nfc = true},
    {.name = "qwen35", .expression = MARKED_WORDS, .nfc = true},
    {.name = "tekken", .expression = CASED_WORDS, .ignore_merges = true},
    {.name = "gpt-2"},
    {.name = "smollm", .digits = true},
};

const struct ash_tok_gguf_words *ash_tok_gguf_words_named(const char *name)
{
    for (size_t i = 0; i < ASH_COUNT(words); i++)
        if (strcmp(words[i].name, name) == 0) return &words[i];
    return NULL;
}

static bool same_expression(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

/* How text is cut before its bytes are mapped: digits by themselves, an expression, or by neither. */
struct cut {
    const char *expression; /* NULL: none */
    bool digits;
};

/* False: no GGUF file can say it. */
static bool read_cut(const struct ash_tok_pre *split, struct cut *cut_out)
{
    if (split->kind != ASH_TOK_SPLIT || split->behavior != ASH_TOK_ISOLATED || split->invert) return false;
    cut_out->digits = split->pattern.kind == ASH_TOK_NUMERIC;
    cut_out->expression = split->pattern.kind == ASH_TOK_REGEX ? split->pattern.text.data : NULL;
    return cut_out->digits || cut_out->expression != NULL;
}

const struct ash_tok_gguf_words *ash_tok_gguf_words_of(const struct ash_tok_pres *pres, bool ignore_merges)
{
    struct cut cut = {0};
    const struct ash_tok_pre *last;

    if (pres->count < 1 || pres->count > 2) return NULL;
    last = &pres->steps[pres->count - 1];
    if (last->kind != ASH_TOK_BYTE_LEVEL || last->prefix_space) return NULL;
    if (pres->count == 2 && !read_cut(&pres->steps[0], &cut)) return NULL;
    if (last->splits != (cut.expression == NULL)) return NULL;
    for (size_t i = 0; i < ASH_COUNT(words); i++)
        if (words[i].ignore_merges == ignore_merges && words[i].digits == cut.digits &&
            same_expression(words[i].expression, cut.expression))
            return &words[i];
    return NULL;
}
