/* Which rank a process is, from the variables of each launcher, and what is said when they make no sense. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "collective/member/launch_env.h"

static const char *const names[] = {"RANK",
                                    "WORLD_SIZE",
                                    "LOCAL_RANK",
                                    "LOCAL_WORLD_SIZE",
                                    "MASTER_ADDR",
                                    "MASTER_PORT",
                                    "TORCHELASTIC_RUN_ID",
                                    "SLURM_PROCID",
                                    "SLURM_NTASKS",
                                    "SLURM_JOB_ID",
                                    "SLURM_STEP_ID",
                                    "SLURM_STEP_NODELIST",
                                    "SLURM_JOB_NODELIST",
                                    "SLURM_LOCALID",
                                    "SLURMD_NODENAME",
                                    "OMPI_COMM_WORLD_RANK",
                                    "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_RANK",
                                    "PMIX_RANK",
                                    "PMIX_NAMESPACE",
                                    "PMI_RANK",
                                    "PMI_SIZE"};

static int clear(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unsetenv(names[i]);
    return 0;
}

/* Set name=value words. */
static void set(const char *const *words)
{
    clear(NULL);
    for (; *words != NULL; words += 2)
        setenv(words[0], words[1], 1);
}

static struct ash_launch_env detect(const char *const *words)
{
    struct ash_launch_env env;
    struct ash_err err = {0};

    set(words);
    if (ash_launch_env_read(&env, &err) < 0) fail_msg("%s", err.text);
    return env;
}

static void refuse(const char *const *words, const char *because)
{
    struct ash_launch_env env;
    struct ash_err err = {0};

    set(words);
    assert_int_equal(ash_launch_env_read(&env, &err), -EINVAL);
    if (strstr(err.text, because) == NULL) fail_msg("'%s' does not say %s", err.text, because);
}

static void test_alone(void **state)
{
    struct ash_launch_env env = detect((const char *const[]){NULL});

    (void)state;
    assert_string_equal(env.launcher, "none");
    assert_true(env.rank == 0 && env.size == 1);
    env = detect((const char *const[]){"RANK", "", "SLURM_PROCID", "3",
                                       NULL}); /* a login shell inside an allocation, not a step */
    assert_string_equal(env.launcher, "none");
}

static void test_torchrun(void **state)
{
    struct ash_launch_env env =
        detect((const char *const[]){"RANK", "5", "WORLD_SIZE", "8", "LOCAL_RANK", "1", "LOCAL_WORLD_SIZE", "4",
                                     "MASTER_ADDR", "gpu01", "MASTER_PORT", "29500", NULL});
    struct ash_launch_env agent =
        detect((const char *const[]){"RANK", "0", "WORLD_SIZE", "2", "MASTER_ADDR", "gpu01", "MASTER_PORT", "29500",
                                     "TORCHELASTIC_RUN_ID", "none", NULL});

    (void)state;
    assert_string_equal(env.launcher, "torchrun");
    assert_true(env.rank == 5 && env.size == 8 && env.local_rank == 1 && env.local_size == 4 && env.port == 29500);
    assert_string_equal(env.host, "gpu01");
    assert_int_equal(agent.port, 29501); /* torchrun's own store has the other */
    refuse((const char *const[]){"RANK", "0", "WORLD_SIZE", "2", "MASTER_PORT", "1", NULL}, "MASTER_ADDR");
    refuse((const char *const[]){"RANK", "0", "WORLD_SIZE", "2", "MASTER_ADDR", "h", NULL}, "MASTER_PORT");
    refuse((const char *const[]){"RANK", "2", "WORLD_SIZE", "2", "MASTER_ADDR", "h", "MASTER_PORT", "1", NULL},
           "rank 2 of 2");
    refuse((const char *const[]){"RANK", "x", "WORLD_SIZE", "2", "MASTER_ADDR", "h", "MASTER_PORT", "1", NULL},
           "RANK=x");
    refuse((const char *const[]){"RANK", "-1", "WORLD_SIZE", "2", "MASTER_ADDR", "h", "MASTER_PORT", "1", NULL},
           "RANK=-1");
}

static void test_slurm(void **state)
{
    const char *const step[] = {"SLURM_PROCID",
                                "3",
                                "SLURM_NTASKS",
                                "4",
                                "SLURM_JOB_ID",
                                "77",
                                "SLURM_STEP_ID",
                                "0",
                                "SLURM_LOCALID",
                                "1",
                                "SLURM_STEP_NODELIST",
                                "gpu[03-04]",
                                "SLURMD_NODENAME",
                                "gpu04",
                                NULL};
    const char *const next[] = {
        "SLURM_PROCID", "3", "SLURM_NTASKS", "4", "SLURM_JOB_ID", "77", "SLURM_STEP_ID", "1", "SLURM_STEP_NODELIST",
        "gpu[03-04]",   NULL};
    struct ash_launch_env env = detect(step);

    (void)state;
    assert_string_equal(env.launcher, "slurm");
    assert_true(env.rank == 3 && env.size == 4 && env.local_rank == 1);
    assert_string_equal(env.host, "gpu03");
    assert_string_equal(env.node, "gpu04");
    assert_string_equal(detect(next).node, "");
    assert_true(env.job != detect(next).job); /* another step is another job */
    refuse((const char *const[]){"SLURM_PROCID", "0", "SLURM_STEP_ID", "0", "SLURM_JOB_ID", "1", "SLURM_STEP_NODELIST",
                                 "a", NULL},
           "SLURM_NTASKS");
    refuse((const char *const[]){"SLURM_PROCID", "0", "SLURM_STEP_ID", "0", "SLURM_NTASKS", "1", "SLURM_JOB_ID", "1",
                                 NULL},
           "NODELIST");
}

