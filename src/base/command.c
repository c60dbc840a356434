/* Other programs: fork, exec, and both of their streams read until they close or the time is up. */
#include "base/command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"

#define EXIT_NOT_FOUND 127
#define EXIT_SIGNAL 128
#define PIECE_BYTES 65536
#define LOOK_MS 100

enum { IN, OUT, ERR, REPORT, PIPES };

struct pipes {
    int fds[PIPES][2]; /* reading end, writing end; -1: closed */
};

static void close_end(struct pipes *pipes, int which, int end)
{
    if (pipes->fds[which][end] >= 0) close(pipes->fds[which][end]);
    pipes->fds[which][end] = -1;
}

static int open_pipes(struct pipes *pipes)
{
    memset(pipes, -1, sizeof(*pipes));
    for (int i = 0; i < PIPES; i++)
        if (pipe2(pipes->fds[i], O_CLOEXEC) < 0) return -errno;
    fcntl(pipes->fds[IN][1], F_SETFL, O_NONBLOCK);
    fcntl(pipes->fds[OUT][0], F_SETFL, O_NONBLOCK);
    fcntl(pipes->fds[ERR][0], F_SETFL, O_NONBLOCK);
    return 0;
}

static void close_pipes(struct pipes *pipes)
{
    for (int i = 0; i < PIPES; i++) {
        close_end(pipes, i, 0);
        close_end(pipes, i, 1);
    }
}

/* In the child. */
static _Noreturn void become(const struct ash_command *command, const struct pipes *pipes)
{
    sigset_t none;
    int cause;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    setpgid(0, 0); /* so that it ends with all that it started */
    for (const char *const *entry = command->env; entry != NULL && *entry != NULL; entry++)
        putenv((char *)(uintptr_t)*entry);
    dup2(pipes->fds[IN][0], STDIN_FILENO);
    dup2(pipes->fds[OUT][1], STDOUT_FILENO);
    dup2(pipes->fds[ERR][1], STDERR_FILENO);
    if (command->network_fd == 0 || setns(command->network_fd, CLONE_NEWNET) == 0)
        execvp(command->argv[0], (char *const *)command->argv);
    cause = errno;
    if (write(pipes->fds[REPORT][1], &cause, sizeof(cause)) < 0) _exit(EXIT_NOT_FOUND - 1);
    _exit(EXIT_NOT_FOUND);
}

/* Move what can be read now to text. Returns 0, or -EFBIG. */
static int take_output(struct pipes *pipes, int which, struct ash_str *text)
{
    char piece[PIECE_BYTES];
    ssize_t got = read(pipes->fds[which][0], piece, sizeof(piece));

    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return 0;
    if (got <= 0) {
        close_end(pipes, which, 0);
        return 0;
    }
    if (text->size_bytes + (size_t)got > ASH_COMMAND_OUTPUT_MAX) return -EFBIG;
    return ash_str_add(text, piece, (size_t)got);
}

