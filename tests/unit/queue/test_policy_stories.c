/* Stories that other schedulers tell of themselves, replayed: what they promise must come out here too. */
#include "cluster.h"

#define FLAT "SwitchName=s Nodes=n[0-3]\n"
#define CLASSES                                                                                                        \
    "classes: [{name: inference, priority: 90}, {name: experimentation, priority: 80}, {name: training, priority: "    \
    "70}, {name: fine-tuning, priority: 50}]\n"

/* S1, KAI: the fullest zone that fits, its racks filled one after the other. */
static void test_s1_required_zone_preferred_rack(void **state)
{
    struct cluster *c = open_cluster("a1 A/A1\na2 A/A1\na3 A/A2\na4 A/A3\na5 A/A4\n"
                                     "b1 B/B1\nb2 B/B1\nb3 B/B2\nb4 B/B2\nb5 B/B3\nb6 B/B3\n",
                                     1, "preset: greedy\n");
    struct ash_policy_job job = job_of(c, 'j', NULL, 3, 1);

    (void)state;
    job.required = 2;
    job.preferred = 1;
    submit(c, job, 0);
    assert_pass(c, 0, "+j");
    assert_string_equal(rack_of(c, 'j', 0), "A/A1");
    assert_string_equal(rack_of(c, 'j', 1), "A/A1");
    assert_string_equal(rack_of(c, 'j', 2), "A/A2");
    close_cluster(c);
}

/* S2, Kueue: nominal, borrowing limit, lending limit; the owner is served first. */
static void test_s2_borrowing_and_lending(void **state)
{
    static const struct {
        const char *a, *b;
        int expected;
    } cases[] = {{"", "", 21}, {", borrow: 1", "", 10}, {"", ", lend: 1", 10}};
    char policy[400];

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        struct cluster *c;

        snprintf(policy, sizeof(policy),
                 "preset: kueue\nqueues: [{name: team}, {name: a, parent: team, gpus: 9%s}, {name: b, parent: team, "
                 "gpus: 12%s}]\n",
                 cases[i].a, cases[i].b);
        c = open_cluster("SwitchName=s Nodes=n[0-3]\n", 8, policy);
        for (char key = 'A'; key < 'A' + 24; key++)
            submit(c, job_of(c, key, "a", 1, 1), 0);
        ash_policy_pass(c->policy, 0);
        assert_int_equal(ash_policy_queue_used(c->policy, 1) / 1000, cases[i].expected);
        if (i == 0) { /* b asks: it is served first, and what a borrowed is reclaimed */
            submit(c, job_of(c, 'x', "b", 1, 8), 1);
            submit(c, job_of(c, 'y', "a", 1, 1), 1);
            ash_policy_pass(c->policy, 1);
            assert_int_equal(c->started['x'], 1);
            assert_int_equal(c->started['y'], 0);
            assert_int_equal(ash_policy_queue_used(c->policy, 1) / 1000, 13);
            assert_int_equal(why(c, 'y').reason, ASH_POLICY_WAITS_QUOTA);
        }
        close_cluster(c);
    }
}

/* S3, HyperPod governance: what is borrowed goes back, what is one's own stays. */
static void test_s3_governance(void **state)
{
    struct cluster *c =
        open_cluster(FLAT, 8,
                     "preset: kueue\n" CLASSES "queues: [{name: pool}, {name: a, parent: pool, gpus: 16, borrow: 8}, "
                     "{name: b, parent: pool, gpus: 16, borrow: 8}]\n");
    struct ash_policy_job job;

    (void)state;
    for (char key = 'p'; key <= 'r'; key++) {
        job = job_of(c, key, "a", 1, 8);
        job.class = 2;
        submit(c, job, 0);
    }
    assert_pass(c, 0, "+p+q+r");
    for (char key = 's'; key <= 't'; key++) {
        job = job_of(c, key, "b", 1, 8);
        job.class = 3;
        submit(c, job, 10);
    }
    assert_pass(c, 10, "+s-r+t"); /* one host was free, the other was borrowed */
    assert_int_equal(c->reason['t'], ASH_POLICY_BY_PREEMPTION);
    job = job_of(c, 'u', "b", 1, 8);
    job.class = 0;
    submit(c, job, 20);
    assert_pass(c, 20, "-t+u"); /* the newest of its own queue; never a's two */
    assert_int_equal(c->stopped_by['t'], 'u');
    close_cluster(c);
}

