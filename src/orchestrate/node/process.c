/* Starting a process: fork, exec, and a pipe with the errno of a failed exec. The kernel sends it SIGKILL or SIGTERM
 * when its supervisor dies (PR_SET_PDEATHSIG), so that even a killed supervisor leaves nothing behind. */
#include "orchestrate/node/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/hash.h"

#define ERROR_PREFIX "ashlar: error: "

/* ---- starting ---------------------------------------------------------------------------------------------------- */

static void set_number(const char *name, size_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%zu", value);
    setenv(name, text, 1);
}

/* In the child: set up its identity, then exec. */
static _Noreturn void become(const struct ash_process *process, const struct ash_process_job *job, int out_fd,
                             int err_fd, int report_fd)
{
    char node[32];
    int cause = 0;

    prctl(PR_SET_PDEATHSIG, job->saves_alone ? SIGTERM : SIGKILL);
    if (process->joins) setenv("ASHLAR_JOIN", "1", 1);
    set_number("RANK", process->rank);
    set_number("WORLD_SIZE", job->world);
    set_number("LOCAL_RANK", process->rank % job->per_node);
    set_number("LOCAL_WORLD_SIZE", job->per_node);
    set_number("GROUP_RANK", process->node);
    set_number("MASTER_PORT", (size_t)job->port);
    setenv("MASTER_ADDR", job->master, 1);
    unsetenv("SLURM_PROCID"); /* that of the supervisor: it is one task of its node */
    snprintf(node, sizeof(node), "node%zu", process->node);
    if (job->has_nodes) setenv("ASHLAR_GROUP_NODE", node, 1);
    if (out_fd >= 0) dup2(out_fd, STDOUT_FILENO);
    if (err_fd >= 0) dup2(err_fd, STDERR_FILENO);
    if (job->enter != NULL) cause = -job->enter(job->enter_ctx, process->node);
    if (cause == 0) {
        execvp(job->program, job->argv);
        cause = errno;
    }
    if (write(report_fd, &cause, sizeof(cause)) < 0) _exit(126); /* the reader is gone */
    _exit(127);
}

/* A pipe whose reading end does not block and which no program inherits. */
static int make_pipe(int fds[2])
{
    if (pipe2(fds, O_CLOEXEC) < 0) return -errno;
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    return 0;
}

/* The errno with which exec failed, or 0: the pipe closes when it succeeds. */
static int read_report(int fd)
{
    int cause = 0;
    struct pollfd entry = {.fd = fd, .events = POLLIN};

    while (poll(&entry, 1, -1) < 0 && errno == EINTR) /* ends with exec or with the child */
        continue;
    return read(fd, &cause, sizeof(cause)) == sizeof(cause) ? cause : 0;
}

int ash_process_start(struct ash_process *process, const struct ash_process_job *job, pid_t *group, struct ash_err *err)
{
    int out[2] = {-1, -1}, errs[2] = {-1, -1}, report[2] = {-1, -1}, rc = make_pipe(report), cause;

    /* the first rank keeps the terminal; so does a single one */
    if (rc == 0 && process->rank > 0) rc = make_pipe(out);
    if (rc == 0 && process->rank > 0) rc = make_pipe(errs);
    if (rc == 0) {
        process->pid = fork();
        if (process->pid < 0) rc = -errno;
    }
    if (rc == 0 && process->pid == 0) {
        setpgid(0, *group);
        become(process, job, out[1], errs[1], report[1]);
    }
    close(out[1]);
    close(errs[1]);
    close(report[1]);
    process->streams[0] = (struct ash_process_stream){.fd = out[0], .to = STDOUT_FILENO};
    process->streams[1] = (struct ash_process_stream){.fd = errs[0], .to = STDERR_FILENO};
    if (rc < 0) {
        close(report[0]);
        process->pid = 0;
        return ash_err_set(err, rc, "process %zu cannot be started: %s", process->rank, strerror(-rc));
    }
    if (*group == 0) *group = process->pid;
    setpgid(process->pid, *group); /* parent and child both call it: no race */
    cause = read_report(report[0]);
    close(report[0]);
    return cause == 0 ? 0 : ash_err_set(err, -cause, "%s cannot be run: %s", job->program, strerror(cause));
}

/* ---- output ------------------------------------------------------------------------------------------------------ */

static void write_all(int fd, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t done = write(fd, text, bytes);

        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return; /* our own output is gone: the ranks' end decides */
        text += done;
        bytes -= (size_t)done;
    }
}

/* Ranks that fail for the same reason print the same line: print it once. */
static bool is_repeated_error(struct ash_process_said *said, const char *line, size_t bytes)
{
    size_t prefix = strlen(ERROR_PREFIX);
    uint64_t hash;

    if (bytes < prefix || memcmp(line, ERROR_PREFIX, prefix) != 0) return false;
    hash = ash_hash_bytes(line, bytes, 0);
    for (size_t i = 0; i < said->count; i++)
        if (said->hashes[i] == hash) return true;
    if (said->count < ASH_COUNT(said->hashes)) said->hashes[said->count++] = hash;
    return false;
}

static void print_line(struct ash_process_said *said, const struct ash_process *process,
                       const struct ash_process_stream *stream, size_t bytes)
{
    char text[ASH_PROCESS_LINE_BYTES + 32];
    int used;

    if (is_repeated_error(said, stream->line, bytes)) return;
    used = snprintf(text, sizeof(text), "[%zu] %.*s\n", process->rank, (int)bytes, stream->line);
    write_all(stream->to, text, (size_t)used);
}

/* Print the whole lines of a stream; the rest waits for its end. */
static void print_lines(struct ash_process_said *said, const struct ash_process *process,
                        struct ash_process_stream *stream, bool end)
{
    size_t first = 0;

    for (size_t i = 0; i < stream->filled; i++) {
        struct ash_process_stream part;

        if (stream->line[i] != '\n' && stream->line[i] != '\r') continue;
        part = *stream;
        memmove(part.line, stream->line + first, i - first);
        if (i > first || stream->line[i] == '\n') print_line(said, process, &part, i - first);
        first = i + 1;
    }
    ash_assert(first <= stream->filled && stream->filled <= sizeof(stream->line));
    memmove(stream->line, stream->line + first, stream->filled - first);
    stream->filled -= first;
    if (stream->filled > 0 && (end || stream->filled == sizeof(stream->line))) {
        print_line(said, process, stream, stream->filled);
        stream->filled = 0;
    }
}

void ash_process_read(struct ash_process *process, struct ash_process_stream *stream, struct ash_process_said *said)
{
    for (;;) {
        ssize_t got = read(stream->fd, stream->line + stream->filled, sizeof(stream->line) - stream->filled);

        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return;
        if (got <= 0) {
            print_lines(said, process, stream, true);
            close(stream->fd);
            stream->fd = -1;
            return;
        }
        stream->filled += (size_t)got;
        print_lines(said, process, stream, false);
    }
}

void ash_process_drain(struct ash_process *process, struct ash_process_said *said)
{
    for (size_t i = 0; i < ASH_COUNT(process->streams); i++) {
        struct ash_process_stream *stream = &process->streams[i];

        if (stream->fd >= 0) ash_process_read(process, stream, said);
        if (stream->fd >= 0) close(stream->fd); /* held open by a grandchild */
        stream->fd = -1;
    }
}
