/* ranks: those that compute on devices. Values between them go from one device's memory to the other's, or through the
 * host's: see collective/group.h. */
#include "parallel/gpus.h"
#include "serve/engine/ranks_priv.h"

int ash_ranks_choose_gpu(struct ash_ranks *ranks, struct ash_backend_choice *choice, struct ash_err *err)
{
    const struct ash_gpus_sharing sharing = {
        .per_gpu = ranks->per_gpu, .backend_word = "--backend ", .per_gpu_word = "--ranks-per-gpu "};

    return ash_gpus_share(&sharing, ranks->group, choice, err);
}

void ash_ranks_compute_with(struct ash_ranks *ranks, const struct ash_exec *exec)
{
    ash_group_set_memory(ranks->group, ash_backend_device_memory(exec));
    ranks->memory = exec->memory;
}

int ash_ranks_gather_rooms(struct ash_ranks *ranks, struct ash_gpu_room *rooms, struct ash_err *err)
{
    struct ash_gpu_room own = rooms[0];

    return ranks != NULL ? ash_group_all_gather(ranks->group, &own, rooms, sizeof(own), err) : 0;
}
