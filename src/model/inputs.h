/* inputs - how large the inputs of a linear layer are over a text, for methods that weigh weights by them. */
#ifndef ASH_MODEL_INPUTS_H
#define ASH_MODEL_INPUTS_H

#include <stddef.h>

/* Of a parameter: means over all rows that its products read. NULLs: none did. */
struct ash_inputs {
    size_t count;    /* of inputs */
    double *sizes;   /* [count]: of |x| */
    double *squares; /* [count]: of x * x */
};

/* Free the arrays of inputs [count]. */
void ash_inputs_free(struct ash_inputs *inputs, size_t count);

#endif
