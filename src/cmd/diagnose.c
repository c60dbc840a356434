/* ashlar diagnose: which part of a cluster is slow or broken, from its exporters' figures. */
#include "cmd/cmd.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/str.h"
#include "cmd/diagnose_show.h"
#include "cmd/diagnose_slurm.h"
#include "cmd/node_flags.h"
#include "observe/health/diagnose.h"
#include "observe/live/live.h"

#define FILES_MAX 65536
#define PATH_BYTES 4096
#define LOG_MAX_BYTES ((size_t)1 << 30)

struct flags {
    struct ash_opt_list before, logs;
    double seconds;
    bool json, watch;
    const char *slurm;
    int64_t agent_port;
    struct ash_diagnose_live live;
    struct ash_node_flags node;
};

/* Scrapes of now; the paths are owned. */
struct file_list {
    char *paths[FILES_MAX];
    size_t count;
};

#define FIELD(name) offsetof(struct flags, name)

static const struct ash_opt diagnose_opts[] = {
    {"before", ASH_OPT_LIST, FIELD(before), NULL,
     "earlier scrapes: files, or a folder with files of the same names; counters become growth", 0, 0, NULL},
    {"seconds", ASH_OPT_DOUBLE, FIELD(seconds), NULL,
     "time between the scrapes; node_time_seconds says it if not given", 0.001, 1e9, NULL},
    {"log", ASH_OPT_LIST, FIELD(logs), NULL, "logs of the job (NCCL_DEBUG=INFO) or of the kernel; - is standard input",
     0, 0, NULL},
    {"agents", ASH_OPT_LIST, FIELD(live.agents), NULL,
     "agents to ask, HOST:PORT, https://HOST:PORT or NAME=HOST:PORT each: metrics, verdicts and ranks; twice, --wait "
     "seconds apart",
     0, 0, NULL},
    {"run", ASH_OPT_STRING, FIELD(live.run), NULL,
     "folder of a run: its log, its ledger, and the ranks of it that publish on this machine or to --agents", 0, 0,
     NULL},
    {"slurm", ASH_OPT_STRING, FIELD(slurm), NULL, "a Slurm job: its nodes' states, their agents, its ranks and its log",
     0, 0, NULL},
    {"agent-port", ASH_OPT_INT, FIELD(agent_port), "9470", "port of the agents on the nodes of --slurm", 1, 65535,
     NULL},
    {"here", ASH_OPT_BOOL, FIELD(live.here), NULL, "read this machine's own sources, as an agent would", 0, 0, NULL},
    {"watch", ASH_OPT_BOOL, FIELD(watch), NULL,
     "continue until Ctrl-C; print the verdict when it changes, and findings as they come and go", 0, 0, NULL},
    {"token", ASH_OPT_STRING, FIELD(live.token), NULL, "what agents and Prometheus ask for; @FILE: its first line", 0,
     0, NULL},
    {"wait", ASH_OPT_DOUBLE, FIELD(live.wait_s), "2", "seconds between the two answers of agents; 0: one is enough", 0,
     3600, NULL},
    {"ranks", ASH_OPT_LIST, FIELD(live.ranks), NULL,
     "folders where ranks publish their steps (ashlar train --pages): stragglers", 0, 0, NULL},
    {"prometheus", ASH_OPT_STRING, FIELD(live.prometheus), NULL,
     "a Prometheus to ask instead, http(s)://HOST:PORT: series as of --to, and of --from before", 0, 0, NULL},
    {"from", ASH_OPT_STRING, FIELD(live.from), NULL, "time of the earlier series, as Prometheus reads it", 0, 0, NULL},
    {"to", ASH_OPT_STRING, FIELD(live.to), NULL, "time of the series; default: now", 0, 0, NULL},
    {"json", ASH_OPT_BOOL, FIELD(json), NULL, "print one JSON object, with every finding and check", 0, 0, NULL},
};