/* Give it what can be written now; a program that does not read its input is no error. */
static void give_input(struct pipes *pipes, const char **input)
{
    ssize_t done = write(pipes->fds[IN][1], *input, strlen(*input));

    if (done < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (done > 0) *input += done;
    if (done <= 0 || **input == '\0') close_end(pipes, IN, 1);
}

/* Feed and read until both streams are closed. Returns 0, -ETIMEDOUT, -EFBIG or -ENOMEM. */
static int exchange(const struct ash_command *command, struct pipes *pipes, struct ash_command_result *result)
{
    uint64_t end_ns = ash_clock_ns() + (uint64_t)(command->limit_s * 1e9);
    const char *input = command->input != NULL ? command->input : "";
    int rc = 0;

    if (input[0] == '\0') close_end(pipes, IN, 1);
    while (rc == 0 && (pipes->fds[OUT][0] >= 0 || pipes->fds[ERR][0] >= 0)) {
        struct pollfd polls[] = {{.fd = pipes->fds[OUT][0], .events = POLLIN},
                                 {.fd = pipes->fds[ERR][0], .events = POLLIN},
                                 {.fd = pipes->fds[IN][1], .events = POLLOUT}};

        if (ash_clock_ns() >= end_ns) return -ETIMEDOUT;
        if (poll(polls, ASH_COUNT(polls), LOOK_MS) <= 0) continue;
        if (polls[2].revents != 0) give_input(pipes, &input);
        if (polls[0].revents != 0) rc = take_output(pipes, OUT, &result->out);
        if (rc == 0 && polls[1].revents != 0) rc = take_output(pipes, ERR, &result->err);
    }
    return rc;
}

/* Wait for the child, at most until the limit: it may have closed its streams and gone on. */
static int wait_end(pid_t pid, uint64_t end_ns, int *code_out)
{
    for (;;) {
        int status = 0;
        pid_t got = waitpid(pid, &status, WNOHANG);

        if (got == pid) {
            *code_out = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_SIGNAL + WTERMSIG(status);
            return 0;
        }
        if (got < 0 && errno != EINTR) return -errno;
        if (ash_clock_ns() >= end_ns) return -ETIMEDOUT;
        poll(NULL, 0, 1);
    }
}

static int fail(const struct ash_command *command, int rc, struct ash_err *err)
{
    const char *program = command->argv[0];

    if (rc == -ENOENT) return ash_err_set(err, rc, "there is no program '%s' in PATH", program);
    if (rc == -ETIMEDOUT)
        return ash_err_set(err, rc, "%s did not answer within %.3g seconds", program, command->limit_s);
    if (rc == -EFBIG)
        return ash_err_set(err, rc, "%s printed more than %zu MiB", program, ASH_COMMAND_OUTPUT_MAX >> 20);
    return ash_err_set(err, rc, "%s cannot be run: %s", program, strerror(-rc));
}

int ash_command_run(const struct ash_command *command, struct ash_command_result *result_out, struct ash_err *err)
{
    uint64_t end_ns = ash_clock_ns() + (uint64_t)(command->limit_s * 1e9);
    struct pipes pipes;
    int rc = open_pipes(&pipes), cause = 0;
    pid_t pid = -1;
    void (*kept)(int) = signal(SIGPIPE, SIG_IGN);

    *result_out = (struct ash_command_result){0};
    if (rc == 0) rc = ash_str_adds(&result_out->out, "");
    if (rc == 0) rc = ash_str_adds(&result_out->err, "");
    if (rc == 0) {
        pid = fork();
        if (pid == 0) become(command, &pipes);
        if (pid < 0) rc = -errno;
    }
    close_end(&pipes, IN, 0);
    close_end(&pipes, OUT, 1);
    close_end(&pipes, ERR, 1);
    close_end(&pipes, REPORT, 1);
    if (rc == 0) rc = exchange(command, &pipes, result_out);
    if (rc == 0) rc = wait_end(pid, end_ns, &result_out->code);
    if (rc < 0 && pid > 0) {
        kill(-pid, SIGKILL);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    if (rc == 0 && read(pipes.fds[REPORT][0], &cause, sizeof(cause)) == sizeof(cause)) rc = -cause;
    close_pipes(&pipes);
    signal(SIGPIPE, kept);
    return rc < 0 ? fail(command, rc, err) : 0;
}

int ash_command_output(const struct ash_command *command, struct ash_str *out_out, struct ash_err *err)
{
    struct ash_command_result result;
    int rc = ash_command_run(command, &result, err);

    if (rc == 0 && result.code != 0) {
        const char *said = result.err.size_bytes > 0 ? result.err.data : result.out.data;

        rc = ash_err_set(err, -EIO, "%s ends with %d: %.*s", command->argv[0], result.code, (int)strcspn(said, "\n"),
                         said);
    }
    if (rc == 0 && out_out != NULL) {
        *out_out = result.out;
        result.out = (struct ash_str){0};
    }
    ash_command_free(&result);
    return rc;
}

void ash_command_free(struct ash_command_result *result)
{
    ash_str_fini(&result->out);
    ash_str_fini(&result->err);
}

int ash_command_quote(struct ash_str *text, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%^";
    int rc;

    if (word[0] != '\0' && strspn(word, plain) == strlen(word)) return ash_str_adds(text, word);
    rc = ash_str_adds(text, "'");
    for (; *word != '\0' && rc == 0; word++)
        rc = *word == '\'' ? ash_str_adds(text, "'\\''") : ash_str_add(text, word, 1);
    return rc < 0 ? rc : ash_str_adds(text, "'");
}
