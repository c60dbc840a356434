/* A table of one entry per hash: a new entry replaces the old one, which is then predicted again when needed. */
#include "plan/train/layer_memo.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PLACES_LOG2 13        /* a search asks for a thousand layers */
#define COMMON_PLACES_LOG2 11 /* and for some hundred of what they have in common */
#define HASH_FACTOR 0x9e3779b1u
#define HASH_BITS 32

/* What the common parts depend on; micro_batch 0: an empty place. */
struct common_key {
    int tp, cp, micro_batch, precision;
};

/* What a layer depends on, apart from recomputation. */
struct key {
    struct common_key common;
    int ep, etp, dual;
    int domain_gpus, alone; /* alone: one machine has no network */
};

struct common_place {
    struct common_key key;
    struct ash_plan_layer_common common;
};

struct memo_slot {
    struct key key;
    struct ash_plan_layer layer, head;     /* layer: not settled yet */
    double work_s[ASH_PLAN_RECOMPUTE_FIT]; /* of the settled ones, both ways; 0: not computed */
};

struct ash_plan_layer_memo {
    struct memo_slot places[1 << PLACES_LOG2];
    struct common_place commons[1 << COMMON_PLACES_LOG2];
};

struct ash_plan_layer_memo *ash_plan_layer_memo_open(void)
{
    return calloc(1, sizeof(struct ash_plan_layer_memo));
}

void ash_plan_layer_memo_close(struct ash_plan_layer_memo *memo)
{
    free(memo);
}

/* The index of a key of whole ints in a table of 2 ^ bits. */
static size_t place_of(const void *key, size_t bytes, int bits)
{
    const int *words = key;
    uint32_t hash = 0;

    for (size_t i = 0; i < bytes / sizeof(*words); i++)
        hash = (hash ^ (uint32_t)words[i]) * HASH_FACTOR;
    return hash >> (HASH_BITS - bits);
}

static const struct ash_plan_layer_common *common_of(struct ash_plan_layer_memo *memo, const struct ash_consts *consts,
                                                     const struct ash_plan_job *job, const struct ash_layout *layout,
                                                     const struct common_key *key)
{
    struct common_place *place = &memo->commons[place_of(key, sizeof(*key), COMMON_PLACES_LOG2)];

    if (memcmp(&place->key, key, sizeof(*key)) != 0) {
        place->key = *key;
        ash_plan_layer_prepare(consts, job, layout, &place->common);
    }
    return &place->common;
}

/* The place that has the layer, which is predicted on a miss. */
static struct memo_slot *recall(struct ash_plan_layer_memo *memo, const struct ash_consts *consts,
                                const struct ash_plan_job *job, const struct ash_layout *layout)
{
    struct key key = {{layout->tp, layout->cp, layout->micro_batch, layout->precision},
                      layout->ep,
                      layout->etp,
                      layout->schedule == ASH_PLAN_DUALPIPE,
                      job->cluster.domain_gpus,
                      job->cluster.machines == 1};
    struct memo_slot *place = &memo->places[place_of(&key, sizeof(key), PLACES_LOG2)];

    if (memcmp(&place->key, &key, sizeof(key)) != 0) {
        const struct ash_plan_layer_common *common = common_of(memo, consts, job, layout, &key.common);

        *place = (struct memo_slot){.key = key, .head = common->head};
        ash_plan_layer_assemble(consts, job, layout, common, &place->layer);
    }
    return place;
}

void ash_plan_layer_memo_predict(struct ash_plan_layer_memo *memo, const struct ash_consts *consts,
                                 const struct ash_plan_job *job, const struct ash_layout *layout,
                                 enum ash_plan_recompute recompute, struct ash_plan_layer *layer_out,
                                 struct ash_plan_layer *head_out)
{
    const struct memo_slot *place;

    if (memo == NULL) {
        ash_plan_layer_predict(consts, job, layout, recompute, layer_out);
        ash_plan_head_predict(consts, job, layout, head_out);
        return;
    }
    place = recall(memo, consts, job, layout);
    *layer_out = place->layer;
    *head_out = place->head;
    ash_plan_layer_finish(recompute, layer_out);
}

double ash_plan_layer_memo_work(struct ash_plan_layer_memo *memo, const struct ash_consts *consts,
                                const struct ash_plan_job *job, const struct ash_layout *layout,
                                enum ash_plan_recompute recompute, double *dispatch_s_out)
{
    struct memo_slot *place = memo != NULL ? recall(memo, consts, job, layout) : NULL;
    struct ash_plan_layer layer;
    double work_s;

    if (place == NULL) {
        ash_plan_layer_predict(consts, job, layout, recompute, &layer);
        *dispatch_s_out = layer.dispatch_s;
        return ash_plan_parts_sum(&layer.forward) + ash_plan_parts_sum(&layer.backward);
    }
    *dispatch_s_out = place->layer.dispatch_s;
    work_s = place->work_s[recompute];
    if (work_s > 0) return work_s;
    layer = place->layer;
    ash_plan_layer_finish(recompute, &layer);
    work_s = ash_plan_parts_sum(&layer.forward) + ash_plan_parts_sum(&layer.backward);
    return place->work_s[recompute] = work_s;
}
