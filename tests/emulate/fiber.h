/* fiber - stacks and the switch between them: a few instructions, no system call. */
#ifndef TEST_EMULATE_FIBER_H
#define TEST_EMULATE_FIBER_H

#include <stddef.h>

/* A stack with a page below it without access, from those that were given back if there is one. */
void *fiber_stack_get(void);
void fiber_stack_put(void *stack);
/* The stack pointer of a fiber that will begin with entry(), which never returns. */
void *fiber_begin(void *stack, void (*entry)(void));
/* Leave the running fiber, whose stack pointer becomes *save, and go on with another one. */
extern "C" void fiber_switch(void **save, void *to);

#endif
