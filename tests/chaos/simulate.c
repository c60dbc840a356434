/* chaos simulate: membership under a virtual clock and network, thousands of ranks or thousands of seeds. */
#include "chaos/chaos.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "chaos/simulate/simulate.h"

struct flags {
    int64_t ranks, per_host, seed, seeds, count;
    const char *faults;
    int right, plant;
    double silent;
    bool json;
};

static const char *const right_names[] = {"both", "register", "majority", NULL};
static const char *const plant_names[] = {"none", "right", "forever", "deaf", "forget", NULL};

#define FIELD(name) offsetof(struct flags, name)
static const struct ash_opt simulate_opts[] = {
    {"ranks", ASH_OPT_INT, FIELD(ranks), "64", "processes of the job", 1, 1 << 20, NULL},
    {"per_host", ASH_OPT_INT, FIELD(per_host), "8", "processes on a host", 1, 1024, NULL},
    {"seed", ASH_OPT_INT, FIELD(seed), "1", "everything that happens is drawn from it", 0, 9e15, NULL},
    {"seeds", ASH_OPT_INT, FIELD(seeds), "1", "number of runs, with this seed and the next ones", 1, 1e9, NULL},
    {"faults", ASH_OPT_STRING, FIELD(faults), "all",
     "what goes wrong, comma-separated: crash, host, pause, cut, noise, leave, follow (the coordinator dies during the "
     "meeting); or all",
     0, 0, NULL},
    {"count", ASH_OPT_INT, FIELD(count), "0", "faults of a run; 0: drawn, up to 6", 0, 1000, NULL},
    {"right", ASH_OPT_CHOICE, FIELD(right), "both",
     "who may continue after a cut: whom a register names, the majority of the last epoch, or either by seed", 0, 0,
     right_names},
    {"silent", ASH_OPT_DOUBLE, FIELD(silent), "3", "virtual seconds of silence after which a process counts as lost",
     0.3, 60, NULL},
    {"plant", ASH_OPT_CHOICE, FIELD(plant), "none",
     "a mistake on purpose, to see it caught: right (every side may continue), forever (silence is never noticed), "
     "deaf (no view starts), forget (survivors drop the last step)",
     0, 0, plant_names},
    {"json", ASH_OPT_BOOL, FIELD(json), NULL, "print one JSON object", 0, 0, NULL},
};

