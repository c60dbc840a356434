/* --tp, --ep, --pp: the ranks that share a command's model. The first one runs the command; it starts the others itself
 * if no launcher has. */
#include "cmd/rank_flags.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/cores.h"
#include "cmd/cmd.h"
#include "cmd/remote.h"
#include "orchestrate/local/launch.h"

#define FIELD(name) offsetof(struct ash_engine_flags, name)
#define RANKS_MAX 64
#define GPU_RANKS_MAX 64
#define GRACE_S 3 /* between the end of the first rank that fails and that of the others by force */

static const struct ash_opt opts[] = {
    {"tp", ASH_OPT_INT, FIELD(tp), "1",
     "processes that share the model, each with its part of every matrix and of the cache, on CPUs or a GPU each; an "
     "answer stays the same to the bit. They are started here, or are those of `ashlar launch`, srun or mpirun, on one "
     "node or several",
     1, RANKS_MAX, NULL},
    {"ep", ASH_OPT_INT, FIELD(ep), "1",
     "of a model with experts: as --tp, but each process has whole experts instead of its part of all", 1, RANKS_MAX,
     NULL},
    {"pp", ASH_OPT_INT, FIELD(pp), "1",
     "stages: each has its layers and their cache, on as many processes as --tp or --ep says", 1, RANKS_MAX, NULL},
    {"ranks_per_gpu", ASH_OPT_INT, FIELD(ranks_per_gpu), "1",
     "of these processes, those of a host that may share a GPU", 1, GPU_RANKS_MAX, NULL},
};

const struct ash_opt_table ash_rank_flags_table = {
    .section = "", .help = "several processes", .opts = opts, .count = ASH_COUNT(opts)};

size_t ash_cmd_ranks_count(const struct ash_engine_flags *flags)
{
    struct ash_slice_parts parts = ash_cmd_engine_parts(flags);

    return parts.tp * parts.stages;
}

/* What several ranks do not do is said before anything starts. */
static int check_flags(const struct ash_engine_flags *flags, const char *model, struct ash_err *err)
{
    struct ash_slice_parts parts = ash_cmd_engine_parts(flags);
    struct ash_str path = {0};
    int rc = 0;

    if (flags->tp > 1 && flags->ep > 1 && flags->tp != flags->ep)
        return ash_err_set(err, -EINVAL, "--ep %lld is not --tp %lld: experts are spread over the ranks of --tp",
                           (long long)flags->ep, (long long)flags->tp);
    if (flags->lora != NULL)
        return ash_err_set(err, -ENOTSUP,
                           "--lora goes with one process, without --tp, --ep and --pp: merge the adapter (ashlar model "
                           "merge), or serve it with --lora-modules");
    rc = ash_cmd_attach(model, &path, err);
    if (rc == 0) rc = ash_engine_check_ranks(path.data, &parts, err);
    ash_str_fini(&path);
    return rc;
}

/* This process is alone: a launcher for this machine, whose processes come back here. */
static int launch_self(const struct ash_engine_flags *flags, const struct ash_rank_job *job, struct ash_err *err)
{
    char **words = calloc((size_t)job->argc + 2, sizeof(*words)), name[] = "ashlar";
    struct ash_launch launch = {.procs = ash_cmd_ranks_count(flags),
                                .nodes = 1,
                                .grace_s = GRACE_S,
                                .passes_hangups = true,
                                .program = "/proc/self/exe",
                                .argv = words};
    int rc;

    if (words == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    words[0] = name;
    memcpy(words + 1, job->argv, (size_t)job->argc * sizeof(*words));
    rc = ash_launch_run(&launch, err);
    free(words);
    return rc;
}

/* Threads of one rank, if the flags leave them to us: its share of this node's cores. */
static void share_cores(struct ash_engine_flags *flags, const struct ash_launch_env *env)
{
    int64_t here = env->local_size > 0 ? (int64_t)env->local_size : (int64_t)env->size;
    int64_t each = ash_cores_usable() / here;

    if (flags->threads == 0) flags->threads = each > 1 ? each : 1;
}

/* Which errors does a rank after the first print? Its own; and the second one those of the first, which may not. */
static bool is_told(const struct ash_engine_flags *flags, bool is_own, const struct ash_err *err)
{
    return is_own || (flags->env.rank == 1 && strncmp(err->text, "rank 0 ", strlen("rank 0 ")) == 0);
}

/* A rank after the first: its part of the model, until the first one ends. */
static int follow(const struct ash_engine_flags *flags, const struct ash_rank_job *job)
{
    struct ash_engine *engine = NULL;
    struct ash_err err = {0};
    bool is_own = true;
    sigset_t signals;
    int rc;

    sigemptyset(&signals); /* for the first rank: it ends the others once its work is done */
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    signal(SIGXFSZ, SIG_IGN);
    rc = ash_cmd_engine_open(flags, job->model, &engine, &err);
    if (rc == 0) {
        struct ash_model *model = ash_engine_model(engine);

        ash_cmd_use_kv_dtype(engine, job->kv_dtype);
        rc = ash_ranks_follow(ash_engine_ranks(engine), &model, ash_engine_exec(engine), &is_own, &err);
        (void)ash_engine_replace_model(engine, model); /* weights may have been replaced, and the old ones closed */
    }
    (void)ash_cmd_engine_close(flags, engine);
    return rc == 0 ? 0 : is_told(flags, is_own, &err) ? ash_cmd_fail(&err) : 1;
}

int ash_cmd_ranks_begin(struct ash_engine_flags *flags, const struct ash_rank_job *job)
{
    size_t count = ash_cmd_ranks_count(flags);
    struct ash_launch_env env;
    struct ash_err err = {0};
    int rc;

    if (count == 1) return ASH_CMD_GO;
    rc = ash_launch_env_read(&env, &err);
    if (rc == 0 && env.rank == 0) rc = check_flags(flags, job->model, &err);
    if (rc < 0) return ash_cmd_fail(&err);
    if (env.size == 1) {
        rc = launch_self(flags, job, &err);
        return rc < 0 ? ash_cmd_fail(&err) : rc;
    }
    if (env.size != count) {
        ash_err_set(&err, -EINVAL, "%s %zu: the flags are for %zu processes, but the launcher has started %zu",
                    flags->pp > 1   ? "--tp times --pp is"
                    : flags->ep > 1 ? "--ep"
                                    : "--tp",
                    count, count, env.size);
        return env.rank == 0 ? ash_cmd_fail(&err) : 1;
    }
    share_cores(flags, &env);
    flags->env = env;
    return env.rank == 0 ? ASH_CMD_GO : follow(flags, job);
}
