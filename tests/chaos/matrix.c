/* chaos matrix: each fault in each layout, compared with one process; a table of the costs. */
#include "chaos/faults.h"
#include "chaos/log.h"
#include "chaos/chaos.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/own_dir.h"
#include "base/json.h"
#include "base/rng.h"
#include "train/run/control.h"

#define KIND "chaos-matrix"
#define STEPS_MORE 100 /* of the undisturbed run, beyond those of the cell that needed it: others are longer */
#define FAULT_STEP 20
#define STEPS_AFTER 10

struct flags {
    int64_t seed, cells, nodes;
    const char *scratch, *fault, *layout;
    bool keep, netns;
};

#define FIELD(name) offsetof(struct flags, name)
static const struct ash_opt matrix_opts[] = {
    {"seed", ASH_OPT_INT, FIELD(seed), "1", "which cells are drawn", 0, 9e15, NULL},
    {"cells", ASH_OPT_INT, FIELD(cells), "0", "number of cells of the table, drawn; 0: all of them", 0, 1e6, NULL},
    {"fault", ASH_OPT_STRING, FIELD(fault), NULL, "only faults with this in their names", 0, 0, NULL},
    {"layout", ASH_OPT_STRING, FIELD(layout), NULL, "only the layout of this name", 0, 0, NULL},
    {"nodes", ASH_OPT_INT, FIELD(nodes), "2", "nodes: four ranks on 2 or 4 of them, six ranks on 3", 2, 4, NULL},
    {"netns", ASH_OPT_BOOL, FIELD(netns), NULL,
     "each node has a network namespace of its own (needs root and iproute2); rows about links always do", 0, 0, NULL},
    {"scratch", ASH_OPT_STRING, FIELD(scratch), NULL,
     "a new folder for data and runs is made in this one; default: in /tmp", 0, 0, NULL},
    {"keep", ASH_OPT_BOOL, FIELD(keep), NULL, "leave that folder where a cell has failed", 0, 0, NULL},
};
static const struct ash_opt_table matrix_table = {
    .section = "", .help = "flags", .opts = matrix_opts, .count = ASH_COUNT(matrix_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "chaos matrix [--fault TEXT] [--layout NAME] [--nodes N] [--cells N] [--seed S]",
    .about =
        "Makes each fault happen to small jobs in each layout, on two nodes or more. Losses and states of every step "
        "must be\nthose of one process. Prints a Markdown table: steps lost, and seconds to notice, to form "
        "the next group, to move\nthe state and of work redone, each the most of all layouts. A cell that fails "
        "makes the exit code 1.",
    .examples = "  chaos matrix\n  chaos matrix --cells 6 --seed 3\n"
                "  chaos matrix --nodes 3 --netns --fault 'kill a node'",
};

#define LAYOUTS 8
static const struct ash_chaos_layout layouts[LAYOUTS] = {
    {"dp", "mesh.dp=4", false, false, true},
    {"fsdp 1", "mesh.fsdp=4 mesh.zero=1", false, true, true},
    {"fsdp 2", "mesh.fsdp=4 mesh.zero=2", false, true, true},
    {"fsdp 3", "mesh.fsdp=4 mesh.zero=3", false, true, true},
    {"tp*pp", "mesh.tp=2 mesh.pp=2", false, true, false},
    {"cp*dp", "mesh.cp=2 mesh.dp=2", false, false, false},
    {"dp*fsdp", "mesh.dp=2 mesh.fsdp=2", false, false, true},
    {"ep", "mesh.ep=4", true, true, false},
};

/* Of six ranks, for three nodes. */
static const struct ash_chaos_layout layouts_of_six[LAYOUTS] = {
    {"dp", "mesh.dp=6", false, false, true},
    {"fsdp 1", "mesh.fsdp=6 mesh.zero=1", false, true, true},
    {"fsdp 2", "mesh.fsdp=6 mesh.zero=2", false, true, true},
    {"fsdp 3", "mesh.fsdp=6 mesh.zero=3", false, true, true},
    {"tp*pp", "mesh.tp=2 mesh.pp=3", false, true, false},
    {"cp*dp", "mesh.cp=2 mesh.dp=3", false, false, false}, /* both ranks of cp are wrong together */
    {"dp*fsdp", "mesh.dp=2 mesh.fsdp=3", false, false, true},
    {"ep", "mesh.ep=2 mesh.dp=3", true, false, false},
};

static const struct ash_chaos_layout *layout_of(const struct flags *flags, size_t cell)
{
    return (flags->nodes == 3 ? layouts_of_six : layouts) + cell % LAYOUTS;
}

static const char *const models[] = {
    "model.type=llama model.layers=4 model.hidden=32 model.heads=2 model.ffn=64 model.vocab=128",
    "model.type=mixtral model.layers=4 model.hidden=32 model.heads=2 model.ffn=32 model.vocab=128 model.experts=4",
};

/* ---- results ----------------------------------------------------------------------------------------------------- */

/* What one cell, or the worst of several, has cost. */
struct cost {
    double detect_s, reform_s, transfer_s, redone_s;
    int64_t lost;
};

static int read_cost(const struct ash_chaos_cell *cell, struct cost *cost, struct ash_err *err)
{
    char path[PATH_MAX];
    json_t *json = NULL;
    int rc;

    if (ash_path_join(path, sizeof(path), cell->dir, "ledger.json") < 0) return -ENAMETOOLONG;
    rc = ash_json_load(path, &json, err);
    if (rc == 0) rc = ash_json_double(json, "detect_s", 0, 1e9, &cost->detect_s, err);
    if (rc >= 0) rc = ash_json_double(json, "reform_s", 0, 1e9, &cost->reform_s, err);
    if (rc >= 0) rc = ash_json_double(json, "transfer_s", 0, 1e9, &cost->transfer_s, err);
    if (rc >= 0) rc = ash_json_double(json, "redone_s", 0, 1e9, &cost->redone_s, err);
    if (rc >= 0) rc = ash_json_int(json, "lost_steps", 0, INT64_MAX, &cost->lost, err);
    json_decref(json);
    return rc < 0 ? rc : 0;
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

/* A cell has no last step: it is stopped. So the learning rate must not depend on one. */
static void add_job(struct ash_chaos_words *words, const struct ash_chaos_cell *cell,
                    const struct ash_chaos_fault *fault, const char *dir)
{
    ash_chaos_add(words, "train");
    ash_chaos_add(words, "%s/job.yaml", cell->scratch);
    ash_chaos_add(words, "--out");
    ash_chaos_add(words, "%s", dir);
    ash_chaos_add_all(words, models[cell->layout->has_experts]);
    ash_chaos_add_all(words, "train.steps=1000000 train.hash_every=1 schedule.kind=constant runtime.threads=1");
    if (fault->is_bf16) ash_chaos_add_all(words, "train.precision=bf16 model.hidden=64");
    if (!fault->validates) return;
    ash_chaos_add(words, "data.valid=%s/data", cell->scratch);
    ash_chaos_add_all(words, "train.valid_every=5 train.valid_batches=1");
}

/* One process, for comparison, for at least this many steps; once for each model if that is enough. */
static int run_reference(const struct ash_chaos_cell *cell, const struct ash_chaos_fault *fault, uint64_t steps,
                         char dir[PATH_MAX], struct ash_err *err)
{
    struct ash_chaos_words words = {0};
    struct ash_chaos_job job;
    char out[PATH_MAX];
    int rc;

    snprintf(dir, PATH_MAX, "%s/one-%d%d", cell->scratch, cell->layout->has_experts, fault->is_bf16);
    if (ash_run_newest_step(dir, NULL, NULL) >= steps) return 0;
    ash_dir_remove(dir, NULL);
    ash_chaos_add(&words, ASHLAR_PROGRAM);
    add_job(&words, cell, fault, dir);
    ash_chaos_add(&words, "train.steps=%" PRIu64, steps + STEPS_MORE);
    snprintf(out, sizeof(out), "%s/one.txt", cell->scratch);
    rc = ash_chaos_job_start(&job, words.list, out, err);
    if (rc == 0) rc = ash_chaos_job_wait(&job, ASH_CHAOS_CELL_LIMIT_S);
    if (rc == 0 && job.code != 0) rc = -EIO;
    return rc < 0 ? ash_err_set(err, rc, "one process fails: see %s", out) : 0;
}

static int start_cell(struct ash_chaos_cell *cell, const struct ash_chaos_fault *fault, struct ash_err *err)
{
    struct ash_chaos_words words = {0};

    snprintf(cell->dir, sizeof(cell->dir), "%s/many", cell->scratch);
    snprintf(cell->out, sizeof(cell->out), "%s/many.txt", cell->scratch);
    ash_dir_remove(cell->dir, NULL);
    ash_chaos_add_launch(&words, cell);
    if (fault->launch != NULL) ash_chaos_add_all(&words, fault->launch);
    add_job(&words, cell, fault, cell->dir);
    ash_chaos_add_all(&words, cell->layout->words);
    if (fault->words != NULL) ash_chaos_add_all(&words, fault->words);
    cell->deadline_ns = ash_clock_ns() + (uint64_t)(ASH_CHAOS_CELL_LIMIT_S * 1e9);
    return ash_chaos_job_start(&cell->job, words.list, cell->out, err);
}

/* The fault has happened and the job continues: a few more steps, then a stop request. */
static int end_cell(struct ash_chaos_cell *cell)
{
    const struct ash_run_request request = {.stop = true};
    int rc = ash_chaos_wait_steps(cell, ash_run_newest_step(cell->dir, NULL, NULL) + STEPS_AFTER);

    if (rc == 0) rc = ash_run_request_write(cell->dir, &request, NULL);
    return rc == -ESRCH ? 0 : rc;
}

static int run_cell(struct ash_chaos_cell *cell, const struct ash_chaos_fault *fault, struct cost *cost,
                    struct ash_err *err)
{
    char reference[PATH_MAX];
    int rc = start_cell(cell, fault, err), ended;

    if (rc < 0) return rc;
    rc = ash_chaos_wait_steps(cell, FAULT_STEP);
    if (rc == 0) rc = fault->happen(cell);
    if (rc == 0) rc = end_cell(cell);
    ended = ash_chaos_job_wait(&cell->job, rc == 0 ? ASH_CHAOS_CELL_LIMIT_S : 0);
    if (rc < 0 || ended < 0)
        return ash_err_set(err, -ETIMEDOUT, "%s: see %s", rc == -ESRCH ? "it has ended too early" : "it hangs",
                           cell->out);
    if (cell->job.code != 0) return ash_err_set(err, -EIO, "it ends with %d: see %s", cell->job.code, cell->out);
    rc = run_reference(cell, fault, ash_run_newest_step(cell->dir, NULL, NULL), reference, err);
    if (rc == 0) rc = ash_chaos_compare_logs(reference, cell->dir, err);
    return rc < 0 ? rc : read_cost(cell, cost, err);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static bool is_wanted(const struct flags *flags, size_t cell)
{
    const struct ash_chaos_fault *fault = &ash_chaos_faults[cell / LAYOUTS];
    const struct ash_chaos_layout *layout = layout_of(flags, cell);

    return (flags->fault == NULL || strstr(fault->name, flags->fault) != NULL) &&
           (flags->layout == NULL || strcmp(layout->name, flags->layout) == 0) &&
           (!fault->needs_net || (geteuid() == 0 && flags->nodes == 2)) &&
           (!fault->needs_copies || layout->has_copies) && (!fault->needs_neighbours || layout->has_neighbours);
}

/* Is this cell among those that were drawn, of the rows that are wanted? */
static bool is_drawn(const struct flags *flags, size_t cell)
{
    size_t all = ash_chaos_fault_count * LAYOUTS, better = 0;
    uint64_t own = ash_rng_below((uint64_t)flags->seed, 21, cell, UINT32_MAX);

    if (!is_wanted(flags, cell)) return false;
    if (flags->cells == 0) return true;
    for (size_t i = 0; i < all; i++) {
        uint64_t other = ash_rng_below((uint64_t)flags->seed, 21, i, UINT32_MAX);

        if (is_wanted(flags, i)) better += other < own || (other == own && i < cell);
    }
    return better < (size_t)flags->cells;
}

static void raise_cost(struct cost *worst, const struct cost *cost)
{
    worst->detect_s = fmax(worst->detect_s, cost->detect_s);
    worst->reform_s = fmax(worst->reform_s, cost->reform_s);
    worst->transfer_s = fmax(worst->transfer_s, cost->transfer_s);
    worst->redone_s = fmax(worst->redone_s, cost->redone_s);
    if (cost->lost > worst->lost) worst->lost = cost->lost;
}

/* One row. Returns how many of its cells failed. */
static size_t run_row(const struct flags *flags, const char *scratch, size_t row)
{
    struct cost worst = {0};
    size_t failed = 0, cells = 0;

    for (size_t i = 0; i < LAYOUTS; i++) {
        struct ash_chaos_cell cell = {.scratch = scratch,
                                      .layout = layout_of(flags, i),
                                      .fault = &ash_chaos_faults[row],
                                      .nodes = (size_t)flags->nodes,
                                      .ranks = flags->nodes == 3 ? 6 : 4,
                                      .has_net = flags->netns};
        struct cost cost = {0};
        struct ash_err err = {0};

        if (!is_drawn(flags, row * LAYOUTS + i)) continue;
        cells++;
        if (run_cell(&cell, &ash_chaos_faults[row], &cost, &err) == 0) {
            raise_cost(&worst, &cost);
            continue;
        }
        failed++;
        fprintf(stderr, "ashlar: error: %s, %s: %s\n", ash_chaos_faults[row].name, cell.layout->name, err.text);
        if (flags->keep) return failed;
    }
    if (cells == 0) return 0;
    printf("| %s | %zu of %zu | %" PRId64 " | %.2f | %.2f | %.2f | %.2f |\n", ash_chaos_faults[row].name,
           cells - failed, cells, worst.lost, worst.detect_s, worst.reform_s, worst.transfer_s, worst.redone_s);
    fflush(stdout);
    return failed;
}

static int run_all(const struct flags *flags, const char *scratch)
{
    struct ash_err err = {0};
    size_t failed = 0;

    if (ash_chaos_prepare(scratch, &err) < 0) return ash_cmd_fail(&err);
    printf("| fault | same bits, layouts | steps lost | detect s | re-form s | transfer s | redone s |\n"
           "|---|---|---|---|---|---|---|\n");
    for (size_t row = 0; row < ash_chaos_fault_count && (failed == 0 || !flags->keep); row++)
        failed += run_row(flags, scratch, row);
    if (failed == 0 || !flags->keep) ash_own_dir_remove(scratch, KIND, NULL);
    return failed == 0 ? 0 : 1;
}

static int check_layout(const char *name, struct ash_err *err)
{
    bool is_known = name == NULL;

    for (size_t i = 0; !is_known && i < LAYOUTS; i++)
        is_known = strcmp(layouts[i].name, name) == 0;
    return is_known
               ? 0
               : ash_err_set(err, -EINVAL,
                             "--layout is '%.60s': give dp, fsdp 1, fsdp 2, fsdp 3, tp*pp, cp*dp, dp*fsdp or ep", name);
}

static int run_matrix(int argc, char **argv)
{
    struct flags flags = {0};
    struct ash_opt_binding binding = {&matrix_table, &flags};
    struct ash_opts *opts = NULL;
    struct ash_err err = {0};
    char scratch[ASH_CHAOS_SCRATCH_BYTES];
    size_t count = 0;
    int code;

    if (ash_opts_open(&binding, 1, &opts, &err) < 0) return ash_cmd_fail(&err);
    code = ash_cmd_parse(&usage, opts, argc, argv, NULL, 0, &count);
    if (code == ASH_CMD_GO &&
        (check_layout(flags.layout, &err) < 0 || ash_chaos_scratch(flags.scratch, KIND, scratch, &err) < 0))
        code = ash_cmd_fail(&err);
    if (code == ASH_CMD_GO) code = run_all(&flags, scratch);
    ash_opts_close(opts);
    return code;
}

const struct ash_cmd ash_cmd_chaos_matrix = {"matrix", "each fault in each layout, as a table", run_matrix};
