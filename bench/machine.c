/* machine ROWS ROUNDS: what this machine can do at most, measured, as rows of the table: memory bandwidth and
 * multiply-add peaks, on one core and on all. Every other group is held against these. */
#include <stdio.h>
#include <stdlib.h>

#include "base/cores.h"
#include "infra/cpu.h"
#include "lib/bandwidth.h"
#include "lib/peak.h"
#include "lib/row.h"
#include "lib/team.h"

enum { READ, COPY, PEAK, FIGURES = PEAK + BENCH_PEAK_COUNT };

static const char *const names[FIGURES] = {"read", "copy", "f32", "bf16", "int8"};
static const char *const units[FIGURES] = {"GB/s", "GB/s", "GFLOP/s", "GFLOP/s", "GOP/s"};

static double measure(struct bench_bandwidth *bandwidth, int figure, int threads)
{
    if (figure == READ) return bench_bandwidth_read(bandwidth, threads);
    if (figure == COPY) return bench_bandwidth_copy(bandwidth, threads);
    return bench_peak_gops((enum bench_peak)(figure - PEAK), threads);
}

/* The median of rounds measurements of every figure, on the given number of cores, as rows. Figures take turns. */
static int measure_all(struct bench_bandwidth *bandwidth, const char *rows, size_t rounds, int threads,
                       const char *cores)
{
    double values[FIGURES][BENCH_ROUNDS_MAX];
    int rc = 0;

    for (size_t round = 0; round < rounds; round++)
        for (int figure = 0; figure < FIGURES; figure++)
            values[figure][round] = measure(bandwidth, figure, threads);
    for (int figure = 0; figure < FIGURES && rc == 0; figure++) {
        const char *how = figure < PEAK ? NULL : bench_peak_instruction((enum bench_peak)(figure - PEAK));
        char name[64];
        if (figure >= PEAK && how == NULL) continue;
        snprintf(name, sizeof(name), "machine/%s-%s%s%s%s", names[figure], cores, how != NULL ? " (" : "",
                 how != NULL ? how : "", how != NULL ? ")" : "");
        rc = bench_row_add(
            rows,
            &(struct bench_row){.name = name, .unit = units[figure], .ours = bench_median(values[figure], rounds)});
    }
    return rc;
}

int main(int argc, char **argv)
{
    struct bench_bandwidth bandwidth = {0};
    struct ash_err err = {0};
    long rounds = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
    int cores = ash_cores_usable(), rc;
    char text[512];

    if (rounds < 1 || rounds > BENCH_ROUNDS_MAX) {
        fprintf(stderr, "usage: machine ROWS ROUNDS (1 to %d)\n", BENCH_ROUNDS_MAX);
        return 2;
    }
    fprintf(stderr, "bench: %s\n", ash_cpu_describe(ash_cpu_get(), text, sizeof(text)));
    if (bench_bandwidth_init(&bandwidth, &err) < 0) {
        fprintf(stderr, "machine: %s\n", err.text);
        return 1;
    }
    rc = measure_all(&bandwidth, argv[1], (size_t)rounds, 1, "1core");
    if (rc == 0 && cores > 1) rc = measure_all(&bandwidth, argv[1], (size_t)rounds, cores, "all");
    bench_bandwidth_fini(&bandwidth);
    return rc < 0;
}
