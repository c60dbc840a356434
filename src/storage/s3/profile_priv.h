/* profile - the files ~/.aws/credentials and ~/.aws/config: sections of name = value. */
#ifndef ASH_STORAGE_S3_PROFILE_PRIV_H
#define ASH_STORAGE_S3_PROFILE_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include "ashlar/err.h"
#include "storage/s3/sigv4_priv.h"

#define ASH_S3_PROFILE_FILE_BYTES ((size_t)1 << 20)
#define ASH_S3_SETTING_BYTES 512

/* Settings of a profile; "" if unset. */
struct ash_s3_profile {
    struct ash_s3_keys keys;
    char region[ASH_S3_SETTING_BYTES], endpoint[ASH_S3_SETTING_BYTES];
    char addressing[ASH_S3_SETTING_BYTES], ca_file[ASH_S3_SETTING_BYTES];
    char elsewhere[64]; /* the name of a way to get keys that is not supported (role_arn, sso_session, ...) */
    bool is_found;      /* the section is there */
};

/* A file in memory. */
struct ash_s3_profile_file {
    const char *text, *path; /* path is for messages */
    size_t size_bytes;
    bool is_config; /* its sections are [profile NAME], but [default] */
};

/* Read profile `name` of file into *profile; fields that it does not have are left alone. Returns 0 or -EINVAL with
 * file and line. */
int ash_s3_profile_parse(const struct ash_s3_profile_file *file, const char *name, struct ash_s3_profile *profile,
                         struct ash_err *err);

#endif
