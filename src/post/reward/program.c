/* program: its pipes and time limits. Its sandbox is in jail.c. */
#include "post/reward/program.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/str.h"
#include "post/reward/jail.h"

#define LINE_S 10.0
#define MEMORY_BYTES ((size_t)1 << 30)
#define FILE_BYTES ((size_t)16 << 20)
#define OUTPUT_BYTES ((size_t)64 << 10)
#define WORDS_MAX 64
#define COMPLAINT_BYTES 1024 /* of standard error: the last */

/* Interpreters are often shims, which start the real one. */
#define NO_FORK                                                                                                        \
    " (reward programs may start no processes: name the interpreter itself, such as /usr/bin/python3, not a script "   \
    "that looks for it)"

struct ash_program {
    char *command; /* cut into words */
    char *words[WORDS_MAX];
    struct ash_program_limits limits;
    pid_t pid;           /* of the process that waits for the jail; 0: none */
    int in, out, errors; /* -1: closed */
    struct ash_str line; /* received part of the next line */
    char complaint[COMPLAINT_BYTES + 1];
    size_t complaint_bytes;
};

static int cut_words(struct ash_program *program, struct ash_err *err)
{
    size_t count = 0;
    char *rest = NULL;

    for (char *word = strtok_r(program->command, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        if (count + 1 == WORDS_MAX) return ash_err_set(err, -E2BIG, "a program has at most %d words", WORDS_MAX);
        program->words[count++] = word;
    }
    return count > 0 ? 0 : ash_err_set(err, -EINVAL, "which program? its command is empty");
}

static struct ash_program_limits with_defaults(const struct ash_program_limits *limits)
{
    struct ash_program_limits full = limits != NULL ? *limits : (struct ash_program_limits){0};

    if (full.line_s <= 0) full.line_s = LINE_S;
    if (full.memory_bytes == 0) full.memory_bytes = MEMORY_BYTES;
    if (full.file_bytes == 0) full.file_bytes = FILE_BYTES;
    if (full.output_bytes == 0) full.output_bytes = OUTPUT_BYTES;
    return full;
}

static void close_fd(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* Its three pipes, ours and its ends; the jail's first message reports whether it is set up. */
static int start(struct ash_program *program, struct ash_err *err)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1}, errors[2] = {-1, -1};
    struct ash_jail_opts opts = {.words = program->words,
                                 .memory_bytes = program->limits.memory_bytes,
                                 .file_bytes = program->limits.file_bytes};
    int rc = 0;

    /* a socket to write to, not a pipe: no SIGPIPE if the reader is gone */
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) < 0 || pipe2(out, O_CLOEXEC) < 0 ||
        pipe2(errors, O_CLOEXEC) < 0)
        rc = ash_err_set(err, -errno, "no pipe for a program: %s", strerror(errno));
    opts.in = in[1];
    opts.out = out[1];
    opts.errors = errors[1];
    if (rc == 0) rc = ash_jail_start(&opts, &program->pid, err);
    close_fd(&in[1]);
    close_fd(&out[1]);
    close_fd(&errors[1]);
    program->in = in[0];
    program->out = out[0];
    program->errors = errors[0];
    return rc;
}

int ash_program_open(const char *command, const struct ash_program_limits *limits, struct ash_program **program_out,
                     struct ash_err *err)
{
    struct ash_program *program = calloc(1, sizeof(*program));
    int rc;

    if (program == NULL || (program->command = strdup(command)) == NULL) {
        free(program);
        return ash_err_set(err, -ENOMEM, "out of memory for a program");
    }
    program->in = program->out = program->errors = -1;
    program->limits = with_defaults(limits);
    rc = cut_words(program, err);
    if (rc == 0) rc = start(program, err);
    if (rc < 0) {
        ash_program_close(program);
        return rc;
    }
    *program_out = program;
    return 0;
}

