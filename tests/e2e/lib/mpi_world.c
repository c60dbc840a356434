/* mpi_world LARGEST_BYTES [NODES WAY]: every collective compared with MPI's, on the same operands in the same processes
 * (mpirun starts them), for all types that both have and sizes around every limit. The operands' sums are exact, so
 * results are equal to the byte. With NODES the ranks are split over NODES nodes, each with its neighbours, and go WAY
 * between them (flat or hierarchical). Prints one line per rank that finds a difference; the exit code says whether any
 * did. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "collective/group.h"
#include "collective/net/net.h"

struct type {
    enum ash_coll_dtype ours;
    MPI_Datatype theirs;
};

struct world {
    struct ash_group *group;
    int rank, size;
    size_t room; /* bytes of each buffer */
    char *in, *ours, *theirs;
    size_t checks, wrong;
};

/* ---- operands and comparison ------------------------------------------------------------------------------------- */

static void fill(struct world *world, enum ash_coll_dtype dtype, size_t count, uint64_t seed)
{
    seed = ash_hash_mix(seed * 64 + (uint64_t)world->rank);
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = ash_hash_mix(seed + i);

        if (dtype == ASH_COLL_F32) ((float *)(void *)world->in)[i] = (float)((int64_t)(bits % 20001) - 10000) / 8;
        if (dtype == ASH_COLL_F64) ((double *)(void *)world->in)[i] = (double)((int64_t)(bits % 20001) - 10000) / 64;
        if (dtype == ASH_COLL_I32) ((int32_t *)(void *)world->in)[i] = (int32_t)bits;
        if (dtype == ASH_COLL_I64) ((int64_t *)(void *)world->in)[i] = (int64_t)bits;
        if (dtype == ASH_COLL_U8) ((uint8_t *)world->in)[i] = (uint8_t)bits;
    }
    memset(world->ours, 0x55, world->room < 4096 ? world->room : 4096);
    memset(world->theirs, 0xaa, world->room < 4096 ? world->room : 4096);
}

static void compare(struct world *world, const char *what, size_t bytes, int rc, const struct ash_err *err)
{
    world->checks++;
    if (rc == 0 && memcmp(world->ours, world->theirs, bytes) == 0) return;
    world->wrong++;
    fprintf(stderr, "rank %d of %d: %s, result of %zu bytes: %s\n", world->rank, world->size, what, bytes,
            rc == 0 ? "differs" : err->text);
}

/* ---- the calls --------------------------------------------------------------------------------------------------- */

static void check_sums(struct world *world, const struct type *type, size_t count)
{
    const MPI_Op theirs[] = {MPI_SUM, MPI_MAX, MPI_MIN};
    size_t width = ash_coll_dtype_bytes(type->ours), parts = count / (size_t)world->size;
    struct ash_err err = {0};

    for (int op = ASH_COLL_SUM; op <= ASH_COLL_MIN; op++) {
        int rc;

        fill(world, type->ours, count, count * 3 + (size_t)op);
        rc = ash_group_all_reduce(world->group, world->in, world->ours, count, type->ours, (enum ash_coll_op)op, &err);
        MPI_Allreduce(world->in, world->theirs, (int)count, type->theirs, theirs[op], MPI_COMM_WORLD);
        compare(world, ash_coll_op_name((enum ash_coll_op)op), count * width, rc, &err);
        rc = ash_group_reduce_scatter(world->group, world->in, world->ours, parts, type->ours, (enum ash_coll_op)op,
                                      &err);
        MPI_Reduce_scatter_block(world->in, world->theirs, (int)parts, type->theirs, theirs[op], MPI_COMM_WORLD);
        compare(world, "reduce-scatter", parts * width, rc, &err);
    }
}