static const struct ash_opt_table diagnose_table = {
    .section = "", .help = "flags", .opts = diagnose_opts, .count = ASH_COUNT(diagnose_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar diagnose NODE.prom|DIR ... [--before DIR|FILE,...] [flags]\n"
                "ashlar diagnose --run DIR | --slurm JOB | --agents HOST:PORT,... | --prometheus URL [--watch]\n"
                "ashlar diagnose --log FILE,... | --here | --root TREE [--machine NAME] [flags]",
    .about =
        "Says which part of a cluster is slow or broken: GPU, NVLink, network, storage, host, step (data loader\n"
        "and stragglers), software, in this order; which node and part, the counter and its normal range, what\n"
        "was ruled out and what could not be judged. Each file is what the exporters of one node answered (DCGM,\n"
        "EFA, node_exporter, ashlar train --metrics-port), one after the other; a node is named by the labels\n"
        "Hostname or instance, else by its file. A folder stands for its files. Exit code 0 whatever the diagnosis.",
    .examples = "  for n in node1 node2; do for p in 9100 9109 9400; do curl -s http://$n:$p/metrics; done > $n.prom; "
                "done\n"
                "  ashlar diagnose node*.prom\n"
                "  ashlar diagnose --run runs/big --here\n"
                "  ashlar diagnose --root /host --machine p5.48xlarge\n"
                "  ashlar diagnose --slurm 4711 --watch\n"
                "  ashlar diagnose now/*.prom --before earlier/ --seconds 60 --log job.log --json",
};

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* "dir/node1.prom" -> "node1.prom" */
static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash == NULL ? path : slash + 1;
}

static bool is_folder(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Standard input or a pipe, such as `<(command)` gives. */
static bool is_stream(const char *path)
{
    struct stat info;

    if (strcmp(path, "-") == 0) return true;
    return stat(path, &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode));
}

/* A scrape of a file, of standard input or of a pipe. */
static int load_scrape(const char *path, struct ash_scrape **scrape_out, struct ash_err *err)
{
    struct ash_str text = {0};
    int rc;

    if (!is_stream(path)) return ash_scrape_load(path, scrape_out, err);
    rc = ash_cmd_read_text(path, "the scrape", &text, err);
    if (rc == 0) rc = ash_scrape_parse(text.data, text.size_bytes, path, scrape_out, err);
    ash_str_fini(&text);
    return rc;
}

static int add_scrape(struct ash_diagnose *diagnose, const char *path, bool before, struct ash_err *err)
{
    const char *name = file_name(path), *dot = strrchr(name, '.');
    struct ash_scrape *scrape = NULL;
    char node[256];
    int rc = load_scrape(path, &scrape, err);

    if (rc < 0) return rc;
    snprintf(node, sizeof(node), "%.*s", dot != NULL && dot > name ? (int)(dot - name) : (int)strlen(name), name);
    return ash_diagnose_add(diagnose, scrape, node, before, err);
}

/* Of a folder, the files that have the names of present ones: a node that is new has none. */
static int add_folder(struct ash_diagnose *diagnose, const char *dir, const struct file_list *files,
                      struct ash_err *err)
{
    char path[PATH_BYTES];
    size_t found = 0;

    for (size_t i = 0; i < files->count; i++) {
        int rc = ash_path_join(path, sizeof(path), dir, file_name(files->paths[i]));

        if (rc < 0) return ash_err_set(err, rc, "%s: the path is too long", dir);
        if (!ash_path_exists(path)) continue;
        rc = add_scrape(diagnose, path, true, err);
        if (rc < 0) return rc;
        found++;
    }
    if (found > 0) return 0;
    return ash_err_set(err, -ENOENT, "--before %s: none of the scrapes (%s ...) has an earlier one of its name there",
                       dir, file_name(files->paths[0]));
}

static int add_log(struct ash_diagnose *diagnose, const char *path, struct ash_err *err)
{
    struct ash_str text = {0};
    struct ash_map map = {0};
    int rc;

    if (is_stream(path)) {
        rc = ash_cmd_read_text(path, "the log", &text, err);
        if (rc == 0) rc = ash_diagnose_log(diagnose, text.data, text.size_bytes, file_name(path), err);
        ash_str_fini(&text);
        return rc;
    }
    rc = ash_map_open(path, &map, err);
    if (rc < 0) return rc;
    if (map.size_bytes > LOG_MAX_BYTES)
        rc = ash_err_set(err, -EFBIG, "%s: more than %zu MB; give its interesting part", path, LOG_MAX_BYTES >> 20);
    else
        rc = ash_diagnose_log(diagnose, (const char *)map.base, map.size_bytes, file_name(path), err);
    ash_map_close(&map);
    return rc;
}

