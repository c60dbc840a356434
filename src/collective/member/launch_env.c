/* One reader per launcher; the first whose rank variable is set counts. */
#include "collective/member/launch_env.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/opts.h"

#define RANKS_MAX (1 << 20)
#define PORT_FIRST 29500 /* torch's habit */
#define PORT_SLURM 20000 /* a range below the ephemeral ports: 20000 ... 29999 */
#define PORT_SLURM_COUNT 10000

/* A whole number from the environment. Returns 0, -ENOENT if it is unset, or -EINVAL. */
static int read_number(const char *name, int64_t min, int64_t max, int64_t *out, struct ash_err *err)
{
    const char *text = ash_env_get(name);
    char *end = NULL;
    long long value;

    if (text == NULL) return -ENOENT;
    errno = 0;
    value = strtoll(text, &end, 10);
    if (errno != 0 || *end != '\0' || value < min || value > max)
        return ash_err_set(err, -EINVAL, "the environment says %s=%s: a number from %lld to %lld is expected", name,
                           text, (long long)min, (long long)max);
    *out = value;
    return 0;
}

static int need_number(const char *name, const char *given, int64_t min, int64_t max, int64_t *out, struct ash_err *err)
{
    int rc = read_number(name, min, max, out, err);

    return rc == -ENOENT ? ash_err_set(err, -EINVAL, "the environment has %s but not %s", given, name) : rc;
}

/* The first of these that is set, or -1. */
static int64_t any_number(const char *const *names, struct ash_err *err, int *rc_out)
{
    int64_t value = -1;

    *rc_out = 0;
    for (; *names != NULL; names++) {
        int rc = read_number(*names, 0, RANKS_MAX, &value, err);
        if (rc == 0) return value;
        if (rc != -ENOENT) *rc_out = rc;
    }
    return -1;
}

static int set_ranks(struct ash_launch_env *env, int64_t rank, int64_t size, struct ash_err *err)
{
    if (rank >= size)
        return ash_err_set(err, -EINVAL, "rank %lld of %lld makes no sense", (long long)rank, (long long)size);
    env->rank = (size_t)rank;
    env->size = (size_t)size;
    return 0;
}

static int read_torchrun(struct ash_launch_env *env, struct ash_err *err)
{
    const char *host = ash_env_get("MASTER_ADDR"), *run = ash_env_get("TORCHELASTIC_RUN_ID");
    int64_t rank = 0, size = 0, port = 0, local = 0;
    int rc = need_number("RANK", "RANK", 0, RANKS_MAX, &rank, err);

    if (rc < 0) return rc;
    rc = need_number("WORLD_SIZE", "RANK", 1, RANKS_MAX, &size, err);
    if (rc < 0) return rc;
    rc = need_number("MASTER_PORT", "RANK", 1, 65534, &port, err);
    if (rc < 0) return rc;
    if (host == NULL) return ash_err_set(err, -EINVAL, "the environment has RANK but not MASTER_ADDR");
    rc = set_ranks(env, rank, size, err);
    if (rc < 0) return rc;
    env->launcher = "torchrun";
    snprintf(env->host, sizeof(env->host), "%s", host);
    env->port = (int)port + (run != NULL); /* torchrun's own store sits on MASTER_PORT */
    env->job = ash_hash_str(host) ^ ash_hash_mix((uint64_t)port) ^ (run != NULL ? ash_hash_str(run) : 0);
    if (read_number("LOCAL_RANK", 0, RANKS_MAX, &local, NULL) == 0) env->local_rank = (size_t)local;
    if (read_number("LOCAL_WORLD_SIZE", 1, RANKS_MAX, &local, NULL) == 0) env->local_size = (size_t)local;
    return 0;
}

static int read_slurm(struct ash_launch_env *env, struct ash_err *err)
{
    const char *nodes = ash_env_get("SLURM_STEP_NODELIST"), *host = ash_env_get("MASTER_ADDR"),
               *node = ash_env_get("SLURMD_NODENAME");
    int64_t rank = 0, size = 0, job = 0, step = 0, local = 0;
    int rc = need_number("SLURM_PROCID", "SLURM_PROCID", 0, RANKS_MAX, &rank, err);

    if (rc < 0) return rc;
    rc = need_number("SLURM_NTASKS", "SLURM_PROCID", 1, RANKS_MAX, &size, err);
    if (rc < 0) return rc;
    rc = need_number("SLURM_JOB_ID", "SLURM_PROCID", 0, INT64_MAX / 2, &job, err);
    if (rc < 0) return rc;
    if (nodes == NULL) nodes = ash_env_get("SLURM_JOB_NODELIST");
    if (host != NULL)
        snprintf(env->host, sizeof(env->host), "%s", host);
    else if (nodes == NULL || ash_launch_env_first_host(nodes, env->host, sizeof(env->host)) < 0)
        return ash_err_set(err, -EINVAL, "the environment has SLURM_PROCID but SLURM_STEP_NODELIST names no host");
    rc = set_ranks(env, rank, size, err);
    if (rc < 0) return rc;
    env->launcher = "slurm";
    if (node != NULL) snprintf(env->node, sizeof(env->node), "%s", node);
    read_number("SLURM_STEP_ID", 0, INT64_MAX / 2, &step, NULL);
    env->job = ash_hash_mix((uint64_t)job) ^ ash_hash_mix(ash_hash_mix((uint64_t)step) + 1);
    env->port = PORT_SLURM + (int)(env->job % PORT_SLURM_COUNT);
    if (read_number("SLURM_LOCALID", 0, RANKS_MAX, &local, NULL) == 0) env->local_rank = (size_t)local;
    return 0;
}

