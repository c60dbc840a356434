/* Faults at random points, from a seed: in each of many rounds a few processes meet and make random calls until one of
 * them is killed, hangs, makes another call, gives up or leaves, or the cable of a node is pulled. Every other
 * one must name the failed_rank (on both sides of a cut: a rank of the other side), in bounded time, and nothing may be
 * left behind. Times are bounded generously and culprits strictly, so that a loaded machine changes nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <sys/time.h>

#include "base/assert.h"
#include "base/rng.h"
#include "collective/call.h"
#include "collective/net/net.h"
#include "harness/group_ranks.h"
#include "harness/networks.h"
#include "unit/sanitized.h"

#define SEED 20261115
#define ROUNDS (SANITIZED ? 20 : 100)
#define ROUNDS_ACROSS 10 /* over several nodes: their endpoints take a moment to open */
#define AT_ONCE 12       /* rounds in which a rank is silent: they wait more than they work */
#define SILENT_S 1.5     /* in those; in others no rank is silent for long */
#define PATIENCE_S 60    /* for everything that should not take time */
#define HEARD_S 20       /* until the last survivor knows; far more than it takes */
#define CALLS_BEFORE 40  /* the fault comes in one of the first CALLS_BEFORE calls */
#define DELAY_US 400     /* signals come up to so long after the call has begun */
#define COUNT_MAX 300000 /* elements */

enum fault { KILLED, STOPPED, MISMATCHED, ABORTED, LEFT, CUT, FAULTS };
static const char *const fault_names[] = {"killed", "stopped", "mismatched", "aborted", "left", "cut"};

struct plan {
    uint64_t round;
    enum fault fault;
    const char *nodes; /* where there are cables: a letter for the node of each rank */
    size_t victim;     /* cut: its node is */
    uint64_t call;     /* before which it happens, */
    uint64_t delay;    /* or this many microseconds later */
};

static uint64_t draw(uint64_t round, uint64_t what, uint64_t below)
{
    return ash_rng_below(SEED, round, what, below);
}

/* ---- one rank ---------------------------------------------------------------------------------------------------- */

enum kind { BARRIER, ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, ALL_TO_ALL, RING, STARTED, KINDS };

static bool all_to_alls_only; /* instead of a draw */

struct buffers {
    int32_t in[COUNT_MAX + 64], out[COUNT_MAX + 64];
};

static int all_to_all(struct ash_group *group, struct buffers *b, size_t count, struct ash_err *err)
{
    size_t sizes[GROUP_RANKS_MAX];

    for (size_t r = 0; r < ash_group_size(group); r++)
        sizes[r] = count / ash_group_size(group) * 4;
    if (count % 2 == 1) sizes[ash_group_rank(group)] += 4; /* what stays here does not count */
    return ash_group_all_to_all(group, b->in, sizes, b->out, sizes, err);
}

/* To the next rank, from the one before. */
static int ring(struct ash_group *group, struct buffers *b, size_t count, struct ash_err *err)
{
    size_t rank = ash_group_rank(group), size = ash_group_size(group);
    struct ash_call *send = NULL;
    int rc = ash_group_send_start(group, (rank + 1) % size, b->in, count * 4, &send, err), sent;

    if (rc < 0) return rc;
    rc = ash_group_recv(group, (rank + size - 1) % size, b->out, count * 4, err);
    sent = ash_call_wait(send, rc == 0 ? err : NULL);
    return rc != 0 ? rc : sent;
}

static int make_call(struct ash_group *group, struct buffers *b, enum kind kind, size_t count, struct ash_err *err)
{
    size_t size = ash_group_size(group), root = count % size;
    struct ash_call *call = NULL;
    int rc;

    switch (kind) {
    case ALL_REDUCE:
        return ash_group_all_reduce(group, b->in, b->out, count, ASH_COLL_I32, ASH_COLL_SUM, err);
    case REDUCE_SCATTER:
        return ash_group_reduce_scatter(group, b->in, b->out, count / size, ASH_COLL_I32, ASH_COLL_SUM, err);
    case ALL_GATHER:
        return ash_group_all_gather(group, b->in, b->out, count / size * 4, err);
    case BROADCAST:
        return ash_group_broadcast(group, b->out, count * 4, root, err);
    case ALL_TO_ALL:
        return all_to_all(group, b, count, err);
    case RING:
        return ring(group, b, count, err);
    case STARTED:
        rc = ash_group_all_reduce_start(group, b->in, b->out, count, ASH_COLL_I32, ASH_COLL_MAX, &call, err);
        return rc < 0 ? rc : ash_call_wait(call, err);
    default:
        return ash_group_barrier(group, err);
    }
}

