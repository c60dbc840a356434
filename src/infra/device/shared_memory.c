/* Memory that other processes can open: the host's, and what both kinds share. cuda_shared.c has the GPU's. */
#include "infra/device/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/assert.h"
#include "infra/device/shared_memory_priv.h"

/* ---- the host's -------------------------------------------------------------------------------------------------- */

static int map_host(struct ash_shared_memory *memory, struct ash_err *err)
{
    void *data = mmap(NULL, memory->size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0);

    if (data == MAP_FAILED)
        return ash_err_set(err, -errno, "cannot map %zu bytes of shared memory: %s", memory->size_bytes,
                           strerror(errno));
    memory->data = data;
    return 0;
}

/* All of it is taken now: touching memory that cannot be had would end a process. It cannot shrink afterwards. */
static int create_host(struct ash_shared_memory *memory, struct ash_err *err)
{
    int rc;

    memory->fd = memfd_create("ashlar-shared", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (memory->fd < 0) return ash_err_set(err, -errno, "cannot make shared memory: %s", strerror(errno));
    rc = memory->size_bytes <= INT64_MAX ? posix_fallocate(memory->fd, 0, (off_t)memory->size_bytes) : EFBIG;
    if (rc != 0)
        return ash_err_set(err, -ENOMEM, "no room for %zu bytes of shared memory: %s", memory->size_bytes,
                           strerror(rc));
    if (fcntl(memory->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
        return ash_err_set(err, -errno, "cannot seal shared memory: %s", strerror(errno));
    return map_host(memory, err);
}

static int open_host(struct ash_shared_memory *memory, struct ash_err *err)
{
    struct stat facts;
    int seals = fcntl(memory->fd, F_GET_SEALS);

    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(memory->fd, &facts) < 0)
        return ash_err_set(err, -EINVAL, "the descriptor stands for no shared memory of the host");
    if ((uint64_t)facts.st_size < memory->size_bytes)
        return ash_err_set(err, -EINVAL, "the shared memory has %lld bytes, not %zu", (long long)facts.st_size,
                           memory->size_bytes);
    return map_host(memory, err);
}

static void close_host(struct ash_shared_memory *memory)
{
    if (memory->data != NULL) munmap(memory->data, memory->size_bytes);
}

const struct ash_shared_memory_ops ash_shared_memory_host = {
    .name = "the host", .create = create_host, .open = open_host, .close = close_host};

/* ---- both -------------------------------------------------------------------------------------------------------- */

static struct ash_shared_memory *new_memory(struct ash_cuda *cuda, size_t size_bytes, struct ash_err *err)
{
    struct ash_shared_memory *memory;

    if (size_bytes == 0) {
        ash_err_set(err, -EINVAL, "shared memory of no bytes");
        return NULL;
    }
    memory = calloc(1, sizeof(*memory));
    if (memory == NULL) {
        ash_err_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    *memory = (struct ash_shared_memory){.cuda = cuda,
                                         .ops = cuda != NULL ? &ash_shared_memory_cuda : &ash_shared_memory_host,
                                         .size_bytes = size_bytes,
                                         .fd = -1};
    return memory;
}

/* What began well or not. */
static int finish(struct ash_shared_memory *memory, int rc, struct ash_shared_memory **memory_out)
{
    if (rc < 0)
        ash_shared_memory_close(memory);
    else
        *memory_out = memory;
    return rc;
}

int ash_shared_memory_create(struct ash_cuda *cuda, size_t size_bytes, struct ash_shared_memory **memory_out,
                             struct ash_err *err)
{
    struct ash_shared_memory *memory = new_memory(cuda, size_bytes, err);

    if (memory == NULL) return size_bytes == 0 ? -EINVAL : -ENOMEM;
    return finish(memory, memory->ops->create(memory, err), memory_out);
}

int ash_shared_memory_create_unset(struct ash_cuda *cuda, size_t size_bytes, struct ash_shared_memory **memory_out,
                                   struct ash_err *err)
{
    struct ash_shared_memory *memory = new_memory(cuda, size_bytes, err);

    if (memory == NULL) return size_bytes == 0 ? -EINVAL : -ENOMEM;
    ash_assert(cuda != NULL);
    memory->is_unset = memory->skips_wait = true;
    return finish(memory, memory->ops->create(memory, err), memory_out);
}

int ash_shared_memory_open(struct ash_cuda *cuda, int fd, size_t size_bytes, struct ash_shared_memory **memory_out,
                           struct ash_err *err)
{
    struct ash_shared_memory *memory = new_memory(cuda, size_bytes, err);
    int rc = 0;

    if (memory == NULL) return size_bytes == 0 ? -EINVAL : -ENOMEM;
    memory->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (memory->fd < 0) rc = ash_err_set(err, -EINVAL, "the descriptor of shared memory is not open");
    if (rc == 0) rc = memory->ops->open(memory, err);
    return finish(memory, rc, memory_out);
}

void ash_shared_memory_skip_wait(struct ash_shared_memory *memory)
{
    memory->skips_wait = true;
}

void ash_shared_memory_close(struct ash_shared_memory *memory)
{
    if (memory == NULL) return;
    memory->ops->close(memory);
    if (memory->fd >= 0) close(memory->fd);
    free(memory);
}

void *ash_shared_memory_data(const struct ash_shared_memory *memory)
{
    return memory->data;
}

size_t ash_shared_memory_bytes(const struct ash_shared_memory *memory)
{
    return memory->size_bytes;
}

int ash_shared_memory_fd(const struct ash_shared_memory *memory)
{
    return memory->fd;
}

/* ---- over a socket ----------------------------------------------------------------------------------------------- */

#define WIRE_MARK 0x314d485341ull /* "ASHM1" */

/* What goes along with the descriptor, between processes of one machine and one version. */
struct wire {
    uint64_t mark, is_device, size_bytes;
};

/* Room for one descriptor. */
union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
};

int ash_shared_memory_send(const struct ash_shared_memory *memory, int socket, struct ash_err *err)
{
    struct wire wire = {WIRE_MARK, memory->cuda != NULL, memory->size_bytes};
    union control control = {.bytes = {0}};
    struct iovec part = {&wire, sizeof(wire)};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    ssize_t sent;

    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(memory->fd));
    memcpy(CMSG_DATA(header), &memory->fd, sizeof(memory->fd));
    do
        sent = sendmsg(socket, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent == (ssize_t)sizeof(wire)) return 0;
    return ash_err_set(err, -EIO, "cannot send shared memory: %s", sent < 0 ? strerror(errno) : "it was cut short");
}

/* The descriptors of a message: the first, others are closed. -1: there is none. */
static int take_fd(struct msghdr *message)
{
    int fd = -1, found;

    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL; header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        for (size_t at = 0; at + sizeof(found) <= header->cmsg_len - CMSG_LEN(0); at += sizeof(found)) {
            memcpy(&found, CMSG_DATA(header) + at, sizeof(found));
            if (fd < 0)
                fd = found;
            else
                close(found);
        }
    }
    return fd;
}

int ash_shared_memory_receive(struct ash_cuda *cuda, int socket, struct ash_shared_memory **memory_out,
                              struct ash_err *err)
{
    struct wire wire = {0};
    union control control = {.bytes = {0}};
    struct iovec part = {&wire, sizeof(wire)};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
    ssize_t got;
    int fd, rc;

    do
        got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL);
    while (got < 0 && errno == EINTR);
    if (got < 0) return ash_err_set(err, -EIO, "cannot receive shared memory: %s", strerror(errno));
    if (got == 0) return ash_err_set(err, -ECONNRESET, "the process that shares its memory has gone");
    fd = take_fd(&message);
    if (got != (ssize_t)sizeof(wire) || wire.mark != WIRE_MARK || fd < 0)
        rc = ash_err_set(err, -EINVAL, "the received descriptor is no shared memory");
    else if (wire.is_device != (cuda != NULL))
        rc = ash_err_set(err, -EINVAL, "the shared memory is a %s's, and a %s's is wanted",
                         wire.is_device ? "GPU" : "host", cuda != NULL ? "GPU" : "host");
    else
        rc = ash_shared_memory_open(cuda, fd, wire.size_bytes, memory_out, err);
    if (fd >= 0) close(fd);
    return rc;
}
