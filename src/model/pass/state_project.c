/* state_project: mamba's one product has the columns as they are used. The delta rule's two have them head of keys by
 * head of keys, so they are copied. */
#include "model/pass/state_project.h"

#include "base/assert.h"
#include "model/pass/linear_grads.h"
#include "model/pass/scale.h"
#include "model/state_widths.h"

/* Factors of the projection's columns, which their gradients get as well. */
static void scale_zones(const struct ash_pass_step *step, float *all)
{
    const struct ash_state_config *s = &step->model->config.state;
    struct ash_state_widths widths = ash_state_widths_of(&step->model->config);
    const size_t cols[ASH_STATE_ZONES] = {widths.inner, widths.inner, s->groups * s->size, s->groups * s->size,
                                          s->heads};

    for (size_t i = 0; s->scales_zones && i < ASH_STATE_ZONES; all += cols[i], i++)
        ash_scale_columns(step, cols[i], widths.all, s->zone_scale[i], all);
}

/* Columns of a product that each head of keys has, and where they are in `all`. */
struct zone {
    size_t cols, at;
};

#define ZONES_MAX 4

/* A product whose columns go to zones. */
struct product {
    int32_t weight;
    size_t width, count;
    struct zone zones[ZONES_MAX];
};

/* Queries, keys, values and the gate; beta and steps. */
static void list_products(const struct ash_pass_step *step, size_t layer, struct product out[2])
{
    const struct ash_state_config *s = &step->model->config.state;
    const int32_t *param = step->model->layers[layer].param;
    struct ash_state_widths w = ash_state_widths_of(&step->model->config);
    size_t keys = s->groups * s->size, values = w.inner / s->groups, heads = s->heads / s->groups;

    ash_assert(layer < step->model->config.layers && s->is_delta);
    out[0] =
        (struct product){param[ASH_ROLE_STATE_IN],
                         w.inner + w.channels,
                         4,
                         {{s->size, w.inner}, {s->size, w.inner + keys}, {values, w.inner + 2 * keys}, {values, 0}}};
    out[1] = (struct product){param[ASH_ROLE_STATE_STEPS],
                              2 * s->heads,
                              2,
                              {{heads, w.inner + w.channels + s->heads}, {heads, w.inner + w.channels}}};
}

/* Between a product's rows and `all`. */
static void copy_zones(const struct ash_pass_step *step, const struct product *product, float *rows, float *all,
                       bool to_product)
{
    size_t groups = step->model->config.state.groups, each = product->width / groups, at = 0;
    size_t stride = ash_state_widths_of(&step->model->config).all;

    for (size_t i = 0; i < product->count; at += product->zones[i++].cols) {
        const struct zone *zone = &product->zones[i];
        float *used = all + zone->at, *made = rows + at;

        step->exec->ops->row->copy(step->exec, &(struct ash_copy_args){.rows = step->rows,
                                                                       .blocks = groups,
                                                                       .cols = zone->cols,
                                                                       .src = to_product ? used : made,
                                                                       .src_row = to_product ? stride : product->width,
                                                                       .src_block = to_product ? zone->cols : each,
                                                                       .dst = to_product ? made : used,
                                                                       .dst_dtype = ASH_F32,
                                                                       .dst_row = to_product ? product->width : stride,
                                                                       .dst_block = to_product ? each : zone->cols});
    }
}

void ash_state_project_forward(const struct ash_pass_step *step, size_t layer, const float *x)
{
    const struct ash_model_config *c = &step->model->config;
    const int32_t *param = step->model->layers[layer].param;
    struct ash_state_acts *acts = &step->acts->layers[layer].state;
    struct product products[2];

    ash_assert(layer < c->layers && x != NULL);
    if (!c->state.is_delta) {
        ash_linear_forward(step, param[ASH_ROLE_STATE_IN], param[ASH_ROLE_STATE_IN_BIAS],
                           &(struct ash_linear_io){.rows = step->rows,
                                                   .x = x,
                                                   .x_stride = c->hidden,
                                                   .y = acts->all,
                                                   .y_stride = ash_state_widths_of(c).all});
        scale_zones(step, acts->all);
        return;
    }
    list_products(step, layer, products);
    for (size_t i = 0; i < 2; i++) {
        ash_linear_forward(
            step, products[i].weight, ASH_NO_PARAM,
            &(struct ash_linear_io){
                .rows = step->rows, .x = x, .x_stride = c->hidden, .y = acts->product, .y_stride = products[i].width});
        copy_zones(step, &products[i], acts->product, acts->all, false);
    }
}

void ash_state_project_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink, size_t layer,
                                const float *x, float *dx)
{
    const struct ash_model_config *c = &step->model->config;
    const int32_t *param = step->model->layers[layer].param;
    struct ash_state_acts *d = &step->acts->scratch.dstate;
    struct ash_linear_io io = {.rows = step->rows,
                               .x = x,
                               .x_stride = c->hidden,
                               .dy = d->all,
                               .dy_stride = ash_state_widths_of(c).all,
                               .dx = dx,
                               .dx_stride = c->hidden,
                               .seq_rows = step->seq_rows};
    struct product products[2];

    ash_assert(layer < c->layers && x != NULL && dx != NULL);
    if (!c->state.is_delta) {
        scale_zones(step, d->all);
        ash_linear_backward(step, sink, param[ASH_ROLE_STATE_IN], param[ASH_ROLE_STATE_IN_BIAS], &io);
        return;
    }
    list_products(step, layer, products);
    for (size_t i = 0; i < 2; i++) {
        copy_zones(step, &products[i], d->product, d->all, true);
        io.dy = d->product;
        io.dy_stride = products[i].width;
        io.dx_add = i > 0;
        ash_linear_backward(step, sink, products[i].weight, ASH_NO_PARAM, &io);
    }
}
