/* prefetch - bring a cache line closer before it is used. gcc 12 takes a function that does nothing but
 * __builtin_prefetch for one without an effect and drops its calls; the empty statement of assembly counts as one. */
#ifndef ASH_COMPUTE_PREFETCH_H
#define ASH_COMPUTE_PREFETCH_H

/* To L1, to be read. */
static inline void prefetch_read(const void *at)
{
    __builtin_prefetch(at);
    __asm__ volatile("");
}

/* To L2, to be read and written. */
static inline void prefetch_update(const void *at)
{
    __builtin_prefetch(at, 1, 2);
    __asm__ volatile("");
}

#endif
