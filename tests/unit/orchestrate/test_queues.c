/* What Slurm and Kubernetes say of jobs: states, reasons, kubeconfig files. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <string.h>
#include <cmocka.h>

#include "base/assert.h"
#include "base/json.h"
#include "orchestrate/kubernetes/config.h"
#include "orchestrate/kubernetes/status.h"
#include "orchestrate/slurm/queue.h"

static void test_slurm_queue(void **state)
{
    struct ash_jobs_list list = {0};
    struct ash_err err = {0};
    (void)state;

    assert_int_equal(ash_slurm_read_queue("7|llama|ann|PENDING|Resources|8|2026-01-01T00:00:00\n"
                                          "8|llama|ann|RUNNING|None|8|2026-01-01T00:00:00\n"
                                          "9|x|ann|TIMEOUT|TimeLimit|1|2026-01-01T00:00:00\n"
                                          "10|x|ann|PENDING|JobHeldUser|1|?\n",
                                          2e9, &list, &err),
                     0);
    assert_int_equal(list.count, 4);
    assert_int_equal(list.entries[0].phase, ASH_JOBS_WAITING);
    assert_string_equal(list.entries[0].reason, "Resources");
    assert_int_equal(list.entries[0].nodes, 8);
    assert_int_equal(list.entries[1].phase, ASH_JOBS_RUNNING);
    assert_int_equal(list.entries[2].phase, ASH_JOBS_FAILED);
    assert_string_equal(list.entries[2].reason, "TIMEOUT");
    assert_int_equal(list.entries[3].phase, ASH_JOBS_HELD);
    assert_true(list.entries[3].age_s < 0 && list.entries[0].age_s > 0);
    ash_jobs_free(&list);
    assert_int_equal(ash_slurm_read_queue("slurmctld is down\n", 0, &list, &err), -EINVAL);
    ash_jobs_free(&list);
}

static void test_slurm_why(void **state)
{
    struct ash_jobs_entry job = {.id = "7", .name = "llama", .reason = "Resources", .nodes = 8};
    struct ash_slurm_evidence evidence = {
        .job = &job,
        .facts = "JobId=7 Partition=gpu StartTime=2026-01-02T00:00:00 TimeLimit=1-00:00:00",
        .running = "5|big|bob|6|2:00:00|gpu\n6|other|bob|1|1:00|cpu\n",
        .nodes = "gpu*|drain|2|bad nvlink\ngpu*|alloc|6|none\n"};
    struct ash_str text = {0};
    (void)state;

    assert_int_equal(ash_slurm_explain(&evidence, &text, NULL), 0);
    assert_non_null(strstr(text.data, "waits for nodes that are busy (Resources)"));
    assert_non_null(strstr(text.data, "job 5 (big) of bob: 6 nodes, at most 2:00:00 longer"));
    assert_null(strstr(text.data, "other"));
    assert_non_null(strstr(text.data, "out of service: 2 nodes (drain: bad nvlink)"));
    assert_non_null(strstr(text.data, "start: 2026-01-02T00:00:00"));
    ash_str_fini(&text);
    job.reason[0] = 'X'; /* a word of a later Slurm */
    assert_int_equal(ash_slurm_explain(&evidence, &text, NULL), 0);
    assert_non_null(strstr(text.data, "Slurm gives as reason Xesources"));
    ash_str_fini(&text);
}

static void test_partition(void **state)
{
    char name[32];
    (void)state;

    assert_int_equal(ash_slurm_partition_nodes("cpu|4\ngpu*|6\ngpu*|2\n", NULL, name, sizeof(name)), 8);
    assert_string_equal(name, "gpu");
    assert_int_equal(ash_slurm_partition_nodes("cpu|4\ngpu*|6\n", "cpu", name, sizeof(name)), 4);
    assert_int_equal(ash_slurm_partition_nodes("cpu|4\n", "gp", name, sizeof(name)), 0);
    assert_string_equal(name, "");
}

static struct ash_jobs_entry read_object(const char *text)
{
    struct ash_jobs_entry entry;
    json_t *json = NULL;

    assert_int_equal(ash_json_parse(text, strlen(text), "object", &json, NULL), 0);
    ash_kube_read_job(json, 2e9, &entry);
    json_decref(json);
    return entry;
}

