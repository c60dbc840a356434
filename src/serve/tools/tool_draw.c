/* Pieces of grammars of calls: texts and marks, and any text up to a mark. */
#include "serve/tools/tool_draw.h"

#include <string.h>

#include "base/assert.h"

#define BAR_FIRST 0xef /* of the bytes of DeepSeek's bar */
#define BAR_LAST 0x9c

/* The length of the special token that text begins with; 0: none. Those of marks stand in angles, brackets or bars. */
static size_t special_bytes(const struct ash_tool_builder *builder, const char *text)
{
    char piece[ASH_TOOL_MARK_BYTES];

    if (*text != '<' && *text != '[' && (uint8_t)*text != BAR_FIRST) return 0;
    for (size_t size = strlen(text); size > 2; size--) {
        if (text[size - 1] != '>' && text[size - 1] != ']' && (uint8_t)text[size - 1] != BAR_LAST) continue;
        memcpy(piece, text, size);
        piece[size] = '\0';
        if (ash_vocab_trie_has_special(builder->opts->trie, piece)) return size;
    }
    return 0;
}

/* The bytes by which automata know a mark, in buf; their count. */
static size_t mark_bytes(const struct ash_tool_builder *builder, const char *mark, char buf[2 * ASH_TOOL_MARK_BYTES])
{
    size_t at = 0;

    ash_assert(strlen(mark) < ASH_TOOL_MARK_BYTES);
    while (*mark != '\0') {
        size_t special = special_bytes(builder, mark);

        if (special > 0) buf[at++] = (char)ASH_VOCAB_SPECIAL_BYTE;
        if (special == 0) special = 1;
        memcpy(buf + at, mark, special);
        at += special;
        mark += special;
    }
    return at;
}

uint32_t ash_tool_draw_text(struct ash_tool_builder *builder, uint32_t from, const char *bytes)
{
    uint32_t to = ash_pda_add_state(builder->draft);

    ash_pda_add_text(builder->draft, from, to, bytes, strlen(bytes));
    return to;
}

uint32_t ash_tool_draw_mark(struct ash_tool_builder *builder, uint32_t from, const char *name)
{
    uint32_t to = ash_pda_add_state(builder->draft);
    char buf[2 * ASH_TOOL_MARK_BYTES];

    ash_pda_add_text(builder->draft, from, to, buf, mark_bytes(builder, name, buf));
    return to;
}

uint32_t ash_tool_draw_call(struct ash_tool_builder *builder, uint32_t from, uint32_t rule)
{
    uint32_t to = ash_pda_add_state(builder->draft);

    ash_pda_add_call(builder->draft, from, to, rule);
    return to;
}

uint32_t ash_tool_draw_space(struct ash_tool_builder *builder, uint32_t from)
{
    uint32_t to = ash_pda_add_state(builder->draft);

    for (int i = 0; i < 2; i++) {
        uint32_t next = ash_pda_add_state(builder->draft);
        ash_pda_add_empty(builder->draft, from, to);
        ash_pda_add_text(builder->draft, from, next, "\n", 1);
        ash_pda_add_text(builder->draft, from, next, " ", 1);
        from = next;
    }
    ash_pda_add_empty(builder->draft, from, to);
    return to;
}

/* After i bytes of the mark, a wrong byte leads to the longest beginning of the mark that the text ends in. */
uint32_t ash_tool_draw_until(struct ash_tool_builder *builder, uint32_t from, const char *name, uint32_t may_end)
{
    char buf[2 * ASH_TOOL_MARK_BYTES];
    size_t size = mark_bytes(builder, name, buf), longest[2 * ASH_TOOL_MARK_BYTES] = {0};
    uint32_t states[2 * ASH_TOOL_MARK_BYTES + 1];

    for (size_t i = 0; i <= size; i++)
        states[i] = i == 0 ? from : ash_pda_add_state(builder->draft);
    for (size_t i = 0; i < size; i++) {
        int next[256];
        for (int byte = 0; byte < 256; byte++)
            next[byte] = 0;
        for (size_t k = i;; k = longest[k - 1]) { /* longer beginnings win */
            if (next[(uint8_t)buf[k]] == 0) next[(uint8_t)buf[k]] = (int)k + 1;
            if (k == 0) break;
        }
        for (int byte = 0, end; byte < 256; byte = end) {
            for (end = byte + 1; end < 256 && next[end] == next[byte];)
                end++;
            ash_pda_add_bytes(builder->draft, states[i], states[next[byte]], (uint8_t)byte, (uint8_t)(end - 1));
        }
        if (may_end != ASH_PDA_UNBOUNDED) ash_pda_add_empty(builder->draft, states[i], may_end);
        if (i > 0) { /* the longest beginning that is also the end of the first i + 1 bytes */
            size_t k = longest[i - 1];
            while (k > 0 && buf[k] != buf[i])
                k = longest[k - 1];
            longest[i] = k + (buf[k] == buf[i]);
        }
    }
    return states[size];
}

uint32_t ash_tool_draw_line(struct ash_tool_builder *builder, uint32_t from)
{
    uint32_t to = ash_tool_draw_text(builder, from, "\n");

    ash_pda_add_empty(builder->draft, from, to);
    return to;
}
