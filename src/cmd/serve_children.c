/* Servers of this machine behind the router of their parent: replicas of a model, or one for each of several models. */
#include "cmd/serve_children.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/socket.h"
#include "cmd/cmd.h"

#define POLL_NS 20000000
#define PAUSE_MIN_S 0.1    /* before a server is started again, */
#define PAUSE_MAX_S 10.0   /* twice as long each time that it ends */
#define WELL_S 30.0        /* after so long it was well, and the pause is short again */
#define SHUTDOWN_SPARE_S 5 /* to end after --shutdown-timeout */

int ash_serve_child_open(struct ash_serve_child *child, struct ash_err *err)
{
    child->port_fd = ash_socket_reserve(&child->port, err);
    child->pause_s = fmax(child->pause_s, PAUSE_MIN_S / 2);
    return child->port_fd < 0 ? child->port_fd : 0;
}

void ash_serve_child_close(struct ash_serve_child *child)
{
    ash_assert(child->pid == 0);
    if (child->port > 0 && child->port_fd >= 0) close(child->port_fd);
    child->port = 0;
}

/* The words of a child: the user's, those that make it one of several, its own. Made before the fork, as another thread
 * may hold the allocator's lock at it. The caller frees the array; strings are borrowed. NULL without memory. */
static const char **make_words(struct ash_serve_child *child, const struct ash_serve_words *user,
                               const char *const *own, size_t own_count)
{
    const char *shared[] = {"--replicas=1",    "--host=127.0.0.1", child->port_word,  child->timeout_word,
                            "--no-access-log", "--ssl-keyfile=",   "--ssl-certfile=", "--max-connections=100000"};
    const char **words = calloc((size_t)user->argc + ASH_COUNT(shared) + own_count + 3, sizeof(*words));
    size_t count = 0;

    if (words == NULL) return NULL;
    snprintf(child->port_word, sizeof(child->port_word), "--port=%d", child->port);
    snprintf(child->timeout_word, sizeof(child->timeout_word), "--shutdown-timeout=%g",
             user->flags->http.shutdown_timeout);
    words[count++] = "ashlar";
    words[count++] = "serve";
    for (int i = 1; i < user->argc; i++)
        words[count++] = user->argv[i];
    for (size_t i = 0; i < ASH_COUNT(shared); i++)
        words[count++] = shared[i];
    for (size_t i = 0; i < own_count; i++)
        words[count++] = own[i];
    return words;
}

/* In the child alone: nothing but system calls. */
static void become(const char **words)
{
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    setpgid(0, 0); /* Ctrl-C is for the router, which ends them after their last answer */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execv("/proc/self/exe", (char *const *)(void *)words);
    _exit(127);
}

int ash_serve_child_start(struct ash_serve_child *child, const struct ash_serve_words *user, const char *const *own,
                          size_t count, struct ash_err *err)
{
    const char **words = make_words(child, user, own, count);
    pid_t parent = getpid(), pid;
    int why;

    if (words == NULL) return ash_err_set(err, -ENOMEM, "%s: out of memory", child->name);
    pid = fork();
    if (pid == 0 && getppid() == parent) become(words);
    if (pid == 0) _exit(1);
    why = errno;
    free(words);
    if (pid < 0) return ash_err_set(err, -why, "%s cannot be started: %s", child->name, strerror(why));
    child->pid = pid;
    child->start_ns = ash_clock_ns();
    ash_log(ASH_LOG_INFO, "%s is process %ld, port %d", child->name, (long)pid, child->port);
    return 0;
}

/* It has ended: when may it start again? */
static void note_end(struct ash_serve_child *child, int status)
{
    double ran_s = (double)(ash_clock_ns() - child->start_ns) / 1e9;

    child->pid = 0;
    child->exit_code = WIFSIGNALED(status) ? ASH_CMD_EXIT_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
    child->pause_s = ran_s > WELL_S ? PAUSE_MIN_S : fmin(2 * child->pause_s, PAUSE_MAX_S);
    child->restart_ns = ash_clock_ns() + (uint64_t)(child->pause_s * 1e9);
}

struct ash_serve_child *ash_serve_children_reap(struct ash_serve_child *children, size_t count)
{
    int status = 0;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (size_t i = 0; i < count; i++)
            if (children[i].pid == pid) {
                note_end(&children[i], status);
                return &children[i];
            }
    return NULL;
}

void ash_serve_children_signal(const struct ash_serve_child *children, size_t count, int number)
{
    for (size_t i = 0; i < count; i++)
        if (children[i].pid > 0) kill(children[i].pid, number);
}

void ash_serve_children_end(struct ash_serve_child *children, size_t count, const struct ash_serve_flags *flags)
{
    const struct timespec poll = {.tv_nsec = POLL_NS};
    uint64_t end_ns = ash_deadline_in(flags->http.shutdown_timeout + SHUTDOWN_SPARE_S);
    bool is_forced = false;
    size_t left = 1;

    ash_serve_children_signal(children, count, SIGTERM);
    while (left > 0) {
        while (ash_serve_children_reap(children, count) != NULL)
            ;
        left = 0;
        for (size_t i = 0; i < count; i++)
            left += children[i].pid > 0;
        if (!is_forced && ash_clock_ns() > end_ns) {
            ash_serve_children_signal(children, count, SIGKILL);
            is_forced = true;
        }
        if (left > 0) nanosleep(&poll, NULL);
    }
}
