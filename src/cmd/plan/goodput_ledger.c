/* ashlar plan goodput --ledger: the cost of a run's failures, and of predicted ones. */
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/json.h"
#include "cmd/plan/goodput_priv.h"
#include "cmd/plan/plan_priv.h"
#include "plan/goodput/goodput_ledger.h"

#define LEDGER_BYTES_MAX ((size_t)1 << 20)
#define RUN_SIM_FAILURES 20000.0
#define RUN_SIM_EVENTS 1000000.0

/* The forecast to print. */
struct forecast {
    struct ash_goodput_ledger ledger;
    struct ash_goodput_way way;
    struct ash_goodput_result result;
    struct ash_goodput_sim sim;
    double wall_s, measured;
};

static int read_ledger(const char *path, struct ash_goodput_ledger *ledger_out, struct ash_err *err)
{
    char *text = NULL;
    size_t size = 0;
    int rc = ash_file_read(path, LEDGER_BYTES_MAX, &text, &size, err);

    if (rc == 0) rc = ash_goodput_ledger_decode(text, size, path, ledger_out, err);
    free(text);
    return rc;
}

static void print_table(const struct forecast *forecast)
{
    const struct ash_goodput_way *way = &forecast->way;

    printf("measured    %.1f %% of %.0f s was productive, %lld failures (one every %.0f s), %lld steps lost\n",
           100 * forecast->measured, forecast->wall_s, (long long)forecast->ledger.recoveries,
           forecast->wall_s / (double)forecast->ledger.recoveries, (long long)forecast->ledger.lost_steps);
    printf("a failure   %.3f s to notice, %.3f s to re-form, %.3f s to move the state, %.3f s of work redone\n",
           way->slow.detect_s, way->slow.restart_s, way->slow.load_s, 0.5 * way->slow.work_s);
    printf("otherwise   %.1f %% of the time goes into saves and idle time\n", 100 * way->overhead);
    printf("predicted   %.1f %% productive with a failure every %.0f s (simulated %.1f %%; runs, 5th to 95th of 100: "
           "%.1f to %.1f %%)\n",
           100 * forecast->result.shares.useful, way->mtbf_s, 100 * forecast->sim.shares.useful,
           100 * forecast->sim.low, 100 * forecast->sim.high);
}

static int print_json(const struct forecast *forecast, struct ash_err *err)
{
    const struct ash_goodput_way *way = &forecast->way;

    return ash_cmd_print_json(
        json_pack("{s:f, s:f, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "wall_s",
                  forecast->wall_s, "measured_goodput", forecast->measured, "steps", (json_int_t)forecast->ledger.steps,
                  "failures", (json_int_t)forecast->ledger.recoveries, "lost_steps",
                  (json_int_t)forecast->ledger.lost_steps, "detect_s", way->slow.detect_s, "reform_s",
                  way->slow.restart_s, "transfer_s", way->slow.load_s, "redone_s", 0.5 * way->slow.work_s, "overhead",
                  way->overhead, "mtbf_s", way->mtbf_s, "goodput", forecast->result.shares.useful, "simulated_goodput",
                  forecast->sim.shares.useful, "low", forecast->sim.low, "high", forecast->sim.high),
        err);
}

int ash_goodput_answer_ledger(const struct ash_goodput_flags *flags, const struct ash_opts *opts)
{
    struct forecast forecast = {0};
    struct ash_err err = {0};
    double mtbf_s;

    if (flags->model != NULL || flags->cluster != NULL || flags->params > 0 || flags->gpus > 0 ||
        ash_opts_is_set(opts, "failures") || ash_opts_is_set(opts, "failure-rate") || flags->svg != NULL)
        return ash_cmd_misuse("plan goodput",
                              "with --ledger only --mtbf-hours, --days, --seed and --json say more: the rest is "
                              "in the ledger");
    if (read_ledger(flags->ledger, &forecast.ledger, &err) < 0) return ash_cmd_fail(&err);
    forecast.wall_s = ash_goodput_ledger_wall_s(&forecast.ledger);
    mtbf_s = flags->mtbf_hours > 0            ? flags->mtbf_hours * 3600
             : forecast.ledger.recoveries > 0 ? forecast.wall_s / (double)forecast.ledger.recoveries
                                              : 3600;
    if (ash_goodput_ledger_plan(&forecast.ledger, mtbf_s, &forecast.way, &err) < 0) return ash_cmd_fail(&err);
    forecast.measured = forecast.ledger.productive_s / forecast.wall_s;
    ash_goodput_solve(&forecast.way, &forecast.result);
    ash_goodput_simulate(&forecast.way, flags->days * 86400, RUN_SIM_FAILURES, RUN_SIM_EVENTS, (uint64_t)flags->seed,
                         &forecast.sim);
    if (flags->json) return print_json(&forecast, &err) < 0 ? ash_cmd_fail(&err) : 0;
    print_table(&forecast);
    return 0;
}
