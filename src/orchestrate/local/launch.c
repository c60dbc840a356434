/* Every node is a process group; the kernel ends its processes when the launcher dies (PR_SET_PDEATHSIG), so that even
 * a launcher that is killed leaves nothing behind. */
#include "orchestrate/local/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/socket.h"
#include "orchestrate/local/netns.h"

#define LINE_BYTES 4096
#define EXIT_SIGNAL 128 /* plus the signal's number */
#define ERROR_PREFIX "ashlar: error: "
#define SAID_MAX 64
#define LOOK_MS 50 /* a signal interrupts the wait; this bounds what that might miss */

/* One stream of a process, until a line is whole. */
struct stream {
    int fd; /* -1: closed */
    int to; /* where its lines go */
    size_t filled;
    char line[LINE_BYTES];
};

struct process {
    pid_t pid; /* 0: ended */
    size_t rank, node;
    struct stream streams[2]; /* stdout, stderr */
};

struct job {
    const struct ash_launch *launch;
    struct process *processes;
    pid_t *groups;           /* of each node: its first process's id */
    struct ash_netns *netns; /* NULL: all share the machine's network */
    size_t running;
    int code;                /* of the first failure */
    size_t likewise;         /* ranks that ended with the same one afterwards */
    uint64_t said[SAID_MAX]; /* hashes of errors that ranks have reported, to print each once */
    size_t said_count;
    uint64_t force_ns; /* when to end by force; 0: not yet */
    bool interrupted, forced;
};

/* ---- starting ---------------------------------------------------------------------------------------------------- */

static void set_number(const char *name, size_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%zu", value);
    setenv(name, text, 1);
}

/* In the child: who it is, then the program. */
static _Noreturn void become(const struct job *job, size_t rank, int port, int out_fd, int err_fd, int report_fd)
{
    const struct ash_launch *launch = job->launch;
    size_t per_node = launch->procs / launch->nodes;
    char node[32], address[ASH_NETNS_ADDRESS_BYTES] = "127.0.0.1";
    int cause = 0;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    set_number("RANK", rank);
    set_number("WORLD_SIZE", launch->procs);
    set_number("LOCAL_RANK", rank % per_node);
    set_number("LOCAL_WORLD_SIZE", per_node);
    set_number("GROUP_RANK", rank / per_node);
    set_number("MASTER_PORT", (size_t)port);
    setenv("MASTER_ADDR", job->netns != NULL ? ash_netns_address(0, address, sizeof(address)) : address, 1);
    snprintf(node, sizeof(node), "node%zu", rank / per_node);
    if (launch->nodes > 1) setenv("ASHLAR_GROUP_NODE", node, 1);
    if (out_fd >= 0) dup2(out_fd, STDOUT_FILENO);
    if (err_fd >= 0) dup2(err_fd, STDERR_FILENO);
    if (job->netns != NULL) cause = -ash_netns_enter(job->netns, rank / per_node);
    if (cause == 0) {
        execvp(launch->program, launch->argv);
        cause = errno;
    }
    if (write(report_fd, &cause, sizeof(cause)) < 0) _exit(126); /* nobody is left to hear it */
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

static int start_process(struct job *job, struct process *process, int port, struct ash_err *err)
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
        setpgid(0, job->groups[process->node]);
        become(job, process->rank, port, out[1], errs[1], report[1]);
    }
    close(out[1]);
    close(errs[1]);
    close(report[1]);
    process->streams[0] = (struct stream){.fd = out[0], .to = STDOUT_FILENO};
    process->streams[1] = (struct stream){.fd = errs[0], .to = STDERR_FILENO};
    if (rc < 0) {
        close(report[0]);
        process->pid = 0;
        return ash_err_set(err, rc, "process %zu cannot be started: %s", process->rank, strerror(-rc));
    }
    if (job->groups[process->node] == 0) job->groups[process->node] = process->pid;
    setpgid(process->pid, job->groups[process->node]); /* both sides do it: whoever comes first */
    job->running++;
    cause = read_report(report[0]);
    close(report[0]);
    return cause == 0 ? 0 : ash_err_set(err, -cause, "%s cannot be run: %s", job->launch->program, strerror(cause));
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

/* Ranks that all refuse the same say so in the same words: once is enough. */
static bool is_repeated_error(struct job *job, const char *line, size_t bytes)
{
    size_t prefix = strlen(ERROR_PREFIX);
    uint64_t hash;

    if (bytes < prefix || memcmp(line, ERROR_PREFIX, prefix) != 0) return false;
    hash = ash_hash_bytes(line, bytes, 0);
    for (size_t i = 0; i < job->said_count; i++)
        if (job->said[i] == hash) return true;
    if (job->said_count < SAID_MAX) job->said[job->said_count++] = hash;
    return false;
}

static void print_line(struct job *job, const struct process *process, const struct stream *stream, size_t bytes)
{
    char text[LINE_BYTES + 32];
    int used;

    if (is_repeated_error(job, stream->line, bytes)) return;
    used = snprintf(text, sizeof(text), "[%zu] %.*s\n", process->rank, (int)bytes, stream->line);
    write_all(stream->to, text, (size_t)used);
}

/* Print the whole lines of a stream; the rest waits for its end. */
static void print_lines(struct job *job, const struct process *process, struct stream *stream, bool end)
{
    size_t first = 0;

    for (size_t i = 0; i < stream->filled; i++) {
        struct stream part;

        if (stream->line[i] != '\n' && stream->line[i] != '\r') continue;
        part = *stream;
        memmove(part.line, stream->line + first, i - first);
        if (i > first || stream->line[i] == '\n') print_line(job, process, &part, i - first);
        first = i + 1;
    }
    memmove(stream->line, stream->line + first, stream->filled - first);
    stream->filled -= first;
    if (stream->filled > 0 && (end || stream->filled == sizeof(stream->line))) {
        print_line(job, process, stream, stream->filled);
        stream->filled = 0;
    }
}

