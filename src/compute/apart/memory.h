/* memory - when the memory of `apart` may be touched. */
#ifndef ASH_COMPUTE_APART_MEMORY_H
#define ASH_COMPUTE_APART_MEMORY_H

/* From now on until as many calls of leave, the memory may be touched. Any thread. */
void ash_apart_enter(void);
/* The caller is done with it. */
void ash_apart_leave(void);

#endif