static size_t count_of(uint64_t round, uint64_t call)
{
    static const size_t limits[] = {8, 8, 300, 5000, 5000, COUNT_MAX};

    return 1 + draw(round, 1000 + 3 * call, limits[draw(round, 1001 + 3 * call, ASH_COUNT(limits))]);
}

static volatile sig_atomic_t deadly_signal;

static void strike(int signal_number)
{
    (void)signal_number;
    raise(deadly_signal);
}

static void strike_after(int signal_number, uint64_t delay_us)
{
    const struct itimerval timer = {.it_value = {.tv_usec = (suseconds_t)delay_us + 1}};

    deadly_signal = signal_number;
    signal(SIGALRM, strike);
    setitimer(ITIMER_REAL, &timer, NULL);
}

/* What the victim does before its call. Returns true when it has left. */
static bool misbehave(struct ash_group *group, const struct plan *plan)
{
    if (plan->fault == KILLED) strike_after(SIGKILL, plan->delay);
    if (plan->fault == STOPPED) strike_after(SIGSTOP, plan->delay);
    if (plan->fault == ABORTED) {
        char why[64];

        snprintf(why, sizeof(why), "rank %zu gives up: it has had enough", plan->victim);
        ash_group_abort(group, why);
    }
    return plan->fault == LEFT;
}

static int play(struct ash_group *group, struct shared *shared, const void *arg)
{
    const struct plan *plan = arg;
    size_t rank = ash_group_rank(group), size = ash_group_size(group);
    struct buffers *buffers = calloc(1, sizeof(*buffers));
    struct ash_err err = {0};
    int rc = 0;

    for (uint64_t call = 0; rc == 0; call++) {
        enum kind kind = all_to_alls_only ? ALL_TO_ALL : (enum kind)draw(plan->round, 1002 + 3 * call, KINDS);
        size_t count = count_of(plan->round, call);
        bool strikes = rank == plan->victim && call == plan->call;

        atomic_store(&shared->calls[rank], call + 1);
        if (strikes && misbehave(group, plan)) break;
        if (strikes && plan->fault == MISMATCHED) {
            if (kind == BARRIER) kind = ALL_REDUCE;
            count += size; /* another size, also where it is divided by ranks */
        }
        rc = make_call(group, buffers, kind, count, &err);
    }
    atomic_store(&shared->noticed_ns[rank], ash_clock_ns());
    memcpy(shared->text[rank], err.text, sizeof(err.text));
    atomic_store(&shared->code[rank], rc);
    free(buffers);
    return 0;
}

/* ---- one round --------------------------------------------------------------------------------------------------- */

struct round {
    struct plan plan;
    struct job job;
    struct shared *shared;
    struct ash_netns *netns;
    uint64_t began_ns;
};

/* Pull the cable of the victim's node when the victim has come to its call. */
static void cut_cable(const struct round *round)
{
    const struct plan *plan = &round->plan;
    uint64_t limit_ns = ash_deadline_in(HEARD_S);
    struct ash_err err = {0};

    while (atomic_load(&round->shared->calls[plan->victim]) <= plan->call && ash_clock_ns() < limit_ns)
        usleep(100);
    usleep((useconds_t)plan->delay);
    if (ash_netns_cut(round->netns, (size_t)(plan->nodes[plan->victim] - 'a'), &err) < 0) fail_msg("%s", err.text);
}

static int algorithm; /* of groups over several nodes, enum ash_net_algorithm */

