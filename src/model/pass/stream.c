/* stream: rows of the residual stream that ranks of tp give each other. Where these share memory, the rows that blocks
 * need all of lie side by side: a norm writes a rank's own rows among those of the others, and a barrier is enough. */
#include "model/pass/stream.h"

#include "base/assert.h"
#include "model/pass/split.h"

void ash_stream_gather_rows(const struct ash_pass_step *step, struct ash_range rows, float *data, size_t width)
{
    struct ash_axes *axes = step->axes;

    ash_assert(ash_range_end(rows) <= step->rows);
    for (size_t r = 0; r < axes->tp.size; r++)
        axes->counts[r] = ash_range_overlap(ash_split_rows_tp(axes, step->rows, step->seq_rows, r), rows).count * width;
    ash_axes_all_gather(axes, &axes->tp, data + rows.first * width, axes->counts);
}

const float *ash_stream_gather(const struct ash_pass_step *step, const float *own, float *gathered)
{
    size_t hidden = step->model->config.hidden;

    if (step->axes->tp.size == 1) return own;
    if (step->axes->tp.same_node) {
        ash_axes_barrier_tp(step->axes);
        return own - step->own.first * hidden;
    }
    step->exec->memory->copy(gathered + step->own.first * hidden, own, step->own.count * hidden * sizeof(float));
    ash_stream_gather_rows(step, (struct ash_range){0, step->rows}, gathered, hidden);
    return gathered;
}

const float *ash_stream_gather_kept(const struct ash_pass_step *step, const float *own, float *gathered)
{
    bool is_kept = step->axes->tp.same_node && step->opts->recompute != ASH_RECOMPUTE_SELECTIVE;

    return is_kept ? own - step->own.first * step->model->config.hidden : ash_stream_gather(step, own, gathered);
}

void ash_stream_rotate_dx(const struct ash_pass_step *step)
{
    struct ash_scratch *s = &step->acts->scratch;
    size_t next = (s->dx_buffer + 1) % ASH_DX_BUFFERS;
    float *dx;

    if (!step->axes->shared_grads) return;
    dx = s->dx_buffers[next] + (s->dx - s->dx_buffers[s->dx_buffer]);
    step->exec->memory->copy(dx, s->dx, step->own.count * step->model->config.hidden * sizeof(float));
    s->dx = dx;
    s->dx_buffer = next;
}
