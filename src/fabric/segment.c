/* Segments are anonymous files (memfd), so a process that is killed leaves nothing. */
#include "fabric/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/math.h"
#include "infra/memory.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1; this C library does not know it yet */
#endif
#define SIZE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) /* a mapping stays valid: no process gets a bus error */

/* Reserve addresses that start on a huge-page border, so that the segment can be mapped with huge pages. */
static char *reserve(size_t size_bytes)
{
    char *base =
        mmap(NULL, size_bytes + ASH_MEMORY_HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t before;

    if (base == MAP_FAILED) return NULL;
    before = (ASH_MEMORY_HUGE - (uintptr_t)base % ASH_MEMORY_HUGE) % ASH_MEMORY_HUGE;
    if (before > 0) munmap(base, before);
    munmap(base + before + size_bytes, ASH_MEMORY_HUGE - before);
    return base + before;
}

static int map_fd(struct ash_segment *segment, int fd, size_t size_bytes)
{
    void *place = size_bytes >= ASH_MEMORY_HUGE ? reserve(size_bytes) : NULL;
    void *data =
        mmap(place, size_bytes, PROT_READ | PROT_WRITE, place != NULL ? MAP_SHARED | MAP_FIXED : MAP_SHARED, fd, 0);

    if (data == MAP_FAILED) {
        int rc = -errno;

        if (place != NULL) munmap(place, size_bytes);
        return rc;
    }
    segment->data = data;
    segment->size_bytes = size_bytes;
    return 0;
}

/* Most systems give shared memory small pages unless asked like this, of memory that is there: a page of each. */
void ash_segment_fill(struct ash_segment *segment)
{
    const volatile char *data = segment->data;
    size_t whole = segment->size_bytes / ASH_MEMORY_HUGE * ASH_MEMORY_HUGE;

    for (size_t at = 0; at < whole; at += ASH_MEMORY_HUGE)
        (void)data[at];
    if (whole > 0) madvise(segment->data, whole, MADV_COLLAPSE); /* a wish */
}

void ash_segment_unmap_pages(const struct ash_segment *segment, size_t first_byte, size_t size_bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), begin = ash_round_up(first_byte, page),
           left = first_byte < segment->size_bytes ? segment->size_bytes - first_byte : 0,
           end = (first_byte + ash_min(size_bytes, left)) / page * page;

    if (begin < end)
        madvise((char *)segment->data + begin, end - begin, MADV_DONTNEED); /* of shared memory: the view */
}

uint64_t ash_segment_machine(void)
{
    char boot[64] = {0};
    struct stat space = {0};
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

    if (fd >= 0) {
        if (read(fd, boot, sizeof(boot) - 1) < 0) boot[0] = '\0';
        close(fd);
    }
    stat("/proc/self/ns/pid", &space);
    return ash_hash_bytes(boot, sizeof(boot), space.st_ino);
}

int ash_segment_create(struct ash_segment *segment, size_t size_bytes, const char *what, struct ash_err *err)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = ash_round_up(size_bytes, page);
    int fd = memfd_create(what, MFD_CLOEXEC | MFD_ALLOW_SEALING), rc;

    ash_assert(size_bytes > 0);
    memset(segment, 0, sizeof(*segment));
    if (fd < 0) return ash_err_set(err, -errno, "shared memory for %s cannot be created: %s", what, strerror(errno));
    rc = ftruncate(fd, (off_t)whole) < 0 || fcntl(fd, F_ADD_SEALS, SIZE_SEALS) < 0 ? -errno : 0;
    if (rc == 0) rc = map_fd(segment, fd, whole);
    if (rc < 0) {
        close(fd);
        return ash_err_set(err, rc, "%zu bytes of shared memory for %s cannot be had: %s", whole, what, strerror(-rc));
    }
    segment->fd = fd;
    return 0;
}

int ash_segment_get_key(const struct ash_segment *segment, struct ash_segment_key *key_out)
{
    struct stat info;

    if (fstat(segment->fd, &info) < 0) return -errno;
    *key_out = (struct ash_segment_key){.pid = getpid(),
                                        .fd = segment->fd,
                                        .device = info.st_dev,
                                        .inode = info.st_ino,
                                        .size_bytes = segment->size_bytes};
    return 0;
}

int ash_segment_map(struct ash_segment *segment, const struct ash_segment_key *key, struct ash_err *err)
{
    char path[64];
    struct stat info;
    int fd, seals, rc;

    memset(segment, 0, sizeof(*segment));
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)key->pid, (int)key->fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        rc = errno == ENOENT || errno == ENXIO ? -ESRCH : -errno; /* ENXIO: the number is a socket's now */
        return ash_err_set(err, rc, "shared memory of process %d cannot be opened: %s", (int)key->pid,
                           rc == -ESRCH ? "the process is gone" : strerror(-rc));
    }
    seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SIZE_SEALS) != SIZE_SEALS || fstat(fd, &info) < 0 || info.st_dev != key->device ||
        info.st_ino != key->inode || (uint64_t)info.st_size != key->size_bytes || key->size_bytes == 0) {
        close(fd);
        return ash_err_set(err, -ESRCH, "shared memory of process %d is gone: another process has its number",
                           (int)key->pid);
    }
    rc = map_fd(segment, fd, key->size_bytes);
    close(fd);
    segment->fd = -1;
    if (rc < 0) ash_err_set(err, rc, "shared memory of process %d cannot be mapped: %s", (int)key->pid, strerror(-rc));
    return rc;
}

void ash_segment_fini(struct ash_segment *segment)
{
    if (segment->data == NULL) return;
    munmap(segment->data, segment->size_bytes);
    if (segment->fd >= 0) close(segment->fd);
    memset(segment, 0, sizeof(*segment));
}
