/* Files of /proc and /sys: small, made when they are read, and sometimes gone or refused. */
#include "observe/collect/source.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_BYTES_MAX ((size_t)4 << 20)
#define BLOCK_BYTES 16384

char *ash_host_path(const struct ash_host_files *source, const char *path, char *buf, size_t buf_bytes)
{
    int used = snprintf(buf, buf_bytes, "%s%s", source->root, path);

    return used >= 0 && (size_t)used < buf_bytes ? buf : NULL;
}

int ash_host_open(const struct ash_host_files *source, const char *path)
{
    char full[PATH_MAX];
    int fd;

    if (ash_host_path(source, path, full, sizeof(full)) == NULL) return -ENAMETOOLONG;
    fd = open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return fd >= 0 ? fd : -errno;
}

int ash_host_read(const struct ash_host_files *source, const char *path, struct ash_str *text)
{
    int fd = ash_host_open(source, path), rc = 0;
    char block[BLOCK_BYTES];

    if (fd < 0) return fd;
    ash_str_clear(text);
    while (rc == 0) {
        ssize_t got = read(fd, block, sizeof(block));

        if (got < 0 && errno == EINTR) continue;
        if (got < 0) rc = -errno;
        if (got <= 0) break;
        rc = text->size_bytes + (size_t)got > FILE_BYTES_MAX ? -EFBIG : ash_str_add(text, block, (size_t)got);
    }
    close(fd);
    return rc < 0 ? rc : ash_str_add(text, "", 0);
}

/* The first line of an open file, which is closed. A negative errno for fd is handed on. */
static int take_line(int fd, char *buf, size_t buf_bytes)
{
    ssize_t got;

    if (fd < 0) return fd;
    got = read(fd, buf, buf_bytes - 1);
    if (got < 0) got = -errno;
    close(fd);
    if (got < 0) return (int)got;
    buf[got] = '\0';
    buf[strcspn(buf, "\n")] = '\0';
    return 0;
}

int ash_host_line(const struct ash_host_files *source, const char *path, char *buf, size_t buf_bytes)
{
    return take_line(ash_host_open(source, path), buf, buf_bytes);
}

void ash_host_name(const struct ash_host_files *source, char *buf, size_t buf_bytes)
{
    if (ash_host_line(source, "/proc/sys/kernel/hostname", buf, buf_bytes) == 0 && buf[0] != '\0') return;
    buf[0] = '\0';
    if (gethostname(buf, buf_bytes - 1) == 0) buf[buf_bytes - 1] = '\0';
}

static int parse_number(const char *line, double *value_out)
{
    char *end = NULL;
    double value = strncmp(line, "0x", 2) == 0 ? (double)strtoull(line, &end, 16) : strtod(line, &end);

    if (end == line) return -EINVAL;
    *value_out = value;
    return 0;
}

static int take_number(int fd, double *value_out)
{
    char line[128];
    int rc = take_line(fd, line, sizeof(line));

    return rc < 0 ? rc : parse_number(line, value_out);
}

int ash_host_number_at(int fd, double *value_out)
{
    char line[128];
    ssize_t got = pread(fd, line, sizeof(line) - 1, 0);

    if (got < 0) return -errno;
    line[got] = '\0';
    return parse_number(line, value_out);
}

int ash_host_number(const struct ash_host_files *source, const char *path, double *value_out)
{
    return take_number(ash_host_open(source, path), value_out);
}

int ash_host_folder(const struct ash_host_files *source, const char *path)
{
    char full[PATH_MAX];
    int fd;

    if (ash_host_path(source, path, full, sizeof(full)) == NULL) return -ENAMETOOLONG;
    fd = open(full, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 ? fd : -errno;
}

int ash_host_number_in(int folder, const char *file, double *value_out)
{
    int fd = openat(folder, file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    return take_number(fd >= 0 ? fd : -errno, value_out);
}

void ash_host_list(const struct ash_host_files *source, const char *path, void (*visit)(void *ctx, const char *name),
                   void *ctx)
{
    char full[PATH_MAX];
    struct dirent *entry;
    DIR *folder;

    if (ash_host_path(source, path, full, sizeof(full)) == NULL) return;
    folder = opendir(full);
    if (folder == NULL) return;
    while ((entry = readdir(folder)) != NULL)
        if (entry->d_name[0] != '.') visit(ctx, entry->d_name);
    closedir(folder);
}

char *ash_text_line(char **cursor)
{
    char *line = *cursor, *end;

    if (line == NULL || *line == '\0') return NULL;
    end = strchr(line, '\n');
    *cursor = end != NULL ? end + 1 : line + strlen(line);
    if (end != NULL) *end = '\0';
    return line;
}

char *ash_text_word(char **cursor)
{
    char *word = *cursor + strspn(*cursor, " \t"), *end;

    if (*word == '\0') return NULL;
    end = word + strcspn(word, " \t");
    *cursor = *end != '\0' ? end + 1 : end;
    *end = '\0';
    return word;
}
