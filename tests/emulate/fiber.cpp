/* Fibers: registers that a call keeps are pushed, the stack pointer is exchanged, and those of the other are popped. */
#include "emulate/fiber.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <vector>

#define STACK_BYTES ((size_t)128 << 10)
#define PAGE_BYTES ((size_t)4096)

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl fiber_switch\n"
        ".type fiber_switch, @function\n"
        "fiber_switch:\n"
        "pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
        "movq %rsp, (%rdi)\n"
        "movq %rsi, %rsp\n"
        "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n"
        "ret\n"
        ".size fiber_switch, .-fiber_switch\n");
#define KEPT_WORDS 6
#define ENTRY_WORD 6  /* the return address */
#define FRAME_WORDS 8 /* entry() finds the stack as after a call */
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl fiber_switch\n"
        ".type fiber_switch, %function\n"
        "fiber_switch:\n"
        "sub sp, sp, #160\n"
        "stp x19, x20, [sp, #0]\n stp x21, x22, [sp, #16]\n stp x23, x24, [sp, #32]\n stp x25, x26, [sp, #48]\n"
        "stp x27, x28, [sp, #64]\n stp x29, x30, [sp, #80]\n"
        "stp d8, d9, [sp, #96]\n stp d10, d11, [sp, #112]\n stp d12, d13, [sp, #128]\n stp d14, d15, [sp, #144]\n"
        "mov x9, sp\n str x9, [x0]\n mov sp, x1\n"
        "ldp x19, x20, [sp, #0]\n ldp x21, x22, [sp, #16]\n ldp x23, x24, [sp, #32]\n ldp x25, x26, [sp, #48]\n"
        "ldp x27, x28, [sp, #64]\n ldp x29, x30, [sp, #80]\n"
        "ldp d8, d9, [sp, #96]\n ldp d10, d11, [sp, #112]\n ldp d12, d13, [sp, #128]\n ldp d14, d15, [sp, #144]\n"
        "add sp, sp, #160\n"
        "ret\n"
        ".size fiber_switch, .-fiber_switch\n");
#define ENTRY_WORD 11 /* x30 */
#define FRAME_WORDS 20
#else
#error "the emulator knows x86-64 and arm64"
#endif

static std::vector<void *> stacks;

void *fiber_stack_get(void)
{
    char *stack;

    if (!stacks.empty()) {
        void *last = stacks.back();

        stacks.pop_back();
        return last;
    }
    stack = (char *)mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED || mprotect(stack, PAGE_BYTES, PROT_NONE) != 0) {
        fprintf(stderr, "emulator: no memory for another stack\n");
        abort();
    }
    return stack;
}

void fiber_stack_put(void *stack)
{
    stacks.push_back(stack);
}

void *fiber_begin(void *stack, void (*entry)(void))
{
    uintptr_t *top = (uintptr_t *)((char *)stack + STACK_BYTES);

    for (int i = 1; i <= FRAME_WORDS; i++)
        top[-i] = 0;
    top[ENTRY_WORD - FRAME_WORDS] = (uintptr_t)entry;
    return top - FRAME_WORDS;
}
