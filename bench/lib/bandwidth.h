/* bandwidth - how fast this machine's memory can be read and copied. */
#ifndef BENCH_BANDWIDTH_H
#define BENCH_BANDWIDTH_H

#include "ashlar/err.h"
#include "infra/memory.h"

#define BENCH_STREAMS 4

/* Caller's storage: two halves that no cache holds, touched. */
struct bench_bandwidth {
    struct ash_buffer buffer;
};

int bench_bandwidth_init(struct bench_bandwidth *bandwidth, struct ash_err *err);
/* Free; a zeroed struct is a no-op. */
void bench_bandwidth_fini(struct bench_bandwidth *bandwidth);

/* One measurement over thread_count pinned threads, each with a slice of its own, in 1e9 bytes per second; 0 when no
 * thread can be started. Reading walks BENCH_STREAMS places of a slice at once: one stream does not keep enough lines
 * on their way. */
double bench_bandwidth_read(struct bench_bandwidth *bandwidth, int thread_count);
/* Copying half of the buffer to the other half with memcpy: bytes read and bytes written both count. */
double bench_bandwidth_copy(struct bench_bandwidth *bandwidth, int thread_count);

#endif
