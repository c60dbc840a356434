/* Fuzz target: the XML documents of S3. */
#include <stddef.h>
#include <stdint.h>

#include "storage/s3/doc_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ash_s3_doc doc = {0};
    struct ash_err err = {0};

    if (ash_s3_doc_parse((const char *)data, size, NULL, &doc, &err) == 0) ash_s3_doc_fini(&doc);
    return 0;
}
