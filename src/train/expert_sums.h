/* expert_sums - gradients of experts that serve several ranks (mesh.ep). Every rank's batches are grains of its own, so
 * the owner of an expert keeps a tree of sums for each rank that it serves, and joins them at the end, with those of
 * the other owners of the same experts. One owner thread. */
#ifndef ASH_TRAIN_EXPERT_SUMS_H
#define ASH_TRAIN_EXPERT_SUMS_H

#include "model/model.h"
#include "train/grains.h"
#include "train/mesh.h"

/* Caller's storage; zeroed where experts serve nobody else. */
struct ash_expert_sums {
    const struct ash_mesh *mesh;
    const struct ash_model *model;
    struct ash_exec *exec;
    size_t lane_count; /* ranks that are served */
    struct ash_grains *lanes;
    float **leaves;           /* [lane_count]: of the grains at hand */
    struct ash_shares shares; /* who of mesh->experts brings which partial sums */
    struct ash_buffer sum;
    size_t grain_count;
};

/* Borrows all until fini. A mesh without ep, or a slice without experts, needs nothing. */
int ash_expert_sums_init(struct ash_expert_sums *sums, const struct ash_mesh *mesh, const struct ash_model *model,
                         struct ash_exec *exec, size_t grain_count, struct ash_err *err);
void ash_expert_sums_fini(struct ash_expert_sums *sums);

void ash_expert_sums_reset(struct ash_expert_sums *sums);
/* The round-th grain of every rank that has so many begins, or ends. */
void ash_expert_sums_begin(struct ash_expert_sums *sums, size_t round);
void ash_expert_sums_end(struct ash_expert_sums *sums, size_t round);
/* Join, and put the result at the experts' places in grads (offsets of the model). */
int ash_expert_sums_finish(struct ash_expert_sums *sums, float *grads, struct ash_err *err);

#endif
