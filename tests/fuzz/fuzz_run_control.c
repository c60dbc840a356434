/* Files that steer a run: any bytes are a status or a request, or refused. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "train/run/control.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ash_run_status status;
    struct ash_run_request request;

    if (ash_run_status_decode((const char *)data, size, &status, NULL) == 0)
        assert(strlen(status.mesh) < sizeof(status.mesh) && status.ranks >= 0 && status.steps >= 0);
    if (ash_run_request_decode((const char *)data, size, &request, NULL) == 0)
        assert(request.ranks >= 0 && request.ranks <= ASH_RUN_RANKS_MAX);
    return 0;
}
