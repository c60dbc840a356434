/* Running things as a diagnosis reads them: agents that answer and one that does not, a Prometheus, a tree with a kernel
 * log. The servers are ours, with given answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/assert.h"
#include "base/file.h"
#include "http/http.h"
#include "http/keys.h"
#include "observe/live/live.h"

/* What the server says. */
static const char *metrics, *board, *series;

static void say(struct ash_http_exchange *exchange, const char *text)
{
    struct ash_str body = {0};

    ash_str_adds(&body, text != NULL ? text : "");
    ash_http_respond(exchange, text != NULL ? 200 : 404, "text/plain", &body);
}

static void say_metrics(void *ctx, struct ash_http_exchange *exchange)
{
    (void)ctx;
    say(exchange, metrics);
}

static void say_board(void *ctx, struct ash_http_exchange *exchange)
{
    (void)ctx;
    say(exchange, board);
}

static void say_series(void *ctx, struct ash_http_exchange *exchange)
{
    (void)ctx;
    say(exchange, series);
}

static void refuse(void *ctx, struct ash_http_exchange *exchange, unsigned status, const char *code, const char *text)
{
    struct ash_str body = {0};

    (void)ctx;
    (void)code;
    ash_str_adds(&body, text);
    ash_http_respond(exchange, status, "text/plain", &body);
}

static const struct ash_http_route routes[] = {
    {.method = "GET", .path = "/metrics", .handle = say_metrics, .is_open = true},
    {.method = "GET", .path = "/v1/board", .handle = say_board, .is_open = true},
    {.method = "GET", .path = "/api/v1/query", .handle = say_series, .is_open = true},
};

static struct ash_http *http;
static struct ash_keys *keys;
static char address[64]; /* of the server */
static struct ash_diagnose *diagnose;

static int setup(void **state)
{
    static const struct ash_keys_opts keys_opts; /* the keys go on reading it */
    struct ash_http_opts opts = ash_http_defaults();
    struct ash_err err = {0};

    (void)state;
    metrics = board = series = NULL;
    if (ash_keys_open(&keys_opts, &keys, &err) < 0) fail_msg("%s", err.text);
    opts.port = 0;
    opts.routes = routes;
    opts.route_count = ASH_COUNT(routes);
    opts.refuse = refuse;
    opts.keys = keys;
    if (ash_http_open(&opts, &http, &err) < 0) fail_msg("%s", err.text);
    snprintf(address, sizeof(address), "127.0.0.1:%d", ash_http_port(http));
    return ash_diagnose_open(&diagnose, &err);
}

static int teardown(void **state)
{
    (void)state;
    ash_diagnose_close(diagnose);
    ash_http_close(http);
    ash_keys_close(keys);
    return 0;
}

static void read_live(const struct ash_diagnose_live *live)
{
    struct ash_err err = {0};

    if (ash_diagnose_live_add(live, diagnose, &err) < 0) fail_msg("%s", err.text);
    if (ash_diagnose_run(diagnose, 0, &err) < 0) fail_msg("%s", err.text);
}

/* The finding of a metric at a place, or NULL. */
static const struct ash_finding *find(const char *metric, const char *where)
{
    for (size_t i = 0; i < ash_diagnose_finding_count(diagnose); i++) {
        const struct ash_finding *finding = ash_diagnose_finding(diagnose, i);

        if (strcmp(finding->metric, metric) == 0 && strstr(finding->where, where) != NULL) return finding;
    }
    return NULL;
}

static void nothing_is_given_without_a_source(void **state)
{
    const struct ash_diagnose_live none = {.wait_s = 2}, here = {.here = true};

    (void)state;
    assert_false(ash_diagnose_live_is_given(&none));
    assert_true(ash_diagnose_live_is_given(&here));
}

static void an_agent_that_does_not_answer_is_a_finding(void **state)
{
    char good[80];
    const char *agents[] = {"lost=127.0.0.1:1", good};
    const struct ash_diagnose_live live = {.agents = {agents, 2}};

    (void)state;
    snprintf(good, sizeof(good), "up=%s", address);
    metrics = "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\"} 40\n";
    read_live(&live);
    assert_non_null(find("agent", "lost"));
    assert_int_equal(find("agent", "lost")->severity, ASH_BROKEN);
    assert_null(find("agent", "up"));
    assert_int_equal(ash_diagnose_nodes(diagnose), 1);
}

