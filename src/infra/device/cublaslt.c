/* cuBLASLt, opened at run time. It thinks in columns: our c = a b^T by rows is its c^T = b a^T by columns,
 * with b's lines transposed. */
#include "infra/device/cublaslt.h"

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "base/assert.h"

typedef int lt_status;

enum { COMPUTE_32F = 68, REAL_32F = 0, REAL_16BF = 14, OP_PLAIN = 0, OP_TRANSPOSED = 1 };
enum { DESC_TRANSA = 3, DESC_TRANSB = 4, PREF_WORKSPACE_BYTES = 1, PREF_REDUCTION_MASK = 3, REDUCTION_NONE = 0 };

/* cublasLtMatmulHeuristicResult_t */
struct found {
    struct ash_lt_algo algo;
    size_t workspace_bytes;
    lt_status state;
    float waves;
    int reserved[4];
};

/* The library's functions: X(member, symbol, parameters). The version is a size_t, of which an int has enough. */
#define FUNCTIONS(X)                                                                                                   \
    X(create, "cublasLtCreate", (void **handle_out))                                                                   \
    X(destroy, "cublasLtDestroy", (void *handle))                                                                      \
    X(desc_create, "cublasLtMatmulDescCreate", (void **desc_out, int compute, int scale))                              \
    X(desc_destroy, "cublasLtMatmulDescDestroy", (void *desc))                                                         \
    X(desc_set, "cublasLtMatmulDescSetAttribute", (void *desc, int attribute, const void *value, size_t bytes))        \
    X(layout_create, "cublasLtMatrixLayoutCreate",                                                                     \
      (void **layout_out, int type, uint64_t rows, uint64_t cols, int64_t stride))                                     \
    X(layout_destroy, "cublasLtMatrixLayoutDestroy", (void *layout))                                                   \
    X(pref_create, "cublasLtMatmulPreferenceCreate", (void **pref_out))                                                \
    X(pref_destroy, "cublasLtMatmulPreferenceDestroy", (void *pref))                                                   \
    X(pref_set, "cublasLtMatmulPreferenceSetAttribute", (void *pref, int attribute, const void *value, size_t bytes))  \
    X(heuristic, "cublasLtMatmulAlgoGetHeuristic",                                                                     \
      (void *handle, void *desc, void *a, void *b, void *c, void *d, void *pref, int wanted, struct found *found,      \
       int *count_out))                                                                                                \
    X(version, "cublasLtGetVersion", (void))                                                                           \
    X(matmul, "cublasLtMatmul",                                                                                        \
      (void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *b, void *b_layout,      \
       const void *beta, const void *c, void *c_layout, void *d, void *d_layout, const struct ash_lt_algo *algo,       \
       void *workspace, size_t workspace_bytes, void *stream))

struct ash_lt {
    void *library, *handle, *pref;
#define MEMBER(member, symbol, parameters) lt_status(*member) parameters;
    FUNCTIONS(MEMBER)
#undef MEMBER
};

static const struct {
    const char *symbol;
    size_t offset;
} functions[] = {
#define FUNCTION(member, symbol, parameters) {symbol, offsetof(struct ash_lt, member)},
    FUNCTIONS(FUNCTION)
#undef FUNCTION
};

/* Where the library is: what the system's search finds, the toolkit's folder, Python packages. */
static const char *const places[] = {
    "libcublasLt.so.13",
    "libcublasLt.so.12",
    "/usr/local/cuda*/lib64/libcublasLt.so.1[23]",
    "/usr/lib/python3*/*-packages/nvidia/*/lib/libcublasLt.so.1[23]",
    "/usr/local/lib/python3*/*-packages/nvidia/*/lib/libcublasLt.so.1[23]",
    "/opt/*/lib/python3*/site-packages/nvidia/*/lib/libcublasLt.so.1[23]",
    "/opt/*/.venv/lib/python3*/site-packages/nvidia/*/lib/libcublasLt.so.1[23]",
};

static void *open_place(const char *place)
{
    glob_t found;
    void *library = NULL;

    if (place[0] != '/') return dlopen(place, RTLD_NOW | RTLD_LOCAL);
    if (glob(place, 0, NULL, &found) != 0) return NULL;
    for (size_t i = 0; i < found.gl_pathc && library == NULL; i++)
        library = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
    globfree(&found);
    return library;
}

static int find_functions(struct ash_lt *lt, struct ash_err *err)
{
    for (size_t i = 0; i < ASH_COUNT(functions); i++) {
        void *function = dlsym(lt->library, functions[i].symbol);

        if (function == NULL) return ash_err_set(err, -ENOENT, "cuBLASLt has no %s", functions[i].symbol);
        memcpy((char *)lt + functions[i].offset, &function, sizeof(function));
    }
    return 0;
}

static int set_up(struct ash_lt *lt, struct ash_err *err)
{
    size_t workspace_bytes = ASH_LT_WORKSPACE_BYTES;
    uint32_t reductions = REDUCTION_NONE; /* no parts of k that are added up in the end */

    if (lt->create(&lt->handle) != 0 || lt->pref_create(&lt->pref) != 0 ||
        lt->pref_set(lt->pref, PREF_WORKSPACE_BYTES, &workspace_bytes, sizeof(workspace_bytes)) != 0 ||
        lt->pref_set(lt->pref, PREF_REDUCTION_MASK, &reductions, sizeof(reductions)) != 0)
        return ash_err_set(err, -EIO, "cuBLASLt cannot be set up");
    return 0;
}

