/* planted - kernels with a mistake each, and one without: what the emulator must find. */
#ifndef TEST_EMULATE_PLANTED_H
#define TEST_EMULATE_PLANTED_H

#include <stdint.h>

#define PLANTED_TILES 8
#define PLANTED_FLOATS 64 /* of a tile */

/* A warp copies tiles into a ring of two stages, and another one adds them up. */
enum planted_ring {
    RING_RIGHT,
    RING_NO_WAIT,      /* tiles are read before they are there */
    RING_WRONG_PARITY, /* so that the wait is for the phase before */
    RING_OVERWRITES,   /* a stage is filled again before it was read */
    RING_NO_ARRIVAL,   /* no thread signals that a stage was read: a deadlock */
    RING_MODES
};
struct planted_ring_args {
    const float *tiles; /* [PLANTED_TILES][PLANTED_FLOATS] */
    float *sums;        /* [PLANTED_FLOATS / 2] */
    int mode;
};

/* 64 x 8 sums of 16 products each, by wgmma. */
enum planted_product {
    PRODUCT_RIGHT,
    PRODUCT_NO_WAIT,    /* sums are read while they are in flight */
    PRODUCT_OVERWRITES, /* an operand is written while it is in flight */
    PRODUCT_NO_FENCE,
    PRODUCT_MODES
};
struct planted_product_args {
    const uint16_t *a, *b; /* [64][16], [8][16] */
    float *sums;           /* [64][8]; they start from what is there */
    int mode;
};

#endif
