/* Fuzz target: a grammar in GBNF. What compiles is walked through. */
#include <errno.h>
#include <stdint.h>

#include "base/assert.h"
#include "base/hash.h"
#include "grammar_steps.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct ash_grammar_opts opts = fuzz_opts();
    struct ash_grammar *grammar = NULL;
    struct ash_err err = {0};
    int rc = ash_grammar_from_gbnf((const char *)data, size_bytes, &opts, &grammar, &err);

    ash_assert(rc == 0 || (err.code == rc && err.text[0] != '\0'));
    if (rc == 0) fuzz_steps(grammar, ash_hash_bytes(data, size_bytes, 0));
    ash_grammar_put(grammar);
    return 0;
}
