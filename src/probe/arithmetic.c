/* What exact mode promises rests on four models: of two instructions for bf16 products, of fp8 products, and of powers
 * of two. The owner of a new GPU finds out here in seconds whether they hold. */
#include "probe/arithmetic.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "compute/cuda/trial/trial.h"

#define DEVICES_MAX 64
#define SHARE_OF_SECONDS 10

static const char *const models[ASH_TRIAL_COUNT] = {
    [ASH_TRIAL_MMA] = "as ref-wgmma",
    [ASH_TRIAL_WGMMA] = "as ref-wgmma",
    [ASH_TRIAL_FP8] = "13 fraction bits",
    [ASH_TRIAL_EX2] = "as ref-wgmma",
};

static int try_one(struct ash_exec *exec, const char *device, enum ash_trial_kind kind, double seconds,
                   struct ash_check_report *report, struct ash_err *err)
{
    uint64_t end_ns = ash_clock_ns() + (uint64_t)(seconds * 1e9);
    struct ash_trial trial = {0};

    if (!ash_trial_applies(exec, kind)) {
        ash_check_add(report, "arithmetic", ASH_GRADE_SKIPPED, "", "%s: no %s on this GPU", device,
                      ash_trial_name(kind));
        return 0;
    }
    do {
        int rc = ash_trial_round(exec, kind, &trial, err);

        if (rc < 0) return rc;
    } while (ash_clock_ns() < end_ns);
    if (trial.differing == 0)
        ash_check_add(report, "arithmetic", ASH_GRADE_GOOD, models[kind], "%s: %s, %" PRIu64 " cases, 0 differ", device,
                      ash_trial_name(kind), trial.cases);
    else
        ash_check_add(report, "arithmetic", ASH_GRADE_BAD, models[kind],
                      "%s: %s, %" PRIu64 " of %" PRIu64 " cases differ; %s", device, ash_trial_name(kind),
                      trial.differing, trial.cases, trial.first);
    return 0;
}

/* Returns a negative errno if there is no such device. */
static int try_device(const char *name, double seconds, struct ash_check_report *report, struct ash_err *err)
{
    struct ash_exec exec;
    int rc = ash_exec_init(&exec, name, 1, err);

    if (rc < 0) return rc;
    if (exec.cuda == NULL) ash_check_add(report, "arithmetic", ASH_GRADE_SKIPPED, "", "%s is no GPU", name);
    for (int kind = 0; kind < ASH_TRIAL_COUNT && rc == 0 && exec.cuda != NULL; kind++)
        rc = try_one(&exec, name, (enum ash_trial_kind)kind, seconds, report, err);
    if (rc < 0) ash_check_add(report, "arithmetic", ASH_GRADE_BAD, "", "%s: %.150s", name, err->text);
    ash_exec_fini(&exec);
    return 0;
}

void ash_probe_arithmetic(const struct ash_check_opts *opts, const char *name, struct ash_check_report *report)
{
    uint64_t start_ns = ash_clock_ns();
    bool is_all = strcmp(name, "cuda") == 0;

    for (int i = 0; i < (is_all ? DEVICES_MAX : 1); i++) {
        struct ash_err err = {0};
        char one[32];

        snprintf(one, sizeof(one), "cuda:%d", i);
        if (try_device(is_all ? one : name, opts->deep_seconds / SHARE_OF_SECONDS, report, &err) == 0) continue;
        if (i == 0) ash_check_add(report, "arithmetic", ASH_GRADE_SKIPPED, "", "no GPU to try: %.160s", err.text);
        break;
    }
    report->seconds += (double)(ash_clock_ns() - start_ns) * 1e-9;
}
