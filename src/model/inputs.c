/* Sizes of inputs: freeing them. */
#include "model/inputs.h"

#include <stdlib.h>

void ash_inputs_free(struct ash_inputs *inputs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(inputs[i].sizes);
        free(inputs[i].squares);
    }
}
