/* room - memory of a GPU that a model, its passes and its cache will take, before any of it is allocated. */
#ifndef ASH_SERVE_ENGINE_ROOM_H
#define ASH_SERVE_ENGINE_ROOM_H

#include "compute/backends/backends.h"
#include "model/model.h"
#include "model/pass/pass.h"

/* Of one process. Plain data: ranks tell it to each other. */
struct ash_gpu_room {
    double have, weights, rest, page; /* bytes: free, of weights, of activations and scratch, of a page of the cache */
    unsigned char gpu[ASH_BACKEND_GPU_ID_BYTES]; /* which GPU: processes with the same one share what is free */
};

/* What a process takes that opens a pass with these options. exec is a GPU's. Returns 0, -EINVAL or -ENOMEM. */
int ash_gpu_room_measure(const struct ash_model *model, const struct ash_exec *exec, const struct ash_pass_opts *opts,
                         struct ash_gpu_room *room_out, struct ash_err *err);
/* Pages of the cache for all of these processes, each with its part of every page: *pages if has_wish, or as many of
 * them as fit. Returns 0, or -ENOMEM with the needed and the free memory, and how to need less. */
int ash_gpu_room_fit(const struct ash_gpu_room *rooms, size_t count, bool has_wish, size_t *pages, struct ash_err *err);

#endif
