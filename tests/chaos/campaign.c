/* chaos campaign: drawn jobs, each interrupted several times, each held to one process. */
#include "cmd/chaos_job.h"
#include "chaos/words.h"
#include "chaos/chaos.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/own_dir.h"
#include "base/math.h"
#include "base/rng.h"
#include "train/run/control.h"

#define KIND "chaos-campaign"
#define RUN_LIMIT_S 120.0
#define START_LIMIT_S 60.0
#define LOG_BYTES_MAX ((size_t)64 << 20)

struct flags {
    int64_t seed, runs;
    const char *scratch;
    bool keep;
};

#define FIELD(name) offsetof(struct flags, name)
static const struct ash_opt campaign_opts[] = {
    {"seed", ASH_OPT_INT, FIELD(seed), "1", "of the first run; the next ones have the next seeds", 0, 9e15, NULL},
    {"runs", ASH_OPT_INT, FIELD(runs), "10", "jobs that are drawn", 1, 1e9, NULL},
    {"scratch", ASH_OPT_STRING, FIELD(scratch), NULL,
     "a new folder for data and runs is made in this one; default: in /tmp", 0, 0, NULL},
    {"keep", ASH_OPT_BOOL, FIELD(keep), NULL, "leave the folders of runs that failed", 0, 0, NULL},
};

