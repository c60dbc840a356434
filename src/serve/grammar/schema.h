/* schema - JSON schemas, drawn into automata. */
#ifndef ASH_SERVE_GRAMMAR_SCHEMA_H
#define ASH_SERVE_GRAMMAR_SCHEMA_H

#include "serve/grammar/pda.h"

/* Draw the JSON texts that fit schema between two states. Its references are resolved in itself. Of opts, the limits
 * are those of the draft. Errors as ash_grammar_from_json_schema. */
int ash_schema_draw(const json_t *schema, const struct ash_grammar_opts *opts, struct ash_pda_draft *draft,
                    uint32_t from, uint32_t to, struct ash_err *err);

#endif