/* S4, Slurm QOS: a low job is requeued for research; a request above a cap is refused at once. */
static void test_s4_requeue_and_cap(void **state)
{
    struct cluster *c =
        open_cluster("SwitchName=s Nodes=n[0-1]\n", 8,
                     "preset: slurm\nclasses: [{name: low, priority: 1}, {name: research, priority: 10}]\n"
                     "queues: [{name: batch}, {name: interactive, max_job_gpus: 4}]\n");
    struct ash_policy_job job = job_of(c, 'l', "batch", 2, 8);

    (void)state;
    submit(c, job, 0);
    assert_pass(c, 0, "+l");
    job = job_of(c, 'r', "batch", 1, 8);
    job.class = 1;
    submit(c, job, 60);
    assert_pass(c, 60, "-l+r");
    assert_int_equal(why(c, 'l').reason, ASH_POLICY_WAITS_TURN);
    assert_refusal(c, job_of(c, 'i', "interactive", 1, 5), 61, "above the cap of 4 of queue interactive");
    submit(c, job_of(c, 'j', "interactive", 1, 4), 61);
    close_cluster(c);
}

/* S5, Kueue: borrowers first, then lowest priority, then newest; those that are not needed are kept. */
static void test_s5_order_of_victims(void **state)
{
    struct cluster *c =
        open_cluster("SwitchName=s Nodes=n0\n", 8,
                     "preset: kueue\nfair_share: none\nclasses: [{name: low, priority: 1}, {name: high, "
                     "priority: 9}]\nqueues: [{name: t}, {name: a, parent: t, gpus: 6}, {name: b, "
                     "parent: t, gpus: 2}]\n");
    struct ash_policy_job job;

    (void)state;
    submit(c, job_of(c, 'w', "a", 1, 1), 0); /* low, oldest */
    assert_pass(c, 0, "+w");
    submit(c, job_of(c, 'x', "a", 1, 3), 1); /* low, newer, large */
    assert_pass(c, 1, "+x");
    submit(c, job_of(c, 'y', "b", 1, 4), 2); /* borrows 2 */
    assert_pass(c, 2, "+y");
    job = job_of(c, 'z', "a", 1, 2);
    job.class = 1;
    submit(c, job, 3);
    assert_pass(c, 3, "-y+z"); /* the borrower, though x is of the same class */
    job = job_of(c, 'v', "a", 1, 3);
    job.class = 1;
    submit(c, job, 4);
    assert_pass(c, 4, "-x+v"); /* the newest; w was not needed */
    close_cluster(c);
}

/* S6, Kueue's fair sharing: by share of what is borrowed; two never take turns. */
static void test_s6_no_turns(void **state)
{
    struct cluster *c = open_cluster("SwitchName=s Nodes=n0\n", 8,
                                     "preset: kueue\nqueues: [{name: t}, {name: own, parent: t, gpus: 8}, {name: a, "
                                     "parent: t, gpus: 0}, {name: b, parent: t, gpus: 0}]\n");
    int stops = 0;

    (void)state;
    submit(c, job_of(c, 'p', "a", 1, 4), 0);
    submit(c, job_of(c, 'q', "a", 1, 4), 0);
    assert_pass(c, 0, "+p+q");
    submit(c, job_of(c, 'r', "b", 1, 4), 1);
    assert_pass(c, 1, "-q+r"); /* a has 8 of 8, b nothing */
    for (double now = 2; now < 20; now++) {
        c->log_length = 0;
        assert_int_equal(ash_policy_pass(c->policy, now), 0);
        stops += c->log_length > 0;
    }
    assert_int_equal(stops, 0); /* q would take from b what b just took */
    close_cluster(c);
}

