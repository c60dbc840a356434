/* `lfs`, run as a program: its library is not in Debian, and its output has been the same for a decade. */
#include "storage/tier/lustre_priv.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define ANSWER_BYTES 4096
#define ANSWER_MS 3000 /* a server that is away must not stop us for longer */
#define STRIPE_BYTES ((uint64_t)256 << 20)
#define STRIPES_MAX 16

extern char **environ;

/* Read fd to its end, or until time is up. */
static void read_answer(int fd, char *answer)
{
    uint64_t began_ns = ash_clock_ns();
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    size_t got = 0;

    while (got < ANSWER_BYTES - 1) {
        int left_ms = ANSWER_MS - (int)((ash_clock_ns() - began_ns) / 1000000);
        ssize_t bytes;

        if (left_ms <= 0 || poll(&ready, 1, left_ms) <= 0) break;
        bytes = read(fd, answer + got, ANSWER_BYTES - 1 - got);
        if (bytes <= 0) break;
        got += (size_t)bytes;
    }
    answer[got] = '\0';
}

/* The exit code of a program that has closed its output. One that does not end is killed. */
static int await_end(pid_t child)
{
    const struct timespec pause = {0, 20000000};
    int status = 0;
    pid_t ended = waitpid(child, &status, WNOHANG);

    for (int i = 0; i < 50 && ended == 0; i++) {
        nanosleep(&pause, NULL);
        ended = waitpid(child, &status, WNOHANG);
    }
    if (ended == 0) {
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Run lfs with these arguments. Returns its exit code, or -1; its output goes to answer. */
static int run_lfs(char *const *words, char answer[ANSWER_BYTES])
{
    posix_spawn_file_actions_t actions;
    int pipes[2], code = -1;
    pid_t child = -1;

    answer[0] = '\0';
    if (pipe2(pipes, O_CLOEXEC) < 0) return -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipes[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (posix_spawnp(&child, "lfs", &actions, NULL, words, environ) == 0) {
        close(pipes[1]);
        pipes[1] = -1;
        read_answer(pipes[0], answer);
        code = await_end(child);
    }
    posix_spawn_file_actions_destroy(&actions);
    close(pipes[0]);
    if (pipes[1] >= 0) close(pipes[1]);
    return code;
}

bool ash_lustre_is(const char *path)
{
    char folder[PATH_MAX], answer[ANSWER_BYTES];
    char words[3][16] = {"lfs", "getstripe", "-d"};
    char *arguments[] = {words[0], words[1], words[2], folder, NULL};

    snprintf(folder, sizeof(folder), "%s", path);
    while (access(folder, F_OK) < 0 && strrchr(folder, '/') != NULL && strrchr(folder, '/') != folder)
        *strrchr(folder, '/') = '\0';
    return run_lfs(arguments, answer) == 0 && strstr(answer, "stripe_count") != NULL;
}

void ash_lustre_make_striped(const char *path, uint64_t total_bytes)
{
    uint64_t stripes = total_bytes / STRIPE_BYTES + 1;
    char words[6][16] = {"lfs", "setstripe", "-S", "4M", "-c", ""}, answer[ANSWER_BYTES], *file = strdup(path);
    char *arguments[] = {words[0], words[1], words[2], words[3], words[4], words[5], file, NULL};

    snprintf(words[5], sizeof(words[5]), "%d", (int)(stripes < STRIPES_MAX ? stripes : STRIPES_MAX));
    if (file != NULL) run_lfs(arguments, answer);
    free(file);
}

bool ash_lustre_is_released(const char *path)
{
    char words[2][16] = {"lfs", "hsm_state"}, answer[ANSWER_BYTES], *file = strdup(path);
    char *arguments[] = {words[0], words[1], file, NULL};
    bool is_released = file != NULL && run_lfs(arguments, answer) == 0 && strstr(answer, " released") != NULL;

    free(file);
    return is_released;
}
