/* tool_draw - pieces of grammars of calls, drawn into an automaton from state to state. */
#ifndef ASH_SERVE_TOOLS_TOOL_DRAW_H
#define ASH_SERVE_TOOLS_TOOL_DRAW_H

#include <jansson.h>
#include "serve/grammar/pda.h"
#include "serve/tools/tools.h"

#define ASH_TOOL_MARK_BYTES 96 /* of the longest mark, and more */

/* A grammar at work; errors of drawing stay in the draft. */
struct ash_tool_builder {
    const struct ash_tool_grammar_opts *opts;
    struct ash_grammar_opts grammar;
    struct ash_pda_draft *draft;
    uint32_t *arguments; /* the rule of each tool's */
    struct ash_err *err;
};

/* These bytes. Returns the state after them. */
uint32_t ash_tool_draw_text(struct ash_tool_builder *builder, uint32_t from, const char *bytes);
/* A text of the format, shorter than ASH_TOOL_MARK_BYTES, with its special tokens drawn as such. Returns the state
 * after it. */
uint32_t ash_tool_draw_mark(struct ash_tool_builder *builder, uint32_t from, const char *mark);
/* What a rule matches. Returns the state after it. */
uint32_t ash_tool_draw_call(struct ash_tool_builder *builder, uint32_t from, uint32_t rule);
/* Up to two newlines or spaces. Returns the state after them. */
uint32_t ash_tool_draw_space(struct ash_tool_builder *builder, uint32_t from);
/* Any text from `from` (a new state) on up to the end of a mark, which leads to the state that is returned. may_end: a
 * state that can be reached from everywhere before it, or ASH_PDA_UNBOUNDED. */
uint32_t ash_tool_draw_until(struct ash_tool_builder *builder, uint32_t from, const char *mark, uint32_t may_end);
/* A newline, or none. Returns the state after it. */
uint32_t ash_tool_draw_line(struct ash_tool_builder *builder, uint32_t from);

/* tagged_grammar.c: draw the parameters that a schema allows in the tags of the format, as a rule. 0, or an error of
 * schemas. */
int ash_tool_draw_parameters(struct ash_tool_builder *builder, const json_t *schema, uint32_t rule);
#endif