static void start_round(struct round *round, uint64_t number, enum fault fault)
{
    static const char *const placements[2][3] = {{"aab", "abb", "abc"}, {"aabb", "abac", "abbc"}}; /* of 3, of 4 */
    size_t size = 3 + draw(number, 1, 2);

    *round = (struct round){.plan = {.round = number,
                                     .fault = fault,
                                     .nodes = placements[size - 3][draw(number, 5, 3)],
                                     .victim = draw(number, 2, size),
                                     .call = draw(number, 3, CALLS_BEFORE),
                                     .delay = draw(number, 4, DELAY_US)},
                            .netns = fault == CUT ? open_networks(3) : NULL,
                            .began_ns = ash_clock_ns()};
    assert_true(fault != CUT || round->netns != NULL);
    round->job = (struct job){.size = size,
                              .silent_s = fault == STOPPED || fault == CUT ? SILENT_S : PATIENCE_S,
                              .call_s = PATIENCE_S,
                              .run = play,
                              .arg = &round->plan,
                              .nodes = fault == CUT ? round->plan.nodes : NULL,
                              .algorithm = algorithm,
                              .netns = round->netns};
    round->shared = start(&round->job);
    if (fault == CUT) cut_cable(round);
}

static bool right_code(enum fault fault, int code)
{
    if (fault == MISMATCHED) return code == -EPROTO;
    if (fault == LEFT) return code == -EPROTO || code == -EPIPE;
    return code == -ECONNRESET;
}

/* Does the sentence name who it should? A cut has two sides, each of which names one of the other. */
static bool right_culprit(const struct plan *plan, size_t rank, size_t size, const char *text)
{
    const char *nodes = plan->nodes, *name = strstr(text, "rank ");
    size_t named = SIZE_MAX;
    char failed_rank[32];

    if (plan->fault == CUT)
        return name != NULL && sscanf(name, "rank %zu", &named) == 1 && named < size &&
               (nodes[named] == nodes[plan->victim]) != (nodes[rank] == nodes[plan->victim]);
    snprintf(failed_rank, sizeof(failed_rank), "rank %zu", plan->victim);
    return strstr(text, failed_rank) != NULL && (plan->fault != ABORTED || strstr(text, "had enough") != NULL);
}

static void check_survivor(const struct round *round, size_t rank)
{
    const struct plan *plan = &round->plan;
    struct shared *shared = round->shared;
    double heard_s = (double)(shared->noticed_ns[rank] - round->began_ns) * 1e-9;

    if (!right_code(plan->fault, shared->code[rank]) ||
        !right_culprit(plan, rank, round->job.size, shared->text[rank]) || heard_s > HEARD_S)
        fail_msg("round %llu (%s, rank %zu of %zu, nodes %s, call %llu): rank %zu says after %.1f s: %d, %s",
                 (unsigned long long)plan->round, fault_names[plan->fault], plan->victim, round->job.size, plan->nodes,
                 (unsigned long long)plan->call, rank, heard_s, shared->code[rank], shared->text[rank]);
}

