/* See cache_dir.h. */
#include "base/cache_dir.h"

#include <errno.h>
#include "base/opts.h"

int ash_cache_dir(struct ash_str *path, struct ash_err *err)
{
    const char *own = ash_env_get("ASHLAR_CACHE_DIR"), *shared = ash_env_get("XDG_CACHE_HOME");
    const char *home = ash_env_get("HOME");

    if (own != NULL) return ash_str_adds(path, own);
    if (shared != NULL) return ash_str_addf(path, "%s/ashlar", shared);
    if (home != NULL) return ash_str_addf(path, "%s/.cache/ashlar", home);
    return ash_err_set(err, -ENOENT, "there is no place for a cache: set ASHLAR_CACHE_DIR to a folder");
}
