/* collect: texts of /proc as families; labels with every byte; sources that hang cost themselves. */
#include "observe/agent/sources.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/math.h"
#include "observe/collect/exposition.h"
#include "observe/collect/mounts.h"
#include "observe/collect/parse.h"
#include "observe/collect/queue.h"
#include "observe/health/scrape.h"

static void check_parse(const struct ash_parser *parsers, size_t count, const char *path, const char *text,
                        const char *expected)
{
    struct ash_str out = {0};
    char *copy = strdup(text);

    for (size_t i = 0; i < count; i++)
        if (strcmp(parsers[i].path, path) == 0) parsers[i].parse(copy, &out);
    if (out.data == NULL || strstr(out.data, expected) == NULL)
        fail_msg("%s gives\n%s\nwithout %s", path, out.data, expected);
    free(copy);
    ash_str_fini(&out);
}

#define HOST(path, text, expected) check_parse(ash_parsers_host, ash_parsers_host_count, path, text, expected)
#define NET(path, text, expected) check_parse(ash_parsers_net, ash_parsers_net_count, path, text, expected)
#define DISK(text, expected) check_parse(ash_parsers_disk, ash_parsers_disk_count, "/proc/diskstats", text, expected)

static void test_files(void **state)
{
    (void)state;
    HOST("/proc/stat", "cpu  1 2 3 4\ncpu0 150 0 25 1000 5 0 1 0 0 0\nctxt 99\nbtime 1700000000\n",
         "node_cpu_seconds_total{cpu=\"0\",mode=\"user\"} 1.5\n");
    HOST("/proc/stat", "intr 12 5 6\n", "# TYPE node_intr_total counter\nnode_intr_total 12\n");
    HOST("/proc/meminfo", "MemTotal:  100 kB\nActive(anon): 7 kB\nHugePages_Total: 3\n",
         "node_memory_Active_anon_bytes 7168\n");
    HOST("/proc/meminfo", "HugePages_Total:       3\n", "node_memory_HugePages_Total 3\n");
    HOST("/proc/loadavg", "0.50 1.25 2.00 1/100 5\n", "node_load5 1.25\n");
    HOST("/proc/vmstat", "oom_kill 4\nother 5\n", "node_vmstat_oom_kill 4\n");
    HOST("/proc/pressure/io", "some avg10=0.00 total=2500000\nfull avg10=0 total=1000000\n",
         "node_pressure_io_stalled_seconds_total 1\n");
    NET("/proc/net/dev", "Inter-| x\n face |b\n  eth0: 10 1 0 0 0 0 0 0 20 2 0 0 0 0 0 0\n",
        "node_network_transmit_bytes_total{device=\"eth0\"} 20\n");
    NET("/proc/net/netstat", "TcpExt: A TCPTimeouts\nTcpExt: 1 55\n", "node_netstat_TcpExt_TCPTimeouts 55\n");
    NET("/proc/net/sockstat", "TCP: inuse 5 orphan 0\n", "node_sockstat_TCP_inuse 5\n");
    DISK("259 0 nvme0n1 10 0 8 500 0 0 0 0 0 0 0\n259 1 nvme0n1p1 1 0 8 1 0 0 0 0 0 0 0\n",
         "node_disk_read_bytes_total{device=\"nvme0n1\"} 4096\n");
}

/* Partitions and odd disks, as node_exporter leaves them out. */
static void test_disks_that_are_shown(void **state)
{
    char text[] =
        "8 0 sda 1 1 1 1\n8 1 sda1 1 1 1 1\n259 2 nvme1n1 1 1 1 1\n7 0 loop0 1 1 1 1\n253 0 dm-0 1 1 1 1\n202 1 xvda1 1 1 1 1\n";
    struct ash_str out = {0};
    (void)state;

    ash_parsers_disk[0].parse(text, &out);
    assert_non_null(strstr(out.data, "\"sda\""));
    assert_non_null(strstr(out.data, "\"nvme1n1\""));
    assert_non_null(strstr(out.data, "\"dm-0\""));
    assert_null(strstr(out.data, "sda1"));
    assert_null(strstr(out.data, "loop0"));
    assert_null(strstr(out.data, "xvda1"));
    ash_str_fini(&out);
}

