/* mpi_all_reduce BYTES...: time of MPI_Allreduce (float, sum) at each size, measured as `ashlar bench collective` does:
 * a barrier, some calls in a row that fill 20 ms, the slowest rank's mean; the median of three such rounds. Prints
 * "BYTES MICROSECONDS" lines. Built by bench/collective.sh with each MPI's compiler. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUNDS 3
#define ROUND_S 0.02

static double round_of(const float *in, float *out, int count, int calls)
{
    double seconds, slowest;

    MPI_Barrier(MPI_COMM_WORLD);
    seconds = MPI_Wtime();
    for (int i = 0; i < calls; i++)
        MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    seconds = (MPI_Wtime() - seconds) / calls;
    MPI_Allreduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    size_t most = 8;
    float *in, *out;
    int rank;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 1; i < argc; i++)
        if (strtoull(argv[i], NULL, 10) > most) most = strtoull(argv[i], NULL, 10);
    in = aligned_alloc(4096, (most + 4095) / 4096 * 4096);
    out = aligned_alloc(4096, (most + 4095) / 4096 * 4096);
    if (in == NULL || out == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
    for (size_t i = 0; i < most / sizeof(float); i++) {
        in[i] = (float)(i % 7);
        out[i] = 0;
    }
    for (int i = 1; i < argc; i++) {
        int count = (int)(strtoull(argv[i], NULL, 10) / sizeof(float)), calls;
        double rounds[ROUNDS], once = round_of(in, out, count, 3);

        calls = once * 2 > ROUND_S ? 2 : ROUND_S / once > 20000 ? 20000 : (int)(ROUND_S / once);
        for (int r = 0; r < ROUNDS; r++)
            rounds[r] = round_of(in, out, count, calls);
        qsort(rounds, ROUNDS, sizeof(rounds[0]), by_value);
        if (rank == 0) printf("%s %.3f\n", argv[i], rounds[ROUNDS / 2] * 1e6);
    }
    MPI_Finalize();
    return 0;
}
