/* Fuzz target: a JSON schema. What compiles is walked through, with space and without. */
#include <errno.h>
#include <stdint.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/json.h"
#include "grammar_steps.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct ash_grammar_opts opts = fuzz_opts();
    struct ash_err err = {0};
    json_t *schema = NULL;

    if (ash_json_parse((const char *)data, size_bytes, "schema", &schema, &err) < 0) return 0;
    for (int space = ASH_JSON_SPACE_COMPACT; space <= ASH_JSON_SPACE_ANY; space++) {
        struct ash_grammar *grammar = NULL;
        int rc;
        opts.space = (enum ash_json_space)space;
        rc = ash_grammar_from_json_schema(schema, &opts, &grammar, &err);
        ash_assert(rc == 0 || (err.code == rc && err.text[0] != '\0'));
        if (rc == 0) fuzz_steps(grammar, ash_hash_bytes(data, size_bytes, 0));
        ash_grammar_put(grammar);
    }
    json_decref(schema);
    return 0;
}
