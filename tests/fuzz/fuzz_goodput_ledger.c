/* Ledgers of runs: any bytes are one, with seconds that can be, or refused. */
#include <assert.h>
#include <stdint.h>

#include "plan/goodput/goodput_ledger.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ash_goodput_ledger ledger;
    struct ash_goodput_way way;
    struct ash_goodput_result result;

    if (ash_goodput_ledger_decode((const char *)data, size, "input", &ledger, NULL) < 0) return 0;
    assert(ash_goodput_ledger_wall_s(&ledger) >= 0 && ledger.steps >= 0 && ledger.recoveries >= 0);
    if (ash_goodput_ledger_plan(&ledger, 100, &way, NULL) < 0) return 0;
    ash_goodput_solve(&way, &result);
    assert(result.shares.useful >= 0 && result.shares.useful <= 1);
    return 0;
}
