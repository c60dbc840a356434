/* Which backend computes where nothing was asked: a GPU that this build's kernels run on, if this machine has one. */
#include "compute/backends/backends.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/assert.h"
#include "compute/cuda/backend.h"
#include "compute/cuda/images.h"
#include "compute/cuda/replay.h"
#include "infra/device/cuda.h"

/* Do kernels of one architecture ("90a", "100") run on the GPU? Those with a letter run on no other. */
static bool arch_fits(const char *arch, const struct ash_cuda_facts *facts)
{
    char *end;
    long number = strtol(arch, &end, 10);

    if (isalpha((unsigned char)*end)) return number == 10L * facts->major + facts->minor;
    return number / 10 == facts->major && number % 10 <= facts->minor;
}

static bool kernels_fit(const struct ash_cuda_facts *facts)
{
    const char *arch = ash_cuda_archs;

    while (*arch != '\0') {
        if (arch_fits(arch, facts)) return true;
        arch += strcspn(arch, " ");
        arch += strspn(arch, " ");
    }
    return false;
}

/* Can the first GPU compute? Else why holds the reason, where there is a GPU. */
static bool can_use_gpu(const struct ash_backend_wish *wish, const struct ash_cuda_facts *facts, char *why)
{
    if (!kernels_fit(facts))
        snprintf(why, ASH_BACKEND_WHY_BYTES, "it has compute capability %d.%d, and this build's kernels are for %s",
                 facts->major, facts->minor, ash_cuda_archs);
    else if (wish->cpu_reason != NULL)
        snprintf(why, ASH_BACKEND_WHY_BYTES, "%s", wish->cpu_reason);
    else
        return true;
    return false;
}

void ash_backend_choose(const struct ash_backend_wish *wish, struct ash_backend_choice *choice_out)
{
    struct ash_backend_choice choice = {.name = wish->asked != NULL ? wish->asked : "cpu",
                                        .is_own = wish->asked == NULL};
    struct ash_cuda_facts facts;
    char why[ASH_BACKEND_WHY_BYTES];

    /* a build without kernels does not even open the driver */
    if (wish->asked == NULL && ash_cuda_backend_built() && ash_cuda_look(0, &facts, NULL) == 0) {
        if (can_use_gpu(wish, &facts, why))
            choice.name = ash_ops_cuda.name;
        else
            snprintf(choice.why, sizeof(choice.why), "%s is not used: %s", facts.name, why);
    }
    *choice_out = choice;
}

int ash_backend_start(struct ash_exec *exec, const struct ash_backend_choice *choice, int thread_count,
                      struct ash_err *err)
{
    const char *name = choice->gpu[0] != '\0' ? choice->gpu : choice->name;
    int rc = ash_exec_init(exec, name, thread_count, err);

    /* the GPU was seen, and cannot be opened: that must not be found out from the speed */
    if (rc < 0 && choice->is_own && strcmp(choice->name, ash_ops_cuda.name) == 0)
        return ash_err_prefix(err, rc, "the CPU computes with runtime.backend=cpu (--backend cpu), for the GPU fails");
    return rc;
}

/* Of GPUs with portable kernels. */
static const char *portable_name(const struct ash_cuda_facts *facts, char buf[ASH_BACKEND_ARITHMETIC_BYTES])
{
    snprintf(buf, ASH_BACKEND_ARITHMETIC_BYTES, "cuda-%d.%d", facts->major % 100, facts->minor % 100);
    return buf;
}

/* By the GPU, not by the table of ops: a profile puts one of its own before it. */
static bool is_portable(const struct ash_exec *exec)
{
    return exec->cuda != NULL && !ash_cuda_backend_is_exact(ash_cuda_get_facts(ash_cuda_backend_device(exec->cuda)));
}

const char *ash_backend_arithmetic(const struct ash_exec *exec, char buf[ASH_BACKEND_ARITHMETIC_BYTES])
{
    if (is_portable(exec)) return portable_name(ash_cuda_get_facts(ash_cuda_backend_device(exec->cuda)), buf);
    snprintf(buf, ASH_BACKEND_ARITHMETIC_BYTES, "%s", exec->ops->reference->name);
    return buf;
}

