/* Fuzz target: the body of POST /v1/rerank. */
#include <stddef.h>
#include <stdint.h>

#include "api_form.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return form_run("/v1/rerank", data, size);
}