int ash_lt_open(struct ash_lt **lt_out, struct ash_err *err)
{
    struct ash_lt *lt = calloc(1, sizeof(*lt));
    int rc;

    if (lt == NULL) return ash_err_set(err, -ENOMEM, "out of memory for cuBLASLt");
    for (size_t i = 0; i < ASH_COUNT(places) && lt->library == NULL; i++)
        lt->library = open_place(places[i]);
    rc = lt->library != NULL ? find_functions(lt, err)
                             : ash_err_set(err, -ENOENT,
                                           "cuBLASLt was not found: neither by the system nor in the CUDA toolkit nor "
                                           "in Python packages");
    if (rc == 0) rc = set_up(lt, err);
    if (rc < 0) {
        ash_lt_close(lt);
        return rc;
    }
    *lt_out = lt;
    return 0;
}

uint64_t ash_lt_version(const struct ash_lt *lt)
{
    return (uint64_t)lt->version();
}

void ash_lt_close(struct ash_lt *lt)
{
    if (lt == NULL) return;
    if (lt->pref != NULL) lt->pref_destroy(lt->pref);
    if (lt->handle != NULL) lt->destroy(lt->handle);
    if (lt->library != NULL) dlclose(lt->library);
    free(lt);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* A shape as the library wants it. */
struct plan {
    void *desc, *a, *b, *add, *c; /* add: layout of c where nothing is added */
};

static void plan_fini(struct ash_lt *lt, struct plan *plan)
{
    if (plan->desc != NULL) lt->desc_destroy(plan->desc);
    if (plan->a != NULL) lt->layout_destroy(plan->a);
    if (plan->b != NULL) lt->layout_destroy(plan->b);
    if (plan->add != NULL) lt->layout_destroy(plan->add);
    if (plan->c != NULL) lt->layout_destroy(plan->c);
}

/* What lies as lines of k is a matrix of k rows to it; what lies as columns, one of k columns. */
static int layout_init(struct ash_lt *lt, void **layout_out, size_t count, size_t k, size_t stride, bool columns)
{
    return lt->layout_create(layout_out, REAL_16BF, columns ? count : k, columns ? k : count, (int64_t)stride);
}

/* Its first operand is b, which it transposes if it is lines; its second is a, likewise if that is columns. */
static int plan_init(struct ash_lt *lt, const struct ash_lt_shape *shape, struct plan *plan)
{
    int first = shape->b_columns ? OP_PLAIN : OP_TRANSPOSED, second = shape->a_columns ? OP_TRANSPOSED : OP_PLAIN;
    int type = shape->c_is_bf16 ? REAL_16BF : REAL_32F;
    size_t add_stride = shape->add_stride > 0 ? shape->add_stride : shape->c_stride;

    *plan = (struct plan){0};
    if (lt->desc_create(&plan->desc, COMPUTE_32F, REAL_32F) != 0 ||
        lt->desc_set(plan->desc, DESC_TRANSA, &first, sizeof(first)) != 0 ||
        lt->desc_set(plan->desc, DESC_TRANSB, &second, sizeof(second)) != 0 ||
        layout_init(lt, &plan->b, shape->N, shape->K, shape->b_stride, shape->b_columns) != 0 ||
        layout_init(lt, &plan->a, shape->M, shape->K, shape->a_stride, shape->a_columns) != 0 ||
        lt->layout_create(&plan->add, type, shape->N, shape->M, (int64_t)add_stride) != 0 ||
        lt->layout_create(&plan->c, type, shape->N, shape->M, (int64_t)shape->c_stride) != 0) {
        plan_fini(lt, plan);
        return -EIO;
    }
    return 0;
}

size_t ash_lt_find(struct ash_lt *lt, const struct ash_lt_shape *shape, struct ash_lt_algo *algos_out)
{
    struct found found[ASH_LT_ALGOS_MAX];
    struct plan plan;
    int count = 0;
    size_t kept = 0;

    if (plan_init(lt, shape, &plan) < 0) return 0;
    if (lt->heuristic(lt->handle, plan.desc, plan.b, plan.a, plan.add, plan.c, lt->pref, ASH_LT_ALGOS_MAX, found,
                      &count) != 0)
        count = 0;
    for (int i = 0; i < count; i++)
        if (found[i].state == 0 && found[i].workspace_bytes <= ASH_LT_WORKSPACE_BYTES)
            algos_out[kept++] = found[i].algo;
    plan_fini(lt, &plan);
    return kept;
}

int ash_lt_multiply(struct ash_lt *lt, const struct ash_lt_shape *shape, const struct ash_lt_algo *algo,
                    const struct ash_lt_operands *operands, void *stream)
{
    const float one = 1.0f, zero = 0.0f;
    const void *a = operands->a, *b = operands->b;
    const void *add = operands->add != NULL ? operands->add : operands->c;
    struct plan plan;
    int rc = plan_init(lt, shape, &plan);

    if (rc < 0) return rc;
    if (lt->matmul(lt->handle, plan.desc, &one, b, plan.b, a, plan.a, operands->add != NULL ? &one : &zero, add,
                   plan.add, operands->c, plan.c, algo, operands->workspace, ASH_LT_WORKSPACE_BYTES, stream) != 0)
        rc = -EIO;
    plan_fini(lt, &plan);
    return rc;
}
