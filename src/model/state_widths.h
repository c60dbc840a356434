/* state_widths - columns of a layer with recurrent states, and the size of its state. */
#ifndef ASH_MODEL_STATE_WIDTHS_H
#define ASH_MODEL_STATE_WIDTHS_H

#include "model/config.h"

/* Columns: what the scan makes, what the convolution reads, and all of the projection (a gate, those, and for each head
 * a step of time and, of the delta rule, beta). */
struct ash_state_widths {
    size_t inner, channels, all;
};

static inline struct ash_state_widths ash_state_widths_of(const struct ash_model_config *config)
{
    const struct ash_state_config *s = &config->state;
    size_t inner = s->heads * s->head_dim, channels = inner + 2 * s->groups * s->size;

    return (struct ash_state_widths){inner, channels, inner + channels + (s->is_delta ? 2 : 1) * s->heads};
}

/* Floats of a layer's state that are the convolution's inputs, which come first. */
static inline size_t ash_state_conv_floats(const struct ash_model_config *config)
{
    return config->state.heads == 0 ? 0 : (config->state.taps - 1) * ash_state_widths_of(config).channels;
}

/* All of them; 0 without states. */
static inline size_t ash_state_floats(const struct ash_model_config *config)
{
    const struct ash_state_config *s = &config->state;

    return ash_state_conv_floats(config) + s->heads * s->head_dim * s->size;
}

#endif