static const struct ash_opt_table campaign_table = {
    .section = "", .help = "flags", .opts = campaign_opts, .count = ASH_COUNT(campaign_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "chaos campaign [--seed S] [--runs N]",
    .about =
        "Draws small models, layouts, saves, resizes and interruptions from seeds. Every job is run by one process and "
        "by\nseveral of which some are killed at drawn moments; in every second job they come back. All losses and "
        "the final\nstate must have the same bits, and every step must be in the log once. A run that fails is "
        "printed with the line\nthat repeats it; the exit code is then 1.",
    .examples = "  chaos campaign --runs 100\n  chaos campaign --seed 4711 --runs 1 --keep",
};

/* ---- a drawn job ------------------------------------------------------------------------------------------------- */

struct layout {
    size_t procs;
    const char *words; /* separated by spaces */
    bool needs_experts;
};

static const struct layout layouts[] = {
    {2, "mesh.dp=2", false},
    {2, "mesh.fsdp=2", false},
    {2, "mesh.tp=2", false},
    {2, "mesh.pp=2", false},
    {2, "mesh.cp=2", false},
    {3, "mesh.dp=3", false},
    {3, "mesh.fsdp=3 mesh.zero=1", false},
    {3, "mesh.fsdp=3 mesh.zero=2", false},
    {3, "mesh.tp=2 recover.spares=1", false},
    {4, "mesh.dp=4", false},
    {4, "mesh.fsdp=4 mesh.zero=1", false},
    {4, "mesh.fsdp=4 mesh.zero=2", false},
    {4, "mesh.fsdp=4 mesh.zero=3", false},
    {4, "mesh.dp=2 mesh.fsdp=2", false},
    {4, "mesh.tp=2 mesh.pp=2", false},
    {4, "mesh.tp=2 mesh.dp=2", false},
    {4, "mesh.tp=2 mesh.fsdp=2", false},
    {4, "mesh.pp=2 mesh.fsdp=2 mesh.zero=2", false},
    {4, "mesh.pp=2 mesh.interleave=2 mesh.dp=2", false},
    {4, "mesh.cp=2 mesh.dp=2", false},
    {4, "mesh.ep=4", true},
    {4, "mesh.ep=2 mesh.fsdp=2", true},
    {4, "mesh.ep=2 mesh.dp=2", true},
};

static const char *const models[] = {
    "model.type=llama model.layers=4 model.hidden=64 model.heads=2 model.ffn=64 model.vocab=128",
    "model.type=qwen3 model.layers=4 model.hidden=64 model.heads=2 model.ffn=64 model.vocab=128 model.tied=true",
    "model.type=gpt2 model.layers=4 model.hidden=64 model.heads=2 model.vocab=128 model.max_positions=64",
    "model.type=mixtral model.layers=4 model.hidden=64 model.heads=2 model.ffn=64 model.vocab=128 model.experts=4",
};
#define EXPERTS_MODEL 3

#define KILLS_MAX 3
#define RESTARTS 9 /* more than there are kills */

struct drawn {
    uint64_t seed, count;
    const struct layout *layout;
    const char *model;
    uint64_t steps, save_every, nodes, copies;
    bool is_bf16;
    size_t kills;
    bool comes_back;             /* a killed rank is restarted, and receives the state while the others compute */
    uint64_t at_step[KILLS_MAX]; /* not before this many steps are logged, */
    double after_s[KILLS_MAX];   /* and then so much later */
    int64_t ranks[KILLS_MAX];    /* resize to this many ranks before it; 0: no resize */
};

static uint64_t below(struct drawn *drawn, uint64_t bound)
{
    return ash_rng_below(drawn->seed, 11, drawn->count++, bound);
}

static struct drawn draw_job(uint64_t seed)
{
    struct drawn drawn = {.seed = seed};

    drawn.layout = &layouts[below(&drawn, ASH_COUNT(layouts))];
    drawn.model = models[drawn.layout->needs_experts ? EXPERTS_MODEL : below(&drawn, ASH_COUNT(models))];
    drawn.is_bf16 = below(&drawn, 3) == 0;
    drawn.steps = 30 + below(&drawn, 40);
    drawn.save_every = below(&drawn, 2) == 0 ? 0 : 5 + below(&drawn, 10);
    drawn.nodes = drawn.layout->procs % 2 == 0 && below(&drawn, 3) == 0 ? 2 : 1;
    drawn.copies = 1 + below(&drawn, 2);
    drawn.kills = 1 + below(&drawn, ash_min(KILLS_MAX, drawn.layout->procs - 1));
    for (size_t k = 0, step = 0; k < drawn.kills; k++) {
        step += 1 + below(&drawn, drawn.steps / (drawn.kills + 1));
        drawn.at_step[k] = step;
        drawn.after_s[k] = (double)below(&drawn, 1000) * 3e-5;
    }
    drawn.comes_back = below(&drawn, 2) == 0;
    for (size_t k = 0; k < drawn.kills; k++) { /* one is left after all kills that follow */
        size_t least = drawn.kills - k + 1;

        if (below(&drawn, 3) == 0) drawn.ranks[k] = (int64_t)(least + below(&drawn, drawn.layout->procs - least + 1));
    }
    return drawn;
}

/* The job itself, the same for both. */
static void add_job(struct ash_chaos_words *words, const struct drawn *drawn, const char *scratch, const char *name)
{
    ash_chaos_add(words, "train");
    ash_chaos_add(words, "%s/job.yaml", scratch);
    ash_chaos_add(words, "--out");
    ash_chaos_add(words, "%s/%s", scratch, name);
    ash_chaos_add_all(words, drawn->model);
    ash_chaos_add(words, "train.steps=%" PRIu64, drawn->steps);
    ash_chaos_add(words, "train.precision=%s", drawn->is_bf16 ? "bf16" : "fp32");
    ash_chaos_add(words, "train.seed=%" PRIu64, drawn->seed % 1000);
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static uint64_t count_steps(const char *scratch, const char *name)
{
    char path[PATH_MAX];
    char *text = NULL;
    size_t size = 0;
    uint64_t count = 0;

    snprintf(path, sizeof(path), "%s/%s/log.jsonl", scratch, name);
    if (ash_file_read(path, LOG_BYTES_MAX, &text, &size, NULL) < 0) return 0;
    for (size_t i = 0; i < size; i++)
        count += text[i] == '\n';
    free(text);
    return count;
}

/* The value of a key in each line of a log, one after the other; lines without it are left out. */
static char *values_of(const char *scratch, const char *name, const char *key)
{
    char path[PATH_MAX];
    char *text = NULL, *values;
    size_t size = 0, used = 0;

    snprintf(path, sizeof(path), "%s/%s/log.jsonl", scratch, name);
    if (ash_file_read(path, LOG_BYTES_MAX, &text, &size, NULL) < 0) return NULL;
    values = malloc(size + 1);
    for (char *at = text; values != NULL && (at = strstr(at, key)) != NULL;) {
        size_t length;

        at += strlen(key);
        length = strcspn(at, ",}");
        memcpy(values + used, at, length);
        values[used + length] = ' ';
        used += length + 1;
    }
    if (values != NULL) values[used] = '\0';
    free(text);
    return values;
}

/* Are the values of a key the same in both runs (last_only: the last ones)? */
static bool same_values(const char *scratch, const char *key, bool last_only)
{
    char *one = values_of(scratch, "one", key), *many = values_of(scratch, "many", key);
    const char *a = one, *b = many;
    bool same = false;

    if (last_only && one != NULL && many != NULL && strlen(one) > 20 && strlen(many) > 20) {
        a = one + strlen(one) - 18;
        b = many + strlen(many) - 18;
    }
    if (one != NULL && many != NULL) same = strcmp(a, b) == 0;
    free(one);
    free(many);
    return same;
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static int run_one(const struct drawn *drawn, const char *scratch, struct ash_err *err)
{
    struct ash_chaos_words words = {0};
    struct ash_chaos_job job;
    char out[PATH_MAX];
    int rc;

    ash_chaos_add(&words, ASHLAR_PROGRAM);
    add_job(&words, drawn, scratch, "one");
    snprintf(out, sizeof(out), "%s/one.txt", scratch);
    rc = ash_chaos_job_start(&job, words.list, out, err);
    if (rc == 0) rc = ash_chaos_job_wait(&job, RUN_LIMIT_S);
    if (rc == 0 && job.code != 0) rc = -EIO;
    return rc < 0 ? ash_err_set(err, rc, "one process fails: see %s", out) : 0;
}

/* Request a resize, and wait until a rank has read it. */
static void resize(int64_t ranks, const char *scratch, struct ash_chaos_job *job, uint64_t end_ns)
{
    const struct ash_run_request request = {.ranks = ranks};
    char dir[PATH_MAX];

    snprintf(dir, sizeof(dir), "%s/many", scratch);
    if (ash_run_request_write(dir, &request, NULL) < 0) return;
    while (ash_run_has_request(dir) && ash_clock_ns() < end_ns && !ash_chaos_job_ended(job))
        ash_chaos_pause(0.002);
}

/* Kill ranks as drawn. */
static void interrupt(struct drawn *drawn, const char *scratch, struct ash_chaos_job *job)
{
    for (size_t k = 0; k < drawn->kills; k++) {
        uint64_t end_ns = ash_clock_ns() + (uint64_t)(START_LIMIT_S * 1e9);
        pid_t pids[ASH_CHAOS_RANKS_MAX];
        size_t count;

        while (count_steps(scratch, "many") < drawn->at_step[k] && ash_clock_ns() < end_ns && !ash_chaos_job_ended(job))
            ash_chaos_pause(0.002);
        if (drawn->ranks[k] > 0) resize(drawn->ranks[k], scratch, job, end_ns);
        ash_chaos_pause(drawn->after_s[k]);
        count = ash_chaos_job_ranks(job, pids);
        if (count > 1) kill(pids[below(drawn, count)], SIGKILL);
    }
}

static int run_many(struct drawn *drawn, const char *scratch, struct ash_err *err)
{
    struct ash_chaos_words words = {0};
    struct ash_chaos_job job;
    char out[PATH_MAX];
    int rc;

    ash_chaos_add(&words, ASHLAR_PROGRAM);
    ash_chaos_add(&words, "launch");
    ash_chaos_add(&words, "--procs=%zu", drawn->layout->procs);
    ash_chaos_add(&words, "--nodes=%" PRIu64, drawn->nodes);
    if (drawn->comes_back) ash_chaos_add(&words, "--restarts=%d", RESTARTS);
    add_job(&words, drawn, scratch, "many");
    ash_chaos_add_all(&words, drawn->layout->words);
    ash_chaos_add(&words, "train.save_every=%" PRIu64, drawn->save_every);
    ash_chaos_add(&words, "recover.copies=%" PRIu64, drawn->copies);
    ash_chaos_add(&words, "recover.check_every=10");
    ash_chaos_add(&words, "runtime.threads=1");
    snprintf(out, sizeof(out), "%s/many.txt", scratch);
    rc = ash_chaos_job_start(&job, words.list, out, err);
    if (rc < 0) return rc;
    interrupt(drawn, scratch, &job);
    rc = ash_chaos_job_wait(&job, RUN_LIMIT_S);
    if (rc < 0) return ash_err_set(err, rc, "it hangs: see %s", out);
    return job.code == 0 ? 0 : ash_err_set(err, -EIO, "it ends with %d: see %s", job.code, out);
}

static int compare(const struct drawn *drawn, const char *scratch, struct ash_err *err)
{
    if (count_steps(scratch, "many") != drawn->steps || !same_values(scratch, "\"step\":", false))
        return ash_err_set(err, -EBADMSG, "the log does not have every step once");
    if (!same_values(scratch, "\"loss_bits\":", false)) return ash_err_set(err, -EBADMSG, "losses differ");
    if (!same_values(scratch, "\"state_hash\":", true)) return ash_err_set(err, -EBADMSG, "the states differ");
    return 0;
}

static void say_job(const struct drawn *drawn)
{
    printf("%" PRIu64 ": %zu ranks on %" PRIu64 " node%s, %s, %s, %zu kills%s", drawn->seed, drawn->layout->procs,
           drawn->nodes, drawn->nodes == 1 ? "" : "s", drawn->layout->words, drawn->is_bf16 ? "bf16" : "fp32",
           drawn->kills, drawn->comes_back ? " and returns" : "");
    for (size_t k = 0; k < drawn->kills; k++)
        if (drawn->ranks[k] > 0) printf(", resized to %" PRId64, drawn->ranks[k]);
    printf(": ");
    fflush(stdout);
}

static int run_case(uint64_t seed, const char *scratch, struct ash_err *err)
{
    struct drawn drawn = draw_job(seed);
    uint64_t start_ns = ash_clock_ns();
    char path[PATH_MAX];
    int rc;

    snprintf(path, sizeof(path), "%s/one", scratch);
    ash_dir_remove(path, NULL);
    snprintf(path, sizeof(path), "%s/many", scratch);
    ash_dir_remove(path, NULL);
    say_job(&drawn);
    rc = run_one(&drawn, scratch, err);
    if (rc == 0) rc = run_many(&drawn, scratch, err);
    if (rc == 0) rc = compare(&drawn, scratch, err);
    printf("%s %.1f s\n", rc == 0 ? "same bits," : "FAILED,", (double)(ash_clock_ns() - start_ns) * 1e-9);
    fflush(stdout);
    return rc;
}

/* ---- the campaign ------------------------------------------------------------------------------------------------ */

static int run_all(const struct flags *flags, const char *scratch)
{
    struct ash_err err = {0};
    int64_t failed = 0;

    if (ash_chaos_prepare(scratch, &err) < 0) return ash_cmd_fail(&err);
    for (int64_t i = 0; i < flags->runs; i++) {
        struct ash_err why = {0};

        if (run_case((uint64_t)(flags->seed + i), scratch, &why) == 0) continue;
        failed++;
        printf("    %s\n    again: chaos campaign --seed %" PRId64 " --runs 1 --keep\n", why.text, flags->seed + i);
    }
    printf("%" PRId64 " of %" PRId64 " runs have the bits of one process\n", flags->runs - failed, flags->runs);
    if (failed == 0 || !flags->keep) ash_own_dir_remove(scratch, KIND, NULL);
    return failed == 0 ? 0 : 1;
}

static int run_campaign(int argc, char **argv)
{
    struct flags flags = {0};
    struct ash_opt_binding binding = {&campaign_table, &flags};
    struct ash_opts *opts = NULL;
    struct ash_err err = {0};
    char scratch[ASH_CHAOS_SCRATCH_BYTES];
    size_t count = 0;
    int code;

    if (ash_opts_open(&binding, 1, &opts, &err) < 0) return ash_cmd_fail(&err);
    code = ash_cmd_parse(&usage, opts, argc, argv, NULL, 0, &count);
    if (code == ASH_CMD_GO && ash_chaos_scratch(flags.scratch, KIND, scratch, &err) < 0) code = ash_cmd_fail(&err);
    if (code == ASH_CMD_GO) code = run_all(&flags, scratch);
    ash_opts_close(opts);
    return code;
}

const struct ash_cmd ash_cmd_chaos_campaign = {"campaign", "drawn jobs, interrupted, against one process",
                                               run_campaign};
