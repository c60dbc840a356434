/* group_ranks - ranks that are processes which have joined as a group. */
#ifndef ASH_TESTS_HARNESS_GROUP_RANKS_H
#define ASH_TESTS_HARNESS_GROUP_RANKS_H

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "base/socket.h"
#include "collective/group.h"
#include "harness/ranks.h"
#include "orchestrate/local/netns.h"

#define GROUP_RANKS_MAX 64
#define SIGNAL_TRIES 5

/* Of jobs that do not say: a letter for the node of each rank, over and over. NULL: all are on one. */
static const char *default_nodes;

/* What parent and ranks share in addition to the group. */
struct shared {
    _Atomic int pids[GROUP_RANKS_MAX];
    _Atomic uint64_t began_ns, joined_ns[GROUP_RANKS_MAX], noticed_ns[GROUP_RANKS_MAX];
    _Atomic size_t joined;
    _Atomic uint64_t calls[GROUP_RANKS_MAX]; /* that each has begun, where a test counts them */
    char text[GROUP_RANKS_MAX][ASH_ERR_TEXT_BYTES];
    _Atomic int code[GROUP_RANKS_MAX];
    int reserved; /* the port that they meet at */
};

struct job {
    size_t size;
    double silent_s, call_s;
    double stop_grace_s;
    int (*run)(struct ash_group *group, struct shared *shared, const void *arg);
    const void *arg;
    const char *nodes;             /* a letter for the node of each rank, "aabb"; NULL: all are on one */
    int algorithm;                 /* between nodes */
    size_t hidden_ranks;           /* this many of the last ones are in a PID namespace of their own */
    const struct ash_netns *netns; /* their networks; NULL: all are reached through loopback */
};

/* Move to the network of a rank's node; the first rank is on the first. */
static inline int enter_network(const struct ash_netns *netns, char node, struct ash_launch_env *env)
{
    ash_netns_address(0, env->host, sizeof(env->host));
    return ash_netns_enter(netns, (size_t)(node - 'a'));
}

/* What a rank is started with. */
struct group_rank {
    const struct job *job;
    struct shared *shared;
    int port;
};

static inline int join_and_run(const struct job *job, struct shared *shared, size_t rank, int port)
{
    struct ash_launch_env env = {
        .launcher = "test", .rank = rank, .size = job->size, .host = "127.0.0.1", .port = port, .job = 7};
    struct ash_group_opts opts = {.join_timeout = 120, .silent_timeout = job->silent_s, .call_timeout = job->call_s};
    struct ash_group *group = NULL;
    struct ash_err err = {0};
    const char *nodes = job->nodes != NULL ? job->nodes : default_nodes;
    char node[2] = {nodes != NULL ? nodes[rank % strlen(nodes)] : '\0', '\0'};
    int rc;

    if (nodes != NULL) opts.node = node;
    opts.algorithm = job->algorithm;
    opts.stop_grace = job->stop_grace_s;
    if (job->netns != NULL && enter_network(job->netns, node[0], &env) < 0) return 1;
    rc = ash_group_open(&env, &opts, &group, &err);
    if (rc < 0) {
        fprintf(stderr, "rank %zu: %s\n", rank, err.text);
        return 1;
    }
    atomic_store(&shared->joined_ns[rank], ash_clock_ns());
    atomic_fetch_add(&shared->joined, 1);
    rc = job->run(group, shared, job->arg);
    if (rc != 0) fprintf(stderr, "rank %zu of %zu: check %d\n", rank, job->size, rc);
    ash_group_close(group);
    return rc != 0;
}

