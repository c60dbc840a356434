/* Laws of the policy on drawn clusters. An observer keeps its own plain books of hosts and queues and checks every
 * decision; and first-come first-served with reservations on whole hosts starts jobs when a plain scheduler of a few
 * lines does. */
#include "cluster.h"

#include <math.h>

#include "base/rng.h"
#include "unit/sanitized.h"

#define ROUNDS (SANITIZED ? 12 : 40)
#define DRAWN 120

struct book {
    struct cluster *c;
    uint64_t seed;
    struct ash_policy_job jobs[JOBS_MAX];
    bool is_running[JOBS_MAX];
    int free_gpus[HOSTS_MAX];
    int held[JOBS_MAX][HOSTS_MAX], held_count[JOBS_MAX];
    double start_s[JOBS_MAX], now_s;
    double promised_s; /* of the first reservation, while nothing but time passed */
    uint64_t promised_key;
    int stops_of[64][64]; /* by keys modulo 64: who stopped whom */
};

static void release(struct book *book, uint64_t key)
{
    for (int i = 0; i < book->held_count[key]; i++)
        book->free_gpus[book->held[key][i]] += book->jobs[key].gpus;
    book->held_count[key] = 0;
    book->is_running[key] = false;
}

/* All of a gang or nothing, on different hosts, inside the required domain, nothing over capacity. */
static void check_start(struct book *book, const struct ash_policy_decision *decision)
{
    const struct ash_policy_job *job = &book->jobs[decision->key];
    const struct ash_topology *topology = book->c->topology;
    int domain = book->c->hosts[decision->hosts[0]].node;

    assert_false(book->is_running[decision->key]);
    assert_int_equal(decision->host_count, job->nodes + job->spares);
    for (int i = 0; i < decision->host_count; i++) {
        book->free_gpus[decision->hosts[i]] -= job->gpus;
        if (book->free_gpus[decision->hosts[i]] < 0)
            fail_msg("seed %d: host %d is over its capacity", (int)book->seed, decision->hosts[i]);
        for (int k = 0; k < i; k++)
            assert_int_not_equal(decision->hosts[i], decision->hosts[k]);
        domain = ash_topology_meet(topology, domain, book->c->hosts[decision->hosts[i]].node);
        book->held[decision->key][i] = decision->hosts[i];
    }
    if (job->required > 0) assert_true(topology->nodes[domain].height <= job->required);
    for (int i = 0; job->group > 0 && i < job->nodes; i++)
        assert_int_equal(topology->nodes[book->c->hosts[decision->hosts[i]].node].parent,
                         topology->nodes[book->c->hosts[decision->hosts[i / job->group * job->group]].node].parent);
    book->held_count[decision->key] = decision->host_count;
    book->is_running[decision->key] = true;
    book->start_s[decision->key] = book->now_s;
}

static void observe(void *ctx, const struct ash_policy_decision *decision)
{
    struct book *book = ctx;

    if (decision->act == ASH_POLICY_START) {
        check_start(book, decision);
        return;
    }
    assert_int_equal(decision->act, ASH_POLICY_STOP);
    assert_true(book->is_running[decision->key]);
    release(book, decision->key);
    book->stops_of[decision->by % 64][decision->key % 64]++;
}

static struct ash_policy_job draw_job(const struct book *book, uint64_t key)
{
    uint64_t seed = book->seed;
    struct ash_policy_job job = {.key = key, .gpu_milli = 1000, .user = (int)ash_rng_below(seed, 1, key, 3)};

    job.gpus = 1 << ash_rng_below(seed, 2, key, 3);
    job.nodes = ash_rng_below(seed, 3, key, 3) == 0 ? 1 + (int)ash_rng_below(seed, 4, key, 8) : 1;
    job.limit_s = 100 * (1 + (double)ash_rng_below(seed, 5, key, 20));
    job.queue = 1 + (int)ash_rng_below(seed, 6, key, 2);
    job.class = (int)ash_rng_below(seed, 7, key, 3);
    if (job.nodes > 1 && ash_rng_below(seed, 8, key, 3) == 0) job.required = 1 + (int)ash_rng_below(seed, 9, key, 2);
    if (job.nodes % 2 == 0 && ash_rng_below(seed, 10, key, 4) == 0) job.group = 2;
    return job;
}