/* S7, KAI: a queue below its fair share takes from one above it. */
static void test_s7_over_quota(void **state)
{
    struct cluster *c = open_cluster("SwitchName=s Nodes=n[0-1]\n", 8,
                                     "preset: kai\nqueues: [{name: a, gpus: 4, weight: 1}, {name: b, gpus: 4, weight: "
                                     "3}]\n");
    int used_a, used_b;

    (void)state;
    for (char key = 'a'; key < 'a' + 16; key++)
        submit(c, job_of(c, key, "a", 1, 1), 0);
    ash_policy_pass(c->policy, 0);
    assert_int_equal(ash_policy_queue_used(c->policy, 0), 16000);
    for (char key = 'A'; key < 'A' + 16; key++)
        submit(c, job_of(c, key, "b", 1, 1), 1);
    ash_policy_pass(c->policy, 1);
    used_a = (int)(ash_policy_queue_used(c->policy, 0) / 1000);
    used_b = (int)(ash_policy_queue_used(c->policy, 1) / 1000);
    assert_int_equal(used_a, 6); /* 4 deserved and a quarter of the 8 that are over */
    assert_int_equal(used_b, 10);
    close_cluster(c);
}

/* S8, KAI's elastic jobs: host by host down to the minimum, then the whole job. */
static void test_s8_elastic(void **state)
{
    struct cluster *c = open_cluster(
        "SwitchName=s Nodes=n[0-2]\n", 1,
        "preset: slurm\nclasses: [{name: low, priority: 1}, {name: high, priority: 9}]\npreempt: {protect: 60s}\n");
    struct ash_policy_job job = job_of(c, 'e', NULL, 3, 1);

    (void)state;
    job.min_nodes = 1;
    submit(c, job, 0);
    assert_pass(c, 0, "+e");
    for (char key = 'x'; key <= 'z'; key++) {
        job = job_of(c, key, NULL, 1, 1);
        job.class = 1;
        submit(c, job, key - 'x' + 1);
    }
    assert_pass(c, 10, ""); /* protected */
    assert_pass(c, 60, "~e+x~e+y-e+z");
    close_cluster(c);
}

/* S9, Volcano: a job stays inside tier 2; a larger one waits; partitions each inside a domain. */
static void test_s9_tiers(void **state)
{
    static const char tree[] = "SwitchName=s0 Nodes=n[0-1]\nSwitchName=s1 Nodes=n[2-3]\nSwitchName=s2 Nodes=n[4-5]\n"
                               "SwitchName=s3 Nodes=n[6-7]\nSwitchName=s4 Switches=s[0-1]\nSwitchName=s5 "
                               "Switches=s[2-3]\nSwitchName=s6 Switches=s[4-5]\n";
    struct cluster *c = open_cluster(tree, 1, "preset: greedy\n");
    struct ash_policy_job job = job_of(c, 'f', NULL, 4, 1);

    (void)state;
    job.required = 2;
    submit(c, job, 0);
    assert_pass(c, 0, "+f");
    assert_int_equal(ash_policy_spread(c->policy, c->number['f']), 2);
    job = job_of(c, 'g', NULL, 5, 1);
    job.required = 2;
    assert_refusal(c, job, 1, "the most that can is 4 nodes");
    ash_policy_end(c->policy, c->number['f'], 2);
    job = job_of(c, 'p', NULL, 8, 1);
    job.preferred = 2;
    job.group = 4;
    submit(c, job, 3);
    assert_pass(c, 3, "+p");
    for (int i = 0; i < 8; i++)
        assert_int_equal(ash_topology_holds(c->topology,
                                            ash_topology_meet(c->topology, c->hosts[c->placed['p'][0]].node,
                                                              c->hosts[c->placed['p'][3]].node),
                                            c->hosts[c->placed['p'][i]].node),
                         i < 4);
    close_cluster(c);
}

