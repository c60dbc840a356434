/* backends - the list of backends of this build, and which of them this machine can run. */
#ifndef ASH_COMPUTE_BACKENDS_H
#define ASH_COMPUTE_BACKENDS_H

#include <stdbool.h>
#include <stddef.h>
#include "compute/ops.h"

struct ash_backend {
    const struct ash_ops *ops;
    bool (*available)(void); /* can this machine run it? NULL: every machine can */
};

#define ASH_BACKENDS_MAX 16

/* Every backend of this build, best first, ash_backend_count of them. backends/backends.c fills it: the one file that
 * knows all folders of implementations. */
extern const struct ash_backend ash_backends[];
extern const size_t ash_backend_count; /* at most ASH_BACKENDS_MAX */

#endif