static void kill_program(struct ash_program *program)
{
    close_fd(&program->in);
    close_fd(&program->out);
    close_fd(&program->errors);
    if (program->pid > 0) {
        kill(program->pid, SIGKILL); /* the first process of the jail dies with it, and with that one all others */
        while (waitpid(program->pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    }
    program->pid = 0;
}

void ash_program_close(struct ash_program *program)
{
    if (program == NULL) return;
    kill_program(program);
    ash_str_fini(&program->line);
    free(program->command);
    free(program);
}

/* ---- a line there and back --------------------------------------------------------------------------------------- */

/* Keep the end of its standard error. */
static void read_complaints(struct ash_program *program)
{
    char bytes[512];
    ssize_t count = read(program->errors, bytes, sizeof(bytes));

    if (count <= 0) {
        if (count == 0) close_fd(&program->errors);
        return;
    }
    if (program->complaint_bytes + (size_t)count > COMPLAINT_BYTES) {
        size_t drop = program->complaint_bytes + (size_t)count - COMPLAINT_BYTES;

        memmove(program->complaint, program->complaint + drop, program->complaint_bytes - drop);
        program->complaint_bytes -= drop;
    }
    ash_assert(program->complaint_bytes + (size_t)count <= COMPLAINT_BYTES);
    memcpy(program->complaint + program->complaint_bytes, bytes, (size_t)count);
    program->complaint_bytes += (size_t)count;
    program->complaint[program->complaint_bytes] = '\0';
}

static int give_up(struct ash_program *program, int rc, const char *what, struct ash_err *err)
{
    size_t end = program->complaint_bytes, begin;

    while (end > 0 && (program->complaint[end - 1] == '\n' || program->complaint[end - 1] == ' '))
        program->complaint[--end] = '\0';
    begin = end;
    while (begin > 0 && program->complaint[begin - 1] != '\n')
        begin--;
    ash_err_set(err, rc, "the program '%s' %s%s%.200s%s", program->words[0], what, end > begin ? "; it said: " : "",
                program->complaint + begin, strstr(program->complaint + begin, "fork") != NULL ? NO_FORK : "");
    kill_program(program);
    return rc;
}

/* Write what fits of line; *sent_out grows. */
static int send_some(struct ash_program *program, const char *line, size_t size, size_t *sent)
{
    ssize_t count = send(program->in, line + *sent, size - *sent, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (count > 0) *sent += (size_t)count;
    return count < 0 && errno != EAGAIN && errno != EINTR ? -errno : 0;
}

/* Read available bytes. Returns 1 with a whole line, 0, or an error. */
static int receive_some(struct ash_program *program)
{
    char bytes[4096];
    ssize_t count = read(program->out, bytes, sizeof(bytes));

    if (count < 0) return errno == EINTR || errno == EAGAIN ? 0 : -errno;
    if (count == 0) return -EPIPE;
    if (program->line.size_bytes + (size_t)count > program->limits.output_bytes) return -EFBIG;
    if (ash_str_add(&program->line, bytes, (size_t)count) < 0) return -ENOMEM;
    return memchr(program->line.data, '\n', program->line.size_bytes) != NULL;
}

/* Until a whole line is there. */
static int exchange(struct ash_program *program, const char *line, size_t size)
{
    uint64_t end_ns = ash_clock_ns() + (uint64_t)(program->limits.line_s * 1e9);
    size_t sent = 0;
    int rc = 0;

    while (rc == 0) {
        uint64_t now_ns = ash_clock_ns();
        struct pollfd fds[] = {{.fd = program->out, .events = POLLIN},
                               {.fd = program->errors, .events = POLLIN},
                               {.fd = sent < size ? program->in : -1, .events = POLLOUT}};

        if (now_ns >= end_ns) return -ETIMEDOUT;
        if (poll(fds, 3, (int)((end_ns - now_ns) / 1000000 + 1)) < 0 && errno != EINTR) return -errno;
        if (fds[1].revents != 0) read_complaints(program);
        if (fds[2].revents != 0) rc = send_some(program, line, size, &sent);
        if (rc == -EPIPE || rc == -ECONNRESET) rc = 0; /* its earlier output is read first */
        if (rc == 0 && fds[0].revents != 0) rc = receive_some(program);
    }
    return rc;
}

int ash_program_parse(const char *line, size_t size_bytes, double *reward_out, struct ash_err *err)
{
    json_error_t why;
    json_t *json = json_loadb(line, size_bytes, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &why);
    const json_t *value = json_is_object(json) ? json_object_get(json, "reward") : json;
    double reward = json_number_value(value);
    bool is_number = json_is_number(value) && isfinite(reward);

    json_decref(json);
    if (!is_number)
        return ash_err_set(err, -EBADMSG, "'%.*s' is no reward: a number, or an object with \"reward\"",
                           (int)(size_bytes < 80 ? size_bytes : 80), line);
    *reward_out = reward;
    return 0;
}

int ash_program_talk(struct ash_program *program, const char *line, struct ash_str *reply, struct ash_err *err)
{
    struct ash_str question = {0};
    const char *end;
    int rc;

    if (program->pid == 0) return ash_err_set(err, -EPIPE, "the program '%s' is dead", program->words[0]);
    if (ash_str_addf(&question, "%s\n", line) < 0) return ash_err_set(err, -ENOMEM, "out of memory for an answer");
    rc = exchange(program, question.data, question.size_bytes);
    ash_str_fini(&question);
    if (rc == -ETIMEDOUT) return give_up(program, rc, "took too long and was killed", err);
    if (rc == -EPIPE) return give_up(program, rc, "ended without an answer", err);
    if (rc == -EFBIG) return give_up(program, rc, "printed too much and was killed", err);
    if (rc < 0) return give_up(program, rc, "cannot be asked", err);
    end = memchr(program->line.data, '\n', program->line.size_bytes);
    if (end + 1 < program->line.data + program->line.size_bytes)
        return give_up(program, -EBADMSG, "said more than a line for one answer", err);
    rc = ash_str_add(reply, program->line.data, (size_t)(end - program->line.data));
    ash_str_clear(&program->line);
    return rc < 0 ? ash_err_set(err, rc, "out of memory for what a program says") : 0;
}

int ash_program_ask(struct ash_program *program, const char *line, double *reward_out, struct ash_err *err)
{
    struct ash_str reply = {0};
    int rc = ash_program_talk(program, line, &reply, err);

    if (rc < 0) {
        ash_str_fini(&reply);
        return rc;
    }
    rc = ash_program_parse(reply.data != NULL ? reply.data : "", reply.size_bytes, reward_out, err);
    ash_str_fini(&reply);
    if (rc < 0) {
        struct ash_err why = *err;
        char what[200];

        snprintf(what, sizeof(what), "said %.180s", why.text);
        return give_up(program, rc, what, err);
    }
    return 0;
}
