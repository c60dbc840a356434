/* cache_dir - the user's folder of what can be fetched or found out again. */
#ifndef ASH_BASE_CACHE_DIR_H
#define ASH_BASE_CACHE_DIR_H

#include "ashlar/err.h"
#include "base/str.h"

/* $ASHLAR_CACHE_DIR, else $XDG_CACHE_HOME/ashlar, else $HOME/.cache/ashlar, appended to path. It need not exist.
 * Returns 0, -ENOMEM, or -ENOENT with a sentence where none is set. */
int ash_cache_dir(struct ash_str *path, struct ash_err *err);

#endif
