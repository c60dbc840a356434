/* Measures memory bandwidth, by reading with plain vector loads and by copying with the C library. */
#include "lib/bandwidth.h"

#include <string.h>

#include "infra/cpu.h"
#include "lib/team.h"

#define BUFFER_BYTES ((size_t)512 << 20)
#define STEP_BYTES 256u /* of one stream before the next one's turn */

typedef uint64_t lane_t __attribute__((vector_size(16), aligned(16), may_alias));
#define STEP_LANES (STEP_BYTES / sizeof(lane_t))

struct work {
    char *data;
    size_t size_bytes; /* a multiple of thread_count, streams and steps */
    int thread_count;
};

static volatile uint64_t sink; /* sums of the data, so that reads cannot be removed */

int bench_bandwidth_init(struct bench_bandwidth *bandwidth, struct ash_err *err)
{
    int rc = ash_buffer_init(&bandwidth->buffer, &ash_memory_host, BUFFER_BYTES, "a buffer for the bandwidth", err);

    if (rc == 0) memset(bandwidth->buffer.data, 1, BUFFER_BYTES);
    return rc;
}

void bench_bandwidth_fini(struct bench_bandwidth *bandwidth)
{
    ash_buffer_fini(&bandwidth->buffer);
}

/* A whole number of steps for each of parts. */
static size_t part_bytes(size_t size_bytes, size_t parts)
{
    return size_bytes / parts / STEP_BYTES * STEP_BYTES;
}

static void read_slice(void *ctx, int thread)
{
    const struct work *work = ctx;
    size_t stream_bytes = part_bytes(work->size_bytes, (size_t)work->thread_count * BENCH_STREAMS);
    const char *slice = work->data + (size_t)thread * BENCH_STREAMS * stream_bytes;
    lane_t sums[STEP_LANES] = {{0}};

    for (size_t at = 0; at < stream_bytes; at += STEP_BYTES) {
        for (size_t stream = 0; stream < BENCH_STREAMS; stream++) {
            const lane_t *from = (const lane_t *)(slice + stream * stream_bytes + at);
#pragma GCC unroll 16
            for (size_t i = 0; i < STEP_LANES; i++)
                sums[i] ^= from[i];
        }
    }
    for (size_t i = 1; i < STEP_LANES; i++)
        sums[0] ^= sums[i];
    sink = sums[0][0] ^ sums[0][1];
}

static void copy_slice(void *ctx, int thread)
{
    const struct work *work = ctx;
    size_t half = work->size_bytes / 2, slice_bytes = part_bytes(half, (size_t)work->thread_count);
    char *from = work->data + (size_t)thread * slice_bytes;

    memcpy(from + half, from, slice_bytes);
}

static double measure(struct bench_bandwidth *bandwidth, int thread_count, bench_body_fn body)
{
    struct work work = {bandwidth->buffer.data, bandwidth->buffer.size_bytes, thread_count};
    double seconds = bench_team_run(thread_count, body, &work);

    return seconds > 0 ? (double)work.size_bytes / seconds * 1e-9 : 0;
}

double bench_bandwidth_read(struct bench_bandwidth *bandwidth, int thread_count)
{
    return measure(bandwidth, thread_count, read_slice);
}

double bench_bandwidth_copy(struct bench_bandwidth *bandwidth, int thread_count)
{
    return measure(bandwidth, thread_count, copy_slice);
}
