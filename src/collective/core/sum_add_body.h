/* Additions of one type in vectors of one width, for sum_body.h, which defines ADD_NAME(x), TYPE, ADD_TYPE (unsigned
 * integers for signed ones: they wrap), VECTOR_BYTES and VECTOR_TARGET and includes this once for each width. */

typedef ADD_TYPE ADD_NAME(adder) __attribute__((vector_size(VECTOR_BYTES), aligned(1)));

/* out = a + b, element by element; out may be either. */
VECTOR_TARGET static void ADD_NAME(add)(const TYPE *a, const TYPE *b, size_t count, TYPE *out)
{
    const size_t width = VECTOR_BYTES / sizeof(TYPE);
    size_t i = 0;

    for (; i + 4 * width <= count; i += 4 * width) {
        ADD_NAME(adder) sums[4];

        for (size_t v = 0; v < 4; v++)
            sums[v] = *(const ADD_NAME(adder) *)(const void *)(a + i + v * width) +
                      *(const ADD_NAME(adder) *)(const void *)(b + i + v * width);
        for (size_t v = 0; v < 4; v++)
            *(ADD_NAME(adder) *)(void *)(out + i + v * width) = sums[v];
    }
    for (; i < count; i++)
        out[i] = (TYPE)((ADD_TYPE)a[i] + (ADD_TYPE)b[i]);
}

/* The same to two places. */
VECTOR_TARGET static void ADD_NAME(add_to_two)(const TYPE *a, const TYPE *b, size_t count, TYPE *out, TYPE *also)
{
    const size_t width = VECTOR_BYTES / sizeof(TYPE);
    size_t i = 0;

    for (; i + 4 * width <= count; i += 4 * width) {
        ADD_NAME(adder) sums[4];

        for (size_t v = 0; v < 4; v++)
            sums[v] = *(const ADD_NAME(adder) *)(const void *)(a + i + v * width) +
                      *(const ADD_NAME(adder) *)(const void *)(b + i + v * width);
        for (size_t v = 0; v < 4; v++)
            *(ADD_NAME(adder) *)(void *)(out + i + v * width) = sums[v];
        for (size_t v = 0; v < 4; v++)
            *(ADD_NAME(adder) *)(void *)(also + i + v * width) = sums[v];
    }
    for (; i < count; i++)
        out[i] = also[i] = (TYPE)((ADD_TYPE)a[i] + (ADD_TYPE)b[i]);
}

/* (a + b) + (c + d) to several places, each of which may be one of the four. */
VECTOR_TARGET static void ADD_NAME(add_four)(const void *const *parts, size_t count, void *const *outs,
                                             size_t out_count)
{
    const size_t width = VECTOR_BYTES / sizeof(TYPE);
    const TYPE *a = parts[0], *b = parts[1], *c = parts[2], *d = parts[3];
    size_t i = 0;

    for (; i + 4 * width <= count; i += 4 * width) {
        ADD_NAME(adder) sums[4];

        for (size_t v = 0; v < 4; v++)
            sums[v] = (*(const ADD_NAME(adder) *)(const void *)(a + i + v * width) +
                       *(const ADD_NAME(adder) *)(const void *)(b + i + v * width)) +
                      (*(const ADD_NAME(adder) *)(const void *)(c + i + v * width) +
                       *(const ADD_NAME(adder) *)(const void *)(d + i + v * width));
        for (size_t o = 0; o < out_count; o++)
            for (size_t v = 0; v < 4; v++)
                *(ADD_NAME(adder) *)(void *)((TYPE *)outs[o] + i + v * width) = sums[v];
    }
    for (; i < count; i++) {
        const ADD_TYPE left = (ADD_TYPE)((ADD_TYPE)a[i] + (ADD_TYPE)b[i]);
        const ADD_TYPE right = (ADD_TYPE)((ADD_TYPE)c[i] + (ADD_TYPE)d[i]);
        const TYPE sum = (TYPE)(left + right);

        for (size_t o = 0; o < out_count; o++)
            ((TYPE *)outs[o])[i] = sum;
    }
}
