/* Clusters for simulations. All become a topology and a list of hosts in its order. */
#include "queue/replay/site.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "queue/replay/trace.h"

void ash_site_fini(struct ash_site *site)
{
    ash_topology_close(site->topology);
    free(site->hosts);
    *site = (struct ash_site){0};
}

double ash_site_gpus(const struct ash_site *site)
{
    double gpus = 0;

    for (int i = 0; i < site->host_count; i++)
        gpus += site->hosts[i].gpus;
    return gpus;
}

int ash_site_take(struct ash_topology *topology, int gpus, struct ash_site *site_out, struct ash_err *err)
{
    struct ash_site site = {.topology = topology,
                            .hosts = calloc((size_t)topology->nodes[0].hosts, sizeof(*site.hosts))};

    if (site.hosts == NULL) {
        ash_site_fini(&site);
        return ash_err_set(err, -ENOMEM, "out of memory");
    }
    for (int node = 1; node < topology->count; node++)
        if (topology->nodes[node].is_host)
            site.hosts[site.host_count++] = (struct ash_policy_host){.node = node, .gpus = gpus};
    *site_out = site;
    return 0;
}

/* "16,160" into numbers, the narrowest first. Their count or -EINVAL. */
static int parse_widths(const char *text, int *widths, struct ash_err *err)
{
    int count = 0;

    while (text != NULL && *text != '\0') {
        char *end = NULL;
        long width = strtol(text, &end, 10);

        if (end == text || width < 1 || width > ASH_TOPOLOGY_NODES_MAX || (*end != ',' && *end != '\0') ||
            count == ASH_SITE_WIDTHS_MAX || (count > 0 && width % widths[count - 1] != 0))
            return ash_err_set(
                err, -EINVAL,
                "a topology is a file, or hosts per rack, per block, ... as in 16,160, each a multiple of "
                "the one before; not '%.60s'",
                text);
        widths[count++] = (int)width;
        text = *end == ',' ? end + 1 : end;
    }
    return count;
}

/* A line of a host: its domains from the widest down. */
static int add_line(struct ash_str *text, int host, const int *widths, int count)
{
    int rc = ash_str_addf(text, "n%d d", host);

    for (int i = count - 1; i >= 0 && rc == 0; i--)
        rc = ash_str_addf(text, "%s%d", i < count - 1 ? "/" : "", host / widths[i]);
    return rc == 0 ? ash_str_adds(text, "\n") : rc;
}

int ash_site_make(int hosts, int gpus, const char *widths, struct ash_site *site_out, struct ash_err *err)
{
    int width[ASH_SITE_WIDTHS_MAX], count = parse_widths(widths, width, err), rc = 0;
    struct ash_topology *topology = NULL;
    struct ash_str text = {0};

    if (count < 0) return count;
    if (count == 0) width[count++] = hosts;
    for (int host = 0; host < hosts && rc == 0; host++)
        rc = add_line(&text, host, width, count);
    if (rc < 0)
        ash_err_set(err, rc, "out of memory");
    else
        rc = ash_topology_parse(text.data, text.size_bytes, "topology", &topology, err);
    ash_str_fini(&text);
    return rc < 0 ? rc : ash_site_take(topology, gpus, site_out, err);
}

/* One row: name, processors, memory, GPUs, model. */
static int parse_row(char *line, struct ash_str *text, struct ash_policy_host *host, struct ash_err *err)
{
    char name[256], model[64] = "";
    long long cpu, memory;
    int gpus;

    if (sscanf(line, "%255[^, \t\r],%lld,%lld,%d,%63[^,\r\n]", name, &cpu, &memory, &gpus, model) < 4 || cpu < 0 ||
        memory < 0 || gpus < 0 || gpus > ASH_POLICY_HOST_GPUS_MAX)
        return ash_err_set(err, -EINVAL, "expected sn,cpu_milli,memory_mib,gpu,model with at most %d GPUs",
                           ASH_POLICY_HOST_GPUS_MAX);
    *host = (struct ash_policy_host){
        .gpus = gpus, .cpu_milli = cpu, .memory_mib = memory, .model = ash_trace_model_number(model)};
    return ash_str_addf(text, "%s all\n", name) < 0 ? ash_err_set(err, -ENOMEM, "out of memory") : 0;
}

static int parse_rows(char *rows, struct ash_str *text, struct ash_policy_host *hosts, struct ash_err *err)
{
    int number = 1, count = 0;

    strsep(&rows, "\n"); /* the header */
    for (char *line = strsep(&rows, "\n"); line != NULL; line = strsep(&rows, "\n")) {
        int rc;

        number++;
        if (line[strspn(line, " \t\r")] == '\0') continue;
        rc = parse_row(line, text, &hosts[count++], err);
        if (rc < 0) return ash_err_prefix(err, rc, "line %d", number);
    }
    return count;
}

int ash_site_parse(const char *text, size_t size_bytes, const char *name, struct ash_site *site_out,
                   struct ash_err *err)
{
    char *copy = strndup(text, size_bytes);
    struct ash_policy_host *hosts;
    struct ash_topology *topology = NULL;
    struct ash_site site = {0};
    struct ash_str tree = {0};
    size_t lines = 1;
    int count, rc;

    for (size_t i = 0; i < size_bytes; i++)
        lines += text[i] == '\n';
    hosts = calloc(lines, sizeof(*hosts));
    rc = count = copy == NULL || hosts == NULL ? ash_err_set(err, -ENOMEM, "out of memory")
                                               : parse_rows(copy, &tree, hosts, err);
    if (rc == 0)
        rc = ash_err_set(err, -EINVAL, "no nodes: expected a header and rows of sn,cpu_milli,memory_mib,gpu,model");
    if (rc > 0) rc = ash_topology_parse(tree.data, tree.size_bytes, "nodes", &topology, err);
    if (rc == 0) rc = ash_site_take(topology, 0, &site, err);
    if (rc == 0 && site.host_count != count) rc = ash_err_set(err, -EINVAL, "a node is there twice");
    for (int i = 0; i < count && rc == 0; i++) { /* the topology keeps the order of the rows */
        hosts[i].node = site.hosts[i].node;
        site.hosts[i] = hosts[i];
    }
    ash_str_fini(&tree);
    free(copy);
    free(hosts);
    if (rc < 0) {
        ash_site_fini(&site);
        return ash_err_prefix(err, rc, "%s", name);
    }
    *site_out = site;
    return 0;
}
