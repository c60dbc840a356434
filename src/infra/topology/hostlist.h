/* hostlist - names of hosts with brackets, as Slurm writes them: "n[0-3,07-12],login", "r[1-2]n[0-7]". */
#ifndef ASH_INFRA_HOSTLIST_H
#define ASH_INFRA_HOSTLIST_H

#include <stddef.h>
#include "ashlar/err.h"

#define ASH_HOSTLIST_NAMES_MAX 262144
#define ASH_HOSTLIST_NAME_MAX 255 /* bytes */

/* Called with each name; a negative return ends the walk and is passed on. */
typedef int (*ash_hostlist_fn)(void *ctx, const char *name, struct ash_err *err);

/* Call visit with every name of text, in order; names are set apart by commas and white space. Brackets that do not
 * close, ranges that run backwards and more than the limits above are -EINVAL. */
int ash_hostlist_each(const char *text, ash_hostlist_fn visit, void *ctx, struct ash_err *err);

#endif