static void test_kube_phases(void **state)
{
    struct ash_jobs_entry entry;
    (void)state;

    entry = read_object("{\"metadata\": {\"name\": \"a\", \"creationTimestamp\": \"2026-01-01T00:00:00Z\"}, \"spec\": "
                        "{\"completions\": 4}}");
    assert_int_equal(entry.phase, ASH_JOBS_WAITING);
    assert_int_equal(entry.nodes, 4);
    assert_true(entry.age_s > 0);
    entry =
        read_object("{\"spec\": {\"replicatedJobs\": [{\"replicas\": 3}]}, \"status\": {\"conditions\": [{\"type\": "
                    "\"Failed\", \"status\": \"True\", \"reason\": \"FailJobSet\", \"message\": \"exit code 2\"}]}}");
    assert_int_equal(entry.phase, ASH_JOBS_FAILED);
    assert_string_equal(entry.reason, "FailJobSet: exit code 2");
    assert_int_equal(entry.nodes, 3);
    entry = read_object("{\"status\": {\"state\": {\"phase\": \"Running\"}}}");
    assert_int_equal(entry.phase, ASH_JOBS_RUNNING);
    entry = read_object("{\"status\": {\"conditions\": [{\"type\": \"Failed\", \"status\": \"False\"}, {\"type\": "
                        "\"Complete\", \"status\": \"True\"}]}}");
    assert_int_equal(entry.phase, ASH_JOBS_DONE);
    assert_int_equal(entry.code, 0);
    /* A pod of a lost node terminates until the node is removed: the job is done all the same. */
    entry = read_object("{\"status\": {\"succeeded\": 1, \"terminating\": 1, \"ready\": 0, \"conditions\": [{\"type\": "
                        "\"SuccessCriteriaMet\", \"status\": \"True\"}]}}");
    assert_int_equal(entry.phase, ASH_JOBS_DONE);
    assert_int_equal(entry.code, 0);
    /* A Job's pods are active before they have a node. */
    entry = read_object("{\"status\": {\"active\": 2, \"ready\": 0}}");
    assert_int_equal(entry.phase, ASH_JOBS_WAITING);
    entry = read_object("{\"status\": {\"active\": 2, \"ready\": 1}}");
    assert_int_equal(entry.phase, ASH_JOBS_RUNNING);
    entry = read_object("{\"status\": {\"replicatedJobsStatus\": [{\"name\": \"node\", \"ready\": 2}]}}");
    assert_int_equal(entry.phase, ASH_JOBS_RUNNING);
    entry = read_object("{\"spec\": {\"replicas\": 3}, \"status\": {\"readyReplicas\": 2}}");
    assert_int_equal(entry.phase, ASH_JOBS_RUNNING);
    assert_int_equal(entry.nodes, 3);
    assert_string_equal(entry.reason, "2 of 3 ready");
    (void)read_object("[]"); /* anything else is a job that waits */
    (void)read_object("{\"metadata\": 3, \"status\": {\"conditions\": {\"type\": 1}}}");
}

static json_t *parse(const char *text)
{
    json_t *json = NULL;

    assert_int_equal(ash_json_parse(text, strlen(text), "text", &json, NULL), 0);
    return json;
}

