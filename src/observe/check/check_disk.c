/* A disk, deep: a file is written around the page cache and read back the same way, every word compared. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "observe/check/check.h"

#define PIECE_BYTES ((size_t)4 << 20)
#define FILE_BYTES ((size_t)1 << 30)
#define ALIGNMENT 4096

struct disk {
    int fd;
    uint64_t *piece;
    uint64_t seed;
    size_t written, wrong;
    double write_s, read_s;
    bool is_direct;
};

static void fill_piece(struct disk *disk, size_t at)
{
    for (size_t i = 0; i < PIECE_BYTES / sizeof(uint64_t); i++)
        disk->piece[i] = ash_hash_mix(disk->seed ^ (at + i));
}

/* One way over a piece, whatever is done at once. Returns 0 or a negative errno. */
static int move(struct disk *disk, size_t offset, bool is_write)
{
    for (size_t done = 0; done < PIECE_BYTES;) {
        char *data = (char *)disk->piece + done;
        ssize_t got = is_write ? pwrite(disk->fd, data, PIECE_BYTES - done, (off_t)(offset + done))
                               : pread(disk->fd, data, PIECE_BYTES - done, (off_t)(offset + done));

        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return got < 0 ? -errno : -EIO;
        done += (size_t)got;
    }
    return 0;
}

static int write_all(struct disk *disk, double seconds)
{
    uint64_t start_ns = ash_clock_ns(), spent_ns = 0;
    int rc = 0;

    while (rc == 0 && disk->written < FILE_BYTES && (double)(ash_clock_ns() - start_ns) * 1e-9 < seconds) {
        uint64_t begin_ns;

        fill_piece(disk, disk->written);
        begin_ns = ash_clock_ns();
        rc = move(disk, disk->written, true);
        spent_ns += ash_clock_ns() - begin_ns; /* the pattern's making is not the disk's time */
        if (rc == 0) disk->written += PIECE_BYTES;
    }
    start_ns = ash_clock_ns();
    if (rc == 0 && fdatasync(disk->fd) < 0) rc = -errno;
    disk->write_s = (double)(spent_ns + ash_clock_ns() - start_ns) * 1e-9;
    if (!disk->is_direct) (void)posix_fadvise(disk->fd, 0, 0, POSIX_FADV_DONTNEED);
    return rc;
}

static int read_all(struct disk *disk)
{
    int rc = 0;

    for (size_t at = 0; at < disk->written && rc == 0; at += PIECE_BYTES) {
        uint64_t begin_ns = ash_clock_ns();

        rc = move(disk, at, false);
        disk->read_s += (double)(ash_clock_ns() - begin_ns) * 1e-9;
        for (size_t i = 0; rc == 0 && i < PIECE_BYTES / sizeof(uint64_t); i++)
            disk->wrong += disk->piece[i] != ash_hash_mix(disk->seed ^ (at + i));
    }
    return rc;
}

static int open_disk(struct disk *disk, const char *dir, char *path, size_t path_bytes)
{
    snprintf(path, path_bytes, "%s/.ashlar-check-%d", dir, (int)getpid());
    disk->is_direct = true;
    disk->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_DIRECT, 0600);
    if (disk->fd < 0 && errno == EINVAL) { /* file systems in memory */
        disk->is_direct = false;
        disk->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    }
    if (disk->fd < 0) return -errno;
    if (unlink(path) < 0) return -errno; /* gone whatever happens next */
    disk->piece = aligned_alloc(ALIGNMENT, PIECE_BYTES);
    return disk->piece != NULL ? 0 : -ENOMEM;
}

void ash_check_disk(const struct ash_check_opts *opts, const char *dir, struct ash_check_report *report,
                    struct ash_disk_rates *rates_out)
{
    struct disk disk = {.fd = -1, .seed = ash_clock_ns()};
    uint64_t start_ns = ash_clock_ns();
    char path[4096];
    int rc = open_disk(&disk, dir, path, sizeof(path));

    if (rc == 0) rc = write_all(&disk, opts->deep_seconds);
    if (rc == 0) rc = read_all(&disk);
    *rates_out = (struct ash_disk_rates){0};
    if (rc < 0) {
        ash_check_add(report, "disk", ASH_GRADE_BAD, "", "%.100s: %s", dir, strerror(-rc));
    } else {
        rates_out->write_rate = disk.write_s > 0 ? (double)disk.written / disk.write_s : 0;
        rates_out->read_rate = disk.read_s > 0 ? (double)disk.written / disk.read_s : 0;
        ash_check_add(report, "disk", disk.wrong > 0 ? ASH_GRADE_BAD : ASH_GRADE_GOOD, "what was written",
                      "%.60s: %zu MB written at %.3g MB/s, read at %.3g MB/s%s; %zu words wrong", dir,
                      disk.written >> 20, rates_out->write_rate * 1e-6, rates_out->read_rate * 1e-6,
                      disk.is_direct ? "" : " (through the page cache)", disk.wrong);
    }
    if (disk.fd >= 0) close(disk.fd);
    free(disk.piece);
    report->seconds += (double)(ash_clock_ns() - start_ns) * 1e-9;
}