/* Open MPI, PMIx and PMI have names of their own for ranks and none for hosts: without MASTER_ADDR, this host. */
static int read_mpi(struct ash_launch_env *env, int64_t rank, struct ash_err *err)
{
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE", NULL};
    static const char *const locals[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMIX_LOCAL_RANK", NULL};
    static const char *const jobs[] = {"PMIX_NAMESPACE", "PMI_JOBID", "OMPI_MCA_ess_base_jobid", NULL};
    const char *host = ash_env_get("MASTER_ADDR");
    int64_t port = PORT_FIRST, size, local;
    int rc;

    size = any_number(sizes, err, &rc);
    if (rc < 0) return rc;
    if (size < 1)
        return ash_err_set(err, -EINVAL,
                           "the launcher gives a rank but no number of ranks (OMPI_COMM_WORLD_SIZE, PMI_SIZE)");
    rc = set_ranks(env, rank, size, err);
    if (rc < 0) return rc;
    rc = read_number("MASTER_PORT", 1, 65535, &port, err);
    if (rc < 0 && rc != -ENOENT) return rc;
    env->launcher = "mpi";
    for (const char *const *name = jobs; *name != NULL && env->job == 0; name++)
        if (ash_env_get(*name) != NULL) env->job = ash_hash_str(ash_env_get(*name));
    if (rc == -ENOENT && env->job != 0) port = PORT_SLURM + (int64_t)(env->job % PORT_SLURM_COUNT);
    snprintf(env->host, sizeof(env->host), "%s", host != NULL ? host : "127.0.0.1");
    env->port = (int)port;
    local = any_number(locals, err, &rc);
    if (local >= 0) env->local_rank = (size_t)local;
    return rc;
}

/* Is this process a task of a Slurm step? srun --mpi=pmi2 or pmix gives the same rank a second time, without a host.
 * Where mpirun was started inside of Slurm, its rank is another, or of another number of ranks. */
static bool is_slurm_task(void)
{
    static const char *const ranks[] = {"PMIX_RANK", "PMI_RANK", NULL}, *const sizes[] = {"PMI_SIZE", NULL};
    int64_t task = 0, tasks = 0, rank, size;
    int rc;

    if (ash_env_get("SLURM_STEP_ID") == NULL || ash_env_get("OMPI_COMM_WORLD_RANK") != NULL) return false;
    if (ash_env_get("SLURM_PROCID") == NULL) return false;
    rank = any_number(ranks, NULL, &rc);
    if (rank < 0) return rc == 0;
    size = any_number(sizes, NULL, &rc);
    return read_number("SLURM_PROCID", 0, RANKS_MAX, &task, NULL) == 0 && task == rank &&
           read_number("SLURM_NTASKS", 1, RANKS_MAX, &tasks, NULL) == 0 && (size < 0 || size == tasks);
}

/* A process that a supervisor has started into a job that runs. */
static int read_joiner(struct ash_launch_env *env, struct ash_err *err)
{
    const char *host = ash_env_get("MASTER_ADDR");
    int64_t port = 0, local = 0, place = 0, places = 0;
    int rc = need_number("MASTER_PORT", "ASHLAR_JOIN", 1, 65534, &port, err);

    if (rc < 0) return rc;
    if (host == NULL) return ash_err_set(err, -EINVAL, "the environment has ASHLAR_JOIN but not MASTER_ADDR");
    env->launcher = "ashlar";
    env->joins = true;
    snprintf(env->host, sizeof(env->host), "%s", host);
    env->port = (int)port;
    env->job = ash_hash_str(host) ^ ash_hash_mix((uint64_t)port);
    if (read_number("LOCAL_WORLD_SIZE", 1, RANKS_MAX, &local, NULL) == 0) env->local_size = (size_t)local;
    if (read_number("RANK", 0, RANKS_MAX, &place, NULL) == 0) env->place = (size_t)place;
    if (read_number("WORLD_SIZE", 1, RANKS_MAX, &places, NULL) == 0) env->places = (size_t)places;
    return 0;
}

int ash_launch_env_read(struct ash_launch_env *env_out, struct ash_err *err)
{
    static const char *const mpi_ranks[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", NULL};
    struct ash_launch_env env = {.launcher = "none", .size = 1, .host = "127.0.0.1", .port = PORT_FIRST};
    int64_t rank;
    int rc = 0;

    if (ash_env_get("ASHLAR_JOIN") != NULL) {
        rc = read_joiner(&env, err);
    } else if (ash_env_get("RANK") != NULL && ash_env_get("WORLD_SIZE") != NULL) {
        rc = read_torchrun(&env, err);
    } else if (is_slurm_task()) {
        rc = read_slurm(&env, err);
    } else if ((rank = any_number(mpi_ranks, err, &rc)) >= 0) {
        rc = read_mpi(&env, rank, err);
    }
    if (!env.joins) {
        env.place = env.rank;
        env.places = env.size;
    }
    if (rc == 0) *env_out = env;
    return rc;
}

int ash_launch_env_first_host(const char *node_list, char *buf, size_t buf_bytes)
{
    size_t prefix = strcspn(node_list, "[,"), digits = 0;
    const char *rest = node_list + prefix;
    bool range = *rest == '[';

    if (range) digits = strcspn(++rest, "-,]");
    if (prefix + digits == 0 || prefix + digits >= buf_bytes || (range && digits == 0)) return -EINVAL;
    memcpy(buf, node_list, prefix);
    memcpy(buf + prefix, rest, digits);
    buf[prefix + digits] = '\0';
    return 0;
}
