/* backend - the ops on an NVIDIA GPU. Ops are enqueued: results are there after ash_exec_wait. float32 products have
 * the bits of ref/; so has everything else. */
#ifndef ASH_COMPUTE_CUDA_BACKEND_H
#define ASH_COMPUTE_CUDA_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include "ashlar/err.h"
#include "compute/ops.h"

extern const struct ash_ops ash_ops_cuda, ash_ops_cuda_portable;

struct ash_cuda;
struct ash_cuda_facts;
struct ash_cuda_backend;
struct ash_device_memory;

/* Open GPU `index` with all kernels. Returns 0, or a negative errno and what is
 * missing: a driver, a GPU that this build's kernels run on, or the kernels. */
int ash_cuda_backend_open(int index, struct ash_cuda_backend **backend_out, struct ash_err *err);
/* Waits for all work. NULL is a no-op. */
void ash_cuda_backend_close(struct ash_cuda_backend *backend);
/* The ops for this GPU: ash_ops_cuda for compute capability 9.0, else those whose kernels run on any from 8.0 on. */
const struct ash_ops *ash_cuda_backend_ops(const struct ash_cuda_backend *backend);
/* Has a GPU with these facts the kernels whose bits are those of ash_ops_cuda.reference? */
bool ash_cuda_backend_is_exact(const struct ash_cuda_facts *facts);
/* Wait for all work. Returns 0, or -EIO naming the kernel that failed first. */
int ash_cuda_backend_wait(struct ash_cuda_backend *backend, struct ash_err *err);
/* The GPU that it runs on, for timers and facts. Belongs to the backend. */
struct ash_cuda *ash_cuda_backend_device(struct ash_cuda_backend *backend);
/* Its memory, for calls between ranks. Belongs to the backend. */
const struct ash_device_memory *ash_cuda_backend_memory(const struct ash_cuda_backend *backend);
/* Does it have cuBLASLt? */
bool ash_cuda_backend_has_library(const struct ash_cuda_backend *backend);
/* How many of an operand's count lines are drawn where the library is tried; each has k values. */
size_t ash_cuda_backend_tried(size_t count, size_t k);
/* Does the kernel for bf16 products of M by N sums read operands that lie as columns? */
bool ash_cuda_backend_reads_columns(const struct ash_cuda_backend *backend, size_t M, size_t N);
/* What a GPU needs: "no", with a reason where there is one, or what was found. */
struct ash_cuda_parts {
    char driver[16], device[ASH_ERR_TEXT_BYTES + 8], kernels[ASH_ERR_TEXT_BYTES + 8], library[8], nvml[8];
};
/* Look for all of them; the first GPU is opened for it. */
void ash_cuda_backend_find_parts(struct ash_cuda_parts *parts_out);
/* Does this build carry kernels? Says nothing of the machine. */
bool ash_cuda_backend_built(void);

#endif
