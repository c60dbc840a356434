/* See replay.h. The first step of a shape runs as it is: scratch grows, the library's algorithms are chosen. The second
 * is recorded. Recorded work has addresses in it, so memory that has moved makes another shape. */
#include "compute/cuda/replay.h"

#include <errno.h>
#include <stdlib.h>

#include "base/hash.h"
#include "compute/cuda/host/ahead.h"
#include "compute/cuda/attn/attn_decode.h"
#include "compute/cuda/attn/attn_docs.h"

#define STEPS_MAX 32

/* What must be the same for a step to be the same work. */
struct step_key {
    uint64_t shape;
    size_t count;
    const void *scratch, *place, *parts;
};

struct recorded {
    struct step_key key;
    void *graph;
    bool is_hopeless; /* it cannot be recorded */
    uint64_t used;    /* when it was last */
};

struct ash_cuda_replay {
    struct recorded steps[STEPS_MAX];
    size_t count;
    uint64_t begun, replayed;
    struct recorded *at_hand; /* being recorded */
};

static struct recorded *find(struct ash_cuda_replay *replay, const struct step_key *key)
{
    for (size_t i = 0; i < replay->count; i++) {
        const struct step_key *there = &replay->steps[i].key;

        if (there->shape == key->shape && there->count == key->count && there->scratch == key->scratch &&
            there->place == key->place && there->parts == key->parts)
            return &replay->steps[i];
    }
    return NULL;
}

/* Remember a shape; the one that was not used for longest goes. */
static void remember(struct ash_exec *exec, struct ash_cuda_replay *replay, const struct step_key *key)
{
    struct recorded *step = replay->steps;

    if (replay->count < STEPS_MAX) {
        step = &replay->steps[replay->count++];
    } else {
        for (size_t i = 1; i < STEPS_MAX; i++)
            if (replay->steps[i].used < step->used) step = &replay->steps[i];
        ash_cuda_graph_free(exec->cuda->cuda, step->graph);
    }
    *step = (struct recorded){.key = *key, .used = replay->begun};
}

static bool has_replay(struct ash_cuda_backend *backend)
{
    if (backend->replay == NULL) backend->replay = calloc(1, sizeof(*backend->replay));
    return backend->replay != NULL;
}

/* How the step with this key is done. */
static enum ash_step_way begin(struct ash_exec *exec, const struct step_key *key)
{
    struct ash_cuda_replay *replay = exec->cuda->replay;
    struct recorded *known = find(replay, key);

    replay->begun++;
    if (known == NULL) {
        remember(exec, replay, key);
        ash_cuda_links_turn(exec->cuda, ASH_LINKS_WATCH);
        return ASH_STEP_RUN;
    }
    known->used = replay->begun;
    if (known->is_hopeless) return ASH_STEP_RUN;
    if (known->graph != NULL) {
        ash_cuda_graph_run(exec->cuda->cuda, known->graph);
        replay->replayed++;
        return ASH_STEP_REPLAYED;
    }
    replay->at_hand = known;
    ash_cuda_graph_begin(exec->cuda->cuda);
    ash_cuda_links_turn(exec->cuda, ASH_LINKS_USE);
    return ASH_STEP_RECORD;
}

enum ash_step_way ash_cuda_step_begin(struct ash_exec *exec, const struct ash_exec_step *step)
{
    struct ash_cuda_backend *backend = exec->cuda;
    struct step_key key = {.shape = step->shape, .count = step->seq_count, .scratch = backend->scratch.data};

    if (exec->profile != NULL || !has_replay(backend)) return ASH_STEP_RUN;
    if (!ash_cuda_tables_refresh(exec, step->seqs, step->seq_count)) return ASH_STEP_RUN;
    key.place = backend->tables->place.data;
    key.parts = backend->tables->parts.data;
    return begin(exec, &key);
}

enum ash_step_way ash_cuda_batch_begin(struct ash_exec *exec, const struct ash_exec_step *batch)
{
    struct ash_cuda_backend *backend = exec->cuda;
    struct step_key key = {.scratch = backend->scratch.data};
    struct ash_cuda_docs_key docs;
    enum ash_step_way way;

    if (exec->profile != NULL || !has_replay(backend)) return ASH_STEP_RUN;
    if (!ash_cuda_docs_begin(exec, batch->seqs, batch->seq_count, &docs)) return ASH_STEP_RUN;
    key.shape = ash_hash_mix(batch->shape ^ (uintptr_t)exec->shared.data);
    key.count = docs.room;
    key.place = docs.place;
    way = begin(exec, &key);
    if (way == ASH_STEP_REPLAYED) ash_cuda_docs_end(exec);
    return way;
}

bool ash_cuda_step_end(struct ash_exec *exec, enum ash_step_way way)
{
    struct recorded *step;

    ash_cuda_docs_end(exec);
    ash_cuda_links_turn(exec->cuda, ASH_LINKS_OFF);
    if (way != ASH_STEP_RECORD) return true;
    step = exec->cuda->replay->at_hand;
    if (ash_cuda_graph_end(exec->cuda->cuda, &step->graph) < 0) {
        step->is_hopeless = true;
        return false;
    }
    ash_cuda_graph_run(exec->cuda->cuda, step->graph);
    return true;
}

void ash_cuda_replayed(const struct ash_cuda_backend *backend, uint64_t *begun_out, uint64_t *replayed_out)
{
    *begun_out = backend->replay != NULL ? backend->replay->begun : 0;
    *replayed_out = backend->replay != NULL ? backend->replay->replayed : 0;
}

void ash_cuda_replay_close(struct ash_cuda_backend *backend)
{
    if (backend->replay == NULL) return;
    for (size_t i = 0; i < backend->replay->count; i++)
        ash_cuda_graph_free(backend->cuda, backend->replay->steps[i].graph);
    free(backend->replay);
    backend->replay = NULL;
}