static void test_mounts(void **state)
{
    char text[] =
        "/dev/sda1 / ext4 rw,relatime 0 0\nproc /proc proc rw 0 0\nserver:/a\\040b /data/my\\040dir nfs4 ro,soft 0 0\nshort line\n";
    struct ash_mount mount;
    char *cursor = text;
    (void)state;

    assert_int_equal(ash_mounts_next(&cursor, &mount), 1);
    assert_string_equal(mount.path, "/");
    assert_false(mount.is_read_only);
    assert_int_equal(ash_mounts_next(&cursor, &mount), 1);
    assert_string_equal(mount.path, "/data/my dir");
    assert_string_equal(mount.device, "server:/a b");
    assert_true(mount.is_read_only);
    assert_int_equal(ash_mounts_next(&cursor, &mount), 0);
}

/* A name of every byte comes through a scrape as what it was, or as U+FFFD where it was no text. */
static void test_labels(void **state)
{
    char name[256], labels[ASH_EXP_LABELS_BYTES];
    struct ash_scrape *scrape = NULL;
    struct ash_str out = {0};
    (void)state;

    for (int i = 0; i < 255; i++)
        name[i] = (char)(i + 1);
    name[255] = '\0';
    ash_exp_labels(labels, sizeof(labels), "device", name, "b", "x\\\"\n", (char *)NULL);
    ash_exp_value(&out, "node_test", labels, 0.1);
    assert_int_equal(ash_scrape_parse(out.data, out.size_bytes, "test", &scrape, NULL), 0);
    assert_int_equal(ash_scrape_count(scrape), 1);
    assert_string_equal(ash_scrape_label_of(ash_scrape_at(scrape, 0), "b"), "x\\\"\n");
    assert_memory_equal(ash_scrape_label_of(ash_scrape_at(scrape, 0), "device"), name, 127);
    assert_true(ash_scrape_at(scrape, 0)->value == 0.1);
    ash_scrape_close(scrape);
    ash_str_fini(&out);
    /* what does not fit is left out by pairs */
    assert_string_equal(ash_exp_labels(labels, 20, "a", "1", "long", "0123456789abcdef", (char *)NULL), "a=\"1\"");
}

/* ---- sources that hang, fail and are slow ---------------------------------------------------------------------------- */

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static int collect_hanging(void *state, struct ash_str *out, struct ash_err *err)
{
    (void)state, (void)err;
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    ash_exp_single(out, "test_hanging", "gauge", "It hangs.", 1);
    return 0;
}

static int collect_good(void *state, struct ash_str *out, struct ash_err *err)
{
    (void)state, (void)err;
    ash_exp_single(out, "test_good", "gauge", "It is good.", 1);
    return 0;
}

static int collect_failing(void *state, struct ash_str *out, struct ash_err *err)
{
    (void)state;
    ash_exp_single(out, "test_failing", "gauge", "Half of it.", 1);
    return ash_err_set(err, -EACCES, "not allowed");
}

#define OPS(part, limit_s)                                                                                             \
    {                                                                                                                  \
        .name = #part, .deadline_s = (limit_s), .open = ash_collector_open_plain, .collect = collect_##part,           \
        .close = ash_collector_close_plain                                                                             \
    }

static void test_sources(void **unused)
{
    static const struct ash_collector_ops good = OPS(good, 60), hanging = OPS(hanging, 0.1), failing = OPS(failing, 60);
    const struct ash_collector_ops *const list[] = {&hanging, &good, &failing};
    struct ash_host_files source = {.root = ""};
    struct ash_sources *sources = NULL;
    struct ash_str out = {0};
    uint64_t start_ns, best_ns = UINT64_MAX;
    (void)unused;

    assert_int_equal(ash_sources_open(list, 3, &source, &sources, NULL), 0);
    pthread_mutex_lock(&gate);
    assert_int_equal(ash_sources_scrape(sources, &out), 0);
    assert_non_null(strstr(out.data, "test_good 1"));
    assert_null(strstr(out.data, "test_hanging 1"));
    assert_null(strstr(out.data, "test_failing 1"));
    assert_non_null(strstr(out.data, "ashlar_collector_up{collector=\"hanging\"} 0"));
    assert_non_null(strstr(out.data, "ashlar_collector_up{collector=\"failing\"} 0"));
    assert_non_null(strstr(out.data, "ashlar_collector_up{collector=\"good\"} 1"));
    for (int i = 0; i < 100 && best_ns >= 90000000; i++) {
        usleep(150000); /* what was read is no longer fresh */
        start_ns = ash_clock_ns();
        ash_str_clear(&out);
        assert_int_equal(ash_sources_scrape(sources, &out), 0);
        best_ns = ash_min(best_ns, ash_clock_ns() - start_ns);
    }
    assert_true(best_ns < 90000000); /* one that hangs is waited for once; a busy machine may hold up some scrapes */
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < 1200 && strstr(out.data, "test_hanging 1") == NULL; i++) {
        usleep(50000);
        ash_str_clear(&out);
        ash_sources_scrape(sources, &out);
    }
    assert_non_null(strstr(out.data, "test_hanging 1")); /* it is back */
    ash_str_fini(&out);
    ash_sources_close(sources);
}

