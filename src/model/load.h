/* load - a model whose files are not in memory is read from the disk and packed at once, in the order of use, while the
 * first pass computes with the tensors read so far. */
#ifndef ASH_MODEL_LOAD_H
#define ASH_MODEL_LOAD_H

#include "compute/ops.h"
#include "model/model.h"

struct ash_load;

/* Is most of what ash_model_pack would read not in memory? */
bool ash_load_wanted(const struct ash_model *model, const struct ash_exec *exec);
/* Begin; the model's packed matrices are there from now on, and each may be read once it has been waited for. The model
 * stays mapped. Returns 0, or a negative errno and has changed nothing. */
int ash_load_open(struct ash_model *model, const struct ash_exec *exec, struct ash_load **load_out,
                  struct ash_err *err);
/* Wait for a matrix. An error is kept for ash_load_check: what reads the matrix then, reads zeros. NULL is a no-op. */
void ash_load_wait(struct ash_load *load, int32_t param);
/* Wait for a table whose rows are looked up: of a remote model, others are mapped. NULL is a no-op. */
void ash_load_wait_rows(struct ash_load *load, int32_t param);
/* Did all come that was waited for? Returns 0 or a negative errno, with the cause in err. 0 for NULL. */
int ash_load_check(const struct ash_load *load, struct ash_err *err);
/* Wait for all. As ash_load_check. */
int ash_load_finish(struct ash_load *load, struct ash_err *err);
/* Stop, and free. NULL is a no-op. */
void ash_load_close(struct ash_load *load);

#endif