/* Wait for the survivors, then put an end to the victim, and see what they said. Of a cut, all are survivors. */
static void finish_round(struct round *round)
{
    size_t victim = round->plan.fault == CUT ? SIZE_MAX : round->plan.victim;
    int status = 0;

    for (size_t r = 0; r < round->job.size; r++) {
        if (r == victim) continue;
        assert_int_equal(waitpid(round->shared->pids[r], &status, 0), round->shared->pids[r]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    if (round->plan.fault == STOPPED) kill(round->shared->pids[victim], SIGKILL);
    if (victim != SIZE_MAX)
        assert_int_equal(waitpid(round->shared->pids[victim], &status, 0), round->shared->pids[victim]);
    for (size_t r = 0; r < round->job.size; r++)
        if (r != victim) check_survivor(round, r);
    ash_netns_close(round->netns);
    end(round->shared);
}

/* ---- what is left behind ----------------------------------------------------------------------------------------- */

static size_t entries(const char *path)
{
    DIR *dir = opendir(path);
    size_t count = 0;

    while (dir != NULL && readdir(dir) != NULL)
        count++;
    if (dir != NULL) closedir(dir);
    return count;
}

#define NAMES_MAX 64

/* The names of segments that have one. */
struct names {
    char text[NAMES_MAX][256];
    size_t count;
};

static void list_segments(struct names *names)
{
    DIR *dir = opendir("/dev/shm");
    const struct dirent *entry;

    names->count = 0;
    while (dir != NULL && names->count < NAMES_MAX && (entry = readdir(dir)) != NULL)
        snprintf(names->text[names->count++], sizeof(names->text[0]), "%s", entry->d_name);
    if (dir != NULL) closedir(dir);
}

static size_t count_new(const struct names *before)
{
    struct names now;
    size_t found = 0;

    list_segments(&now);
    for (size_t i = 0; i < now.count; i++)
        for (size_t k = 0; k < before->count; k++)
            found += strcmp(now.text[i], before->text[k]) == 0;
    return now.count - found;
}

/* Other programs of this machine make segments too, and take them away again: what is left behind stays. */
static bool all_gone(const struct names *before)
{
    uint64_t limit_ns = ash_deadline_in(HEARD_S);

    while (count_new(before) > 0 && ash_clock_ns() < limit_ns)
        usleep(50000);
    return count_new(before) == 0;
}

/* Anonymous segments that any process of this test still maps, this one included: all others have ended. */
static size_t segments(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    size_t count = 0;

    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL)
        count += strstr(line, "ashlar-") != NULL;
    if (maps != NULL) fclose(maps);
    return count;
}

/* Which fault a round has: in most of them no rank is silent, which costs a second, and no rank is cut off without
 * cables. */
static enum fault choose_fault(uint64_t number, bool cables)
{
    static const enum fault others[] = {MISMATCHED, KILLED, KILLED};
    uint64_t drawn = draw(number, 0, FAULTS + ASH_COUNT(others));
    enum fault fault = drawn < FAULTS ? (enum fault)drawn : others[drawn - FAULTS];

    return fault == CUT && !cables ? KILLED : fault;
}

static void make_faults(uint64_t rounds, bool cables)
{
    size_t descriptors = entries("/proc/self/fd"), links = entries("/sys/class/net");
    struct names named;
    struct round waiting[AT_ONCE];
    size_t wait_count = 0, counts[FAULTS] = {0};

    list_segments(&named);
    for (uint64_t number = 0; number < rounds; number++) {
        enum fault fault = choose_fault(number, cables);
        bool silent = fault == STOPPED || fault == CUT;
        struct round round;

        counts[fault]++;
        start_round(silent ? &waiting[wait_count] : &round, number, fault);
        if (!silent) finish_round(&round);
        if (silent && ++wait_count < AT_ONCE) continue;
        for (; silent && wait_count > 0; wait_count--)
            finish_round(&waiting[wait_count - 1]);
    }
    for (; wait_count > 0; wait_count--)
        finish_round(&waiting[wait_count - 1]);
    for (enum fault fault = KILLED; fault < FAULTS; fault++)
        print_message("%s%s %zu", fault == KILLED ? "" : ", ", fault_names[fault], counts[fault]);
    print_message("\n");
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no process */
    assert_int_equal(errno, ECHILD);
    assert_int_equal(entries("/proc/self/fd"), descriptors); /* no socket */
    assert_true(all_gone(&named));                           /* no segment, */
    assert_int_equal(segments(), 0);                         /* with a name or without */
    assert_int_equal(entries("/sys/class/net"), links);      /* no cable: networks without a name are gone with these */
}

static void test_faults(void **state)
{
    struct ash_netns *netns = has_network() ? open_networks(2) : NULL;

    (void)state;
    ash_netns_close(netns);
    make_faults(ROUNDS, netns != NULL);
}

static void test_faults_across(void **state)
{
    (void)state;
    if (!start_network()) skip();
    default_nodes = "aab";
    make_faults(ROUNDS_ACROSS, false);
    algorithm = ASH_NET_HIERARCHICAL; /* of small ones and large, in bundles */
    all_to_alls_only = true;
    make_faults(ROUNDS_ACROSS, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_faults), cmocka_unit_test(test_faults_across)};

    become_root();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
