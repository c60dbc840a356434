/* The parts of a step's time, by name. */
#include "plan/train/parts.h"

#include <string.h>

void ash_step_parts(const struct ash_step_time *t, double checkpoint_s, struct ash_step_part parts[ASH_STEP_PARTS])
{
    const struct ash_step_part all[ASH_STEP_PARTS] = {
        {"compute", "compute", "matrix products and attention", "#2a6f97", t->compute},
        {"HBM", "hbm", "HBM bandwidth (element-wise passes, logits, gradients)", "#61a5c2", t->memory},
        {"host", "host", "kernel launches from the host", "#adb5bd", t->host},
        {"exposed NVLink", "nvlink", "NVLink traffic that compute does not hide", "#f4a259", t->nvlink},
        {"exposed network", "network", "network traffic that compute does not hide", "#bc4b51", t->network},
        {"pipeline bubble", "bubble", "idle time in the pipeline", "#e9ecef", t->bubble},
        {"optimizer", "optimizer", "the optimizer", "#8cb369", t->optimizer},
        {"data", "data", "input and bookkeeping", "#ced4da", t->data},
        {"slowest machine", "jitter", "waiting for the slowest machine", "#868e96", t->jitter},
        {"checkpoint", "checkpoint", "checkpoints", "#9d4edd", checkpoint_s},
    };

    memcpy(parts, all, sizeof(all));
}

const char *ash_step_bound(const struct ash_step_time *time, double checkpoint_s)
{
    struct ash_step_part parts[ASH_STEP_PARTS];
    size_t most = 0;

    ash_step_parts(time, checkpoint_s, parts);
    for (size_t i = 1; i < ASH_STEP_PARTS; i++)
        if (parts[i].seconds > parts[most].seconds) most = i;
    return parts[most].text;
}
