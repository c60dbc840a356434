/* Grammars of JSON. */
#include "serve/grammar/grammar.h"

#include <errno.h>
#include <stdlib.h>

#include "serve/grammar/schema.h"

/* Bytes of the schema as text; what comes through the C API was never text. */
static int check_size(const json_t *schema, size_t limit, struct ash_err *err)
{
    size_t bytes = json_dumpb(schema, NULL, 0, JSON_ENCODE_ANY | JSON_COMPACT);

    return bytes <= limit
               ? 0
               : ash_err_set(err, -E2BIG, "a schema of %zu bytes is larger than the limit of %zu", bytes, limit);
}

int ash_grammar_from_json_schema(const json_t *schema, const struct ash_grammar_opts *opts,
                                 struct ash_grammar **grammar_out, struct ash_err *err)
{
    struct ash_grammar_opts own = opts != NULL ? *opts : ash_grammar_default_opts();
    struct ash_pda_draft *draft;
    struct ash_pda *pda = NULL;
    uint32_t root;
    int rc = check_size(schema, own.limits.source_bytes, err);

    if (rc < 0) return rc;
    draft = ash_pda_draft_open(&own.limits);
    if (draft == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a grammar");
    root = ash_pda_add_rule(draft);
    rc = ash_schema_draw(schema, &own, draft, ash_pda_rule_start(draft, root), ash_pda_rule_end(draft, root), err);
    if (rc == 0) rc = ash_pda_finish(draft, root, NULL, &pda, err);
    ash_pda_draft_close(draft);
    return rc < 0 ? rc : ash_grammar_from_pda(pda, &own.limits, grammar_out, err);
}

int ash_grammar_json_object(const struct ash_grammar_opts *opts, struct ash_grammar **grammar_out, struct ash_err *err)
{
    json_t *schema = json_pack("{s:s}", "type", "object");
    int rc = schema == NULL ? ash_err_set(err, -ENOMEM, "out of memory for a grammar")
                            : ash_grammar_from_json_schema(schema, opts, grammar_out, err);

    json_decref(schema);
    return rc;
}