bool ash_backend_gpu_follows(const char *arithmetic)
{
    char buf[ASH_BACKEND_ARITHMETIC_BYTES];
    const char *name = ash_ops_cuda.reference->name;
    struct ash_cuda_facts facts;

    if (ash_cuda_backend_built() && ash_cuda_look(0, &facts, NULL) == 0 && !ash_cuda_backend_is_exact(&facts))
        name = portable_name(&facts, buf);
    return strcspn(arithmetic, "/") == strlen(name) && strncmp(arithmetic, name, strlen(name)) == 0;
}

const char *ash_backend_describe(const struct ash_exec *exec, char *buf, size_t buf_bytes)
{
    const struct ash_cuda_facts *facts;

    if (exec->cuda == NULL) {
        snprintf(buf, buf_bytes, "%s kernels", exec->ops->name);
        return buf;
    }
    facts = ash_cuda_get_facts(ash_cuda_backend_device(exec->cuda));
    snprintf(buf, buf_bytes, "%s (cuda:%d), %s", facts->name, facts->index,
             is_portable(exec) ? "portable kernels" : "exact");
    return buf;
}

const char *ash_backend_say_replayed(const struct ash_exec *exec, char *buf, size_t buf_bytes)
{
    uint64_t begun = 0, replayed = 0;

    if (exec->cuda != NULL) ash_cuda_replayed(exec->cuda, &begun, &replayed);
    buf[0] = '\0';
    if (replayed > 0)
        snprintf(buf, buf_bytes, "%.1f%% of %" PRIu64 " passes replayed", 100.0 * (double)replayed / (double)begun,
                 begun);
    return buf;
}

bool ash_backend_has_library(const struct ash_exec *exec)
{
    return exec->cuda != NULL && ash_cuda_backend_has_library(exec->cuda);
}

size_t ash_backend_tried(size_t count, size_t k)
{
    return ash_cuda_backend_tried(count, k);
}

bool ash_backend_lays_out(const struct ash_exec *exec, size_t M, size_t N)
{
    return exec->cuda != NULL && !ash_cuda_backend_reads_columns(exec->cuda, M, N);
}

size_t ash_backend_free_bytes(const struct ash_exec *exec)
{
    return exec->cuda != NULL ? ash_cuda_free_bytes(ash_cuda_backend_device(exec->cuda)) : 0;
}

void ash_backend_gpu_id(const struct ash_exec *exec, unsigned char id_out[ASH_BACKEND_GPU_ID_BYTES])
{
    const struct ash_cuda_facts *facts =
        exec->cuda != NULL ? ash_cuda_get_facts(ash_cuda_backend_device(exec->cuda)) : NULL;

    memset(id_out, 0, ASH_BACKEND_GPU_ID_BYTES);
    if (facts != NULL) memcpy(id_out, facts->uuid, sizeof(facts->uuid));
}

const char *ash_backend_name(const struct ash_exec *exec, char buf[ASH_BACKEND_NAME_BYTES])
{
    const struct ash_cuda *cuda = exec->cuda != NULL ? ash_cuda_backend_device(exec->cuda) : NULL;

    if (cuda != NULL)
        snprintf(buf, ASH_BACKEND_NAME_BYTES, "cuda:%d", ash_cuda_get_facts(cuda)->index);
    else
        snprintf(buf, ASH_BACKEND_NAME_BYTES, "%s", exec->ops->name);
    return buf;
}

int ash_backend_outcome(const struct ash_exec *exec, int rc, struct ash_err *err)
{
    int failed = exec->cuda != NULL ? ash_cuda_failure(ash_cuda_backend_device(exec->cuda), err) : 0;

    return failed < 0 ? failed : rc;
}

void ash_backend_read(const struct ash_exec *exec, void *dst, const void *src, size_t size_bytes)
{
    int rc = exec->memory->copy(dst, src, size_bytes);

    ash_assert(rc == 0 || exec->cuda != NULL);
    if (rc < 0) memset(dst, 0, size_bytes);
}
