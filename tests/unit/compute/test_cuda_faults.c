/* The GPU backend on a driver whose every call fails once: each failure is a clear error, at the call that can report
 * it or at the next wait, and nothing is leaked. The driver is tests/standin/libcuda.c; each try is a process of its
 * own, since a process opens the driver once. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "compute/backends/backends.h"
#include "compute/cuda/backend.h"
#include "compute/ops.h"
#include "infra/device/cuda.h"
#include "infra/device/shared_memory.h"

#define CALLS_MAX 1000
#define COUNT 256
#define FIRST_CALLS 20 /* that open the GPU */
#define LAST_CALLS 110 /* that use it */

/* Exit codes of a try. */
enum { FINE = 0, REFUSED = 1, BROKEN = 2, WRONG = 3 };

/* Another thread uses the GPU, too: it takes it by itself. */
static void *copy_there(void *x)
{
    float host[COUNT] = {0};

    ash_memory_cuda.copy(x, host, sizeof(host));
    return NULL;
}

#define DOCS_MAX 40
#define DOC_ROWS 2

/* Attention over `count` documents, as a batch that trains: how it was done. */
static enum ash_step_way attend(struct ash_exec *exec, float *x, size_t count)
{
    struct ash_attn_seq seqs[DOCS_MAX] = {0};
    struct ash_attn_args args = {.heads = 1,
                                 .kv_heads = 1,
                                 .dim_k = 1,
                                 .dim_v = 1,
                                 .q_stride = 1,
                                 .k_stride = 1,
                                 .v_stride = 1,
                                 .out_stride = 1,
                                 .q = x,
                                 .out = x,
                                 .seqs = seqs,
                                 .seq_count = count};
    struct ash_exec_step batch = {.shape = 7, .seqs = seqs, .seq_count = count};
    enum ash_step_way way;

    for (size_t s = 0; s < count; s++)
        seqs[s] = (struct ash_attn_seq){
            .q_row = s * DOC_ROWS, .q_count = DOC_ROWS, .k = x + s * DOC_ROWS, .v = x + s * DOC_ROWS};
    way = ash_exec_batch_begin(exec, &batch);
    if (way == ASH_STEP_REPLAYED) return way;
    exec->ops->attn->forward(exec, &args);
    if (!ash_exec_step_end(exec, way)) exec->ops->attn->forward(exec, &args);
    return way;
}

/* Memory that others can open, opened here. */
static void share(struct ash_cuda *cuda)
{
    struct ash_shared_memory *own = NULL, *other = NULL;
    struct ash_err err = {0};

    if (ash_shared_memory_create(cuda, COUNT, &own, &err) == 0 &&
        ash_shared_memory_open(cuda, ash_shared_memory_fd(own), COUNT, &other, &err) == 0)
        ash_memory_cuda.copy(ash_shared_memory_data(other), "words", 5);
    if (other == NULL && ash_cuda_failure(cuda, NULL) == 0 && strstr(err.text, "stand-in GPU") == NULL) exit(WRONG);
    ash_shared_memory_close(own);
    ash_shared_memory_close(other);
}

/* Ops with and without scratch, uploads, a measurement and copies from two threads. */
static void use_queue(struct ash_exec *exec, float *x)
{
    struct ash_cuda *cuda = ash_cuda_backend_device(exec->cuda);
    struct ash_gemm_args gemm = {.M = 4, .N = 4, .K = 4, .c = x, .c_stride = 4, .round_bf16 = true};
    pthread_t thread;
    void *graph = NULL;

    gemm.a = (struct ash_mat){x, ASH_F32, 4, 1};
    gemm.b = (struct ash_mat){x, ASH_F32, 1, 4};
    ash_cuda_mark(cuda, 0);
    exec->ops->row->scale(exec, x, 2.0f, COUNT);
    exec->ops->matrix->gemm(exec, &gemm);
    exec->ops->optim->max_abs(exec, &(struct ash_squares_args){.x = x,
                                                               .ranges = &(struct ash_range){0, COUNT},
                                                               .range_count = 1,
                                                               .sum = (struct ash_squares *)(void *)x});
    ash_exec_shared(exec, COUNT);
    ash_cuda_upload(cuda, "words", 5);
    ash_exec_zero(exec, x, COUNT);
    ash_cuda_upload_to(cuda, x, "words", 5);
    ash_cuda_graph_begin(cuda);
    exec->ops->row->scale(exec, x, 2.0f, COUNT);
    if (ash_cuda_graph_end(cuda, &graph) == 0) ash_cuda_graph_run(cuda, graph);
    ash_cuda_graph_free(cuda, graph);
    for (size_t count = 3; count < 7; count++)
        attend(exec, x, count);
    share(cuda);
    ash_cuda_mark(cuda, 1);
    ash_cuda_mark_ms(cuda, 0, 1);
    if (pthread_create(&thread, NULL, copy_there, x) == 0) pthread_join(thread, NULL);
}

