/* Fuzz target: answers of agents and of Prometheus. A body is never longer than the answer. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "observe/fetch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1); /* the reader's string ends in NUL, too */
    struct ash_str body = {0};

    if (text == NULL) return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (ash_fetch_parse(text, size, &body, NULL) == 0 && body.size_bytes > size) abort();
    ash_str_fini(&body);
    free(text);
    return 0;
}
