/* chaos_job: processes from the outside, by real signals. */
#include "cmd/chaos_job.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define LOOK_S 0.005
#define CHILDREN_BYTES 8192

void ash_chaos_pause(double pause_s)
{
    struct timespec pause = {(time_t)pause_s, (long)((pause_s - (double)(time_t)pause_s) * 1e9)};

    nanosleep(&pause, NULL);
}

int ash_chaos_job_start(struct ash_chaos_job *job, char *const *words, const char *out, struct ash_err *err)
{
    int fd = out != NULL ? open(out, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : -1;

    if (out != NULL && fd < 0) return ash_err_set(err, -errno, "%s: %s", out, strerror(errno));
    job->code = -1;
    job->launcher = fork();
    if (job->launcher == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (fd >= 0) {
            dup2(fd, STDOUT_FILENO);
            dup2(fd, STDERR_FILENO);
        }
        execv(strchr(words[0], '/') != NULL ? words[0] : "/proc/self/exe", words);
        _exit(127);
    }
    if (fd >= 0) close(fd);
    if (job->launcher > 0) return 0;
    job->launcher = 0;
    return ash_err_set(err, -errno, "no process can be started: %s", strerror(errno));
}

bool ash_chaos_job_ended(struct ash_chaos_job *job)
{
    int status = 0;

    if (job->launcher == 0) return true;
    if (waitpid(job->launcher, &status, WNOHANG) != job->launcher) return false;
    job->launcher = 0;
    job->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return true;
}

int ash_chaos_job_wait(struct ash_chaos_job *job, double limit_s)
{
    uint64_t end_ns = ash_clock_ns() + (uint64_t)(limit_s * 1e9);
    pid_t pids[ASH_CHAOS_RANKS_MAX];
    bool late = false;

    while (!ash_chaos_job_ended(job)) {
        if (!late && ash_clock_ns() >= end_ns) {
            late = true;
            for (size_t i = ash_chaos_job_ranks(job, pids); i > 0; i--)
                kill(pids[i - 1], SIGKILL);
            kill(job->launcher, SIGKILL);
        }
        ash_chaos_pause(LOOK_S);
    }
    return late ? -ETIMEDOUT : 0;
}

size_t ash_chaos_job_ranks(const struct ash_chaos_job *job, pid_t pids[ASH_CHAOS_RANKS_MAX])
{
    char path[64], text[CHILDREN_BYTES];
    size_t count = 0, size;
    FILE *file;

    if (job->launcher == 0) return 0;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)job->launcher, (int)job->launcher);
    file = fopen(path, "r");
    if (file == NULL) return 0;
    size = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[size] = '\0';
    for (char *at = text; count < ASH_CHAOS_RANKS_MAX && isdigit((unsigned char)*at);) {
        pids[count++] = (pid_t)strtol(at, &at, 10);
        while (*at == ' ')
            at++;
    }
    return count;
}