/* S10, Kueue #6929: what can never fit is told so and blocks no other job. */
static void test_s10_impossible(void **state)
{
    struct cluster *c = open_cluster("SwitchName=s Nodes=n[0-3]\n", 1,
                                     "preset: kueue\nqueues: [{name: t}, {name: q1, parent: t, gpus: 3, borrow: 0}, "
                                     "{name: q2, parent: t, gpus: 0, borrow: 3}]\n");

    (void)state;
    submit(c, job_of(c, 'a', "q2", 1, 1), 0);
    submit(c, job_of(c, 'b', "q2", 1, 1), 0);
    assert_pass(c, 0, "+a+b");
    assert_refusal(c, job_of(c, 'x', "q1", 4, 1), 1, "queue q1 can have at most 3 GPUs");
    submit(c, job_of(c, 'y', "q1", 3, 1), 1);
    assert_pass(c, 1, "-a-b+y");
    close_cluster(c);
}

/* S11, Kueue #10815: jobs spread over racks are not stopped where that frees no rack. */
static void test_s11_useful_victims(void **state)
{
    struct cluster *c = open_cluster("SwitchName=r0 Nodes=n[0-3]\nSwitchName=r1 Nodes=n[4-7]\n", 4,
                                     "preset: slurm\nclasses: [{name: low, priority: 1}, {name: fixed, priority: 5, "
                                     "preemptible: false}, {name: high, priority: 9}]\n");
    struct ash_policy_job job;
    int in_rack = 0;

    (void)state;
    for (char key = 'a'; key < 'a' + 8; key++) {
        job = job_of(c, key, NULL, 1, 4);
        job.class = key == 'a' ? 1 : 0; /* one host of a rack cannot be freed */
        submit(c, job, 0);
        ash_policy_pass(c->policy, 0);
    }
    job = job_of(c, 'x', NULL, 4, 4);
    job.class = 2;
    job.required = 1;
    submit(c, job, 1);
    ash_policy_pass(c->policy, 1);
    assert_int_equal(c->started['x'], 1);
    for (char key = 'a'; key < 'a' + 8; key++) {
        int host = c->placed[(int)key][0]; /* where it ran */

        in_rack += c->stopped[(int)key];
        if (c->stopped[(int)key] > 0)
            assert_int_equal(c->topology->nodes[c->hosts[host].node].parent,
                             c->topology->nodes[c->hosts[c->placed['x'][0]].node].parent);
    }
    assert_int_equal(in_rack, 4); /* none of the other rack */
    job.key = 'y';
    submit(c, job, 2);
    assert_pass(c, 2, ""); /* x is of its own class, the other rack has a fixed job: nothing is stopped in vain */
    close_cluster(c);
}

/* S12, Kueue #6143: a hundred preemptions are one pass; without candidates no other job is held up. */
static void test_s12_all_in_one_pass(void **state)
{
    struct cluster *c = open_cluster("SwitchName=s Nodes=n[0-99]\n", 1,
                                     "preset: kueue\nclasses: [{name: low, priority: 1}, {name: high, priority: 9}]\n"
                                     "queues: [{name: q}, {name: other}]\n");
    struct ash_policy_job job = job_of(c, '\0', "q", 1, 1);

    (void)state;
    for (int i = 0; i < 100; i++) {
        job.key = (uint64_t)(1000 + i);
        assert_true(ash_policy_submit(c->policy, &job, 0, NULL) >= 0);
    }
    ash_policy_pass(c->policy, 0);
    job.class = 1;
    for (int i = 0; i < 100; i++) {
        job.key = (uint64_t)(2000 + i);
        assert_true(ash_policy_submit(c->policy, &job, 1, NULL) >= 0);
    }
    ash_policy_pass(c->policy, 1);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(c->stopped[1000 + i], 1);
        assert_int_equal(c->started[2000 + i], 1);
    }
    close_cluster(c);
}

