/* acts_place: hands out places in a pass's memory: kept ones, and ones that all layers use in turn. */
#include "base/math.h"
#include "model/pass/acts_layout.h"

bool ash_acts_keeps(const struct ash_pass_opts *opts, enum ash_keep keep)
{
    if (!opts->backward) return false;
    switch (opts->recompute) {
    case ASH_RECOMPUTE_NONE:
        return true;
    case ASH_RECOMPUTE_SELECTIVE:
        return keep != ASH_KEEP_CHEAP;
    default:
        return keep == ASH_KEEP_INPUT;
    }
}

/* ---- placing ----------------------------------------------------------------------------------------------------- */

static void *place(char *base, size_t *used_bytes, size_t size_bytes)
{
    char *at = base == NULL ? NULL : base + *used_bytes;

    *used_bytes += ash_round_up(size_bytes, ASH_ACTS_ALIGN);
    return at;
}

void *ash_acts_layout_keep_bytes(struct ash_acts_layout *l, enum ash_space space, size_t size_bytes)
{
    return place(l->spaces[space].kept, &l->spaces[space].kept_bytes, size_bytes);
}

void *ash_acts_layout_reuse_bytes(struct ash_acts_layout *l, enum ash_space space, size_t size_bytes)
{
    return place(l->spaces[space].reused, &l->spaces[space].reused_bytes, size_bytes);
}

/* Ranks of other axes read each other's memory at moments of their own. */
static bool shares(const struct ash_acts_layout *l)
{
    return l->opts->backward && l->axes->tp.size == 1 && l->axes->cp.size == 1 && l->axes->ep.size == 1;
}

void *ash_acts_layout_shared_bytes(struct ash_acts_layout *l, enum ash_space space, size_t size_bytes)
{
    return shares(l) ? ash_acts_layout_reuse_bytes(l, space, size_bytes)
                     : ash_acts_layout_keep_bytes(l, space, size_bytes);
}

float *ash_acts_layout_back_floats(struct ash_acts_layout *l, enum ash_space space, size_t count)
{
    return ash_acts_layout_shared_bytes(l, space, count * sizeof(float));
}

float *ash_acts_layout_keep_floats(struct ash_acts_layout *l, enum ash_space space, size_t count)
{
    return ash_acts_layout_keep_bytes(l, space, count * sizeof(float));
}

int32_t *ash_acts_layout_keep_ints(struct ash_acts_layout *l, size_t count)
{
    return ash_acts_layout_keep_bytes(l, ASH_SPACE_PRIVATE, count * sizeof(int32_t));
}

float *ash_acts_layout_columns(float *base, size_t columns)
{
    return base == NULL ? NULL : base + columns;
}

void ash_acts_layout_reset(struct ash_acts_layout *l)
{
    for (size_t i = 0; i < ASH_SPACES; i++) {
        l->spaces[i].reused_peak_bytes = ash_max(l->spaces[i].reused_peak_bytes, l->spaces[i].reused_bytes);
        l->spaces[i].reused_bytes = 0;
    }
}
