/* Fuzz target: the header that says where pages of a prompt are. One that is read is written as it was. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "serve/api/apart.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const char *text)
{
    struct ash_kv_source source, again;
    struct ash_str out = {0};

    if (!ash_api_source_read(text, &source)) return;
    if (ash_api_source_write(&source, &out) == 0 &&
        (!ash_api_source_read(out.data, &again) || memcmp(&source, &again, sizeof(source)) != 0))
        abort();
    ash_str_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t hex = 2 * (size_t)ASH_PORT_DESCRIPTION_BYTES;
    char *text = malloc(size + hex + 1);

    if (text == NULL) return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    check(text);
    memset(text + size, 'a', hex); /* few inputs are so long */
    text[size + hex] = '\0';
    check(text);
    free(text);
    return 0;
}