/* S13, Slurm's backfill: what ends in time starts, what would delay the first does not. */
static void test_s13_backfill(void **state)
{
    struct cluster *c = open_cluster("SwitchName=l0 Nodes=n[0-3]\nSwitchName=l1 Nodes=n[4-7]\n", 1, "preset: easy\n");
    struct ash_policy_job job = job_of(c, 'b', NULL, 3, 1);

    (void)state;
    job.limit_s = 1000;
    submit(c, job, 0);
    assert_pass(c, 0, "+b");
    submit(c, job_of(c, 'h', NULL, 6, 1), 1); /* 5 are free */
    job = job_of(c, 'd', NULL, 4, 1);         /* would delay the head: it runs too long */
    job.limit_s = 2000;
    submit(c, job, 1);
    job = job_of(c, 'e', NULL, 4, 1); /* ends in time, on one leaf */
    job.limit_s = 900;
    job.required = 1;
    submit(c, job, 1);
    job = job_of(c, 'f', NULL, 1, 1);
    job.limit_s = 900;
    submit(c, job, 1);
    assert_pass(c, 2, "+e+f");
    assert_int_equal(c->reason['e'], ASH_POLICY_BACKFILLED);
    assert_true(why(c, 'h').start_s == 1000 && why(c, 'h').holder == 'b');
    assert_int_equal(why(c, 'd').reason, ASH_POLICY_WAITS_TURN);
    ash_policy_end(c->policy, c->number['e'], 900);
    ash_policy_end(c->policy, c->number['f'], 900);
    ash_policy_end(c->policy, c->number['b'], 1000);
    assert_pass(c, 1000, "+h");
    close_cluster(c);
}

/* S14, Meta's clusters: two hours of peace, seven days at most, a failing job does not stop others again and again. */
static void test_s14_protection(void **state)
{
    struct cluster *c =
        open_cluster("SwitchName=s Nodes=n[0-1]\n", 8,
                     "preset: ashlar\nclasses: [{name: low, priority: 1}, {name: high, priority: 9}]\n");
    struct ash_policy_job job = job_of(c, 'l', NULL, 1, 8);

    (void)state;
    ash_policy_host_drain(c->policy, 1);
    job.limit_s = 8 * 86400.0;
    assert_refusal(c, job, 0, "above the longest, 168 h");
    job.limit_s = 86400;
    job.save_s = 1000;
    submit(c, job, 0);
    assert_pass(c, 0, "+l");
    job = job_of(c, 'h', NULL, 1, 8);
    job.class = 1;
    submit(c, job, 100);
    assert_pass(c, 100, "");
    assert_pass(c, 7300, "-l+h");
    assert_true(c->lost_s == 300); /* since the last save */
    for (int round = 0; round < 2; round++) {
        ash_policy_fail(c->policy, c->number['h'], 7400 + round);
        assert_pass(c, 7400 + round, "+h");
    }
    ash_policy_host_up(c->policy, 1);
    assert_pass(c, 7500, "+l");
    ash_policy_host_down(c->policy, 0, 20000); /* h waits again; l has run long enough, but h has failed too often */
    assert_pass(c, 20000, "");
    assert_int_equal(c->stopped['l'], 1);
    close_cluster(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_s1_required_zone_preferred_rack),
        cmocka_unit_test(test_s2_borrowing_and_lending),
        cmocka_unit_test(test_s3_governance),
        cmocka_unit_test(test_s4_requeue_and_cap),
        cmocka_unit_test(test_s5_order_of_victims),
        cmocka_unit_test(test_s6_no_turns),
        cmocka_unit_test(test_s7_over_quota),
        cmocka_unit_test(test_s8_elastic),
        cmocka_unit_test(test_s9_tiers),
        cmocka_unit_test(test_s10_impossible),
        cmocka_unit_test(test_s11_useful_victims),
        cmocka_unit_test(test_s12_all_in_one_pass),
        cmocka_unit_test(test_s13_backfill),
        cmocka_unit_test(test_s14_protection),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