/* Continue in a new process, in a PID namespace of its own. The one that waits for it ends as it does. */
static inline void hide(void)
{
    int status = 0, pid;

    if (unshare(CLONE_NEWPID) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) < 0) _exit(1);
    pid = fork();
    if (pid == 0) {
        rank_begin();
        return;
    }
    waitpid(pid, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

static inline bool can_hide(void)
{
    int status = 1, pid = fork();

    if (pid == 0) {
        hide();
        _exit(0);
    }
    waitpid(pid, &status, 0);
    return status == 0;
}

static inline int group_rank_main(void *ctx, size_t rank)
{
    const struct group_rank *own = ctx;

    if (rank + own->job->hidden_ranks >= own->job->size) hide();
    return join_and_run(own->job, own->shared, rank, own->port);
}

static inline struct shared *start(const struct job *job)
{
    struct group_rank rank = {.job = job, .shared = ranks_share(sizeof(*rank.shared))};
    struct shared *shared = rank.shared;

    ash_assert(job->size <= GROUP_RANKS_MAX);
    shared->reserved = ash_socket_reserve(&rank.port, NULL);
    shared->began_ns = ash_clock_ns();
    for (size_t r = 0; r < job->size; r++)
        shared->pids[r] = rank_start(group_rank_main, &rank, r);
    return shared;
}

/* Wait for the ranks; how many did not end as they should (killed ones count as well done if they are `victim`). */
static inline int finish(const struct job *job, struct shared *shared, size_t victim)
{
    int bad = 0;

    for (size_t r = 0; r < job->size; r++) {
        int status = 0;

        waitpid(shared->pids[r], &status, 0);
        if (r != victim && (!WIFEXITED(status) || WEXITSTATUS(status) != 0)) bad++;
        if (r != victim && WIFSIGNALED(status)) fprintf(stderr, "rank %zu: signal %d\n", r, WTERMSIG(status));
    }
    return bad;
}

static inline void end(struct shared *shared)
{
    close(shared->reserved);
    ranks_unshare(shared, sizeof(*shared));
}

/* All in one: how many ranks did not end as they should. */
static inline int run_job(const struct job *job)
{
    struct shared *shared = start(job);
    int bad = finish(job, shared, SIZE_MAX);

    end(shared);
    return bad;
}

/* Can nodes be reached here? Tried in a process of its own, because libfabric remembers the interfaces that it saw
 * first. Where they can, it is loaded (which may take a fifth of a second) for all processes that follow. */
static inline bool has_network(void)
{
    struct ash_fabric_opts opts = {.path = ASH_FABRIC_OFI, .address = "127.0.0.1"};
    struct ash_fabric *fabric = NULL;
    int status = 1, pid = fork();

    if (pid == 0) _exit(ash_fabric_open(&opts, &fabric, NULL) < 0);
    waitpid(pid, &status, 0);
    return status == 0 && dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL) != NULL;
}

/* The same, and libfabric is set up here once for all processes that follow: not where some of them move to another
 * network. */
static inline bool start_network(void)
{
    struct ash_fabric_opts opts = {.path = ASH_FABRIC_OFI, .address = "127.0.0.1"};
    struct ash_fabric *fabric = NULL;

    if (!has_network() || ash_fabric_open(&opts, &fabric, NULL) < 0) return false;
    ash_fabric_close(fabric);
    return true;
}

/* ---- losses ------------------------------------------------------------------------------------------------------ */

/* Calls without end (of *arg elements); the error that ends them is written down. */
static inline int call_until_lost(struct ash_group *group, struct shared *shared, const void *arg)
{
    size_t rank = ash_group_rank(group), count = *(const size_t *)arg;
    float *data = calloc(count, sizeof(*data));
    struct ash_err err = {0};
    int rc = 0;

    while (rc == 0)
        rc = ash_group_all_reduce(group, data, data, count, ASH_COLL_F32, ASH_COLL_SUM, &err);
    atomic_store(&shared->noticed_ns[rank], ash_clock_ns());
    memcpy(shared->text[rank], err.text, sizeof(err.text));
    atomic_store(&shared->code[rank], rc);
    free(data);
    return 0;
}

/* Wait until all ranks have joined and make calls. */
static inline void wait_joined(const struct job *job, struct shared *shared)
{
    uint64_t limit_ns = ash_clock_ns() + RANKS_PATIENCE_NS;

    while (atomic_load(&shared->joined) < job->size) {
        if (ash_clock_ns() > limit_ns) fail_msg("%zu of %zu ranks have joined", (size_t)shared->joined, job->size);
        usleep(1000);
    }
    usleep(30000); /* into the calls */
}

