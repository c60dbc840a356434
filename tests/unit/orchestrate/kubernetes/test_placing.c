/* Where pods may be: what was asked for is in the manifests of every kind under every scheduler, or refused by name. */
#include "orchestrate/kubernetes/manifest.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/assert.h"

#define LEVEL "topology.k8s.aws/network-node-layer-1"

static struct ash_err err;

static struct ash_spec spec_of(enum ash_kube_kind kind)
{
    bool is_server = kind >= ASH_KUBE_DEPLOYMENT;

    return (struct ash_spec){.name = "asked",
                             .command = is_server ? "serve" : "train",
                             .image = "registry/ashlar:1",
                             .out = "/data/run",
                             .nodes = 4,
                             .min_nodes = 2,
                             .procs = 1,
                             .notice_s = 60};
}

/* The manifests as text, for the caller to free; NULL where they are refused. */
static char *manifests_of(const struct ash_spec *spec, enum ash_kube_kind kind, enum ash_kube_scheduler scheduler)
{
    struct ash_submission submission = {.spec = spec, .program = "/ashlar", .job_file = "job.yaml", .out = spec->out};
    struct ash_kube_job job = {
        .submission = &submission, .kind = kind, .scheduler = scheduler, .job_text = "job: {}\n"};
    json_t *objects = NULL;
    char *text;

    err = (struct ash_err){0};
    if (ash_kube_manifests(&job, &objects, &err) < 0) return NULL;
    text = json_dumps(objects, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(objects);
    assert_non_null(text);
    return text;
}

/* Volcano's own job has no other scheduler. */
static bool is_pair(enum ash_kube_kind kind, enum ash_kube_scheduler scheduler)
{
    return kind != ASH_KUBE_VOLCANO || scheduler == ASH_KUBE_DEFAULT || scheduler == ASH_KUBE_BY_VOLCANO;
}

/* Each is there in all kinds under all schedulers, or refused with its name. */
static void expect_kept(const struct ash_spec *asked, const char *setting, const char *word)
{
    for (int kind = 0; kind < ASH_KUBE_KINDS; kind++)
        for (int scheduler = 0; scheduler < ASH_KUBE_SCHEDULERS; scheduler++) {
            struct ash_spec spec = spec_of(kind);
            char *text;

            if (!is_pair(kind, scheduler)) continue;
            spec.exclude = asked->exclude;
            spec.queue = asked->queue;
            spec.topology = asked->topology;
            text = manifests_of(&spec, kind, scheduler);
            if (text != NULL ? strstr(text, word) == NULL : strstr(err.text, setting) == NULL)
                fail_msg("%s under %s: %s is lost (%s)", ash_kube_kind_names[kind], ash_kube_scheduler_names[scheduler],
                         setting, text != NULL ? text : err.text);
            free(text);
        }
}

static void test_nothing_is_dropped(void **state)
{
    const char *bad[] = {"node-7"};
    struct ash_spec spec = {.exclude = {bad, 1}};

    (void)state;
    expect_kept(&spec, "job.exclude",
                "{\"key\":\"kubernetes.io/hostname\",\"operator\":\"NotIn\",\"values\":[\"node-7\"]}");
    spec = (struct ash_spec){.queue = "team-a"};
    expect_kept(&spec, "job.queue", "team-a");
    spec = (struct ash_spec){.topology.required = LEVEL};
    expect_kept(&spec, "job.topology", LEVEL);
    spec = (struct ash_spec){.topology.preferred = LEVEL};
    expect_kept(&spec, "job.topology", LEVEL);
    spec = (struct ash_spec){.topology = {.preferred = LEVEL, .group = 2}};
    expect_kept(&spec, "job.topology", LEVEL);
    spec = (struct ash_spec){.topology.required = "2"}; /* a tier of Volcano's */
    expect_kept(&spec, "job.topology", "2");
}

static void test_plain_jobs_ask_for_what_kubernetes_can(void **state)
{
    const char *range[] = {"node[1-4]"};
    struct ash_spec spec = spec_of(ASH_KUBE_JOB);
    char *text;

    (void)state;
    text = manifests_of(&spec, ASH_KUBE_JOB, ASH_KUBE_DEFAULT);
    assert_non_null(text);
    assert_null(strstr(text, "affinity"));
    free(text);
    spec.topology.required = LEVEL;
    text = manifests_of(&spec, ASH_KUBE_JOB, ASH_KUBE_DEFAULT);
    assert_non_null(text);
    assert_non_null(strstr(text, "\"podAffinity\":{\"requiredDuringSchedulingIgnoredDuringExecution\""));
    free(text);
    spec = spec_of(ASH_KUBE_JOB);
    spec.exclude = (struct ash_opt_list){range, 1};
    assert_null(manifests_of(&spec, ASH_KUBE_JOB, ASH_KUBE_DEFAULT));
    assert_non_null(strstr(err.text, "name every node"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_dropped),
        cmocka_unit_test(test_plain_jobs_ask_for_what_kubernetes_can),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