/* Nothing over quota: the two queues and what they may borrow. */
static void check_quotas(const struct book *book)
{
    int64_t used_a = ash_policy_queue_used(book->c->policy, 1), used_b = ash_policy_queue_used(book->c->policy, 2);

    if (book->c->conf.queues[1].has_quota) {
        assert_true(used_a + used_b <= 64000);
        assert_true(used_a <= 40000 + 8000 && used_b <= 24000 + 16000);
    }
}

static void run_drawn(const char *policy, uint64_t seed)
{
    static struct book book;
    int waiting_number[JOBS_MAX];
    int left = 0;

    book = (struct book){.seed = seed, .promised_key = UINT64_MAX};
    book.c =
        open_cluster("SwitchName=r0 Nodes=n[0-3]\nSwitchName=r1 Nodes=n[4-7]\nSwitchName=r2 Nodes=n[8-11]\n"
                     "SwitchName=r3 Nodes=n[12-15]\nSwitchName=b0 Switches=r[0-1]\nSwitchName=b1 Switches=r[2-3]\n",
                     4, policy);
    ash_policy_listen(book.c->policy, observe, &book);
    for (int i = 0; i < book.c->host_count; i++)
        book.free_gpus[i] = 4;
    for (uint64_t step = 1; step <= DRAWN || left > 0; step++) {
        if (step > 20 * DRAWN) fail_msg("seed %d: %d jobs never started", (int)seed, left);
        book.now_s += 20;
        for (uint64_t key = 1; key <= DRAWN; key++) { /* ends: at the limit, or early */
            bool is_early = ash_rng_below(seed, 11, step * DRAWN + key, 30) == 0;

            if (!book.is_running[key] || (book.now_s < book.start_s[key] + book.jobs[key].limit_s && !is_early))
                continue;
            release(&book, key);
            ash_policy_end(book.c->policy, waiting_number[key], book.now_s);
            left--;
        }
        if (step <= DRAWN) {
            struct ash_err err = {0};

            book.jobs[step] = draw_job(&book, step);
            waiting_number[step] = ash_policy_submit(book.c->policy, &book.jobs[step], book.now_s, &err);
            if (waiting_number[step] < 0) assert_true(err.text[0] != '\0'); /* told at once */
            left += waiting_number[step] >= 0;
        }
        assert_int_equal(ash_policy_pass(book.c->policy, book.now_s), 0);
        check_quotas(&book);
    }
    for (int a = 0; a < 64; a++) /* no two stop each other in turn */
        for (int b = 0; b < 64; b++)
            assert_false(a != b && DRAWN < 64 && book.stops_of[a][b] > 0 && book.stops_of[b][a] > 0);
    close_cluster(book.c);
}

#define CLASSES "classes: [{name: low, priority: 1}, {name: mid, priority: 5}, {name: high, priority: 9}]\n"
#define FREE "queues: [{name: t}, {name: a, parent: t}, {name: b, parent: t}]\n"
#define QUOTAS                                                                                                         \
    "queues: [{name: t}, {name: a, parent: t, gpus: 40, borrow: 8}, {name: b, parent: t, gpus: 24, borrow: 16}]\n"

static void test_drawn(void **state)
{
    static const char *const policies[] = {
        "preset: fifo\ninterval: 0\n" FREE CLASSES,
        "preset: easy\ninterval: 0\n" FREE CLASSES,
        "preset: conservative\ninterval: 0\n" FREE CLASSES,
        "preset: slurm\ninterval: 0\n" FREE CLASSES,
        "preset: kueue\ninterval: 0\n" QUOTAS CLASSES,
        "preset: ashlar\ninterval: 0\npreempt: {protect: 50s}\n" QUOTAS CLASSES,
    };

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(policies); i++)
        for (uint64_t seed = 1; seed <= ROUNDS / 4; seed++)
            run_drawn(policies[i], seed);
}

/* ---- a plain scheduler ------------------------------------------------------------------------------------------- */

struct plain {
    int nodes[DRAWN];
    double submit_s[DRAWN], run_s[DRAWN], limit_s[DRAWN], start_s[DRAWN];
};

static int used_at(const struct plain *plain, double now_s, double *next_out, double after_s)
{
    int used = 0;

    for (int i = 0; i < DRAWN; i++) {
        if (plain->start_s[i] < 0 || plain->start_s[i] + plain->run_s[i] <= now_s) continue;
        used += plain->nodes[i];
        if (plain->start_s[i] + plain->limit_s[i] > after_s)
            *next_out = fmin(*next_out, plain->start_s[i] + plain->limit_s[i]);
    }
    return used;
}

