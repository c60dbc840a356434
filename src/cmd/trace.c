/* ashlar trace: the last steps of a job's ranks as a Chrome trace. */
#include "cmd/cmd.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/number.h"
#include "observe/trace/serve_trace.h"
#include "observe/trace/trace.h"
#include "record/metrics_page.h"

struct flags {
    const char *steps, *out, *job, *request;
    bool server;
};

#define FIELD(name) offsetof(struct flags, name)
static const struct ash_opt trace_opts[] = {
    {"steps", ASH_OPT_STRING, FIELD(steps), NULL, "which steps, FIRST-LAST; default: all that the rings hold", 0, 0,
     NULL},
    {"job", ASH_OPT_STRING, FIELD(job), NULL, "which job's ranks; default: the one that recorded last", 0, 0, NULL},
    {"server", ASH_OPT_BOOL, FIELD(server), NULL, "requests and passes of servers instead of steps of ranks", 0, 0,
     NULL},
    {"request", ASH_OPT_STRING, FIELD(request), NULL,
     "with --server: only requests whose id has this in it (X-Request-Id)", 0, 0, NULL},
    {"out", ASH_OPT_STRING, FIELD(out), "trace.json", "file to write; Perfetto and speedscope open it", 0, 0, NULL},
};
static const struct ash_opt_table trace_table = {"", "flags", trace_opts, ASH_COUNT(trace_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar trace [RUN|DIR] [--steps FIRST-LAST | --server [--request ID]] [--out FILE]",
    .about =
        "Writes what the ranks of a job did in their last steps as Chrome trace events: steps with their parts,\n"
        "collective calls and messages, all ranks on one clock. Ranks record this always, in --pages, so it can be\n"
        "asked for afterwards, also of a job that was killed. A run that was trained with\n"
        "train.trace=100-105 has these steps in its folder, with every op of every rank. --server: the last requests\n"
        "of `ashlar serve`, each with its queue, prompt, answer and what every pass did for it.",
    .examples = "  ashlar trace runs/big --out big.json\n"
                "  ashlar trace --steps 100-105\n"
                "  ashlar trace --server --request chatcmpl-42\n"
                "  ashlar trace collected/ --job 4711 --out slow.json",
};

/* Of the ranks of all jobs, those of one. */
static void keep_job(struct ash_rank_set *set, const char *job)
{
    size_t kept = 0;

    for (size_t i = 0; i < set->count; i++) {
        struct ash_rank_steps rank = set->ranks[i];

        if (strcmp(rank.job, job) == 0)
            set->ranks[kept++] = rank;
        else
            ash_ring_view_fini(&rank.view);
    }
    set->count = kept;
}

static int write_trace(const struct flags *flags, const char *dir, uint64_t first, uint64_t last, struct ash_err *err)
{
    struct ash_flight_set calls = {0};
    struct ash_rank_set steps = {0};
    struct ash_str text = {0};
    int rc = ash_flight_set_load(&calls, dir, flags->job, NULL, err);

    if (rc == 0) rc = ash_rank_set_load(&steps, dir, err);
    if (rc == 0) keep_job(&steps, calls.ranks[0].job);
    if (rc == 0) rc = ash_trace_write(&(struct ash_trace_sources){&calls, &steps, dir}, first, last, &text, err);
    if (rc == 0) rc = ash_file_replace(flags->out, text.data, text.size_bytes, err);
    if (rc == 0)
        printf("%s: job %s, %zu ranks, %zu bytes; open it in https://ui.perfetto.dev or speedscope\n", flags->out,
               calls.ranks[0].job, steps.count, text.size_bytes);
    ash_str_fini(&text);
    ash_rank_set_fini(&steps);
    ash_flight_set_fini(&calls);
    return rc;
}

static int write_server_trace(const struct flags *flags, const char *dir, struct ash_err *err)
{
    struct ash_server_set set = {0};
    struct ash_str text = {0};
    int requests = ash_server_set_load(&set, dir, true, err), rc;

    if (requests == 0) requests = ash_serve_trace_write(&set, flags->request, &text, err);
    rc = requests < 0 ? requests : ash_file_replace(flags->out, text.data, text.size_bytes, err);
    if (rc == 0)
        printf("%s: %d requests, %zu bytes; open it in https://ui.perfetto.dev or speedscope\n", flags->out, requests,
               text.size_bytes);
    ash_str_fini(&text);
    ash_server_set_fini(&set);
    return rc;
}

/* Where the rings are: of a run, in its trace/. */
static int find_rings(const char *word, char *buf, size_t buf_bytes, struct ash_err *err)
{
    char log[PATH_MAX];

    if (ash_path_join(buf, buf_bytes, word, "trace") == 0 && ash_path_exists(buf)) return 0;
    if (ash_path_join(log, sizeof(log), word, "log.jsonl") == 0 && ash_path_exists(log))
        return ash_err_set(err, -ENOENT,
                           "the run '%s' has no trace: train with train.trace=100-105; while it runs, "
                           "`ashlar trace` without a folder has its last steps",
                           word);
    snprintf(buf, buf_bytes, "%s", word);
    return 0;
}

static int respond(const void *given, const struct ash_opts *opts, const char *word)
{
    const struct flags *flags = given;
    struct ash_err err = {0};
    uint64_t first = 0, last = UINT64_MAX;
    char dir[PATH_MAX];

    (void)opts;
    if (flags->steps != NULL && ash_number_range(flags->steps, &first, &last) < 0)
        return ash_cmd_misuse("trace", "--steps %s is no range: 100-105", flags->steps);
    if (flags->server && (flags->steps != NULL || flags->job != NULL))
        return ash_cmd_misuse("trace", "--server has requests: --steps and --job are of ranks");
    if (!flags->server && flags->request != NULL)
        return ash_cmd_misuse("trace", "--request is one of a server: add --server");
    if (flags->server)
        return write_server_trace(flags, word != NULL ? word : ASH_METRICS_PAGE_DIR, &err) < 0 ? ash_cmd_fail(&err) : 0;
    if (find_rings(word != NULL ? word : ASH_METRICS_PAGE_DIR, dir, sizeof(dir), &err) < 0) return ash_cmd_fail(&err);
    return write_trace(flags, dir, first, last, &err) < 0 ? ash_cmd_fail(&err) : 0;
}

static int run(int argc, char **argv)
{
    static struct flags flags;
    const struct ash_cmd_form form = {
        .usage = &usage, .bindings = {{&trace_table, &flags}}, .takes_word = true, .respond = respond, .flags = &flags};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_trace = {"trace", "a job's last steps as a Chrome trace", run};