static void findings_of_an_agent_are_taken_over(void **state)
{
    char agent[80];
    const char *agents[] = {agent};
    const struct ash_diagnose_live live = {.agents = {agents, 1}};

    (void)state;
    snprintf(agent, sizeof(agent), "n7=%s", address);
    metrics = "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\"} 40\n";
    board = "{\"nodes\": [{\"findings\": ["
            "{\"active\": true, \"source\": \"kernel log\", \"remedy\": \"replace\", \"layer\": \"gpu\","
            " \"evidence\": \"Xid 79: fallen off the bus\"},"
            "{\"active\": false, \"source\": \"kernel log\", \"evidence\": \"over\"},"
            "{\"active\": true, \"source\": \"a check\", \"evidence\": \"judged here\"}]}]}";
    read_live(&live);
    assert_non_null(find("kernel log", "n7"));
    assert_non_null(strstr(find("kernel log", "n7")->value, "Xid 79"));
    assert_int_equal(ash_diagnose_finding_count(diagnose), 1);
}

static void series_of_a_prometheus_are_read_with_their_labels(void **state)
{
    char url[80];
    const struct ash_diagnose_live live = {.prometheus = url};

    (void)state;
    snprintf(url, sizeof(url), "http://%s", address);
    series = "{\"data\": {\"result\": ["
             "{\"metric\": {\"__name__\": \"DCGM_FI_DEV_ROW_REMAP_FAILURE\", \"gpu\": \"3\","
             " \"Hostname\": \"a \\\"b\\\"\"}, \"value\": [1, \"1\"]},"
             "{\"metric\": {\"gpu\": \"4\"}, \"value\": [1, \"1\"]},"
             "{\"metric\": {\"__name__\": \"DCGM_FI_DEV_GPU_TEMP\"}, \"value\": [1]}]}}";
    read_live(&live);
    assert_int_equal(ash_diagnose_series(diagnose), 1);
    assert_int_equal(ash_diagnose_finding_count(diagnose), 1);
}

static void an_answer_that_is_no_json_is_an_error(void **state)
{
    char url[80];
    const struct ash_diagnose_live live = {.prometheus = url};
    struct ash_err err = {0};

    (void)state;
    snprintf(url, sizeof(url), "http://%s", address);
    series = "<html>";
    assert_true(ash_diagnose_live_add(&live, diagnose, &err) < 0);
    assert_non_null(strstr(err.text, "Prometheus"));
}

static void a_tree_is_judged_by_its_kernel_log(void **state)
{
    char dir[] = "/tmp/ashlar-live-XXXXXX", log[64];
    struct ash_diagnose_live live = {.here = true, .wanted_here = {-1, 0}};
    FILE *file;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(log, sizeof(log), "%s/kern.log", dir);
    file = fopen(log, "w");
    assert_non_null(file);
    fputs("6,1,5000000,-;NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus.\n", file);
    fclose(file);
    live.root = dir;
    live.kernel_log = log;
    read_live(&live);
    assert_true(ash_diagnose_finding_count(diagnose) >= 1);
    assert_non_null(ash_diagnose_first(diagnose));
    assert_int_equal(ash_diagnose_first(diagnose)->layer, ASH_HEALTH_GPU);
    ash_dir_remove(dir, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_given_without_a_source),
        cmocka_unit_test_setup_teardown(an_agent_that_does_not_answer_is_a_finding, setup, teardown),
        cmocka_unit_test_setup_teardown(findings_of_an_agent_are_taken_over, setup, teardown),
        cmocka_unit_test_setup_teardown(series_of_a_prometheus_are_read_with_their_labels, setup, teardown),
        cmocka_unit_test_setup_teardown(an_answer_that_is_no_json_is_an_error, setup, teardown),
        cmocka_unit_test_setup_teardown(a_tree_is_judged_by_its_kernel_log, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
