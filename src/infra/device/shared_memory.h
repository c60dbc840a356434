/* shared_memory - memory of a GPU, or of the host, that other processes of this node can open. It goes by a file
 * descriptor: any way of handing one over will do, and ash_shared_memory_send is one. Nothing has a name, so nothing is
 * left behind; the memory lives as long as any process has it open, or its descriptor, also after its owner has died.
 * (The driver's other way, cuIpcGetMemHandle, frees it with the owner, under the feet of those who read it.)
 *
 * Who waits for whom is up to the processes: an owner waits for its queue (ash_cuda_wait) before it tells others. */
#ifndef ASH_INFRA_DEVICE_SHARED_MEMORY_H
#define ASH_INFRA_DEVICE_SHARED_MEMORY_H

#include <stddef.h>
#include "ashlar/err.h"

struct ash_cuda;
struct ash_shared_memory;

/* Zeroed memory of a GPU, or (cuda NULL) of the host. Returns 0 and what the caller closes, before the GPU; -EINVAL for
 * no bytes, -ENOMEM where they are not there, -ENOTSUP where the driver cannot share. Owner thread of cuda. */
int ash_shared_memory_create(struct ash_cuda *cuda, size_t size_bytes, struct ash_shared_memory **memory_out,
                             struct ash_err *err);
/* A GPU's without zeros: its content is not defined. Neither this nor close waits for work of the GPU. Any thread,
 * while the GPU is open. */
int ash_shared_memory_create_unset(struct ash_cuda *cuda, size_t size_bytes, struct ash_shared_memory **memory_out,
                                   struct ash_err *err);
/* Open size_bytes of the memory that a descriptor stands for, of this GPU, of one whose memory it can reach, or of the
 * host. The descriptor stays the caller's. Returns 0, or -EINVAL where it stands for no such memory, or for less. */
int ash_shared_memory_open(struct ash_cuda *cuda, int fd, size_t size_bytes, struct ash_shared_memory **memory_out,
                           struct ash_err *err);
/* Close will wait for no work of the GPU: its user waits before. */
void ash_shared_memory_skip_wait(struct ash_shared_memory *memory);
/* Let go of it; others keep it. NULL is a no-op. */
void ash_shared_memory_close(struct ash_shared_memory *memory);

/* Where it is in this process: for copies by ash_memory_cuda and kernels, or for the host itself. */
void *ash_shared_memory_data(const struct ash_shared_memory *memory);
/* How much there is, as it was created or opened. */
size_t ash_shared_memory_bytes(const struct ash_shared_memory *memory);
/* Its descriptor, borrowed: valid until close. */
int ash_shared_memory_fd(const struct ash_shared_memory *memory);

/* Send it over a Unix socket; it may be closed at once. Returns 0, or -EIO saying why not. */
int ash_shared_memory_send(const struct ash_shared_memory *memory, int socket, struct ash_err *err);
/* Wait for what another process sends, and open it. Returns 0, -ECONNRESET where the other side has gone, -EINVAL where
 * something else came or it is of another kind than asked for, or what ash_shared_memory_open returns. */
int ash_shared_memory_receive(struct ash_cuda *cuda, int socket, struct ash_shared_memory **memory_out,
                              struct ash_err *err);

#endif
