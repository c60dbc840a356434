/* source - the files with a machine's state, below a root: "" for this machine, a folder for another's
 * /proc and /sys (containers, recorded trees). */
#ifndef ASH_OBSERVE_COLLECT_SOURCE_H
#define ASH_OBSERVE_COLLECT_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/str.h"

struct ash_host_files {
    const char *root;     /* "" or a folder, without a slash at its end */
    const char *pages;    /* folder of mapped pages, below no root; NULL: none */
    const char *run_id;   /* of the pages, those of this run; NULL: all */
    const char *nvml;     /* NVIDIA's library; NULL: where the system finds it */
    const char *gpu_jobs; /* folder of files named by GPU index with a job's id; NULL: none */
    double queue_seconds; /* between two looks at Slurm's queue; 0: not here */
};

/* root and path in buf. Returns buf, or NULL if it is too long. */
char *ash_host_path(const struct ash_host_files *source, const char *path, char *buf, size_t buf_bytes);
/* Open a file for reading; not for waiting: a pipe in a recorded tree must not hang us. Returns a descriptor, which the
 * caller closes, or a negative errno. */
int ash_host_open(const struct ash_host_files *source, const char *path);
/* Read a whole file of at most 4 MiB into text, which it replaces. Returns 0 or a negative errno. */
int ash_host_read(const struct ash_host_files *source, const char *path, struct ash_str *text);
/* A file of one number. Returns 0 or a negative errno. */
int ash_host_number(const struct ash_host_files *source, const char *path, double *value_out);
/* A folder whose files are to be read: a descriptor for ash_host_number_in, which the caller closes, or a negative
 * errno. To walk to it once is cheaper than once for each file. */
int ash_host_folder(const struct ash_host_files *source, const char *path);
/* A file of one number in it. Returns 0 or a negative errno. */
int ash_host_number_in(int folder, const char *file, double *value_out);
/* The name of the machine: its kernel's below the root, else this machine's. */
void ash_host_name(const struct ash_host_files *source, char *buf, size_t buf_bytes);
/* The number in an open file, from its start. The caller keeps it open: that is a third of the work of opening it each
 * time. */
int ash_host_number_at(int fd, double *value_out);
/* A file of one line, without its end, into buf. Returns 0 or a negative errno. */
int ash_host_line(const struct ash_host_files *source, const char *path, char *buf, size_t buf_bytes);
/* Call visit with the name of every entry of a folder, in no order, but for those that begin with a dot. */
void ash_host_list(const struct ash_host_files *source, const char *path, void (*visit)(void *ctx, const char *name),
                   void *ctx);

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* The next line of text from *cursor, NUL-terminated in place; NULL at the end. */
char *ash_text_line(char **cursor);
/* The next word of a line from *cursor, NUL-terminated in place; NULL at the end. */
char *ash_text_word(char **cursor);

#endif
