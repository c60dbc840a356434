/* keys - where the keys come from: the environment, profile files, a container's endpoint, the instance. */
#ifndef ASH_STORAGE_S3_KEYS_PRIV_H
#define ASH_STORAGE_S3_KEYS_PRIV_H

#include "ashlar/err.h"
#include "storage/s3/profile_priv.h"

/* Find keys and the settings that a profile has. profile_name (may be NULL) comes first; then keys in the environment,
 * the profile AWS_PROFILE or "default", the container's endpoint, the instance's metadata service. Returns 0, or a
 * negative errno with a sentence that lists the sources tried. */
int ash_s3_keys_find(const char *profile_name, struct ash_s3_profile *profile_out, struct ash_err *err);
/* Read the JSON that endpoints hand keys out in. Returns 0 or -EBADMSG with a sentence. */
int ash_s3_keys_parse(const char *text, size_t size_bytes, const char *name, struct ash_s3_keys *keys_out,
                      struct ash_err *err);

#endif
