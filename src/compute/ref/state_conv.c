/* The convolution before recurrent states in plain C. A worker has some channels, which need nothing of the others. */
#include "compute/ref/state_priv.h"

#include <string.h>

#include "base/assert.h"
#include "base/workers.h"
#include "compute/mathf.h"

#define CONV_MIN_CHANNELS 16

/* x of a row of a channel: before the sequence begins, that of its state. */
static float input(const struct ash_conv_args *args, const struct ash_state_seq *seq, const float *before, size_t at,
                   size_t channel)
{
    size_t past = args->taps - 1; /* at: the row in the sequence, plus these */

    return at < past ? before[at] : args->x[(seq->row + at - past) * args->x_stride + channel];
}

/* Row r of a sequence before silu. */
static float sum_at(const struct ash_conv_args *args, const struct ash_state_seq *seq, const float *before, size_t r,
                    size_t channel)
{
    float sum = args->bias != NULL ? args->bias[channel] : 0.0f;

    for (size_t k = 0; k < args->taps; k++)
        sum = fmaf(args->weight[channel * args->taps + k], input(args, seq, before, r + k, channel), sum);
    return sum;
}

static void read_state(const struct ash_conv_args *args, const struct ash_state_seq *seq, size_t channel, float *before)
{
    for (size_t i = 0; i + 1 < args->taps; i++)
        before[i] = seq->from != NULL ? seq->from[i * args->channels + channel] : 0.0f;
}

static void forward_channels(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_conv_args *args = ctx;

    (void)worker;
    for (size_t s = 0; s < args->seq_count; s++) {
        const struct ash_state_seq *seq = &args->seqs[s];

        for (size_t c = begin; c < end; c++) {
            float before[ASH_STATE_TAPS_MAX], after[ASH_STATE_TAPS_MAX];

            read_state(args, seq, c, before);
            for (size_t r = 0; r < seq->count; r++) {
                float z = sum_at(args, seq, before, r, c);

                args->out[(seq->row + r) * args->channels + c] = z * ash_sigmoidf(z);
            }
            for (size_t i = 0; seq->to != NULL && i + 1 < args->taps; i++)
                after[i] = input(args, seq, before, seq->count + i, c);
            for (size_t i = 0; seq->to != NULL && i + 1 < args->taps; i++)
                seq->to[i * args->channels + c] = after[i];
        }
    }
}

static void backward_channel(const struct ash_conv_args *args, const struct ash_state_seq *seq, size_t c)
{
    float before[ASH_STATE_TAPS_MAX] = {0};
    size_t taps = args->taps;

    for (size_t r = 0; r < seq->count; r++) {
        float *dout = &args->dout[(seq->row + r) * args->channels + c];
        float z = sum_at(args, seq, before, r, c), s = ash_sigmoidf(z), d = *dout * (s * fmaf(z, 1.0f - s, 1.0f));

        *dout = d;
        if (args->dbias != NULL) args->dbias[c] = args->dbias[c] + d;
        for (size_t k = 0; args->dweight != NULL && k < taps; k++)
            args->dweight[c * taps + k] = fmaf(d, input(args, seq, before, r + k, c), args->dweight[c * taps + k]);
    }
    for (size_t r = 0; r < seq->count; r++) {
        float sum = 0.0f;

        for (size_t k = taps; k-- > 0;) {
            size_t to = r + (taps - 1 - k);

            if (to < seq->count)
                sum = fmaf(args->weight[c * taps + k], args->dout[(seq->row + to) * args->channels + c], sum);
        }
        args->dx[(seq->row + r) * args->dx_stride + c] = sum;
    }
}

static void backward_channels(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_conv_args *args = ctx;

    (void)worker;
    for (size_t s = 0; s < args->seq_count; s++)
        for (size_t c = begin; c < end; c++)
            backward_channel(args, &args->seqs[s], c);
}

void ash_ref_conv_forward(struct ash_exec *exec, const struct ash_conv_args *args)
{
    ash_assert(args->taps >= 1 && args->taps <= ASH_STATE_TAPS_MAX);
    ash_workers_run(exec->workers, args->channels, CONV_MIN_CHANNELS, forward_channels, (void *)(uintptr_t)args);
}

void ash_ref_conv_backward(struct ash_exec *exec, const struct ash_conv_args *args)
{
    ash_assert(args->taps >= 1 && args->taps <= ASH_STATE_TAPS_MAX);
    ash_workers_run(exec->workers, args->channels, CONV_MIN_CHANNELS, backward_channels, (void *)(uintptr_t)args);
}
