/* pass_captured: what heads of EAGLE-3 read of other passes, and give to their own next rows: streams, not states. */
#include "base/assert.h"
#include "model/pass/fuse.h"
#include "model/pass/pass_priv.h"

int ash_pass_infer_captured(struct ash_pass *pass, size_t first, size_t count, float *out, struct ash_err *err)
{
    size_t width = pass->opts.capture_count * pass->model->config.hidden;
    int rc;

    ash_assert(width > 0 && first + count <= pass->opts.max_rows);
    rc = pass->exec->memory->copy(out, pass->acts.captured + first * width, count * width * sizeof(float));
    return rc < 0 ? ash_err_set(err, rc, "cannot copy the captured rows") : 0;
}

int ash_pass_fuse_captured(struct ash_pass *pass, const float *captured, size_t count, float *states_out,
                           struct ash_err *err)
{
    struct ash_pass_step step = {.model = pass->model,
                                 .exec = pass->exec,
                                 .opts = &pass->opts,
                                 .axes = &pass->axes,
                                 .acts = &pass->acts,
                                 .rows = count,
                                 .own = {.count = count}};

    ash_assert(count <= pass->opts.max_rows);
    return ash_fuse_captured(&step, captured, states_out, err);
}

int ash_pass_infer_stream(struct ash_pass *pass, size_t row, float *stream_out, struct ash_err *err)
{
    size_t hidden = pass->model->config.hidden;
    int rc;

    ash_assert(row < pass->step.rows);
    rc = pass->exec->memory->copy(stream_out, pass->acts.final_in + row * hidden, hidden * sizeof(float));
    return rc < 0 ? ash_err_set(err, rc, "cannot copy a row of the stream") : 0;
}
