/* shards - how ranks that hold the same slice of a model shard its state (fsdp): each layer's run of the flat buffers,
 * and what comes before and after the layers, is cut into equal parts, one per rank, so that a layer can be gathered
 * from all of them. A rank's own parts lie one after the other in buffers of their own: the shard. */
#ifndef ASH_MODEL_SHARDS_H
#define ASH_MODEL_SHARDS_H

#include <stddef.h>
#include "ashlar/err.h"
#include "model/model.h"

/* One layer, or what comes before or after all of them. Elements. */
struct ash_shard_unit {
    int unit;               /* layer or ASH_UNIT_*; experts of a layer are one more of the same */
    struct ash_range whole; /* of the flat buffers */
    size_t part;            /* of each rank; the last ranks' may reach beyond the run, where nothing is */
    struct ash_range own;   /* of the flat buffers */
    size_t at;              /* of own in the shard */
};

/* Zero-initialise, free with ash_shards_fini. */
struct ash_shards {
    struct ash_shard_unit *units;
    size_t unit_count;
    size_t rank, size;
    size_t total; /* elements of the shard */
};

/* The shard of rank `rank` of size of a model whose parameters are listed. Returns 0 or -ENOMEM. */
int ash_shards_init(struct ash_shards *shards, const struct ash_model *model, size_t rank, size_t size,
                    struct ash_err *err);
/* Accepts a zeroed struct. */
void ash_shards_fini(struct ash_shards *shards);

/* What of a parameter is this rank's: elements first ... first + count - 1 of it, at `at` in the shard. */
struct ash_shard_part {
    size_t first, count, at;
};
/* This rank's part of a parameter; count 0: none. */
struct ash_shard_part ash_shards_part(const struct ash_shards *shards, const struct ash_param *param);
/* The same, of elements run of the shard only. */
struct ash_shard_part ash_shards_part_in(const struct ash_shards *shards, const struct ash_param *param,
                                         struct ash_range run);

#endif
