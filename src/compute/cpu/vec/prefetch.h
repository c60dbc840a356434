/* near - have a cache line near when its turn comes. gcc 12 takes a function that does nothing else than
 * __builtin_prefetch for one without an effect and drops its calls; the empty statement of assembly is one. */
#ifndef ASH_COMPUTE_PREFETCH_H
#define ASH_COMPUTE_PREFETCH_H

/* To be read, from the first cache. */
static inline void prefetch_read(const void *at)
{
    __builtin_prefetch(at);
    __asm__ volatile("");
}

/* To be read and written, from the second. */
static inline void prefetch_update(const void *at)
{
    __builtin_prefetch(at, 1, 2);
    __asm__ volatile("");
}

#endif
