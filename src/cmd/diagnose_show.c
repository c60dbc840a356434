/* What `ashlar diagnose` answers, for people and for programs. */
#include "cmd/diagnose_show.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cmd/cmd.h"

#define FINDINGS_SHOWN 30
#define LINE_COLUMNS 110
#define INDENT_COLUMNS 11

/* ---- people ------------------------------------------------------------------------------------------------------ */

/* How many findings of which severity: "2 broken, 1 slow". */
static size_t count_findings(const struct ash_diagnose *diagnose, enum ash_severity severity)
{
    size_t count = 0;

    for (size_t i = 0; i < ash_diagnose_finding_count(diagnose); i++)
        count += ash_diagnose_finding(diagnose, i)->severity == severity;
    return count;
}

/* One line: the first abnormal layer, and worse ones further up. */
static void write_verdict(const struct ash_diagnose *diagnose, char *text, size_t text_bytes)
{
    const struct ash_finding *first = ash_diagnose_first(diagnose), *worst;
    int used;

    if (first == NULL) {
        snprintf(text, text_bytes, "nothing abnormal in what could be judged (nodes: %zu, series: %zu)",
                 ash_diagnose_nodes(diagnose), ash_diagnose_series(diagnose));
        return;
    }
    used = snprintf(text, text_bytes, "%s is the first abnormal layer: %s, %s: %s (normal: %s): %s",
                    ash_health_layer_name(first->layer), first->where, first->metric, first->value, first->normal,
                    first->means);
    worst = ash_diagnose_finding(diagnose, 0);
    if (worst->severity > first->severity && used > 0 && (size_t)used < text_bytes)
        snprintf(text + used, text_bytes - (size_t)used, "; worse, in %s: %s: %s", ash_health_layer_name(worst->layer),
                 worst->where, worst->means);
}

static void print_findings(const struct ash_diagnose *diagnose)
{
    size_t count = ash_diagnose_finding_count(diagnose);

    if (count == 0) return;
    printf("\nfindings: %zu broken, %zu slow, %zu to watch\n", count_findings(diagnose, ASH_BROKEN),
           count_findings(diagnose, ASH_SLOW), count_findings(diagnose, ASH_WATCH));
    for (size_t i = 0; i < count && i < FINDINGS_SHOWN; i++) {
        const struct ash_finding *finding = ash_diagnose_finding(diagnose, i);

        printf("  %-6s %-8s %-24s %s: %s\n", ash_severity_name(finding->severity),
               ash_health_layer_name(finding->layer), finding->where, finding->metric, finding->value);
        printf("  %-15s normal: %s. %s. Do: %s. [%s]\n", "", finding->normal, finding->means, finding->action,
               finding->source);
    }
    if (count > FINDINGS_SHOWN) printf("  ... and %zu more (--json has all)\n", count - FINDINGS_SHOWN);
}

/* A list that continues on the next line when one is full. */
struct wrapped {
    size_t column, count;
};

static void print_item(struct wrapped *line, const char *text)
{
    if (line->count > 0 && line->column + strlen(text) + 2 > LINE_COLUMNS) {
        printf(",\n%*s", INDENT_COLUMNS, "");
        line->column = INDENT_COLUMNS;
    } else if (line->count > 0) {
        printf(", ");
        line->column += 2;
    }
    line->column += (size_t)printf("%s", text);
    line->count++;
}

/* A check as people name it: "GPUs seen", or its metric. */
static const char *check_name(const struct ash_check *check)
{
    if (check->rule->only != NULL && check->rule->kind == ASH_RULE_GROWTH && strchr(check->rule->only, '=') != NULL) {
        static char named[160];

        snprintf(named, sizeof(named), "%s{%s}", check->rule->metric, check->rule->only);
        return named;
    }
    if (check->rule->kind != ASH_RULE_COUNT) return check->rule->metric;
    return check->rule->layer == ASH_HEALTH_GPU ? "GPUs seen" : "network devices seen";
}

/* By layer: its normal checks. */
static void print_ruled_out(const struct ash_diagnose *diagnose)
{
    char text[160];

    printf("\nruled out (series looked at)\n");
    for (int layer = 0; layer < ASH_HEALTH_COUNT; layer++) {
        struct wrapped line = {0};

        for (size_t i = 0; i < ash_diagnose_check_count(diagnose); i++) {
            const struct ash_check *check = ash_diagnose_check(diagnose, i);

            if ((int)check->rule->layer != layer || check->state != ASH_CHECK_NORMAL) continue;
            if (line.count == 0)
                line.column = (size_t)printf("  %-8s ", ash_health_layer_name((enum ash_health_layer)layer));
            snprintf(text, sizeof(text), "%s (%zu)", check_name(check), check->series);
            print_item(&line, text);
        }
        if (line.count > 0) printf("\n");
    }
    if (ash_diagnose_log_lines(diagnose) > 0)
        printf("  %-8s every other trace in logs (lines: %zu, of which %zu show that EFA or IB is used)\n", "software",
               ash_diagnose_log_lines(diagnose), ash_diagnose_log_good(diagnose));
}

