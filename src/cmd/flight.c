/* ashlar flight: the last operations of a job's ranks when it stopped. */
#include "cmd/cmd.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "observe/flight/flight.h"
#include "record/metrics_page.h"

struct flags {
    const char *job, *torch;
    bool json;
    int64_t last;
};

#define FIELD(name) offsetof(struct flags, name)
static const struct ash_opt flight_opts[] = {
    {"job", ASH_OPT_STRING, FIELD(job), NULL, "which job's recorders; default: the one that recorded last", 0, 0, NULL},
    {"torch", ASH_OPT_STRING, FIELD(torch), NULL, "write rank_N files for PyTorch's torchfrtrace into this folder", 0,
     0, NULL},
    {"last", ASH_OPT_INT, FIELD(last), NULL, "print the last calls of each rank, this many", 0, 4096, NULL},
    {"json", ASH_OPT_BOOL, FIELD(json), NULL, "print one JSON object", 0, 0, NULL},
};
static const struct ash_opt_table flight_table = {"", "flags", flight_opts, ASH_COUNT(flight_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar flight [DIR] [flags]",
    .about =
        "Every rank keeps its last 4,096 collective calls in a mapped file of --pages (default " ASH_METRICS_PAGE_DIR
        ").\n"
        "The files outlive ranks that were killed. This compares them: the first call that differs, which ranks\n"
        "have not come to a call that others wait in, and for how long. For several nodes, copy their files together.",
    .examples = "  ashlar flight\n"
                "  ashlar flight collected/ --job 4711 --last 5\n"
                "  ashlar flight collected/ --torch torch-format/",
};

/* ---- words ------------------------------------------------------------------------------------------------------- */

static const char *list_ranks(const struct ash_flight_finding *finding, char *buf, size_t buf_bytes)
{
    size_t used = 0;

    buf[0] = '\0';
    for (size_t i = 0; i < finding->named_count && used < buf_bytes; i++)
        used += (size_t)snprintf(buf + used, buf_bytes - used, "%s%u", i > 0 ? ", " : "", finding->named[i]);
    if (finding->all_count > finding->named_count && used < buf_bytes)
        snprintf(buf + used, buf_bytes - used, "%s%zu %s", used > 0 ? " and " : "",
                 finding->all_count - finding->named_count, used > 0 ? "more" : "that left no recorder");
    return buf;
}

static void print_finding(const struct ash_flight_finding *finding)
{
    char call[160], other[160], ranks[256], time[32];

    ash_flight_call_text(finding->call, call, sizeof(call));
    list_ranks(finding, ranks, sizeof(ranks));
    switch (finding->fault) {
    case ASH_FLIGHT_DIFFERS:
        printf("%s, call %llu: rank %s: %s, while the others: %s\n", finding->group,
               (unsigned long long)finding->sequence, ranks, ash_flight_call_text(finding->other, other, sizeof(other)),
               call);
        break;
    case ASH_FLIGHT_STOPPED:
        printf("%s, call %llu, %s: the process of rank %s is stopped, by a signal or a debugger\n", finding->group,
               (unsigned long long)finding->sequence, call, ranks);
        break;
    case ASH_FLIGHT_MISSING:
        printf("%s, call %llu, %s: rank %s has not come\n", finding->group, (unsigned long long)finding->sequence, call,
               ranks);
        break;
    case ASH_FLIGHT_ENDED:
        printf("%s, call %llu, %s: rank %s ended in it, killed or crashed\n", finding->group,
               (unsigned long long)finding->sequence, call, ranks);
        return;
    default:
        printf("%s, call %llu, %s: all %zu ranks are in it and it does not end\n", finding->group,
               (unsigned long long)finding->sequence, call, finding->size);
    }
    if (finding->first_waiter != UINT32_MAX)
        printf("  rank %u waits, since %s\n", finding->first_waiter,
               ash_clock_format(finding->since_s, time, sizeof(time)));
}

static void print_last(const struct ash_flight_set *set, size_t most)
{
    char text[160], name[ASH_FLIGHT_NAME_BYTES + 1] = {0};

    for (size_t r = 0; r < set->count; r++) {
        const struct ash_flight_rank *rank = &set->ranks[r];

        printf("rank %zu (process %u, %s)\n", rank->rank, rank->view.pid,
               rank->is_stopped      ? "stopped"
               : rank->view.is_alive ? "running"
                                     : "ended");
        for (size_t i = rank->view.count > most ? rank->view.count - most : 0; i < rank->view.count; i++) {
            const struct ash_flight_call *one = ash_flight_call_at(rank, i);

            memcpy(name, one->name, sizeof(one->name));
            printf("  %-8s %6llu  %-48s ", name, (unsigned long long)one->sequence,
                   ash_flight_call_text(one, text, sizeof(text)));
            if (one->end_ns != 0)
                printf("%.3f ms%s\n", (double)(one->end_ns - one->start_ns) * 1e-6, one->rc < 0 ? ", failed" : "");
            else
                printf("not ended\n");
        }
    }
}

static void print_report(const struct ash_flight_set *set, const struct ash_flight_report *report)
{
    size_t running = 0;

    for (size_t r = 0; r < set->count; r++)
        running += set->ranks[r].view.is_alive;
    printf("job %s: %zu ranks left their calls, %zu of them run; %zu calls in %zu groups were compared\n",
           set->ranks[0].job, set->count, running, report->calls, report->groups);
    for (size_t i = 0; i < report->count; i++)
        print_finding(&report->findings[i]);
    if (report->count == 0) printf("all ranks made the same calls, and none waits\n");
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

static json_t *finding_json(const struct ash_flight_finding *finding)
{
    static const char *const faults[] = {"differs", "stopped", "missing", "ended", "does not end"};
    json_t *ranks = json_array();
    char text[160];
    json_t *json;

    _Static_assert(ASH_COUNT(faults) == ASH_FLIGHT_SLOW + 1, "a name for every fault");
    for (size_t i = 0; i < finding->named_count; i++)
        json_array_append_new(ranks, json_integer(finding->named[i]));
    json = json_pack("{s:s, s:s, s:I, s:i, s:o, s:i, s:s, s:f}", "fault", faults[finding->fault], "group",
                     finding->group, "sequence", (json_int_t)finding->sequence, "size", (int)finding->size, "ranks",
                     ranks, "rank_count", (int)finding->all_count, "call",
                     ash_flight_call_text(finding->call, text, sizeof(text)), "waited_seconds", finding->since_s);
    if (json != NULL && finding->other != NULL)
        json_object_set_new(json, "other_call", json_string(ash_flight_call_text(finding->other, text, sizeof(text))));
    if (json != NULL && finding->first_waiter != UINT32_MAX)
        json_object_set_new(json, "first_waiter", json_integer(finding->first_waiter));
    return json;
}

static json_t *report_json(const struct ash_flight_set *set, const struct ash_flight_report *report)
{
    json_t *findings = json_array();

    for (size_t i = 0; i < report->count; i++)
        json_array_append_new(findings, finding_json(&report->findings[i]));
    return json_pack("{s:s, s:i, s:I, s:i, s:o}", "job", set->ranks[0].job, "ranks", (int)set->count, "calls",
                     (json_int_t)report->calls, "groups", (int)report->groups, "findings", findings);
}

static int write_torch(const struct ash_flight_set *set, const char *dir, struct ash_err *err)
{
    struct ash_flight_torch *torch = NULL;
    int rc = ash_dir_make(dir, err);

    if (rc == 0 && ash_flight_torch_open(set, &torch) < 0)
        rc = ash_err_set(err, -ENOMEM, "no memory for PyTorch's format");
    for (size_t i = 0; rc == 0 && i < set->count; i++) {
        struct ash_str text = {0};
        char path[PATH_MAX];

        snprintf(path, sizeof(path), "%s/rank_%zu", dir, set->ranks[i].rank);
        rc = ash_flight_torch_write(torch, i, &text);
        rc = rc < 0 ? ash_err_set(err, rc, "no memory for %s", path)
                    : ash_file_replace(path, text.data, text.size_bytes, err);
        ash_str_fini(&text);
    }
    ash_flight_torch_close(torch);
    return rc;
}

static int answer(const struct flags *flags, const char *dir, struct ash_err *err)
{
    struct ash_flight_report report = {0};
    struct ash_flight_set set = {0};
    int rc = ash_flight_set_load(&set, dir, flags->job, NULL, err);

    if (rc < 0) return rc;
    if (flags->torch != NULL) rc = write_torch(&set, flags->torch, err);
    if (rc == 0)
        rc = ash_flight_compare(&set, &report) < 0 ? ash_err_set(err, -ENOMEM, "no memory to compare the calls") : 0;
    if (rc == 0 && flags->json) rc = ash_cmd_print_json(report_json(&set, &report), err);
    if (rc == 0 && !flags->json) {
        print_report(&set, &report);
        if (flags->last > 0) print_last(&set, (size_t)flags->last);
    }
    ash_flight_report_fini(&report);
    ash_flight_set_fini(&set);
    return rc;
}

static int respond(const void *given, const struct ash_opts *opts, const char *word)
{
    struct ash_err err = {0};

    (void)opts;
    return answer(given, word != NULL ? word : ASH_METRICS_PAGE_DIR, &err) < 0 ? ash_cmd_fail(&err) : 0;
}

static int run(int argc, char **argv)
{
    static struct flags flags;
    const struct ash_cmd_form form = {.usage = &usage,
                                      .bindings = {{&flight_table, &flags}},
                                      .takes_word = true,
                                      .respond = respond,
                                      .flags = &flags};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_flight = {"flight", "what a job's ranks were doing when it stopped", run};
