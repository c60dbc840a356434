/* rl_samplers: parts of a job, and the life of a sampler. */
#include "cmd/rl_samplers.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/cores.h"
#include "base/file.h"
#include "base/math.h"
#include "cmd/cmd.h"
#include "orchestrate/node/ends.h"
#include "orchestrate/node/supervisor.h"
#include "post/post.h"
#include "post/rl/rl.h"

#define RESTARTS "3" /* of a sampler that fails, where this command starts it */

void ash_cmd_mark_placed(const char *job_dir)
{
    char path[PATH_MAX], name[ASH_PLACED_NAME_BYTES];

    ash_supervisor_placed_name(getpid(), name);
    if (job_dir != NULL && ash_path_join(path, sizeof(path), job_dir, name) == 0) ash_file_replace(path, "", 0, NULL);
}

/* The same words under `ashlar launch`, with samplers. Returns only if that fails. */
static int launch_all(const struct ash_job *job, int argc, char **argv, struct ash_err *err)
{
    char procs[32];
    const char *own[] = {"ashlar", "launch", "--procs", procs, "--restarts", RESTARTS};
    const char **words = calloc(ASH_COUNT(own) + (size_t)argc + 1, sizeof(*words));

    if (words == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    snprintf(procs, sizeof(procs), "%lld", (long long)job->rollout.procs + 1);
    memcpy(words, own, sizeof(own));
    memcpy(words + ASH_COUNT(own), argv, (size_t)argc * sizeof(*words));
    execv("/proc/self/exe", (char *const *)(void *)words);
    free(words);
    return ash_err_set(err, -errno, "samplers cannot be started: %s", strerror(errno));
}

int ash_cmd_rl_part(struct ash_job *job, int argc, char **argv, struct ash_launch_env *env, bool *samples,
                    struct ash_err *err)
{
    size_t procs = (size_t)job->rollout.procs;
    bool is_apart = job->train.method == ASH_METHOD_RL && job->rollout.mode == ASH_ROLLOUT_APART;

    if (*samples && !is_apart) return ash_err_set(err, -EINVAL, "--sampler is for rollout.mode=apart: give both");
    if (!is_apart || *samples) return 0;
    if (env->places == 1 && !env->joins) return launch_all(job, argc, argv, err);
    if (job->runtime.threads == 0 && env->local_size > 1)
        job->runtime.threads = ash_max(ash_cores_usable() / (int64_t)env->local_size, 1);
    if (env->places <= procs)
        return ash_err_set(err, -EINVAL, "rollout.procs=%zu of %zu processes: none is left to train", procs,
                           env->places);
    *samples = env->place >= env->places - procs && env->place < env->places;
    if (!env->joins && !*samples) env->size -= procs;
    return 0;
}

/* The run has taken it. */
static void be_placed(void *ctx)
{
    ash_cmd_mark_placed(ctx);
}

/* The ranks that train decide when a launched sampler ends: until then it serves them. */
static void leave_signals(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
}

int ash_cmd_rl_sample(const struct ash_job *job, const char *out, const struct ash_launch_env *env, const char *job_dir)
{
    struct ash_worker_opts opts = {.here = env->local_size, .job_dir = job_dir, .ctx = (void *)(uintptr_t)job_dir};
    struct ash_post *post = NULL;
    struct ash_err err = {0};
    int rc;

    if (env->joins) opts.placed = be_placed;
    signal(SIGPIPE, SIG_IGN);
    if (env->places > 1) leave_signals();
    rc = ash_post_open(job, NULL, out, NULL, &post, &err);
    if (rc == 0) rc = ash_post_sample(post, &opts, &err);
    ash_post_close(post);
    if (rc == -EBADE) {
        ash_cmd_fail(&err);
        return ASH_END_BAD_SETTINGS;
    }
    return rc < 0 ? ash_cmd_fail(&err) : 0;
}
