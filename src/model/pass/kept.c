/* kept: masks logits in place. Where the host cannot touch them, rows travel there and back. */
#include "model/pass/kept.h"

#include <math.h>

void ash_kept_mask_row(const struct ash_kept *kept, size_t first, size_t count, float *logits)
{
    size_t next = 0;

    while (next < kept->count && (size_t)kept->ids[next] < first)
        next++;
    for (size_t v = 0; v < count; v++)
        if (next < kept->count && (size_t)kept->ids[next] == first + v)
            next++;
        else
            logits[v] = -INFINITY;
}

static int mask_there(const struct ash_pass_step *step, const struct ash_kept *kept, float *logits)
{
    const struct ash_memory_ops *memory = step->exec->memory;
    struct ash_range vocab = step->model->vocab;
    int rc = memory->copy(step->kept_row, logits, vocab.count * sizeof(float));

    if (rc < 0) return rc;
    ash_kept_mask_row(kept, vocab.first, vocab.count, step->kept_row);
    return memory->copy(logits, step->kept_row, vocab.count * sizeof(float));
}

void ash_kept_mask(const struct ash_pass_step *step, struct ash_range rows, float *logits)
{
    struct ash_range vocab = step->model->vocab;

    if (step->kept == NULL || step->model->config.labels > 0) return;
    for (size_t r = 0; r < rows.count; r++) {
        const struct ash_kept *kept = &step->kept[rows.first + r];
        int rc = 0;

        if (kept->count == 0) continue;
        if (step->kept_row == NULL)
            ash_kept_mask_row(kept, vocab.first, vocab.count, logits + r * vocab.count);
        else
            rc = mask_there(step, kept, logits + r * vocab.count);
        if (rc < 0 && step->axes->failed == 0)
            step->axes->failed = ash_err_set(&step->axes->failure, rc, "cannot copy a row of logits");
    }
}
