/* Fuzz target: logs of runs, in pieces. Curves stay bounded and in the order of the log; judging a run takes any log.
 * */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "observe/health/run_health.h"
#include "observe/page/run_curves.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void judge(const char *text, size_t size)
{
    struct ash_run_record record = {.name = "fuzz"};
    struct ash_diagnose *diagnose = NULL;

    if (ash_diagnose_open(&diagnose, NULL) == 0 && ash_run_record_take(&record, text, size / 3) == 0 &&
        ash_run_record_take(&record, text + size / 3, size - size / 3) == 0)
        ash_run_record_judge(&record, diagnose);
    for (size_t i = 1; i < record.count; i++)
        if (record.steps[i].step <= record.steps[i - 1].step) abort();
    ash_run_record_fini(&record);
    ash_diagnose_close(diagnose);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ash_run_curves *run = calloc(1, sizeof(*run));
    json_t *json;

    judge((const char *)data, size);
    if (run == NULL) return 0;
    ash_run_curves_init(run, "runs/fuzz");
    ash_run_curves_take(run, (const char *)data, size / 2);
    ash_run_curves_take(run, (const char *)data + size / 2, size - size / 2);
    for (size_t i = 0; i < ASH_CURVES; i++)
        if (run->curves[i].count > ASH_CURVE_POINTS || run->curves[i].stride == 0) abort();
    json = ash_run_curves_json(run);
    if (json == NULL) abort();
    json_decref(json);
    ash_run_curves_fini(run);
    free(run);
    return 0;
}