/* Hosts that are free at a time, if all that runs now goes to its limit. */
static int free_at(const struct plain *plain, int hosts, double now_s, double then_s)
{
    for (int i = 0; i < DRAWN; i++)
        if (plain->start_s[i] >= 0 && plain->start_s[i] + plain->run_s[i] > now_s &&
            plain->start_s[i] + plain->limit_s[i] > then_s)
            hosts -= plain->nodes[i];
    return hosts;
}

/* When the first that waits could start, and how many hosts it would leave then. */
static double shadow_of(const struct plain *plain, int hosts, int first, double now_s, int *spare_out)
{
    double then_s = now_s;

    while (free_at(plain, hosts, now_s, then_s) < plain->nodes[first]) {
        double next = INFINITY;

        used_at(plain, now_s, &next, then_s);
        then_s = next;
    }
    *spare_out = free_at(plain, hosts, now_s, then_s) - plain->nodes[first];
    return then_s;
}

/* EASY over whole hosts of one switch: the textbook's. */
static void pass_plain(struct plain *plain, int hosts, double now_s, bool wants_backfill)
{
    int first = -1, spare = 0;
    double shadow_s = 0, unused = INFINITY;

    for (int i = 0; i < DRAWN; i++) {
        int open = hosts - used_at(plain, now_s, &unused, 0);

        if (plain->submit_s[i] > now_s || plain->start_s[i] >= 0) continue;
        if (first < 0 && plain->nodes[i] <= open) {
            plain->start_s[i] = now_s;
        } else if (first < 0) {
            first = i;
            shadow_s = shadow_of(plain, hosts, i, now_s, &spare);
            if (!wants_backfill) return;
        } else if (plain->nodes[i] <= open && now_s + plain->limit_s[i] <= shadow_s) {
            plain->start_s[i] = now_s;
        } else if (plain->nodes[i] <= open && plain->nodes[i] <= spare) {
            plain->start_s[i] = now_s;
            spare -= plain->nodes[i];
        }
    }
}

static void check_plain(const char *preset, bool wants_backfill, uint64_t seed)
{
    static struct plain plain;
    struct cluster *c = open_cluster("SwitchName=s Nodes=n[0-15]\n", 1, preset);
    double earliest_s = INFINITY;
    int number[DRAWN], later = 0;

    for (int i = 0; i < DRAWN; i++) {
        uint64_t key = (uint64_t)i;

        plain.nodes[i] = 1 + (int)ash_rng_below(seed, 20, key, ash_rng_below(seed, 21, key, 3) == 0 ? 16 : 4);
        plain.submit_s[i] = 10 * i;
        plain.limit_s[i] = 10 * (1 + (double)ash_rng_below(seed, 22, key, 40));
        plain.run_s[i] = plain.limit_s[i];
        plain.start_s[i] = -1;
    }
    for (double now_s = 0; now_s < 60000; now_s += 10) {
        for (int i = 0; i < DRAWN; i++)
            if (c->started[i] == 1 && plain.start_s[i] >= 0 && plain.start_s[i] + plain.run_s[i] == now_s)
                ash_policy_end(c->policy, number[i], now_s);
        if (now_s < 10 * DRAWN) {
            int i = (int)(now_s / 10);
            struct ash_policy_job job = {
                .key = (uint64_t)i, .nodes = plain.nodes[i], .gpus = 1, .gpu_milli = 1000, .limit_s = plain.limit_s[i]};

            number[i] = ash_policy_submit(c->policy, &job, now_s, NULL);
        }
        pass_plain(&plain, 16, now_s, wants_backfill);
        assert_int_equal(ash_policy_pass(c->policy, now_s), 0);
        for (int i = 0; i < DRAWN; i++)
            if ((c->started[i] > 0) != (plain.start_s[i] >= 0)) earliest_s = fmin(earliest_s, now_s);
        if (isfinite(earliest_s))
            fail_msg("seed %d: at %g s the policy and the plain scheduler differ", (int)seed, earliest_s);
    }
    for (int i = 0; i < DRAWN; i++)
        later += plain.start_s[i] < 0;
    assert_int_equal(later, 0);
    close_cluster(c);
}

static void test_as_plain(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= ROUNDS / 4; seed++) {
        check_plain("preset: fifo\ninterval: 0\n", false, seed);
        check_plain("preset: easy\ninterval: 0\n", true, seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_drawn), cmocka_unit_test(test_as_plain)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
