/* goodput_ledger: a run is a machine with one level, whose snapshots are its steps. The work redone after a failure is
 * on average half of an interval between two snapshots, so the ledger gives that interval. */
#include "plan/goodput/goodput_ledger.h"

#include <errno.h>
#include <math.h>

#include "base/assert.h"
#include "base/json.h"

#define SECONDS_MAX 1e10
#define COUNT_MAX 1000000000000
#define LEAST_SHARE 0.01 /* of a step between two snapshots: simulations take time for each */

int ash_goodput_ledger_decode(const char *text, size_t size_bytes, const char *name,
                              struct ash_goodput_ledger *ledger_out, struct ash_err *err)
{
    struct ash_goodput_ledger ledger = {0};
    const struct {
        const char *key;
        double *to;
    } seconds[] = {{"productive_s", &ledger.productive_s},
                   {"detect_s", &ledger.detect_s},
                   {"reform_s", &ledger.reform_s},
                   {"transfer_s", &ledger.transfer_s},
                   {"redone_s", &ledger.redone_s},
                   {"save_s", &ledger.save_s},
                   {"idle_s", &ledger.idle_s}};
    struct ash_err why = {0};
    json_t *json = NULL;
    int rc = ash_json_parse(text, size_bytes, name, &json, err);

    if (rc < 0) return rc;
    if (!json_is_object(json)) rc = ash_err_set(&why, -EINVAL, "it is no map");
    for (size_t i = 0; rc >= 0 && i < ASH_COUNT(seconds); i++) {
        if (json_object_get(json, seconds[i].key) == NULL)
            rc = ash_err_set(&why, -EINVAL, "'%s' is missing", seconds[i].key);
        else
            rc = ash_json_double(json, seconds[i].key, 0, SECONDS_MAX, seconds[i].to, &why);
    }
    if (rc >= 0) rc = ash_json_int(json, "steps", 0, COUNT_MAX, &ledger.steps, &why);
    if (rc >= 0) rc = ash_json_int(json, "recoveries", 0, COUNT_MAX, &ledger.recoveries, &why);
    if (rc >= 0) rc = ash_json_int(json, "lost_steps", 0, COUNT_MAX, &ledger.lost_steps, &why);
    json_decref(json);
    if (rc < 0) return ash_err_set(err, -EINVAL, "%s is no ledger of a run: %s", name, why.text);
    *ledger_out = ledger;
    return 0;
}

double ash_goodput_ledger_wall_s(const struct ash_goodput_ledger *ledger)
{
    return ledger->productive_s + ledger->detect_s + ledger->reform_s + ledger->transfer_s + ledger->redone_s +
           ledger->save_s + ledger->idle_s;
}

int ash_goodput_ledger_plan(const struct ash_goodput_ledger *ledger, double mtbf_s, struct ash_goodput_way *way_out,
                            struct ash_err *err)
{
    double failures = (double)ledger->recoveries, quiet_s = ledger->productive_s + ledger->save_s + ledger->idle_s;
    double step_s;

    ash_assert(mtbf_s > 0);
    if (ledger->steps == 0 || ledger->productive_s <= 0)
        return ash_err_set(err, -EINVAL, "the ledger has no finished step: let the run make some");
    if (ledger->recoveries == 0)
        return ash_err_set(err, -EINVAL,
                           "the ledger has no failure, so it does not say what one costs: use that of a "
                           "disturbed run (ashlar chaos run)");
    step_s = ledger->productive_s / (double)ledger->steps;
    *way_out = (struct ash_goodput_way){
        .kind = ASH_GOODPUT_PEERS,
        .mtbf_s = mtbf_s,
        .overhead = 1 - ledger->productive_s / quiet_s,
        .spares = -1,
        .slow = {.work_s = fmax(2 * ledger->redone_s / failures, LEAST_SHARE * step_s),
                 .detect_s = ledger->detect_s / failures,
                 .restart_s = ledger->reform_s / failures,
                 .load_s = ledger->transfer_s / failures},
    };
    return 0;
}
