/* save_plan - where every tensor of a state is in the files of a save: the same for all ranks and layouts. */
#ifndef ASH_TRAIN_SAVE_PLAN_H
#define ASH_TRAIN_SAVE_PLAN_H

#include "ashlar/err.h"
#include "storage/io/piece_writer.h"
#include "storage/safetensors/safetensors.h"
#include "train/layout/holdings.h"

enum { ASH_SAVE_WEIGHTS, ASH_SAVE_MOMENTS, ASH_SAVE_FILES };

/* Caller's storage; free with ash_save_plan_fini. */
struct ash_save_plan {
    struct ash_safetensors_layout layouts[ASH_SAVE_FILES];
    struct ash_piece_file files[ASH_SAVE_FILES];
    size_t *weights, *firsts; /* [tensor]: of its weights, place in the list of tensors and first element there */
    size_t *moments;          /* [tensor]: place of m in the list of moments; v follows it */
};

/* Of the model that outline lists. Returns 0, -EFBIG or -ENOMEM. */
int ash_save_plan_init(struct ash_save_plan *plan, const struct ash_model *outline, struct ash_err *err);
/* Free; a zeroed struct is a no-op. */
void ash_save_plan_fini(struct ash_save_plan *plan);
/* The file of a kind. */
size_t ash_save_plan_file(enum ash_holding_kind kind);
/* Where element `element` of a tensor's values of a kind is in that file. */
uint64_t ash_save_plan_offset(const struct ash_save_plan *plan, enum ash_holding_kind kind, size_t tensor,
                              size_t element);

#endif
