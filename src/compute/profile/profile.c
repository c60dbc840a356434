/* Profile: wraps an exec's table of ops. An op of a composed op is not measured by itself: its time is the whole's. */
#include "compute/profile/profile.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/table.h"
#include "compute/cuda/backend.h"
#include "compute/profile/cost.h"
#include "infra/device/cuda.h"

#define MARKED_MAX 4096             /* calls between two readings of the GPU's marks */
#define CALLS_MAX ((size_t)1 << 20) /* of the trace; the table counts all */

struct call {
    enum ash_op_id id;
    uint32_t M, N, K;    /* of a product */
    double start_us, us; /* since the profile began */
};

struct total {
    size_t calls;
    double us;
    struct ash_op_cost cost;
};

struct ash_profile {
    struct ash_exec *exec;
    const struct ash_ops *inner; /* what is measured */
    struct ash_ops ops;          /* what exec has meanwhile */
    struct ash_matrix_ops matrix;
    struct ash_route_ops route;
    uint64_t start_ns;
    struct total totals[ASH_OP_COUNT];
    struct call *calls; /* [CALLS_MAX] */
    size_t call_count;
    struct call marked[MARKED_MAX]; /* calls whose marks are in the GPU's queue: 2 i + 1 and 2 i + 2 */
    size_t marked_count;
};

/* ---- measuring --------------------------------------------------------------------------------------------------- */

static struct ash_cuda *gpu_of(const struct ash_profile *profile)
{
    return profile->exec->cuda != NULL ? ash_cuda_backend_device(profile->exec->cuda) : NULL;
}

static void add_call(struct ash_profile *profile, struct call call, double start_us, double us)
{
    call.start_us = start_us;
    call.us = us;
    profile->totals[call.id].us += us;
    if (profile->call_count < CALLS_MAX) profile->calls[profile->call_count++] = call;
}

/* Read the marks in the GPU's queue; mark 0 is the profile's beginning. */
static void read_marks(struct ash_profile *profile)
{
    struct ash_cuda *gpu = gpu_of(profile);

    for (size_t i = 0; i < profile->marked_count; i++)
        add_call(profile, profile->marked[i], 1000 * ash_cuda_mark_ms(gpu, 0, 2 * i + 1),
                 1000 * ash_cuda_mark_ms(gpu, 2 * i + 1, 2 * i + 2));
    profile->marked_count = 0;
}

static double now_us(const struct ash_profile *profile)
{
    return (double)(ash_clock_ns() - profile->start_ns) * 1e-3;
}

/* Before an op: the exec has its own table until the op is done. Returns when it began, on the CPU. */
static double begin(struct ash_profile *profile)
{
    struct ash_cuda *gpu = gpu_of(profile);

    profile->exec->ops = profile->inner;
    if (gpu == NULL) return now_us(profile);
    if (profile->marked_count == MARKED_MAX) read_marks(profile);
    ash_cuda_mark(gpu, 2 * profile->marked_count + 1);
    return 0;
}

static void end(struct ash_profile *profile, enum ash_op_id id, double start_us, struct ash_op_cost cost)
{
    struct ash_cuda *gpu = gpu_of(profile);
    struct total *total = &profile->totals[id];
    struct call call = {.id = id, .M = (uint32_t)cost.M, .N = (uint32_t)cost.N, .K = (uint32_t)cost.K};

    ash_assert(id < ASH_COUNT(profile->totals));
    profile->exec->ops = &profile->ops;
    total->calls++;
    total->cost.bytes += cost.bytes;
    total->cost.flops += cost.flops;
    if (gpu == NULL) {
        add_call(profile, call, start_us, now_us(profile) - start_us);
        return;
    }
    ash_cuda_mark(gpu, 2 * profile->marked_count + 2);
    profile->marked[profile->marked_count++] = call;
}