/* One task of four, as srun sets it. */
#define TASK                                                                                                           \
    "SLURM_PROCID", "2", "SLURM_NTASKS", "4", "SLURM_JOB_ID", "77", "SLURM_STEP_ID", "0", "SLURM_STEP_NODELIST", "a,b"

static void test_slurm_and_mpi(void **state)
{
    struct ash_launch_env plain = detect((const char *const[]){TASK, NULL});
    struct ash_launch_env pmi2 = detect((const char *const[]){TASK, "PMI_RANK", "2", "PMI_SIZE", "4", NULL});
    struct ash_launch_env pmix =
        detect((const char *const[]){TASK, "PMIX_RANK", "2", "PMIX_NAMESPACE", "slurm.0", NULL});
    struct ash_launch_env told = detect((const char *const[]){TASK, "MASTER_ADDR", "10.0.0.1", NULL});
    struct ash_launch_env inside = detect((const char *const[]){TASK, "PMI_RANK", "1", "PMI_SIZE", "4", NULL});
    struct ash_launch_env larger = detect((const char *const[]){TASK, "PMI_RANK", "2", "PMI_SIZE", "8", NULL});
    struct ash_launch_env open_mpi =
        detect((const char *const[]){TASK, "OMPI_COMM_WORLD_RANK", "2", "OMPI_COMM_WORLD_SIZE", "3", NULL});

    (void)state;
    assert_string_equal(plain.host, "a");
    assert_memory_equal(&pmi2, &plain, sizeof(plain)); /* srun --mpi=pmi2: the same ranks, which must meet at a host */
    assert_memory_equal(&pmix, &plain, sizeof(plain));
    assert_string_equal(told.host, "10.0.0.1");
    assert_string_equal(inside.launcher, "mpi"); /* mpirun inside of Slurm: its own ranks */
    assert_string_equal(larger.launcher, "mpi");
    assert_string_equal(open_mpi.launcher, "mpi");
    assert_int_equal(open_mpi.size, 3);
}

static void test_mpi(void **state)
{
    struct ash_launch_env env =
        detect((const char *const[]){"OMPI_COMM_WORLD_RANK", "1", "OMPI_COMM_WORLD_SIZE", "3",
                                     "OMPI_COMM_WORLD_LOCAL_RANK", "1", "PMIX_NAMESPACE", "12345", NULL});

    (void)state;
    assert_string_equal(env.launcher, "mpi");
    assert_true(env.rank == 1 && env.size == 3 && env.local_rank == 1 && env.job != 0);
    assert_string_equal(env.host, "127.0.0.1");
    env =
        detect((const char *const[]){"PMI_RANK", "0", "PMI_SIZE", "2", "MASTER_ADDR", "h", "MASTER_PORT", "99", NULL});
    assert_true(env.size == 2 && env.port == 99);
    refuse((const char *const[]){"PMIX_RANK", "0", NULL}, "number of ranks");
}

static void test_first_host(void **state)
{
    static const char *const pairs[][2] = {{"gpu01", "gpu01"}, {"gpu[03-07,9],login1", "gpu03"},
                                           {"a,b", "a"},       {"n[1]", "n1"},
                                           {"[1-2]", "1"},     {"rack-2-node[007]", "rack-2-node007"}};
    char host[32];

    (void)state;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        assert_int_equal(ash_launch_env_first_host(pairs[i][0], host, sizeof(host)), 0);
        assert_string_equal(host, pairs[i][1]);
    }
    assert_int_equal(ash_launch_env_first_host("", host, sizeof(host)), -EINVAL);
    assert_int_equal(ash_launch_env_first_host("n[", host, sizeof(host)), -EINVAL);
    assert_int_equal(ash_launch_env_first_host(",", host, sizeof(host)), -EINVAL);
    assert_int_equal(ash_launch_env_first_host("a-name-that-is-longer-than-the-buffer", host, 8), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_alone, clear),         cmocka_unit_test_setup(test_torchrun, clear),
        cmocka_unit_test_setup(test_slurm, clear),         cmocka_unit_test_setup(test_mpi, clear),
        cmocka_unit_test_setup(test_slurm_and_mpi, clear), cmocka_unit_test(test_first_host),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
