/* fabric_manager - does NVIDIA's fabric manager run on a machine that has NVSwitches? Without it no process can use its
 * GPUs (CUDA error 802). */
#ifndef ASH_OBSERVE_COLLECT_FABRIC_MANAGER_H
#define ASH_OBSERVE_COLLECT_FABRIC_MANAGER_H

#include "observe/collect/source.h"

enum ash_fabric_manager {
    ASH_FABRIC_MANAGER_NOT_NEEDED, /* there are no NVSwitches */
    ASH_FABRIC_MANAGER_UNSEEN,     /* the host's processes cannot be seen */
    ASH_FABRIC_MANAGER_DOWN,
    ASH_FABRIC_MANAGER_UP,
};

/* Look at all processes, if there are switches. */
enum ash_fabric_manager ash_fabric_manager_look(const struct ash_host_files *source);

#endif
