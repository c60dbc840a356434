/* See replay.h. The first step of a shape runs as it is: scratch grows, the library's algorithms are chosen. The second
 * is recorded. Recorded work has addresses in it, so memory that has moved makes another shape. */
#include "compute/cuda/replay.h"

#include <errno.h>
#include <stdlib.h>

#include "compute/cuda/attn_decode.h"

#define STEPS_MAX 32

/* What must be the same for a step to be the same work. */
struct step_key {
    uint64_t shape;
    size_t count;
    const void *scratch, *place;
};

struct recorded {
    struct step_key key;
    void *graph;
    bool is_hopeless; /* it cannot be recorded */
};

struct ash_cuda_replay {
    struct recorded steps[STEPS_MAX];
    size_t count, next;
    struct recorded *at_hand; /* being recorded */
};

static struct recorded *find(struct ash_cuda_replay *replay, const struct step_key *key)
{
    for (size_t i = 0; i < replay->count; i++) {
        const struct step_key *there = &replay->steps[i].key;

        if (there->shape == key->shape && there->count == key->count && there->scratch == key->scratch &&
            there->place == key->place)
            return &replay->steps[i];
    }
    return NULL;
}

/* Remember a shape; the oldest one goes. */
static void remember(struct ash_exec *exec, struct ash_cuda_replay *replay, const struct step_key *key)
{
    struct recorded *step = &replay->steps[replay->next];

    ash_cuda_graph_free(exec->cuda->cuda, step->graph);
    *step = (struct recorded){.key = *key};
    replay->next = (replay->next + 1) % STEPS_MAX;
    if (replay->count < STEPS_MAX) replay->count++;
}

enum ash_step_way ash_cuda_step_begin(struct ash_exec *exec, const struct ash_exec_step *step)
{
    struct ash_cuda_backend *backend = exec->cuda;
    struct step_key key = {.shape = step->shape, .count = step->seq_count, .scratch = backend->scratch.data};
    struct recorded *known;

    if (exec->profile != NULL) return ASH_STEP_RUN;
    if (backend->replay == NULL) backend->replay = calloc(1, sizeof(*backend->replay));
    if (backend->replay == NULL || !ash_cuda_tables_refresh(exec, step->seqs, step->seq_count)) return ASH_STEP_RUN;
    key.place = backend->tables->place.data;
    known = find(backend->replay, &key);
    if (known == NULL) {
        remember(exec, backend->replay, &key);
        return ASH_STEP_RUN;
    }
    if (known->is_hopeless) return ASH_STEP_RUN;
    if (known->graph != NULL) {
        ash_cuda_graph_run(backend->cuda, known->graph);
        return ASH_STEP_REPLAYED;
    }
    backend->replay->at_hand = known;
    ash_cuda_graph_begin(backend->cuda);
    return ASH_STEP_RECORD;
}

bool ash_cuda_step_end(struct ash_exec *exec, enum ash_step_way way)
{
    struct recorded *step;

    if (way != ASH_STEP_RECORD) return true;
    step = exec->cuda->replay->at_hand;
    if (ash_cuda_graph_end(exec->cuda->cuda, &step->graph) < 0) {
        step->is_hopeless = true;
        return false;
    }
    ash_cuda_graph_run(exec->cuda->cuda, step->graph);
    return true;
}

void ash_cuda_replay_close(struct ash_cuda_backend *backend)
{
    if (backend->replay == NULL) return;
    for (size_t i = 0; i < backend->replay->count; i++)
        ash_cuda_graph_free(backend->cuda, backend->replay->steps[i].graph);
    free(backend->replay);
    backend->replay = NULL;
}
