/* ashlar check: is this node fit for work, are the nodes of a cluster alike? */
#include "cmd/cmd.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/table.h"
#include "cmd/check_priv.h"
#include "cmd/node_flags.h"
#include "observe/check/check.h"
#include "probe/arithmetic.h"
#include "probe/device.h"
#include "probe/efa.h"
#include "probe/pairs.h"

struct flags {
    bool quick, deep, arithmetic, json;
    int64_t fault_core, fault_device;
    double seconds, slow;
    int links;
    const char *disk, *device;
    struct ash_node_flags node;
    struct ash_group_opts group;
    struct ash_fabric_opts fabric;
};

static const char *const links_ways[] = {"auto", "pairs", "halves", NULL}; /* enum ash_links_way */

#define FIELD(name) offsetof(struct flags, name)
static const struct ash_opt check_opts[] = {
    {"quick", ASH_OPT_BOOL, FIELD(quick), NULL, "what takes two seconds at most: the default, unless --deep is given",
     0, 0, NULL},
    {"deep", ASH_OPT_BOOL, FIELD(deep), NULL,
     "links of GPUs and network cards, copies between GPUs, products and memory patterns on every core and GPU too, "
     "compared to the bit with the known answer",
     0, 0, NULL},
    {"arithmetic", ASH_OPT_BOOL, FIELD(arithmetic), NULL,
     "node: single instructions of the GPUs on drawn operands against the models that exact mode relies on: are this "
     "GPU's bits known? A tenth of --seconds for each of four",
     0, 0, NULL},
    {"seconds", ASH_OPT_DOUBLE, FIELD(seconds), "10", "seconds of each deep check", 0.01, 86400, NULL},
    {"disk", ASH_OPT_STRING, FIELD(disk), NULL,
     "a folder: its disk is written and read for as long, and what comes back is compared", 0, 0, NULL},
    {"slow", ASH_OPT_DOUBLE, FIELD(slow), "0.6", "cluster: links and disks below this share of the median are outliers",
     0, 1, NULL},
    {"links", ASH_OPT_CHOICE, FIELD(links), "auto",
     "cluster: pairs measures all pairs, in as many rounds as there are nodes; halves some of them and exchanges of "
     "groups, in rounds by their logarithm; auto: halves beyond 64 nodes",
     0, 0, links_ways},
    {"fault_core", ASH_OPT_INT, FIELD(fault_core), "-1",
     "plant a wrong bit in this core's first product, to see that it is found", -1, 4096, NULL},
    {"device", ASH_OPT_STRING, FIELD(device), "cuda",
     "with --deep and --arithmetic: cuda (all GPUs), cuda:1 (one of them), or none", 0, 0, NULL},
    {"fault_device", ASH_OPT_INT, FIELD(fault_device), "-1",
     "plant wrong bits in this GPU's first product and pattern, to see that they are found", -1, 4096, NULL},
    {"json", ASH_OPT_BOOL, FIELD(json), NULL, "print one JSON object", 0, 0, NULL},
};
static const struct ash_opt_table check_table = {"", "flags", check_opts, ASH_COUNT(check_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar check WHAT [flags]",
    .about =
        "WHAT is node: this one. GPUs, driver, limits, network, EFA, clock, mounts and the kernel log, in two seconds\n"
        "at most; with --deep also whether every core and GPU computes the known bits, and memory gives back what was\n"
        "written. Exit code 0: fit for work; 1: not. Good as a prolog of a scheduler and before a job.\n"
        "Or WHAT is cluster, started once on every node by srun or another launcher: each node as above, then all\n"
        "against each other. Clocks, versions, GPUs, network, disks, and the links of all pairs both ways. One table;\n"
        "outliers are named, a slow node apart from a slow link. Exit code 0: all alike and fit; 1: not.",
    .examples = "  ashlar check node\n"
                "  ashlar check node --machine p5.48xlarge --json\n"
                "  ashlar check node --deep --seconds 30 --disk /scratch\n"
                "  ashlar check node --arithmetic\n"
                "  srun -N 8 --ntasks-per-node 1 ashlar check cluster --disk /scratch",
};

static json_t *report_json(const struct ash_check_report *report)
{
    json_t *results = json_array();

    for (size_t i = 0; i < report->count; i++)
        json_array_append_new(results, json_pack("{s:s, s:s, s:s, s:s}", "name", report->results[i].name, "grade",
                                                 ash_check_grade_name(report->results[i].grade), "found",
                                                 report->results[i].found, "wanted", report->results[i].wanted));
    return json_pack("{s:b, s:f, s:o}", "fit", ash_check_worst(report) < ASH_GRADE_BAD, "seconds", report->seconds,
                     "results", results);
}

static void print_report(const struct ash_check_report *report)
{
    struct ash_table table = {.heads = "||"};

    for (size_t i = 0; i < report->count; i++) {
        const struct ash_check_result *result = &report->results[i];

        ash_table_row(&table, "%s|%s|%s%s%s%s", ash_check_grade_name(result->grade), result->name, result->found,
                      result->wanted[0] != '\0' ? " (wanted: " : "", result->wanted,
                      result->wanted[0] != '\0' ? ")" : "");
    }
    ash_table_print(&table, stdout);
    printf("%s, in %.2f s\n", ash_check_worst(report) < ASH_GRADE_BAD ? "fit for work" : "NOT fit for work",
           report->seconds);
}

static int respond_cluster(const struct flags *flags, const struct ash_check_opts *node)
{
    struct ash_group_opts group = flags->group;
    const struct ash_cluster_check check = {.node = node,
                                            .disk = flags->disk,
                                            .slow_share = flags->slow,
                                            .links_way = (enum ash_links_way)flags->links,
                                            .is_deep = flags->deep};
    struct ash_err err = {0};
    int code;

    group.fabric = &flags->fabric;
    code = ash_cmd_check_cluster(&check, &group, flags->json, &err);
    return code < 0 ? ash_cmd_fail(&err) : code;
}

static void look_deep(const struct flags *flags, const struct ash_check_opts *check, struct ash_check_report *report)
{
    const struct ash_device_check devices = {check, flags->node.machine, flags->fault_device};

    ash_check_links(check, report);
    ash_check_deep(check, report);
    ash_probe_devices(&devices, flags->device, report);
    if (strcmp(flags->device, "cuda") == 0) ash_probe_pairs(flags->node.machine, report);
}

static int respond(const void *given, const struct ash_opts *opts, const char *word)
{
    const struct flags *flags = given;
    struct ash_check_opts check = {.source = {.root = flags->node.root, .nvml = flags->node.nvml},
                                   .kernel_log = flags->node.kernel_log,
                                   .deep_seconds = flags->seconds,
                                   .fault_core = flags->fault_core};
    static struct ash_check_report report;
    struct ash_disk_rates rates;
    struct ash_node_marks marks;
    struct ash_err err = {0};

    (void)opts;
    if (strcmp(word, "node") != 0 && strcmp(word, "cluster") != 0)
        return ash_cmd_misuse("check", "'%s' cannot be checked: ashlar check node, or cluster", word);
    if (flags->quick && flags->deep) return ash_cmd_misuse("check", "--quick and --deep: give one of them");
    if (ash_node_flags_read(&flags->node, &marks, &err) < 0) return ash_cmd_fail(&err);
    check.gpus = marks.gpus;
    check.network_rate = marks.network_rate;
    check.network_devices = marks.network_devices;
    check.has_efa = marks.has_efa;
    if (strcmp(word, "cluster") == 0) return respond_cluster(flags, &check);
    ash_check_quick(&check, &report);
    ash_probe_efa(&check, &report);
    if (flags->deep) look_deep(flags, &check, &report);
    if (flags->arithmetic) ash_probe_arithmetic(&check, flags->device, &report);
    if (flags->disk != NULL) ash_check_disk(&check, flags->disk, &report, &rates);
    if (flags->json && ash_cmd_print_json(report_json(&report), &err) < 0) return ash_cmd_fail(&err);
    if (!flags->json) print_report(&report);
    return ash_check_worst(&report) < ASH_GRADE_BAD ? 0 : 1;
}

static int run(int argc, char **argv)
{
    static struct flags flags;
    const struct ash_cmd_form form = {.usage = &usage,
                                      .bindings = {{&check_table, &flags},
                                                   {&ash_node_table, &flags.node},
                                                   {&ash_group_table, &flags.group},
                                                   {&ash_fabric_table, &flags.fabric}},
                                      .takes_word = true,
                                      .missing_word = "check what? ashlar check node, or cluster",
                                      .respond = respond,
                                      .flags = &flags};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_check = {"check", "is this node fit for work? are the nodes of a cluster alike?", run};
