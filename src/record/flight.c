/* The process's one ring of calls. */
#include "record/flight.h"

#include <errno.h>
#include <stddef.h>

#include "record/ring_file.h"

static struct ash_ring_file *ring;

int ash_flight_start(const char *dir, const char *labels, struct ash_err *err)
{
    struct ash_ring_opts opts = {.dir = dir,
                                 .kind = ASH_FLIGHT_KIND,
                                 .labels = labels,
                                 .record_bytes = sizeof(struct ash_flight_call),
                                 .capacity = ASH_FLIGHT_CAPACITY};

    if (ring != NULL) return ash_err_set(err, -EEXIST, "the flight recorder is on already");
    return ash_ring_open(&opts, &ring, err);
}

void ash_flight_stop(bool keeps)
{
    struct ash_ring_file *stopped = ring;

    ring = NULL;
    ash_ring_close(stopped, keeps);
}

int ash_flight_copy(const char *path, struct ash_err *err)
{
    if (ring == NULL) return ash_err_set(err, -ENOENT, "the flight recorder is off");
    return ash_ring_copy(ring, path, err);
}

uint64_t ash_flight_begin(const struct ash_flight_call *call)
{
    return ring != NULL ? ash_ring_add(ring, call) : 0;
}

void ash_flight_end(uint64_t number, uint64_t end_ns, int rc)
{
    if (ring == NULL || number == 0) return;
    ash_ring_set(ring, number, offsetof(struct ash_flight_call, rc), (uint64_t)(int64_t)rc);
    ash_ring_set(ring, number, offsetof(struct ash_flight_call, end_ns), end_ns);
}

const char *ash_flight_op_name(unsigned op)
{
    static const char *const names[ASH_FLIGHT_OPS] = {"barrier",   "all_reduce", "reduce_scatter",    "all_gather",
                                                      "broadcast", "all_to_all", "window_all_reduce", "window_reduce",
                                                      "send",      "recv"};

    return op < ASH_FLIGHT_OPS ? names[op] : "unknown";
}
