/* backends - the list of backends of this build, and which of them this machine can run. */
#ifndef ASH_COMPUTE_BACKENDS_BACKENDS_H
#define ASH_COMPUTE_BACKENDS_BACKENDS_H

#include <stdbool.h>
#include <stddef.h>
#include "compute/ops.h"
#include "infra/device_memory.h"

struct ash_backend {
    const struct ash_ops *ops;
    bool (*available)(void); /* can this machine run it? NULL: every machine can */
};

#define ASH_BACKENDS_MAX 16

/* Every backend of this build, best first, ash_backend_count of them. backends/backends.c fills it: the one file that
 * knows all folders of implementations. */
extern const struct ash_backend ash_backends[];
extern const size_t ash_backend_count; /* at most ASH_BACKENDS_MAX */

/* ---- the choice -------------------------------------------------------------------------------------------------- */

#define ASH_BACKEND_WHY_BYTES 192

/* What is known before a backend is chosen. */
struct ash_backend_wish {
    const char *asked;      /* a name that ash_exec_init takes; NULL: nothing was asked */
    const char *cpu_reason; /* why it must be the CPU where nothing was asked; NULL: it need not */
};

struct ash_backend_choice {
    const char *name;                      /* for ash_exec_init */
    char gpu[24];                          /* "cuda:1": the GPU of name "cuda" for this process; empty: the first */
    bool is_own;                           /* nothing was asked */
    char why[ASH_BACKEND_WHY_BYTES + 128]; /* why a GPU that is here is not used, as a sentence; empty otherwise */
};

/* What was asked for, else the first GPU where this build's kernels run on it, else the CPU. Costs a failed dlopen
 * where there is no driver, and nothing in a build without kernels. Any thread. */
void ash_backend_choose(const struct ash_backend_wish *wish, struct ash_backend_choice *choice_out);
/* ash_exec_init with a choice. Where a GPU was chosen unasked and cannot be opened, err says how to do without it. */
int ash_backend_start(struct ash_exec *exec, const struct ash_backend_choice *choice, int thread_count,
                      struct ash_err *err);
#define ASH_BACKEND_ARITHMETIC_BYTES 24
/* The name of what exec's bf16 products follow: a reference ("ref-wgmma"), or GPUs of a compute capability whose bits
 * need not be known ("cuda-8.0"). Returns buf. */
const char *ash_backend_arithmetic(const struct ash_exec *exec, char buf[ASH_BACKEND_ARITHMETIC_BYTES]);
/* Does the GPU multiply bf16 as an arithmetic says ("ref-wgmma", or "ref-wgmma/2")? */
bool ash_backend_gpu_follows(const char *arithmetic);
/* "neon-bf16 kernels", or "NVIDIA H200 (cuda:0), exact", into buf. "portable kernels": bf16 has the bits of that
 * GPU's tensor cores, which need not be known. Returns buf. */
const char *ash_backend_describe(const struct ash_exec *exec, char *buf, size_t buf_bytes);

#define ASH_BACKEND_NAME_BYTES 32
/* What names exec's backend for ash_exec_init: "cuda:1", or the kernels of the CPU. Returns buf. */
const char *ash_backend_name(const struct ash_exec *exec, char buf[ASH_BACKEND_NAME_BYTES]);
#define ASH_BACKEND_GPU_ID_BYTES 16
/* Which GPU it is, on any host; zeros on the CPU. */
void ash_backend_gpu_id(const struct ash_exec *exec, unsigned char id_out[ASH_BACKEND_GPU_ID_BYTES]);
/* Free bytes of the GPU's memory. 0 on the CPU. */
size_t ash_backend_free_bytes(const struct ash_exec *exec);
/* Is a library tried on every new shape of a bf16 product? */
bool ash_backend_has_library(const struct ash_exec *exec);
/* How many of an operand's count lines are drawn for that; each has k values. */
size_t ash_backend_tried(size_t count, size_t k);
/* Are operands of a bf16 product of M by N sums that lie as columns laid out as lines of k first? */
bool ash_backend_lays_out(const struct ash_exec *exec, size_t M, size_t N);
/* ash_exec_step_begin for the forward or the backward pass of a batch that trains: its documents follow each other from
 * row 0 on. shape tells it from others with other ops, or other places. End it with ash_exec_step_end. */
enum ash_step_way ash_exec_batch_begin(struct ash_exec *exec, const struct ash_exec_step *batch);
/* "98.0% of 7200 passes replayed", into buf; empty where nothing was. Returns buf. */
const char *ash_backend_say_replayed(const struct ash_exec *exec, char *buf, size_t buf_bytes);
/* After work that ended with rc: where the GPU has failed, that is why, and err says at what. Waits for nothing.
 * Returns rc, or -EIO. */
int ash_backend_outcome(const struct ash_exec *exec, int rc, struct ash_err *err);
/* exec's memory, if the host cannot touch it; else NULL. */
const struct ash_device_memory *ash_backend_device_memory(const struct ash_exec *exec);
/* Enqueue a copy within exec's memory. */
void ash_backend_copy(const struct ash_exec *exec, void *dst, const void *src, size_t size_bytes);
/* Copy to the host from exec's memory. Where the GPU has failed there are zeros, and ash_backend_outcome says so. */
void ash_backend_read(const struct ash_exec *exec, void *dst, const void *src, size_t size_bytes);

/* ---- what would be allocated ------------------------------------------------------------------------------------- */

/* An exec whose memory is only counted, and whose ops do nothing: what opens its buffers with it finds out how large
 * they are. It borrows the workers of another one, and is not for ash_exec_fini. One at a time. */
struct ash_exec ash_exec_counted(const struct ash_exec *like);
/* The most bytes that were allocated at once since the last ash_exec_counted. */
size_t ash_exec_counted_bytes(void);

#endif
