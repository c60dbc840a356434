/* Fuzz target: profile files and the JSON that keys come in. */
#include <stddef.h>
#include <stdint.h>

#include "storage/s3/keys_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ash_s3_profile profile;
    struct ash_err err = {0};

    (void)ash_s3_profile_parse(&(struct ash_s3_profile_file){(const char *)data, "fuzz", size, false}, "default",
                               &profile, &err);
    (void)ash_s3_profile_parse(&(struct ash_s3_profile_file){(const char *)data, "fuzz", size, true}, "work", &profile,
                               &err);
    (void)ash_s3_keys_parse((const char *)data, size, "fuzz", &profile.keys, &err);
    return 0;
}
