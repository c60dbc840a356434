/* rng - counter-based random numbers: a pure function of (seed, stream, counter), never a hidden state,
 * so that any step, position or rank can be entered directly. */
#ifndef ASH_BASE_RNG_H
#define ASH_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

/* 64 random bits. */
uint64_t ash_rng_u64(uint64_t seed, uint64_t stream, uint64_t counter);
/* Uniform in [0, 1) with 53 bits. */
double ash_rng_uniform(uint64_t seed, uint64_t stream, uint64_t counter);
/* Uniform in [0, bound) without bias; bound > 0. */
uint64_t ash_rng_below(uint64_t seed, uint64_t stream, uint64_t counter, uint64_t bound);
/* Standard normal. */
double ash_rng_normal(uint64_t seed, uint64_t stream, uint64_t counter);
/* The same for `count` counters from `first` on, in half of the time. */
void ash_rng_normals(uint64_t seed, uint64_t stream, uint64_t first, double *normals, size_t count);
/* A permutation of [0, count) that is never written down: the image of index under the permutation named by (seed,
 * stream). count > 0, index < count. */
uint64_t ash_rng_permute(uint64_t seed, uint64_t stream, uint64_t index, uint64_t count);

#endif
