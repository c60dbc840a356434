/* stored - a parameter as files have it: with those that share its tensor. */
#ifndef ASH_MODEL_STORED_H
#define ASH_MODEL_STORED_H

#include <stdio.h>
#include <string.h>

#include "model/model.h"

struct ash_stored {
    char name[sizeof(((struct ash_param *)0)->name)];
    int dim_count;
    size_t dims[3];
};

/* The tensor that holds a parameter of these dims: those of the part here (param->dims) or of all of it (param->full).
 * A part of it is at element part * (elements of a part). */
static inline struct ash_stored ash_param_stored(const struct ash_param *param, const size_t dims[2])
{
    struct ash_stored stored = {.dim_count = param->dim_count};
    int first = param->parts > 0 ? 1 : 0;
    size_t length = first > 0 ? strcspn(param->name, "[") : strlen(param->name);

    snprintf(stored.name, sizeof(stored.name), "%.*s", (int)length, param->name);
    stored.dims[0] = param->parts;
    for (int i = 0; i < param->dim_count; i++)
        stored.dims[first + i] = dims[i];
    stored.dim_count += first;
    if (param->is_conv) { /* of one input each */
        stored.dims[2] = stored.dims[1];
        stored.dims[1] = 1;
        stored.dim_count = 3;
    }
    return stored;
}

#endif