static const struct ash_opt_table simulate_table = {
    .section = "", .help = "flags", .opts = simulate_opts, .count = ASH_COUNT(simulate_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "chaos simulate [--ranks N] [--seed S] [--seeds K]",
    .about = "Runs the membership code in a virtual network: messages that are late, lost and out of\n"
             "order, cuts in one or both directions, processes and hosts that die, sleep, come back and leave. Checks "
             "at every\n"
             "moment that one side runs, that every wait is bounded, that no finished step is lost, and that all "
             "settles\n"
             "once faults end. A run that fails is printed with the line that repeats it; the exit code is then 1.",
    .examples = "  chaos simulate --ranks 64 --seeds 10000\n"
                "  chaos simulate --ranks 16384 --faults crash,follow\n"
                "  chaos simulate --seeds 100 --plant right",
};

/* The set of faults that a list names. */
static int read_faults(const char *list, unsigned *faults_out, struct ash_err *err)
{
    static const char *const names[] = {"crash", "host", "pause", "cut", "noise", "leave", "follow"};
    const char *at = list;
    unsigned faults = 0;

    while (*at != '\0') {
        size_t bytes = strcspn(at, ","), i = 0;

        while (i < ASH_COUNT(names) && (strlen(names[i]) != bytes || strncmp(names[i], at, bytes) != 0))
            i++;
        if (i < ASH_COUNT(names))
            faults |= 1u << i;
        else if (bytes == 3 && strncmp(at, "all", 3) == 0)
            faults |= ASH_FAULT_SIM_ALL;
        else
            return ash_err_set(err, -1,
                               "there is no fault '%.*s': crash, host, pause, cut, noise, leave, follow or all",
                               (int)bytes, at);
        at += bytes + (at[bytes] == ',');
    }
    if (faults == ASH_FAULT_SIM_FOLLOW) faults |= ASH_FAULT_SIM_CRASH; /* there must be a meeting */
    *faults_out = faults;
    return 0;
}

/* Of all runs. */
struct totals {
    size_t runs, settled, ended, faults, epochs, steps, fallbacks;
    double settle_s, form_s, virtual_s, wall_s;
    uint64_t messages, events;
};

static void add(struct totals *totals, const struct ash_fault_sim_result *result)
{
    totals->runs++;
    totals->settled += result->is_good && !result->has_ended;
    totals->ended += result->has_ended;
    totals->faults += result->faults;
    totals->epochs += result->epochs;
    totals->steps += result->steps;
    totals->fallbacks += result->fallbacks;
    totals->messages += result->messages;
    totals->events += result->events;
    totals->virtual_s += result->virtual_s;
    if (result->settle_s > totals->settle_s) totals->settle_s = result->settle_s;
    if (result->form_s > totals->form_s) totals->form_s = result->form_s;
}

static void print_totals(const struct flags *flags, const struct totals *totals)
{
    printf("%zu run%s of %lld ranks: %zu settled, %zu ended in good order\n", totals->runs,
           totals->runs == 1 ? "" : "s", (long long)flags->ranks, totals->settled, totals->ended);
    printf("%zu faults, %zu epochs, %zu steps finished, %zu fallbacks to a checkpoint\n", totals->faults,
           totals->epochs, totals->steps, totals->fallbacks);
    printf("longest: %.3f s from a known loss to the next view, %.3f s from the last fault to rest (virtual)\n",
           totals->form_s, totals->settle_s);
    printf("%.1f virtual s, %llu messages, %llu events in %.2f s\n", totals->virtual_s,
           (unsigned long long)totals->messages, (unsigned long long)totals->events, totals->wall_s);
}

static json_t *totals_json(const struct flags *flags, const struct totals *totals)
{
    return json_pack("{sI sI sI sI sI sI sI sI sf sf sf sI sI sf}", "ranks", (json_int_t)flags->ranks, "runs",
                     (json_int_t)totals->runs, "settled", (json_int_t)totals->settled, "ended",
                     (json_int_t)totals->ended, "faults", (json_int_t)totals->faults, "epochs",
                     (json_int_t)totals->epochs, "steps", (json_int_t)totals->steps, "fallbacks",
                     (json_int_t)totals->fallbacks, "form_s", totals->form_s, "settle_s", totals->settle_s, "virtual_s",
                     totals->virtual_s, "messages", (json_int_t)totals->messages, "events", (json_int_t)totals->events,
                     "wall_s", totals->wall_s);
}

/* Report the failed run, the failure, and how to reproduce it. */
static int report_failure(const struct flags *flags, uint64_t seed, const struct ash_fault_sim_result *result)
{
    fprintf(stderr, "ashlar: error: seed %llu: %s\n", (unsigned long long)seed, result->violation);
    fprintf(stderr,
            "again: chaos simulate --ranks %lld --per-host %lld --seed %llu --faults %s --count %lld --right %s "
            "--silent %g --plant %s\n",
            (long long)flags->ranks, (long long)flags->per_host, (unsigned long long)seed, flags->faults,
            (long long)flags->count, right_names[flags->right], flags->silent, plant_names[flags->plant]);
    return 1;
}

static int simulate_all(const struct flags *flags, unsigned faults, struct totals *totals, struct ash_err *err)
{
    struct ash_fault_sim_opts opts = {.ranks = (size_t)flags->ranks,
                                      .per_host = (size_t)flags->per_host,
                                      .faults = faults,
                                      .fault_count = (size_t)flags->count,
                                      .right = (enum ash_fault_sim_right)flags->right,
                                      .plant = (enum ash_fault_sim_plant)flags->plant,
                                      .silent_s = flags->silent};

    for (int64_t i = 0; i < flags->seeds; i++) {
        struct ash_fault_sim_result result;

        opts.seed = (uint64_t)(flags->seed + i);
        if (ash_interrupt_requested()) return ash_cmd_stopped();
        if (ash_fault_sim_run(&opts, &result) < 0) {
            ash_err_set(err, -1, "out of memory for %lld ranks", (long long)flags->ranks);
            return ash_cmd_fail(err);
        }
        add(totals, &result);
        if (!result.is_good) return report_failure(flags, opts.seed, &result);
    }
    return 0;
}

static int respond(const void *ctx, const struct ash_opts *opts, const char *word)
{
    const struct flags *flags = ctx;
    struct totals totals = {0};
    struct ash_err err = {0};
    unsigned faults = 0;
    uint64_t begin_ns = ash_clock_ns();
    int code;

    (void)opts;
    (void)word;
    if (read_faults(flags->faults, &faults, &err) < 0) return ash_cmd_fail(&err);
    ash_interrupt_install();
    code = simulate_all(flags, faults, &totals, &err);
    totals.wall_s = (double)(ash_clock_ns() - begin_ns) * 1e-9;
    if (code > 1) return code;
    if (!flags->json)
        print_totals(flags, &totals);
    else if (ash_cmd_print_json(totals_json(flags, &totals), &err) < 0)
        return ash_cmd_fail(&err);
    return code;
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};
    const struct ash_cmd_form form = {
        .usage = &usage, .bindings = {{&simulate_table, &flags}}, .respond = respond, .flags = &flags};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_chaos_simulate = {"simulate", "membership in a virtual network, with every kind of fault",
                                               run};
