/* ashlar catalog ls: one line for each thing that the catalog knows. */
#include "cmd/catalog_priv.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"

struct ls_flags {
    bool json;
};

static const struct ash_opt ls_opts[] = {
    {"json", ASH_OPT_BOOL, offsetof(struct ls_flags, json), NULL, "print the whole catalog as one JSON object", 0, 0,
     NULL},
};

static const struct ash_opt_table ls_table = {
    .section = "", .help = "flags", .opts = ls_opts, .count = ASH_COUNT(ls_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar catalog ls [gpus|machines|storage|collectives|contradictions] [flags]",
    .about = "Lists what the planner knows of GPUs, machines (EC2 instances, UltraServers, DGX), storage tiers and\n"
             "measured collectives, and where published figures contradict each other.",
    .examples = "  ashlar catalog ls\n  ashlar catalog ls machines --catalog mine.yaml\n"
                "  ASHLAR_CATALOG=mine.yaml ashlar catalog ls",
};

/* "-" where nobody says. */
static void cell(int width, double value, const char *format)
{
    char text[32] = "-";

    if (value > 0) snprintf(text, sizeof(text), format, value);
    printf(" %*s", width, text);
}

static void list_gpus(const struct ash_catalog *catalog)
{
    printf("%-18s %9s %9s %9s %9s %8s %10s %7s\n", "GPU", "bf16 TF", "fp8 TF", "fp4 TF", "memory GB", "TB/s",
           "NVLink GB/s", "watts");
    for (size_t i = 0; i < ash_catalog_gpu_count(catalog); i++) {
        const struct ash_gpu *gpu = ash_catalog_gpu_at(catalog, i);

        printf("%-18s", gpu->name);
        for (int p = 0; p < ASH_PRECISION_COUNT; p++)
            cell(9, gpu->flops[p] / 1e12, "%.0f");
        cell(9, gpu->memory_bytes / 1e9, "%.1f");
        cell(8, gpu->memory_bandwidth / 1e12, "%.2f");
        cell(11, gpu->nvlink_bandwidth / 1e9, "%.0f");
        cell(7, gpu->watts, "%.0f");
        printf("\n");
    }
}

static void list_machines(const struct ash_catalog *catalog)
{
    printf("%-20s %-18s %5s %7s %-15s %8s %9s %9s %9s\n", "machine", "GPU", "GPUs", "domain", "network", "Gbit/s",
           "host GiB", "NVMe GB", "USD/hour");
    for (size_t i = 0; i < ash_catalog_machine_count(catalog); i++) {
        const struct ash_machine *machine = ash_catalog_machine_at(catalog, i);
        double price = machine->usd_hour > 0 ? machine->usd_hour : machine->usd_hour_reserved;

        printf("%-20s %-18s %5d %7d %-15s", machine->name, machine->gpu->name, machine->gpus, machine->domain_gpus,
               machine->network);
        cell(8, machine->net_bandwidth * 8 / 1e9, "%.0f");
        cell(9, machine->host_bytes / 1073741824.0, "%.0f");
        cell(9, machine->nvme_bytes / 1e9, "%.0f");
        cell(9, price, machine->usd_hour > 0 ? "%.2f" : "%.2f*");
        printf("\n");
    }
    printf("NVLink and network count one direction; * is the price of a capacity block\n");
}

static void list_named(const struct ash_catalog *catalog, const char *list, const char *title, const char *first,
                       const char *second)
{
    const json_t *things = json_object_get(ash_catalog_json(catalog), list);

    printf("%s\n", title);
    for (size_t i = 0; i < json_array_size(things); i++) {
        const json_t *thing = json_array_get(things, i);
        const char *a = json_string_value(json_object_get(thing, first));
        const char *b = json_string_value(json_object_get(thing, second));

        printf("  %-28s %s\n", a != NULL ? a : "", b != NULL ? b : "");
    }
}

static int list_all(const struct ash_catalog *catalog, const char *which)
{
    const char *const known[] = {"gpus", "machines", "storage", "collectives", "contradictions"};
    size_t found = 0;

    for (size_t i = 0; i < ASH_COUNT(known); i++) {
        if (which != NULL && strcmp(which, known[i]) != 0) continue;
        if (found++ > 0) printf("\n");
        if (i == 0) list_gpus(catalog);
        if (i == 1) list_machines(catalog);
        if (i == 2) list_named(catalog, "storage", "storage tiers", "name", "kind");
        if (i == 3) list_named(catalog, "collectives", "measured collectives", "hardware", "op");
        if (i == 4) list_named(catalog, "contradictions", "where sources disagree", "topic", "finding");
    }
    if (found == 0)
        return ash_cmd_misuse("catalog ls",
                              "there is no list '%s'; try gpus, machines, storage, collectives or "
                              "contradictions",
                              which);
    return 0;
}

static int list(const struct ash_catalog_flags *files, const struct ls_flags *flags, const char *which)
{
    struct ash_catalog *catalog = NULL;
    struct ash_err err = {0};
    int code = 0;

    if (ash_cmd_catalog_open(files, &catalog, &err) < 0) return ash_cmd_fail(&err);
    if (flags->json) {
        json_dumpf(ash_catalog_json(catalog), stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
        putchar('\n');
    } else {
        code = list_all(catalog, which);
    }
    ash_catalog_close(catalog);
    return code;
}

static int run(int argc, char **argv)
{
    struct ls_flags flags = {0};
    struct ash_catalog_flags files = {0};
    struct ash_opt_binding bindings[] = {{&ls_table, &flags}, {&ash_catalog_table, &files}};
    struct ash_opts *opts = NULL;
    struct ash_err err = {0};
    const char *which[1] = {NULL};
    size_t count = 0;
    int code;

    if (ash_opts_open(bindings, ASH_COUNT(bindings), &opts, &err) < 0) return ash_cmd_fail(&err);
    code = ash_cmd_parse(&usage, opts, argc, argv, which, 1, &count);
    if (code == ASH_CMD_GO) code = list(&files, &flags, which[0]);
    ash_opts_close(opts);
    return code;
}

const struct ash_cmd ash_cmd_catalog_ls = {"ls", "list GPUs, machines, storage tiers, collectives, contradictions",
                                           run};