/* By reason. */
static void print_not_judged(const struct ash_diagnose *diagnose)
{
    printf("\nnot judged\n");
    if (ash_diagnose_nodes(diagnose) == 0) printf("  every counter of a node: needs scrapes (node1.prom ...)\n");
    for (int state = ASH_CHECK_ABSENT; state < ASH_CHECK_STATES; state++) {
        struct wrapped line = {0};

        for (size_t i = 0; i < ash_diagnose_check_count(diagnose); i++) {
            const struct ash_check *check = ash_diagnose_check(diagnose, i);

            if ((int)check->state != state) continue;
            if (ash_diagnose_nodes(diagnose) == 0 && check->rule->kind != ASH_RULE_OTHER) continue;
            if (line.count == 0)
                line.column = (size_t)printf("  %s: ", ash_check_state_text((enum ash_check_state)state));
            print_item(&line, check_name(check));
        }
        if (line.count > 0) printf("\n");
    }
    if (ash_diagnose_log_lines(diagnose) == 0)
        printf(
            "  needs a log (--log): fabric manager (CUDA error 802), NCCL's transport, libraries of another version\n");
    if (ash_diagnose_skipped(diagnose) > 0)
        printf("  %zu lines of the files are no samples\n", ash_diagnose_skipped(diagnose));
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

static json_t *encode_finding(const struct ash_finding *finding)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "layer", ash_health_layer_name(finding->layer),
                     "severity", ash_severity_name(finding->severity), "where", finding->where, "metric",
                     finding->metric, "value", finding->value, "normal", finding->normal, "means", finding->means,
                     "action", finding->action, "source", finding->source);
}

static json_t *encode_check(const struct ash_check *check)
{
    const struct ash_rule *rule = check->rule;

    return json_pack("{s:s, s:s, s:s, s:s, s:I}", "layer", ash_health_layer_name(rule->layer), "metric", rule->metric,
                     "normal", rule->normal, "state", ash_check_state_text(check->state), "series",
                     (json_int_t)check->series);
}

static json_t *encode(const struct ash_diagnose *diagnose, const char *verdict)
{
    const struct ash_finding *first = ash_diagnose_first(diagnose);
    json_t *findings = json_array(), *checks = json_array();

    for (size_t i = 0; i < ash_diagnose_finding_count(diagnose); i++)
        json_array_append_new(findings, encode_finding(ash_diagnose_finding(diagnose, i)));
    for (size_t i = 0; i < ash_diagnose_check_count(diagnose); i++)
        json_array_append_new(checks, encode_check(ash_diagnose_check(diagnose, i)));
    return json_pack("{s:s, s:b, s:s?, s:I, s:I, s:I, s:I, s:o, s:o}", "verdict", verdict, "healthy", first == NULL,
                     "first_layer", first == NULL ? NULL : ash_health_layer_name(first->layer), "nodes",
                     (json_int_t)ash_diagnose_nodes(diagnose), "series", (json_int_t)ash_diagnose_series(diagnose),
                     "unreadable_lines", (json_int_t)ash_diagnose_skipped(diagnose), "log_lines",
                     (json_int_t)ash_diagnose_log_lines(diagnose), "findings", findings, "checks", checks);
}

int ash_diagnose_show(const struct ash_diagnose *diagnose, bool json, struct ash_err *err)
{
    char verdict[1024];

    write_verdict(diagnose, verdict, sizeof(verdict));
    if (json) return ash_cmd_print_json(encode(diagnose, verdict), err);
    printf("%s\n", verdict);
    print_findings(diagnose);
    print_ruled_out(diagnose);
    print_not_judged(diagnose);
    return 0;
}

/* ---- watching ---------------------------------------------------------------------------------------------------- */

/* Is there a finding about the same place and counter? Its value may differ. */
static bool has_finding(const struct ash_diagnose *diagnose, const struct ash_finding *like)
{
    for (size_t i = 0; diagnose != NULL && i < ash_diagnose_finding_count(diagnose); i++) {
        const struct ash_finding *finding = ash_diagnose_finding(diagnose, i);

        if (finding->layer == like->layer && strcmp(finding->metric, like->metric) == 0 &&
            strcmp(finding->where, like->where) == 0)
            return true;
    }
    return false;
}

/* Findings of `of` that `other` has not. Returns how many. */
static size_t print_new(const struct ash_diagnose *of, const struct ash_diagnose *other, const char *when,
                        const char *what)
{
    size_t printed = 0;

    for (size_t i = 0; of != NULL && i < ash_diagnose_finding_count(of); i++) {
        const struct ash_finding *finding = ash_diagnose_finding(of, i);

        if (has_finding(other, finding)) continue;
        printf("%s %s %-6s %s: %s, %s: %s\n", when, what, ash_severity_name(finding->severity),
               ash_health_layer_name(finding->layer), finding->where, finding->metric, finding->value);
        printed++;
    }
    return printed;
}

void ash_diagnose_show_change(const struct ash_diagnose *before, const struct ash_diagnose *now)
{
    char when[32], verdict[1024];
    time_t seconds = time(NULL);
    struct tm date;
    size_t changes;

    localtime_r(&seconds, &date);
    strftime(when, sizeof(when), "%H:%M:%S", &date);
    changes = print_new(now, before, when, "+");
    changes += print_new(before, now, when, "-");
    if (changes > 0 || before == NULL) {
        write_verdict(now, verdict, sizeof(verdict));
        printf("%s %s\n", when, verdict);
    }
    fflush(stdout);
}
