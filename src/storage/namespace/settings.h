/* settings - access to remote places and their local cache, from the environment: ASHLAR_S3_*, ASHLAR_CACHE_* and the
 * variables of AWS's tools. For all options that accept s3://bucket/prefix for a path. */
#ifndef ASH_STORAGE_NAMESPACE_SETTINGS_H
#define ASH_STORAGE_NAMESPACE_SETTINGS_H

#include "storage/namespace/namespace.h"

/* Zero-initialise. */
struct ash_namespace_settings {
    struct ash_s3_opts s3; /* on_retry warns every ten seconds, unless it is changed */
    struct ash_cache_opts cache;
    struct ash_opts *opts; /* owns their strings */
    _Atomic uint64_t warned_ns;
};

/* Read the environment. Not movable until fini: s3 points to it. */
int ash_namespace_settings_init(struct ash_namespace_settings *settings, struct ash_err *err);
/* Free; a zeroed one is a no-op. */
void ash_namespace_settings_fini(struct ash_namespace_settings *settings);

#endif
