/* A table of one place per hash: what falls on a taken place replaces it, and is predicted again when it is asked for.
 */
#include "plan/train/layer_memo.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PLACES 4096 /* a power of two; a search asks for some hundred layers */

/* What a layer depends on. */
struct key {
    int tp, cp, ep, etp, micro_batch, precision, recompute, dual;
    int domain_gpus, alone; /* alone: one machine has no network */
};

struct place {
    struct key key; /* micro_batch 0: empty */
    struct ash_layer layer, head;
};

struct ash_layer_memo {
    struct place places[PLACES];
};

struct ash_layer_memo *ash_layer_memo_open(void)
{
    return calloc(1, sizeof(struct ash_layer_memo));
}

void ash_layer_memo_close(struct ash_layer_memo *memo)
{
    free(memo);
}

static struct place *place_of(struct ash_layer_memo *memo, const struct key *key)
{
    const int *words = (const int *)key;
    uint32_t hash = 0;

    for (size_t i = 0; i < sizeof(*key) / sizeof(*words); i++)
        hash = (hash ^ (uint32_t)words[i]) * 0x9e3779b1u;
    return &memo->places[hash >> 20 & (PLACES - 1)];
}

void ash_layer_memo_predict(struct ash_layer_memo *memo, const struct ash_consts *consts,
                            const struct ash_plan_job *job, const struct ash_layout *layout,
                            enum ash_plan_recompute recompute, struct ash_layer *layer_out, struct ash_layer *head_out)
{
    struct key key = {layout->tp,
                      layout->cp,
                      layout->ep,
                      layout->etp,
                      layout->micro_batch,
                      layout->precision,
                      (int)recompute,
                      layout->schedule == ASH_SCHEDULE_DUALPIPE,
                      job->cluster.domain_gpus,
                      job->cluster.machines == 1};
    struct place *place = memo != NULL ? place_of(memo, &key) : NULL;

    if (place == NULL || memcmp(&place->key, &key, sizeof(key)) != 0) {
        ash_layer_predict(consts, job, layout, recompute, layer_out);
        ash_head_predict(consts, job, layout, head_out);
        if (place != NULL) *place = (struct place){key, *layer_out, *head_out};
        return;
    }
    *layer_out = place->layer;
    *head_out = place->head;
}
