/* The marks for filling a gap: a GGUF file has their ids in its metadata, a tokenizer.json their names alone. */
#include "text/tokenizer/tokenizer_priv.h"

/* The first of names (NULL-terminated) that the vocabulary has, or -1. */
static int32_t find_named(const struct ash_tokenizer *tokenizer, const char *const *names)
{
    for (; *names != NULL; names++) {
        int32_t id = ash_tokenizer_id(tokenizer, *names);

        if (id >= 0) return id;
    }
    return -1;
}

struct ash_fim_marks ash_tokenizer_fim_marks(const struct ash_tokenizer *tokenizer)
{
    static const char *const prefixes[] = {
        "<|fim_prefix|>", "<fim_prefix>", "<fim-prefix>", "<PRE>", "▁<PRE>", "<｜fim▁begin｜>", NULL};
    static const char *const suffixes[] = {
        "<|fim_suffix|>", "<fim_suffix>", "<fim-suffix>", "<SUF>", "▁<SUF>", "<｜fim▁hole｜>", NULL};
    static const char *const middles[] = {
        "<|fim_middle|>", "<fim_middle>", "<fim-middle>", "<MID>", "▁<MID>", "<｜fim▁end｜>", NULL};
    struct ash_fim_marks marks = tokenizer->fim;

    if (marks.prefix < 0) marks.prefix = find_named(tokenizer, prefixes);
    if (marks.suffix < 0) marks.suffix = find_named(tokenizer, suffixes);
    if (marks.middle < 0) marks.middle = find_named(tokenizer, middles);
    return marks;
}
