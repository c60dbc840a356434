/* mesh_priv - the links of a mesh, for mesh.c. */
#ifndef ASH_TRAIN_MESH_PRIV_H
#define ASH_TRAIN_MESH_PRIV_H

#include <errno.h>
#include "train/layout/mesh.h"

/* Set up a link over group. Borrows group and meter until close. Returns 0, -ENOMEM or the group's error; on error the
 * link is half-open and the caller closes it. */
int ash_mesh_link_open(struct ash_mesh_link *link, struct ash_group *group, struct ash_meter *meter,
                       struct ash_err *err);
/* Free what open took. A zeroed or half-open link may be closed, too. */
void ash_mesh_link_close(struct ash_mesh_link *link);

#endif