/* A rank's error must hold this text. */
static inline void expect_text(const struct shared *shared, size_t rank, const char *text)
{
    if (strstr(shared->text[rank], text) == NULL) fail_msg("rank %zu says: %s", rank, shared->text[rank]);
}

/* A signal that hits one rank while all make calls. */
struct signal_case {
    size_t size, victim;
    int signal_number;
    double silent_s, limit_s;
    size_t count;
    const char *nodes;
    int algorithm;
};

/* The error in how a rank was notified of the loss, or NULL. */
static inline const char *heard_wrong(const struct signal_case *test, struct shared *shared, size_t r, uint64_t sent_ns)
{
    static char text[ASH_ERR_TEXT_BYTES + 128];
    double took_s = (double)(shared->noticed_ns[r] - sent_ns) * 1e-9;
    char name[32];

    snprintf(name, sizeof(name), "rank %zu", test->victim);
    if (shared->code[r] == -ECONNRESET && strstr(shared->text[r], name) != NULL && took_s < test->limit_s) return NULL;
    snprintf(text, sizeof(text), "rank %zu ends with %d after %.2f s: %s", r, shared->code[r], took_s, shared->text[r]);
    return text;
}

/* One job, one signal. Returns the error, or NULL. */
static inline const char *try_signal(const struct signal_case *test)
{
    struct job job = {.size = test->size,
                      .silent_s = test->silent_s,
                      .call_s = 120,
                      .run = call_until_lost,
                      .arg = &test->count,
                      .nodes = test->nodes,
                      .algorithm = test->algorithm};
    struct shared *shared = start(&job);
    const char *wrong = NULL;
    uint64_t sent_ns;

    wait_joined(&job, shared);
    sent_ns = ash_clock_ns();
    kill(shared->pids[test->victim], test->signal_number);
    for (size_t r = 0; r < test->size; r++) {
        if (r == test->victim) continue;
        waitpid(shared->pids[r], NULL, 0);
        if (wrong == NULL) wrong = heard_wrong(test, shared, r, sent_ns);
    }
    kill(shared->pids[test->victim], SIGKILL);
    waitpid(shared->pids[test->victim], NULL, 0);
    end(shared);
    return wrong;
}

/* The others must name it in time. A machine that is busy with something else may keep a rank waiting for longer than
 * a signal case allows, so it has some tries. */
static inline void check_signal(const struct signal_case *test)
{
    const char *wrong = "";

    for (int i = 0; i < SIGNAL_TRIES && wrong != NULL; i++) {
        wrong = try_signal(test);
        if (wrong != NULL) print_message("try %d: %s\n", i + 1, wrong);
    }
    assert_null(wrong);
}

/* One job in which ranks wait in vain for one that lives but does not come. Returns the error, or NULL. */
static inline const char *try_late(const struct job *job, size_t late)
{
    static char text[ASH_ERR_TEXT_BYTES + 128];
    struct shared *shared = start(job);
    const char *wrong = NULL;
    char name[32];

    snprintf(name, sizeof(name), "for rank %zu", late);
    assert_int_equal(finish(job, shared, SIZE_MAX), 0);
    for (size_t r = 0; r < job->size && wrong == NULL; r++) {
        if (r == late || (shared->code[r] == -ETIMEDOUT && strstr(shared->text[r], name) != NULL)) continue;
        snprintf(text, sizeof(text), "rank %zu ends with %d: %s", r, shared->code[r], shared->text[r]);
        wrong = text;
    }
    end(shared);
    return wrong;
}

/* All ranks but the late one must name it after job.call_s. On a busy machine another rank may be late as well: each try
 * waits five times as long. */
static inline void check_late(struct job job, size_t late)
{
    const char *wrong = try_late(&job, late);

    for (int i = 1; i < SIGNAL_TRIES && wrong != NULL; i++) {
        print_message("after %g s: %s\n", job.call_s, wrong);
        job.call_s *= 5;
        wrong = try_late(&job, late);
    }
    assert_null(wrong);
}

#endif
