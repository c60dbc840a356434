/* calls_differ FOLDER RANK KIND: a job's program in which one rank is wrong. All ranks make some all-reduces; then RANK
 * makes another call than its peers: of another "size" or "type", a "max" or a "gather", or one call "more". What
 * all did stays in FOLDER, as a job's calls do that failed. `ashlar launch --program` starts it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "record/flight.h"
#include "base/opts.h"
#include "collective/group.h"

#define CALLS 5
#define COUNT 64

/* Wait for all ranks, outside of their calls: no next call is missing because the job was over before it. */
static void meet(const struct ash_launch_env *env, const char *folder, const char *where)
{
    char path[4096];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s-%zu", folder, where, env->rank);
    file = fopen(path, "w");
    if (file != NULL) fclose(file);
    for (size_t r = 0; r < env->size; r++) {
        snprintf(path, sizeof(path), "%s/%s-%zu", folder, where, r);
        while (access(path, F_OK) != 0)
            usleep(1000);
    }
}

static int make_wrong_call(struct ash_group *group, const char *kind, struct ash_err *err)
{
    static double in[COUNT], out[COUNT * 16];

    if (strcmp(kind, "size") == 0)
        return ash_group_all_reduce(group, in, out, COUNT / 2, ASH_COLL_F32, ASH_COLL_SUM, err);
    if (strcmp(kind, "type") == 0)
        return ash_group_all_reduce(group, in, out, COUNT / 2, ASH_COLL_F64, ASH_COLL_SUM, err);
    if (strcmp(kind, "max") == 0) return ash_group_all_reduce(group, in, out, COUNT, ASH_COLL_F32, ASH_COLL_MAX, err);
    if (strcmp(kind, "gather") == 0) return ash_group_all_gather(group, in, out, COUNT, err);
    return ash_group_barrier(group, err);
}

static int make_calls(struct ash_group *group, const struct ash_launch_env *env, char **words, struct ash_err *err)
{
    static float in[COUNT], out[COUNT];
    int rc = 0;

    for (int i = 0; i < CALLS && rc == 0; i++)
        rc = ash_group_all_reduce(group, in, out, COUNT, ASH_COLL_F32, ASH_COLL_SUM, err);
    if (rc == 0) meet(env, words[0], "before");
    if (rc == 0 && env->rank == strtoul(words[1], NULL, 10)) rc = make_wrong_call(group, words[2], err);
    for (int i = 0; i < CALLS && rc == 0; i++)
        rc = ash_group_all_reduce(group, in, out, COUNT, ASH_COLL_F32, ASH_COLL_SUM, err);
    return rc;
}

int main(int argc, char **argv)
{
    struct ash_group_opts opts = {0};
    const struct ash_opt_binding binding = {&ash_group_table, &opts};
    struct ash_opts *settings = NULL;
    struct ash_group *group = NULL;
    struct ash_launch_env env;
    struct ash_err err = {0};
    char labels[96];
    int rc = argc == 4 ? ash_opts_open(&binding, 1, &settings, &err) : -1;

    if (rc == 0) rc = ash_launch_env_read(&env, &err);
    if (rc == 0) snprintf(labels, sizeof(labels), "job=\"%llu\",rank=\"%zu\"", (unsigned long long)env.job, env.rank);
    if (rc == 0) rc = ash_flight_start(argv[1], labels, &err);
    if (rc == 0) rc = ash_group_open(&env, &opts, &group, &err);
    if (rc == 0) rc = make_calls(group, &env, argv + 1, &err);
    if (group != NULL) meet(&env, argv[1], "after");
    if (rc < 0) fprintf(stderr, "calls_differ: %s\n", err.text);
    ash_group_close(group);
    ash_flight_stop(true);
    ash_opts_close(settings);
    return rc < 0;
}