/* Open the GPU, use it, wait, close. */
static int use_gpu(void)
{
    struct ash_exec exec;
    struct ash_err err = {0};
    float *x;
    int rc = ash_exec_init(&exec, "cuda", 1, &err);

    if (rc < 0) {
        fprintf(stderr, "%s\n", err.text);
        return strlen(err.text) > 10 ? REFUSED : WRONG;
    }
    ash_cuda_free_bytes(ash_cuda_backend_device(exec.cuda));
    x = ash_memory_cuda.alloc(COUNT * sizeof(*x));
    if (x != NULL) {
        use_queue(&exec, x);
        ash_memory_cuda.free(x, COUNT * sizeof(*x));
    }
    rc = ash_exec_wait(&exec, &err);
    ash_exec_fini(&exec);
    if (rc < 0) {
        fprintf(stderr, "%s\n", err.text);
        return strstr(err.text, "stand-in GPU") != NULL ? BROKEN : WRONG;
    }
    return FINE;
}

/* One try in a process of its own with call number fail_at failing (0: none). Returns its exit code; how many calls it
 * made and how much it left behind are in *calls_out and *held_out. */
static int try_once(long fail_at, long *calls_out, long *held_out)
{
    char path[] = "/tmp/ashlar-standin-XXXXXX", text[32];
    int fd = mkstemp(path), status = 0;
    pid_t pid;
    FILE *file;

    assert_true(fd >= 0);
    close(fd);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        snprintf(text, sizeof(text), "%ld", fail_at);
        setenv("STANDIN_FAIL_AT", text, 1);
        setenv("STANDIN_CALLS", path, 1);
        if (freopen("/dev/null", "w", stderr) == NULL) exit(WRONG);
        exit(use_gpu());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    file = fopen(path, "r");
    assert_non_null(file);
    if (fscanf(file, "%ld %ld %*u", calls_out, held_out) != 2)
        *calls_out = *held_out = 0; /* the driver was closed again */
    fclose(file);
    unlink(path);
    return WEXITSTATUS(status);
}

static void test_every_call_fails_once(void **state)
{
    long calls = 0, held = 0, total, refused = 0, broken = 0;

    (void)state;
    assert_int_equal(try_once(0, &total, &held), FINE);
    assert_int_equal(held, 0);
    assert_true(total > 20 && total < CALLS_MAX);
    /* in the middle kernels are found, with the same few calls for each: some of them */
    for (long at = 1; at <= total; at += at > FIRST_CALLS && at < total - LAST_CALLS ? 20 : 1) {
        int code = try_once(at, &calls, &held);

        if (code == WRONG || held != 0)
            fail_msg("call %ld of %ld fails: exit %d, %ld left behind", at, total, code, held);
        refused += code == REFUSED;
        broken += code == BROKEN;
    }
    assert_true(refused > 10 && broken >= 3);
}

/* The stand-in has one GPU. Other words are no backends. */
static void test_gpu_numbers(void **state)
{
    static const char *const unknown[] = {"cuda:", "cuda:x", "cuda:-1", "cuda:999", "cuda0", "cud"};
    struct ash_exec exec;
    struct ash_err err = {0};

    (void)state;
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        assert_int_equal(ash_exec_init(&exec, unknown[i], 1, &err), -EINVAL);
        assert_non_null(strstr(err.text, unknown[i]));
    }
    assert_int_equal(ash_exec_init(&exec, "cuda:1", 1, &err), -ENODEV);
    assert_non_null(strstr(err.text, "there is no GPU 1: this machine has 1"));
    assert_int_equal(ash_exec_init(&exec, "cuda:0", 1, &err), 0);
    ash_exec_fini(&exec);
}

/* A batch of a shape runs, is recorded and then replayed, with other documents, too; for more than there is room for it
 * begins again. */
static void test_batches_are_replayed(void **state)
{
    struct ash_exec exec;
    struct ash_err err = {0};
    float *x;

    (void)state;
    if (ash_exec_init(&exec, "cuda", 1, &err) < 0) fail_msg("%s", err.text);
    x = ash_memory_cuda.alloc(COUNT * sizeof(*x));
    assert_non_null(x);
    assert_int_equal(attend(&exec, x, 3), ASH_STEP_RUN);
    for (int i = 0; i < 4; i++) /* memory for tables was not there before */
        attend(&exec, x, 4);
    assert_int_equal(attend(&exec, x, 16), ASH_STEP_REPLAYED);
    assert_int_equal(attend(&exec, x, 5), ASH_STEP_REPLAYED);
    assert_int_equal(attend(&exec, x, DOCS_MAX), ASH_STEP_RUN);
    assert_int_equal(ash_exec_wait(&exec, &err), 0);
    ash_memory_cuda.free(x, COUNT * sizeof(*x));
    ash_exec_fini(&exec);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_call_fails_once),
                                       cmocka_unit_test(test_batches_are_replayed), cmocka_unit_test(test_gpu_numbers)};

    /* The stand-in is found by its folder; a program's own search path is read when it starts, so it starts again. */
    (void)argc;
    if (getenv("STANDIN_FOLDER") == NULL) {
        setenv("STANDIN_FOLDER", STANDIN_FOLDER, 1);
        setenv("LD_LIBRARY_PATH", STANDIN_FOLDER, 1);
        execv("/proc/self/exe", argv);
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