static void read_stream(struct job *job, const struct process *process, struct stream *stream)
{
    for (;;) {
        ssize_t got = read(stream->fd, stream->line + stream->filled, sizeof(stream->line) - stream->filled);

        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return;
        if (got <= 0) {
            print_lines(job, process, stream, true);
            close(stream->fd);
            stream->fd = -1;
            return;
        }
        stream->filled += (size_t)got;
        print_lines(job, process, stream, false);
    }
}

static void wait_output(struct job *job, struct pollfd *polls)
{
    size_t count = 2 * job->launch->procs;

    for (size_t i = 0; i < count; i++)
        polls[i] = (struct pollfd){.fd = job->processes[i / 2].streams[i % 2].fd, .events = POLLIN};
    if (poll(polls, count, LOOK_MS) <= 0) return;
    for (size_t i = 0; i < count; i++)
        if (polls[i].revents != 0) read_stream(job, &job->processes[i / 2], &job->processes[i / 2].streams[i % 2]);
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static void signal_all(const struct job *job, int number)
{
    for (size_t i = 0; i < job->launch->nodes; i++)
        if (job->groups[i] > 0) kill(-job->groups[i], number);
}

static void note_end(struct job *job, struct process *process, int status)
{
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);

    process->pid = 0;
    job->running--;
    if (code == 0 || job->forced) return;
    if (job->interrupted)
        code = EXIT_SIGNAL + ash_interrupt_signal(); /* it ended because we told it to */
    else if (WIFSIGNALED(status))
        ash_log(ASH_LOG_ERROR, "rank %zu was killed by signal %d (%s)", process->rank, WTERMSIG(status),
                strsignal(WTERMSIG(status)));
    else if (code == job->code)
        job->likewise++;
    else
        ash_log(ASH_LOG_ERROR, "rank %zu ended with exit code %d", process->rank, code);
    if (job->code == 0) job->code = code;
    if (job->force_ns == 0) job->force_ns = ash_clock_ns() + (uint64_t)(job->launch->grace_s * 1e9);
}

static void reap(struct job *job)
{
    for (size_t i = 0; i < job->launch->procs; i++) {
        struct process *process = &job->processes[i];
        int status = 0;

        if (process->pid > 0 && waitpid(process->pid, &status, WNOHANG) == process->pid) note_end(job, process, status);
    }
}

/* Pass signals on, and end by force what has not ended in time. */
static void supervise(struct job *job)
{
    if (ash_interrupt_requested() && !job->interrupted) {
        job->interrupted = true;
        signal_all(job, SIGTERM);
    }
    if (job->force_ns != 0 && ash_clock_ns() >= job->force_ns && !job->forced) {
        job->forced = true;
        signal_all(job, SIGKILL);
    }
}

static void drain(struct job *job)
{
    for (size_t i = 0; i < 2 * job->launch->procs; i++) {
        struct stream *stream = &job->processes[i / 2].streams[i % 2];

        if (stream->fd >= 0) read_stream(job, &job->processes[i / 2], stream);
        if (stream->fd >= 0) close(stream->fd); /* held open by a grandchild */
    }
}

static int run(struct job *job, struct pollfd *polls, struct ash_err *err)
{
    int port = ash_socket_free_port(err), rc = port < 0 ? port : 0;

    for (size_t r = 0; r < job->launch->procs && rc == 0; r++)
        rc = start_process(job, &job->processes[r], port, err);
    if (rc < 0) {
        job->forced = true;
        signal_all(job, SIGKILL);
    }
    while (job->running > 0) {
        wait_output(job, polls);
        reap(job);
        supervise(job);
    }
    signal_all(job, SIGKILL); /* what the ranks themselves have left */
    drain(job);
    if (job->likewise > 0)
        ash_log(ASH_LOG_ERROR, "%zu other rank%s ended with exit code %d too", job->likewise,
                job->likewise == 1 ? "" : "s", job->code);
    return rc < 0 ? rc : job->code;
}

int ash_launch_run(const struct ash_launch *launch, struct ash_err *err)
{
    struct job job = {.launch = launch};
    struct pollfd *polls = NULL;
    int rc;

    ash_assert(launch->program != NULL && launch->argv != NULL && launch->argv[0] != NULL);
    if (launch->procs == 0 || launch->nodes == 0 || launch->procs % launch->nodes != 0)
        return ash_err_set(err, -EINVAL, "%zu processes cannot be spread evenly over %zu nodes", launch->procs,
                           launch->nodes);
    job.processes = calloc(launch->procs, sizeof(*job.processes));
    job.groups = calloc(launch->nodes, sizeof(*job.groups));
    polls = calloc(2 * launch->procs, sizeof(*polls));
    if (job.processes == NULL || job.groups == NULL || polls == NULL) {
        rc = ash_err_set(err, -ENOMEM, "out of memory for %zu processes", launch->procs);
    } else {
        for (size_t r = 0; r < launch->procs; r++)
            job.processes[r] = (struct process){
                .rank = r, .node = r / (launch->procs / launch->nodes), .streams = {{.fd = -1}, {.fd = -1}}};
        ash_interrupt_install();
        rc = launch->netns ? ash_netns_open(launch->nodes, launch->link_rate, &job.netns, err) : 0;
        if (rc == 0) rc = run(&job, polls, err);
    }
    ash_netns_close(job.netns);
    free(polls);
    free(job.groups);
    free(job.processes);
    return rc;
}
