/* Fuzz target: the body of POST /api/chat. */
#include <stddef.h>
#include <stdint.h>

#include "api_form.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return form_run("/api/chat", data, size);
}
