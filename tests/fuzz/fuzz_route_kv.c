/* Cache events of replicas as the router reads them: any bytes give a set no larger than they are, and the same one
 * each time. */
#include <stdint.h>
#include <stdlib.h>

#include "serve/route/kv_batch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct ash_route_held one = {0}, two = {0};
    int rc = ash_route_kv_batch_apply(&one, (const char *)data, size_bytes);

    if (ash_route_kv_batch_apply(&two, (const char *)data, size_bytes) != rc || one.count != two.count) abort();
    if (one.count > size_bytes / 16) abort();
    ash_route_held_fini(&one);
    ash_route_held_fini(&two);
    return 0;
}
