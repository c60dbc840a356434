/* ashlar check cluster: the nodes of an allocation, each by itself and against each other. Ranks meet as those of a job
 * do; the first one prints. */
#include "cmd/check_priv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "base/table.h"
#include "cmd/cmd.h"

static void name_finding(const struct ash_cluster_probe *cluster, const struct ash_cluster_finding *finding, char *buf,
                         size_t buf_bytes)
{
    const char *from = cluster->cards[finding->node].host, *to = cluster->cards[finding->to].host;

    if (finding->node == finding->to)
        snprintf(buf, buf_bytes, "node %zu (%s)", finding->node, from);
    else
        snprintf(buf, buf_bytes, "link %zu (%s) to %zu (%s)", finding->node, from, finding->to, to);
}

static void print_table(const struct ash_cluster_probe *cluster)
{
    const struct ash_cluster_report *report = cluster->report;
    struct ash_table table = {.heads = ">node|host|itself|>clock ms|>slowest MB/s|>disk write|>disk read|network"};
    char name[256];

    for (size_t i = 0; i < cluster->size; i++) {
        const struct ash_node_card *card = &cluster->cards[i];

        ash_table_row(&table, "%zu|%s|%s|%.3f|%.1f|%.1f|%.1f|%s", i, card->host,
                      ash_check_grade_name((enum ash_check_grade)card->grade), card->clock_s * 1e3,
                      ash_cluster_probe_least_rate(cluster, i) * 1e-6, card->write_rate * 1e-6, card->read_rate * 1e-6,
                      card->facts[ASH_FACT_NETWORK]);
    }
    ash_table_print(&table, stdout);
    for (size_t i = 0; i < report->count; i++) {
        name_finding(cluster, &report->findings[i], name, sizeof(name));
        printf("OUTLIER  %s: %s\n", name, report->findings[i].text);
    }
    if (report->left_out > 0) printf("and %zu more\n", report->left_out);
    if (ash_cluster_links_unjudged(&cluster->links) > 0)
        printf("%zu of %zu links were not judged: other work kept the cores of their ends busy\n",
               ash_cluster_links_unjudged(&cluster->links), ash_cluster_links_measured(&cluster->links));
    if (cluster->links.is_halves)
        printf("%zu of %zu links in %zu rounds, the others in exchanges of groups\n",
               ash_cluster_links_measured(&cluster->links), cluster->size * (cluster->size - 1), cluster->links.rounds);
    if (cluster->links.uneven > 0)
        printf("%zu groups have halves that are far from each other: switches between them, no single link\n",
               cluster->links.uneven);
    printf("%zu nodes, %.1f MB/s over the median link: %s\n", cluster->size, report->rate_median * 1e-6,
           report->count == 0 ? "no outlier" : "NOT all alike");
}

static json_t *report_json(const struct ash_cluster_probe *cluster)
{
    const struct ash_cluster_report *report = cluster->report;
    json_t *nodes = json_array(), *findings = json_array(), *rates = json_array();
    char name[256];

    for (size_t i = 0; i < cluster->size; i++) {
        const struct ash_node_card *card = &cluster->cards[i];
        json_t *facts = json_object();

        for (size_t fact = 0; fact < ASH_FACTS; fact++)
            json_object_set_new(facts, ash_node_fact_name((enum ash_node_fact)fact), json_string(card->facts[fact]));
        json_array_append_new(nodes, json_pack("{s:s, s:s, s:f, s:f, s:f, s:o}", "host", card->host, "grade",
                                               ash_check_grade_name((enum ash_check_grade)card->grade), "clock_s",
                                               card->clock_s, "disk_write", card->write_rate, "disk_read",
                                               card->read_rate, "facts", facts));
    }
    for (size_t i = 0; i < report->count; i++) {
        name_finding(cluster, &report->findings[i], name, sizeof(name));
        json_array_append_new(findings, json_pack("{s:s, s:s}", "where", name, "text", report->findings[i].text));
    }
    for (size_t i = 0; i < cluster->size * cluster->size; i++)
        json_array_append_new(rates, json_real(fabs(cluster->links.rates[i])));
    return json_pack("{s:b, s:f, s:I, s:I, s:I, s:o, s:o, s:o}", "alike", report->count == 0, "rate_median",
                     report->rate_median, "links_measured", (json_int_t)ash_cluster_links_measured(&cluster->links),
                     "rounds", (json_int_t)cluster->links.rounds, "links_not_judged",
                     (json_int_t)ash_cluster_links_unjudged(&cluster->links), "nodes", nodes, "outliers", findings,
                     "rates", rates);
}

int ash_cmd_check_cluster(const struct ash_cluster_check *check, const struct ash_group_opts *opts, bool wants_json,
                          struct ash_err *err)
{
    struct ash_cluster_probe cluster = {0};
    struct ash_group *group = NULL;
    struct ash_launch_env env;
    int rc = ash_launch_env_read(&env, err), code = 0;

    if (rc < 0) return rc;
    if (env.size < 2)
        return ash_err_set(err, -EINVAL,
                           "a cluster has two nodes at least: start this once per node, as in `srun -N 4 ashlar check "
                           "cluster` or `ashlar launch --procs 1 --nodes 2 check cluster`");
    rc = ash_group_open(&env, opts, &group, err);
    if (rc == 0) rc = ash_cluster_probe_init(&cluster, check, group, err);
    if (rc == 0) rc = code = ash_cluster_probe_run(&cluster, err);
    if (rc >= 0 && cluster.rank == 0) {
        if (wants_json)
            rc = ash_cmd_print_json(report_json(&cluster), err);
        else
            print_table(&cluster);
    }
    ash_cluster_probe_fini(&cluster);
    ash_group_close(group);
    return rc < 0 ? rc : code;
}
