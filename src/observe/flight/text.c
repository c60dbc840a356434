/* Collective calls in words. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "observe/flight/flight.h"

const char *ash_flight_call_text(const struct ash_flight_call *call, char *buf, size_t buf_bytes)
{
    static const char *const reductions[] = {"", " max", " min"}; /* a sum is the default */
    char type[ASH_FLIGHT_NAME_BYTES + 1] = {0}, peer[32] = "";

    memcpy(type, call->dtype, sizeof(call->dtype));
    if (call->peer != UINT32_MAX)
        snprintf(peer, sizeof(peer), "%s %u",
                 call->is_message ? (call->op == ASH_FLIGHT_SEND ? " to" : " from") : " root", call->peer);
    snprintf(buf, buf_bytes, "%s of %llu bytes%s%s%s%s", ash_flight_op_name(call->op), (unsigned long long)call->bytes,
             type[0] != '\0' ? " " : "", type,
             call->reduction < ASH_COUNT(reductions) ? reductions[call->reduction] : "", peer);
    return buf;
}