/* What squeue and sinfo of Slurm 22.05 print, with GPUs by accounting, by node and by job. */
static void test_queue(void **state)
{
    char jobs[] = "PENDING  all     2  120  cpu=2,node=2,gres/gpu=16,gres/gpu:h100=16  gres/gpu:8  N/A  Resources  \n"
                  "PENDING  all     1  30   cpu=2,node=1  gres:gpu:h100:4  N/A  Resources\n"
                  "PENDING  all     1  7    cpu=1 N/A N/A ReqNodeNotAvail, UnavailableNodes:n[1-3]\n"
                  "PENDING  all     1  7    cpu=1 N/A N/A Nodes required for job are DOWN, DRAINED or reserved\n"
                  "RUNNING  all,big 2  0    cpu=2,node=2  N/A  gres/gpu:4  None\n"
                  "slurm_load_jobs error\n\n";
    char nodes[] = "n1 all mixed gpu:h100:8(S:0-1) gpu:h100:6(IDX:0,2-6)\n"
                   "n1 big mixed gpu:h100:8(S:0-1) gpu:h100:6(IDX:0,2-6)\n"
                   "n2 all idle* gpu:8 gpu:0\nn3 all drained$ gpu:8 gpu:0\nn4 all idle (null) (null)\n";
    static const char *const expected[] = {
        "ashlar_queue_jobs{partition=\"all\",state=\"pending\",reason=\"Resources\"} 2\n",
        "ashlar_queue_jobs{partition=\"all\",state=\"pending\",reason=\"ReqNodeNotAvail\"} 1\n",
        "ashlar_queue_jobs{partition=\"all\",state=\"pending\",reason=\"Nodes_required_for_job_are_DOWN\"} 1\n",
        "ashlar_queue_job_gpus{partition=\"all\",state=\"pending\",reason=\"Resources\"} 20\n",
        "ashlar_queue_job_gpus{partition=\"all,big\",state=\"running\",reason=\"\"} 4\n",
        "ashlar_queue_wait_mean_seconds{partition=\"all\",state=\"pending\",reason=\"Resources\"} 75\n",
        "ashlar_queue_wait_max_seconds{partition=\"all\",state=\"pending\",reason=\"Resources\"} 120\n",
        "ashlar_queue_nodes{partition=\"all\",state=\"idle\"} 2\n",
        "ashlar_queue_nodes{partition=\"big\",state=\"mixed\"} 1\n",
        "ashlar_queue_gpus{state=\"used\"} 6\n",
        "ashlar_queue_gpus{state=\"free\"} 2\n",
        "ashlar_queue_gpus{state=\"out\"} 16\n",
    };
    struct ash_str out = {0};
    (void)state;

    ash_queue_jobs(jobs, &out);
    ash_queue_nodes(nodes, &out);
    for (size_t i = 0; i < sizeof(expected) / sizeof(*expected); i++)
        if (strstr(out.data, expected[i]) == NULL) fail_msg("%s has no %s", out.data, expected[i]);
    ash_str_fini(&out);
    assert_true(ash_queue_gpus("gpu") == 1 && ash_queue_gpus("gpumem:4,mps:100,gpu:a100") == 1);
    assert_true(ash_queue_gpus("") == 0 && ash_queue_gpus("gres/gpu:a100=2,gres/gpu:h100=3") == 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),   cmocka_unit_test(test_disks_that_are_shown),
        cmocka_unit_test(test_mounts),  cmocka_unit_test(test_labels),
        cmocka_unit_test(test_sources), cmocka_unit_test(test_queue),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
