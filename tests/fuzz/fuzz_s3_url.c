/* Fuzz target: addresses of objects and of servers. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "storage/s3/url.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = calloc(1, size + 1);
    struct ash_s3_url url;
    struct ash_s3_endpoint endpoint;
    struct ash_err err = {0};

    if (text == NULL) return 0;
    if (size > 0) memcpy(text, data, size);
    if (ash_s3_url_parse(text, &url, &err) == 0) (void)ash_s3_bucket_fits_host(url.bucket);
    (void)ash_s3_endpoint_parse(text, &endpoint, &err);
    free(text);
    return 0;
}
