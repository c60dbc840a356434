/* ashlar catalog ls: one line for each entry of the catalog. */
#include "cmd/catalog_priv.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/table.h"

struct flags {
    bool json;
    struct ash_catalog_flags machines;
};

static const struct ash_opt ls_opts[] = {
    {"json", ASH_OPT_BOOL, offsetof(struct flags, json), NULL, "print the whole catalog as one JSON object", 0, 0,
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

/* "-" if unknown. */
static void add_value(struct ash_table *table, double value, int digits, const char *mark)
{
    if (value > 0)
        ash_table_cell(table, "%.*f%s", digits, value, mark);
    else
        ash_table_cell(table, "-");
}

static void list_gpus(const struct ash_catalog *catalog)
{
    struct ash_table table = {.heads = "GPU|>bf16 TF|>fp8 TF|>fp4 TF|>memory GB|>TB/s|>NVLink GB/s|>watts"};

    for (size_t i = 0; i < ash_catalog_gpu_count(catalog); i++) {
        const struct ash_gpu *gpu = ash_catalog_gpu_at(catalog, i);

        ash_table_row(&table, "%s", gpu->name);
        for (int p = 0; p < ASH_GPU_PRECISIONS; p++)
            add_value(&table, gpu->flops[p] / 1e12, 0, "");
        add_value(&table, gpu->memory_bytes / 1e9, 1, "");
        add_value(&table, gpu->memory_bandwidth / 1e12, 2, "");
        add_value(&table, gpu->nvlink_bandwidth / 1e9, 0, "");
        add_value(&table, gpu->watts, 0, "");
    }
    ash_table_print(&table, stdout);
}

static void list_machines(const struct ash_catalog *catalog)
{
    struct ash_table table = {.heads = "machine|GPU|>GPUs|>domain|network|>Gbit/s|>host GiB|>NVMe GB|>USD/hour"};

    for (size_t i = 0; i < ash_catalog_machine_count(catalog); i++) {
        const struct ash_machine *machine = ash_catalog_machine_at(catalog, i);
        double price = machine->usd_hour > 0 ? machine->usd_hour : machine->usd_hour_reserved;

        ash_table_row(&table, "%s|%s|%d|%d|%s", machine->name, machine->gpu->name, machine->gpus, machine->domain_gpus,
                      machine->network);
        add_value(&table, machine->net_bandwidth * 8 / 1e9, 0, "");
        add_value(&table, machine->host_bytes / 1073741824.0, 0, "");
        add_value(&table, machine->nvme_bytes / 1e9, 0, "");
        add_value(&table, price, 2, machine->usd_hour > 0 ? "" : "*");
    }
    ash_table_print(&table, stdout);
    printf("NVLink and network count one direction; * is the price of a capacity block\n");
}

static void list_named(const struct ash_catalog *catalog, const char *list, const char *title, const char *first,
                       const char *second)
{
    const json_t *things = json_object_get(ash_catalog_json(catalog), list);
    struct ash_table table = {.heads = "|", .indent = 2};

    printf("%s\n", title);
    for (size_t i = 0; i < json_array_size(things); i++) {
        const json_t *thing = json_array_get(things, i);
        const char *a = json_string_value(json_object_get(thing, first));
        const char *b = json_string_value(json_object_get(thing, second));

        ash_table_row(&table, "%s|%s", a != NULL ? a : "", b != NULL ? b : "");
    }
    ash_table_print(&table, stdout);
}

static void list_storage(const struct ash_catalog *catalog)
{
    list_named(catalog, "storage", "storage tiers", "name", "kind");
}

static void list_collectives(const struct ash_catalog *catalog)
{
    list_named(catalog, "collectives", "measured collectives", "hardware", "op");
}

static void list_contradictions(const struct ash_catalog *catalog)
{
    list_named(catalog, "contradictions", "where sources disagree", "topic", "finding");
}

static const struct {
    const char *name;
    void (*print)(const struct ash_catalog *catalog);
} lists[] = {
    {"gpus", list_gpus},
    {"machines", list_machines},
    {"storage", list_storage},
    {"collectives", list_collectives},
    {"contradictions", list_contradictions},
};

static bool is_list(const char *name)
{
    for (size_t i = 0; i < ASH_COUNT(lists); i++)
        if (strcmp(name, lists[i].name) == 0) return true;
    return false;
}

static void list_all(const struct ash_catalog *catalog, const char *which)
{
    bool first = true;

    for (size_t i = 0; i < ASH_COUNT(lists); i++) {
        if (which != NULL && strcmp(which, lists[i].name) != 0) continue;
        if (!first) printf("\n");
        first = false;
        lists[i].print(catalog);
    }
}

/* The whole catalog, or one of its lists. */
static json_t *chosen(const struct ash_catalog *catalog, const char *which)
{
    json_t *all = (json_t *)ash_catalog_json(catalog);

    if (which == NULL) return json_incref(all);
    return json_pack("{s:O, s:O}", "sources", json_object_get(all, "sources"), which, json_object_get(all, which));
}

static int respond(const void *ctx, const struct ash_opts *opts, const char *which)
{
    const struct flags *flags = ctx;
    struct ash_catalog *catalog = NULL;
    struct ash_err err = {0};
    int code = 0;

    (void)opts;
    if (which != NULL && !is_list(which))
        return ash_cmd_misuse("catalog ls",
                              "there is no list '%s'; try gpus, machines, storage, collectives or "
                              "contradictions",
                              which);
    if (ash_cmd_catalog_open(&flags->machines, &catalog, &err) < 0) return ash_cmd_fail(&err);
    if (!flags->json)
        list_all(catalog, which);
    else if (ash_cmd_print_json(chosen(catalog, which), &err) < 0)
        code = ash_cmd_fail(&err);
    ash_catalog_close(catalog);
    return code;
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};
    const struct ash_cmd_form form = {.usage = &usage,
                                      .bindings = {{&ls_table, &flags}, {&ash_catalog_table, &flags.machines}},
                                      .takes_word = true,
                                      .respond = respond,
                                      .flags = &flags};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_catalog_ls = {"ls", "list GPUs, machines, storage tiers, collectives, contradictions",
                                           run};