static int read_all(struct ash_diagnose *diagnose, const struct flags *flags, const struct file_list *files,
                    struct ash_err *err)
{
    int rc = 0;

    for (size_t i = 0; i < files->count && rc == 0; i++)
        rc = add_scrape(diagnose, files->paths[i], false, err);
    for (size_t i = 0; i < flags->before.count && rc == 0; i++) {
        const char *path = flags->before.items[i];

        rc = is_folder(path) ? add_folder(diagnose, path, files, err) : add_scrape(diagnose, path, true, err);
    }
    for (size_t i = 0; i < flags->logs.count && rc == 0; i++)
        rc = add_log(diagnose, flags->logs.items[i], err);
    return rc == 0 ? ash_diagnose_live_add(&flags->live, diagnose, err) : rc;
}

/* ---- folders ----------------------------------------------------------------------------------------------------- */

static int list_add(struct file_list *list, const char *path, struct ash_err *err)
{
    if (list->count == FILES_MAX) return ash_err_set(err, -E2BIG, "more than %d scrapes", FILES_MAX);
    list->paths[list->count] = strdup(path);
    if (list->paths[list->count] == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    list->count++;
    return 0;
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* The files of a folder in the order of their names, without hidden ones and folders. */
static int list_folder(struct file_list *list, const char *dir, struct ash_err *err)
{
    struct dirent **entries = NULL;
    int rc = 0, count = scandir(dir, &entries, is_visible, alphasort);
    char path[PATH_BYTES];

    if (count < 0) return ash_err_set(err, -errno, "cannot read the folder '%s': %s", dir, strerror(errno));
    for (int i = 0; i < count; i++) {
        if (rc == 0 && ash_path_join(path, sizeof(path), dir, entries[i]->d_name) < 0)
            rc = ash_err_set(err, -ENAMETOOLONG, "%s: the path is too long", dir);
        if (rc == 0 && !is_folder(path)) rc = list_add(list, path, err);
        free(entries[i]);
    }
    free(entries);
    if (rc == 0 && list->count == 0) rc = ash_err_set(err, -ENOENT, "there is no scrape in the folder '%s'", dir);
    return rc;
}

/* The scrapes that words name: files, and all files of folders. The caller frees the list, on failure too. */
static int list_files(const char *const *words, size_t count, struct file_list *list, struct ash_err *err)
{
    for (size_t i = 0; i < count; i++) {
        int rc = is_folder(words[i]) ? list_folder(list, words[i], err) : list_add(list, words[i], err);

        if (rc < 0) return rc;
    }
    return 0;
}

static void list_fini(struct file_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->paths[i]);
    list->count = 0;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

/* Read and diagnose all sources of the flags. On 0 the caller owns *diagnose_out. */
static int look(const struct flags *flags, const struct file_list *files, struct ash_diagnose **diagnose_out,
                struct ash_err *err)
{
    struct ash_diagnose *diagnose = NULL;
    struct ash_slurm_job job = {0};
    struct flags all = *flags;
    int rc = ash_diagnose_open(&diagnose, err);

    if (rc == 0 && flags->slurm != NULL) {
        rc = ash_slurm_job_read(flags->slurm, (int)flags->agent_port, &job, diagnose, err);
        if (all.live.agents.count == 0) all.live.agents = job.agents;
        if (all.logs.count == 0) all.logs = job.logs;
        all.live.job = flags->slurm;
    }
    if (rc == 0) rc = read_all(diagnose, &all, files, err);
    if (rc == 0) rc = ash_diagnose_run(diagnose, flags->seconds, err);
    ash_slurm_job_fini(&job);
    if (rc < 0) {
        ash_diagnose_close(diagnose);
        return rc;
    }
    *diagnose_out = diagnose;
    return 0;
}

/* Repeat until Ctrl-C, and print changes. Sources that cannot be read now may be there later. */
static int watch(const struct flags *flags, const struct file_list *files, struct ash_err *err)
{
    struct ash_diagnose *before = NULL;
    int rc = 0;

    ash_interrupt_install();
    while (rc == 0 && !ash_interrupt_requested()) {
        struct ash_diagnose *now = NULL;

        rc = look(flags, files, &now, err);
        if (rc < 0 && before == NULL) break; /* a mistake in the words, not a moment */
        if (rc == 0) {
            ash_diagnose_show_change(before, now);
            ash_diagnose_close(before);
            before = now;
        } else if (rc != -ENOMEM) {
            ash_log(ASH_LOG_WARN, "%s; trying again", err->text);
            rc = 0;
        }
        /* Agents and --here have waited already, between their two answers. */
        if (flags->live.agents.count == 0 && flags->slurm == NULL && !flags->live.here)
            poll(NULL, 0, (int)(fmax(flags->live.wait_s, 0.1) * 1000)); /* a signal ends it */
    }
    ash_diagnose_close(before);
    return rc;
}

static int respond(const struct flags *flags, const char *const *words, size_t count)
{
    static struct file_list files; /* large; one command per process */
    struct ash_diagnose *diagnose = NULL;
    struct ash_err err = {0};
    int rc;

    if (count == 0 && flags->logs.count == 0 && flags->slurm == NULL && !ash_diagnose_live_is_given(&flags->live))
        return ash_cmd_misuse("diagnose", "which scrapes (node1.prom node2.prom ..., or their folder), --run, --slurm, "
                                          "--agents or --log?");
    if (count == 0 && flags->before.count > 0)
        return ash_cmd_misuse("diagnose", "--before is compared with scrapes of now: which ones?");
    if (flags->watch && flags->json) return ash_cmd_misuse("diagnose", "--watch prints text: leave --json out");
    rc = list_files(words, count, &files, &err);
    if (rc == 0 && flags->watch) {
        rc = watch(flags, &files, &err);
    } else {
        if (rc == 0) rc = look(flags, &files, &diagnose, &err);
        if (rc == 0) rc = ash_diagnose_show(diagnose, flags->json, &err);
        ash_diagnose_close(diagnose);
    }
    list_fini(&files);
    return rc < 0 ? ash_cmd_fail(&err) : 0;
}

/* A tree, a log or a machine to compare with means this machine too. */
static int set_here(struct flags *flags, struct ash_err *err)
{
    const struct ash_node_flags *node = &flags->node;
    struct ash_diagnose_live *live = &flags->live;
    struct ash_node_marks marks;
    int rc;

    live->here |= (node->root != NULL && node->root[0] != '\0') || node->kernel_log != NULL || node->nvml != NULL ||
                  node->machine != NULL || node->gpus >= 0;
    if (!live->here) return 0;
    rc = ash_node_flags_read(node, &marks, err);
    if (rc < 0) return rc;
    live->root = node->root;
    live->nvml = node->nvml;
    live->kernel_log = node->kernel_log;
    live->wanted_here = (struct ash_parts_wanted){marks.gpus, marks.network_devices};
    return 0;
}

static int run(int argc, char **argv)
{
    static const char *words[FILES_MAX]; /* large; one command per process */
    struct flags flags = {0};
    const struct ash_opt_binding bindings[] = {{&diagnose_table, &flags}, {&ash_node_table, &flags.node}};
    struct ash_opts *opts = NULL;
    struct ash_err err = {0};
    size_t count = 0;
    int code;

    if (ash_opts_open(bindings, ASH_COUNT(bindings), &opts, &err) < 0) return ash_cmd_fail(&err);
    code = ash_cmd_parse(&usage, opts, argc, argv, words, FILES_MAX, &count);
    if (code == ASH_CMD_GO && ash_cmd_read_secret(&flags.live.token, &err) < 0) code = ash_cmd_fail(&err);
    if (code == ASH_CMD_GO && set_here(&flags, &err) < 0) code = ash_cmd_fail(&err);
    if (code == ASH_CMD_GO) code = respond(&flags, words, count);
    ash_opts_close(opts);
    return code;
}

const struct ash_cmd ash_cmd_diagnose = {"diagnose", "which part of a cluster is slow or broken", run};