/* The first argument after exec: most ops have all of theirs in one struct. */
#define FIRST(exec, first, ...) first
#define OP(family, op, parameters, arguments)                                                                          \
    static void family##_##op parameters                                                                               \
    {                                                                                                                  \
        struct ash_profile *profile = exec->profile;                                                                   \
        double start_us = begin(profile);                                                                              \
                                                                                                                       \
        profile->inner->family->op arguments;                                                                          \
        end(profile, ASH_OP_##family##_##op, start_us,                                                                 \
            ash_op_cost_of(ASH_OP_##family##_##op, (const void *)(uintptr_t)(FIRST arguments)));                       \
    }
#include "compute/ops_list.h"
#undef OP
#include "compute/ops_tables.h"

int ash_profile_start(struct ash_exec *exec, struct ash_profile **profile_out, struct ash_err *err)
{
    struct ash_profile *profile = calloc(1, sizeof(*profile));

    ash_assert(exec->profile == NULL);
    if (profile != NULL) profile->calls = malloc(CALLS_MAX * sizeof(*profile->calls));
    if (profile == NULL || profile->calls == NULL) {
        free(profile);
        return ash_err_set(err, -ENOMEM, "out of memory for a profile");
    }
    profile->exec = exec;
    profile->inner = exec->ops;
    profile->ops = (struct ash_ops){.name = exec->ops->name,
                                    .reference = exec->ops->reference,
                                    .takes_bf16 = exec->ops->takes_bf16,
                                    .grow = exec->ops->grow,
                                    ASH_WRAPPED_TABLES};
    profile->matrix = matrix_ops;
    profile->matrix.packed_bytes = exec->ops->matrix->packed_bytes;
    profile->matrix.pack = exec->ops->matrix->pack;
    profile->ops.matrix = &profile->matrix;
    if (exec->ops->sample == NULL) profile->ops.sample = NULL;
    if (exec->ops->family == NULL) profile->ops.family = NULL;
    profile->route = route_ops;
    if (exec->ops->route->grouped == NULL) profile->route.grouped = NULL;
    profile->ops.route = &profile->route;
    profile->start_ns = ash_clock_ns();
    exec->ops = &profile->ops;
    exec->profile = profile;
    if (exec->cuda != NULL) ash_cuda_mark(gpu_of(profile), 0);
    *profile_out = profile;
    return 0;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static const char *const op_names[] = {
#define OP(family, op, parameters, arguments) #family "." #op,
#include "compute/ops_list.h"
#undef OP
};
_Static_assert(ASH_COUNT(op_names) == ASH_OP_COUNT, "each op has a name");

static int write_trace(const struct ash_profile *profile, const char *path, struct ash_err *err)
{
    FILE *file = fopen(path, "w");
    bool is_written;

    if (file == NULL) return ash_err_set(err, -errno, "%s: %s", path, strerror(errno));
    fprintf(file, "{\"displayTimeUnit\": \"ms\", \"otherData\": {\"clock_ns\": %llu}, \"traceEvents\": [\n",
            (unsigned long long)profile->start_ns);
    for (size_t i = 0; i < profile->call_count; i++) {
        const struct call *call = &profile->calls[i];

        fprintf(file, "{\"name\": \"%s\", \"ph\": \"X\", \"pid\": 0, \"tid\": 0, \"ts\": %.3f, \"dur\": %.3f",
                op_names[call->id], call->start_us, call->us);
        if (call->M > 0) fprintf(file, ", \"args\": {\"M\": %u, \"N\": %u, \"K\": %u}", call->M, call->N, call->K);
        fprintf(file, "}%s\n", i + 1 < profile->call_count ? "," : "");
    }
    fprintf(file, "]}\n");
    is_written = ferror(file) == 0;
    if (fclose(file) == 0 && is_written) return 0;
    return ash_err_set(err, -EIO, "%s: the trace could not be written", path);
}

static int more_time(const void *a, const void *b)
{
    const struct total *left = *(const struct total *const *)a, *right = *(const struct total *const *)b;

    return left->us < right->us ? 1 : left->us > right->us ? -1 : 0;
}

static void add_rate(struct ash_table *table, double per_s)
{
    if (per_s > 0)
        ash_table_cell(table, "%.1f", per_s * 1e-9);
    else
        ash_table_cell(table, "-");
}

static void print_table(const struct ash_profile *profile, FILE *screen)
{
    struct ash_table table = {.heads = "op|>calls|>ms|>share|>GB/s|>GFLOP/s"};
    const struct total *sorted[ASH_OP_COUNT];
    double all = 0;

    for (size_t i = 0; i < ASH_OP_COUNT; i++) {
        sorted[i] = &profile->totals[i];
        all += sorted[i]->us;
    }
    qsort(sorted, ASH_OP_COUNT, sizeof(sorted[0]), more_time);
    for (size_t i = 0; i < ASH_OP_COUNT && sorted[i]->calls > 0; i++) {
        const struct total *total = sorted[i];
        double seconds = fmax(total->us, 1e-3) * 1e-6;

        ash_table_row(&table, "%s|%zu|%.2f|%.1f%%", op_names[total - profile->totals], total->calls, total->us * 1e-3,
                      100 * total->us / fmax(all, 1e-9));
        add_rate(&table, total->cost.bytes / seconds);
        add_rate(&table, total->cost.flops / seconds);
    }
    ash_table_row(&table, "all ops||%.2f|||", all * 1e-3);
    fprintf(screen, "\n");
    ash_table_print(&table, screen);
}

int ash_profile_finish(struct ash_profile *profile, const char *path, FILE *screen, struct ash_err *err)
{
    int rc;

    if (profile == NULL) return 0;
    ash_exec_wait(profile->exec, NULL);
    read_marks(profile);
    profile->exec->ops = profile->inner;
    profile->exec->profile = NULL;
    if (screen != NULL) print_table(profile, screen);
    rc = write_trace(profile, path, err);
    free(profile->calls);
    free(profile);
    return rc;
}