/* What is said of this job's pods and of what controllers make for it, the newest first; nothing of another job. */
static void test_kube_why(void **state)
{
    struct ash_jobs_entry job = {.id = "llama", .name = "llama", .phase = ASH_JOBS_WAITING};
    json_t *pods = parse(
        "[{\"metadata\": {\"name\": \"llama-0-x\"}, \"status\": {\"phase\": \"Pending\", \"conditions\": [{\"type\": "
        "\"PodScheduled\", \"status\": \"False\", \"message\": \"no GPU\"}]}}, "
        "{\"metadata\": {\"name\": \"llama-1-y\"}, \"spec\": {\"nodeName\": \"n1\"}, \"status\": {\"phase\": "
        "\"Pending\", \"containerStatuses\": [{\"state\": {\"waiting\": {\"reason\": \"ImagePullBackOff\", "
        "\"message\": \"no such image\"}}}]}}]");
    json_t *events =
        parse("[{\"type\": \"Warning\", \"lastTimestamp\": \"2026-01-01T00:00:01Z\", \"reason\": \"Old\", \"message\": "
              "\"m\", \"involvedObject\": {\"kind\": \"Job\", \"name\": \"llama-node-0\"}}, "
              "{\"type\": \"Warning\", \"lastTimestamp\": null, \"eventTime\": \"2026-01-01T00:00:02.5Z\", \"reason\": "
              "\"New\", \"message\": \"m\", \"involvedObject\": {\"kind\": \"Pod\", \"name\": \"llama-1-y\"}}, "
              "{\"type\": \"Normal\", \"reason\": \"Quiet\", \"involvedObject\": {\"name\": \"llama\"}}, "
              "{\"type\": \"Warning\", \"reason\": \"Other\", \"involvedObject\": {\"kind\": \"Job\", \"name\": "
              "\"llama-2\"}}, "
              "{\"type\": \"Warning\", \"reason\": \"Other\", \"involvedObject\": {\"kind\": \"Pod\", \"name\": "
              "\"llama-2-0-z\"}}]");
    struct ash_kube_evidence evidence = {.job = &job, .pods = pods, .events = events};
    struct ash_str text = {0};
    (void)state;

    assert_int_equal(ash_kube_explain(&evidence, &text, NULL), 0);
    assert_string_equal(text.data, "job llama is waiting\n1 of 2 pods have no node: no GPU\n"
                                   "1 of 2 pods are not started by their node: ImagePullBackOff: no such image\n"
                                   "Pod llama-1-y: New: m\nJob llama-node-0: Old: m\n");
    ash_str_fini(&text);
    json_decref(pods);
    json_decref(events);
}

#define HEAD                                                                                                           \
    "clusters: [{name: k, cluster: {server: \"https://x:6443\", certificate-authority-data: aGkK}}]\n"                 \
    "contexts: [{name: c, context: {cluster: k, user: u, namespace: research}}]\n"
static void test_kubeconfig(void **state)
{
    static const struct {
        const char *text, *word;
    } wrong[] = {{"", "current-context"},
                 {"current-context: d\n" HEAD, "no context 'd'"},
                 {"current-context: c\ncontexts: [{name: c, context: {cluster: z}}]\n", "no server"},
                 {"current-context: c\nusers: [{name: u, user: {client-key-data: '*'}}]\n" HEAD, "base64"},
                 {"current-context: c\nusers: [{name: u, user: {exec: {}}}]\n" HEAD, "exec"},
                 {"current-context: c\nusers: [{name: u, user: {exec: {command: 'false'}}}]\n" HEAD, "failed"},
                 {"current-context: [", "YAML"}};
    static const char good[] = "current-context: c\nusers: [{name: u, user: {token: secret}}]\n" HEAD;
    struct ash_kube_config config;
    struct ash_err err = {0};
    (void)state;

    assert_int_equal(ash_kube_config_parse(good, sizeof(good) - 1, "kubeconfig", ".", &config, &err), 0);
    assert_string_equal(config.server, "https://x:6443");
    assert_string_equal(config.token, "secret");
    assert_string_equal(config.kube_namespace, "research");
    assert_string_equal(config.ca, "hi\n");
    ash_kube_config_free(&config);
    for (size_t i = 0; i < ASH_COUNT(wrong); i++) {
        assert_true(ash_kube_config_parse(wrong[i].text, strlen(wrong[i].text), "kubeconfig", ".", &config, &err) < 0);
        if (strstr(err.text, wrong[i].word) == NULL) fail_msg("%s: %s", wrong[i].text, err.text);
    }
}

static void test_slurm_duration(void **state)
{
    static const char *const wrong[] = {"UNLIMITED", "INFINITE", "", "7", "x-01:00:00", "1:2"};
    double seconds = -1;
    (void)state;

    for (size_t i = 0; i < ASH_COUNT(wrong); i++)
        assert_int_equal(ash_slurm_duration(wrong[i], &seconds), -EINVAL);
    assert_true(seconds == -1);
    assert_int_equal(ash_slurm_duration("02:00:30", &seconds), 0);
    assert_true(seconds == 7230);
    assert_int_equal(ash_slurm_duration("7-00:00:00", &seconds), 0);
    assert_true(seconds == 7 * 86400);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_slurm_queue),   cmocka_unit_test(test_slurm_why),
                                       cmocka_unit_test(test_partition),     cmocka_unit_test(test_kube_phases),
                                       cmocka_unit_test(test_kube_why),      cmocka_unit_test(test_kubeconfig),
                                       cmocka_unit_test(test_slurm_duration)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
