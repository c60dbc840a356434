/* mesh_priv - the links of a mesh, for mesh.c. */
#ifndef ASH_TRAIN_MESH_PRIV_H
#define ASH_TRAIN_MESH_PRIV_H

#include <errno.h>
#include "train/layout/mesh.h"

/* Borrows group and meter until close. Zeroed or half-open is fine to close. */
int ash_mesh_link_open(struct ash_mesh_link *link, struct ash_group *group, struct ash_meter *meter,
                       struct ash_err *err);
void ash_mesh_link_close(struct ash_mesh_link *link);

#endif