static void check_messages(struct world *world, size_t bytes)
{
    size_t to = (size_t)((world->rank + 1) % world->size),
           from = (size_t)((world->rank + world->size - 1) % world->size);
    struct ash_err err = {0};
    int rc = 0;

    if (world->size == 1) return;
    for (int turn = 0; turn < 2 && rc == 0; turn++)
        rc = (world->rank % 2 == turn) ? ash_group_send(world->group, to, world->in, bytes, &err)
                                       : ash_group_recv(world->group, from, world->ours, bytes, &err);
    MPI_Sendrecv(world->in, (int)bytes, MPI_BYTE, (int)to, 0, world->theirs, (int)bytes, MPI_BYTE, (int)from, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    compare(world, "send and receive", bytes, rc, &err);
}

static void check_moves(struct world *world, size_t bytes)
{
    size_t part = bytes / (size_t)world->size;
    int root = (int)(bytes % (size_t)world->size), rc;
    struct ash_err err = {0};

    fill(world, ASH_COLL_U8, bytes, bytes);
    rc = ash_group_all_gather(world->group, world->in, world->ours, part, &err);
    MPI_Allgather(world->in, (int)part, MPI_BYTE, world->theirs, (int)part, MPI_BYTE, MPI_COMM_WORLD);
    compare(world, "all-gather", part * (size_t)world->size, rc, &err);
    memcpy(world->ours, world->in, bytes);
    memcpy(world->theirs, world->in, bytes);
    rc = ash_group_broadcast(world->group, world->ours, bytes, (size_t)root, &err);
    MPI_Bcast(world->theirs, (int)bytes, MPI_BYTE, root, MPI_COMM_WORLD);
    compare(world, "broadcast", bytes, rc, &err);
    check_messages(world, bytes);
}

/* Every pair exchanges another amount, some nothing. */
static void check_all_to_all(struct world *world, size_t bytes)
{
    size_t send[64], recv[64], most = bytes / (size_t)world->size / 4, total = 0;
    int sends[64], recvs[64], send_at[64], recv_at[64];
    struct ash_err err = {0};
    int rc;

    for (int r = 0; r < world->size; r++) {
        send[r] = (size_t)(world->rank * 7 + r * 3) % 5 * most;
        recv[r] = (size_t)(r * 7 + world->rank * 3) % 5 * most;
        sends[r] = (int)send[r];
        recvs[r] = (int)recv[r];
        send_at[r] = r == 0 ? 0 : send_at[r - 1] + sends[r - 1];
        recv_at[r] = r == 0 ? 0 : recv_at[r - 1] + recvs[r - 1];
        total += recv[r];
    }
    fill(world, ASH_COLL_U8, bytes, bytes + 1);
    rc = ash_group_all_to_all(world->group, world->in, send, world->ours, recv, &err);
    MPI_Alltoallv(world->in, sends, send_at, MPI_BYTE, world->theirs, recvs, recv_at, MPI_BYTE, MPI_COMM_WORLD);
    compare(world, "all-to-all", total, rc, &err);
}

static void check_all(struct world *world, size_t largest)
{
    const struct type types[] = {{ASH_COLL_F32, MPI_FLOAT},
                                 {ASH_COLL_F64, MPI_DOUBLE},
                                 {ASH_COLL_I32, MPI_INT32_T},
                                 {ASH_COLL_I64, MPI_INT64_T},
                                 {ASH_COLL_U8, MPI_UINT8_T}};
    const size_t sizes[] = {0, 1, 2, 11, 13, 97, 4095, 4096, 4097, 65537, 262147, (1 << 20) + 4};

    for (size_t s = 0; s < ASH_COUNT(sizes); s++) {
        if (sizes[s] > largest) break;
        for (size_t t = 0; t < ASH_COUNT(types); t++) {
            size_t width = ash_coll_dtype_bytes(types[t].ours);

            check_sums(world, &types[t], sizes[s] <= 97 ? sizes[s] : (sizes[s] + width - 1) / width);
        }
        check_moves(world, sizes[s]);
        check_all_to_all(world, sizes[s]);
    }
    if (largest <= sizes[ASH_COUNT(sizes) - 1]) return;
    check_sums(world, &types[0], largest / sizeof(float) + 1);
    check_moves(world, largest + 1);
}

int main(int argc, char **argv)
{
    size_t largest = argc > 1 ? (size_t)strtoull(argv[1], NULL, 10) : 0;
    struct world world = {.room = largest * 2 + 65536};
    struct ash_group_opts opts = {.join_timeout = 60, .silent_timeout = 60, .call_timeout = 60};
    char node[16];
    struct ash_launch_env place;
    struct ash_err err = {0};

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world.size);
    if (argc > 3) {
        snprintf(node, sizeof(node), "node%d", world.rank * atoi(argv[2]) / world.size);
        opts.node = node;
        opts.algorithm = strcmp(argv[3], "flat") == 0 ? ASH_NET_FLAT : ASH_NET_HIERARCHICAL;
    }
    if (ash_launch_env_read(&place, &err) < 0 || ash_group_open(&place, &opts, &world.group, &err) < 0) {
        fprintf(stderr, "rank %d: %s\n", world.rank, err.text);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    world.in = malloc(world.room);
    world.ours = malloc(world.room);
    world.theirs = malloc(world.room);
    if (world.in != NULL && world.ours != NULL && world.theirs != NULL &&
        (int)ash_group_rank(world.group) == world.rank)
        check_all(&world, largest);
    if (world.rank == 0) printf("%d ranks: %zu results\n", world.size, world.checks);
    ash_group_close(world.group);
    MPI_Finalize();
    free(world.in);
    free(world.ours);
    free(world.theirs);
    return world.checks == 0 || world.wrong != 0;
}
