/* See library.h. What was found out about a shape is kept in a small table; when it is full, the oldest entry goes. */
#include "compute/cuda/gemm/library.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/assert.h"
#include "base/math.h"
#include "compute/cuda/gemm/library_file.h"
#include "infra/device/cublaslt.h"

#define FIRST_MARK (ASH_CUDA_MARKS_MAX - 2) /* the last ones: a profile has the first */
#define SHAPES_MAX 64
#define WORTH_MIN ((size_t)1 << 24)     /* multiply-adds: below, launching and looking up cost more than is gained */
#define CORNER ((size_t)512)            /* rows and columns by which a stored algorithm is checked */
#define ROUNDS 5                        /* timed products of an algorithm */
#define TRIAL_BYTES ((size_t)512 << 20) /* of one operand that is drawn */
#define TRIAL_LINES ((size_t)2048)      /* but at least these: tiles for all multiprocessors */
#define TRIAL_LINES_STEP ((size_t)256)

/* A shape, and how the library computes it with our bits. */
struct known {
    struct ash_library_choice choice;
    bool is_new; /* found out by this process */
};

struct ash_cuda_library {
    struct ash_lt *lt;
    struct ash_buffer workspace;
    struct known known[SHAPES_MAX];
    size_t count, next;
    struct ash_library_key key;
    struct ash_library_choices stored; /* by earlier processes */
};

/* What earlier processes found out. */
static void read_stored(struct ash_cuda_backend *backend)
{
    struct ash_cuda_library *library = backend->library;
    const struct ash_cuda_facts *facts = ash_cuda_get_facts(backend->cuda);

    memcpy(library->key.gpu, facts->name, strnlen(facts->name, sizeof(library->key.gpu)));
    library->key.driver = (uint64_t)facts->driver_version;
    library->key.library = ash_lt_version(library->lt);
    ash_library_file_read(&library->key, &library->stored);
}

/* What this process found out, for later ones. */
static void write_new(const struct ash_cuda_backend *backend)
{
    const struct ash_cuda_library *library = backend->library;
    struct ash_library_choice list[SHAPES_MAX];
    size_t count = 0;

    for (size_t i = 0; i < library->count; i++)
        if (library->known[i].is_new) list[count++] = library->known[i].choice;
    if (count > 0 && ash_cuda_failure(backend->cuda, NULL) == 0) ash_library_file_add(&library->key, list, count);
}

void ash_cuda_library_open(struct ash_cuda_backend *backend)
{
    struct ash_cuda_library *library = calloc(1, sizeof(*library));

    if (library == NULL) return;
    if (ash_lt_open(&library->lt, NULL) == 0 &&
        ash_buffer_init(&library->workspace, &ash_memory_cuda, ASH_LT_WORKSPACE_BYTES, "cuBLASLt", NULL) == 0) {
        backend->library = library;
        read_stored(backend);
        return;
    }
    ash_lt_close(library->lt);
    free(library);
}

void ash_cuda_library_close(struct ash_cuda_backend *backend)
{
    if (backend->library == NULL) return;
    write_new(backend);
    ash_buffer_fini(&backend->library->workspace);
    ash_lt_close(backend->library->lt);
    free(backend->library);
    backend->library = NULL;
}

static struct ash_lt_shape shape_of(const struct ash_cuda_gemm_bf16 *op)
{
    return (struct ash_lt_shape){.M = op->a.count,
                                 .N = op->b.count,
                                 .K = op->a.k,
                                 .a_stride = op->a.stride,
                                 .b_stride = op->b.stride,
                                 .c_stride = op->c_stride,
                                 .a_columns = op->a.columns,
                                 .b_columns = op->b.columns,
                                 .add_stride = op->add != NULL ? op->add_stride : 0,
                                 .c_is_bf16 = op->c_bf16 != NULL};
}

static int multiply(struct ash_exec *exec, const struct ash_lt_shape *shape, const struct ash_lt_algo *algo,
                    const struct ash_cuda_gemm_bf16 *op)
{
    struct ash_cuda_library *library = exec->cuda->library;
    struct ash_lt_operands operands = {.a = op->a.data,
                                       .b = op->b.data,
                                       .add = op->add,
                                       .c = op->c_bf16 != NULL ? (void *)op->c_bf16 : (void *)op->c,
                                       .workspace = library->workspace.data};

    return ash_lt_multiply(library->lt, shape, algo, &operands, ash_cuda_stream(exec->cuda->cuda));
}

/* Of all words of a product. Returns 0, or -EIO. */
static int checksum_of(struct ash_exec *exec, const struct ash_cuda_gemm_bf16 *op, uint64_t *sum_out)
{
    struct ash_cuda_checksum args = {.x = op->c,
                                     .x_bf16 = op->c_bf16,
                                     .rows = op->a.count,
                                     .cols = op->b.count,
                                     .stride = op->c_stride,
                                     .sum = exec->cuda->results.data};

    ash_cuda_zero(exec->cuda->cuda, args.sum, sizeof(*sum_out));
    ash_cuda_run(exec, ASH_KERNEL_checksum, ash_cuda_grid_reduction(op->a.count * op->b.count), &args);
    return ash_cuda_read(exec->cuda->cuda, sum_out, args.sum, sizeof(*sum_out), NULL);
}

/* Milliseconds of one product of several in a row. */
static double time_once(struct ash_exec *exec, const struct ash_lt_shape *shape, const struct ash_lt_algo *algo,
                        ash_cuda_own_gemm own, const struct ash_cuda_gemm_bf16 *op)
{
    ash_cuda_mark(exec->cuda->cuda, FIRST_MARK);
    for (int i = 0; i < ROUNDS; i++) {
        if (own != NULL)
            own(exec, op);
        else if (multiply(exec, shape, algo, op) < 0)
            return INFINITY;
    }
    ash_cuda_mark(exec->cuda->cuda, FIRST_MARK + 1);
    return ash_cuda_mark_ms(exec->cuda->cuda, FIRST_MARK, FIRST_MARK + 1) / ROUNDS;
}

/* Milliseconds of one product, by an algorithm, or by our own kernel where there is one. The better of two: the choice
 * is kept for long. */
static double time_of(struct ash_exec *exec, const struct ash_lt_shape *shape, const struct ash_lt_algo *algo,
                      ash_cuda_own_gemm own, const struct ash_cuda_gemm_bf16 *op)
{
    double first = time_once(exec, shape, algo, own, op);

    return fmin(first, time_once(exec, shape, algo, own, op));
}

/* Try every algorithm on a product. want is the checksum of our own kernel's result, which takes `best` ms. */
static void try_algos(struct ash_exec *exec, const struct ash_cuda_gemm_bf16 *op, const struct ash_lt_shape *shape,
                      uint64_t want, double best, struct known *known)
{
    struct ash_lt_algo algos[ASH_LT_ALGOS_MAX];
    uint64_t sum = 0;
    size_t count = ash_lt_find(exec->cuda->library->lt, shape, algos);

    for (size_t i = 0; i < count; i++) {
        double ms;

        if (multiply(exec, shape, &algos[i], op) < 0) continue;
        if (checksum_of(exec, op, &sum) < 0 || sum != want) continue;
        ms = time_of(exec, shape, &algos[i], NULL, op);
        if (ms >= best) continue;
        best = ms;
        known->choice.algo = algos[i];
        known->choice.agrees = 1;
    }
}

static struct known *remember(struct ash_cuda_library *library, const struct ash_lt_shape *shape)
{
    struct known *known = &library->known[library->next];

    library->next = (library->next + 1) % SHAPES_MAX;
    if (library->count < SHAPES_MAX) library->count++;
    *known = (struct known){.choice.shape = *shape};
    return known;
}

static struct known *look_up(struct ash_cuda_library *library, const struct ash_lt_shape *shape)
{
    for (size_t i = 0; i < library->count; i++)
        if (memcmp(&library->known[i].choice.shape, shape, sizeof(*shape)) == 0) return &library->known[i];
    return NULL;
}

/* A product of the same shape, of operands that are drawn: those of a caller may be all zeros, with which every
 * algorithm agrees. Its results go to the caller's place, which the product at hand overwrites; of each a checksum
 * stays. So a trial takes no more memory than operands do. */
struct trial {
    struct ash_buffer a, b, add, room;
};

static void trial_fini(struct trial *trial)
{
    ash_buffer_fini(&trial->a);
    ash_buffer_fini(&trial->b);
    ash_buffer_fini(&trial->add);
    ash_buffer_fini(&trial->room);
}

static size_t operand_bytes(size_t count, size_t k, size_t stride, size_t columns)
{
    return (columns ? k : count) * stride * sizeof(uint16_t);
}

/* What our own kernel needs to lay columns out as lines. */
static size_t room_bytes(const struct ash_lt_shape *shape)
{
    return ((shape->a_columns ? shape->M : 0) + (shape->b_columns ? shape->N : 0) + 1) *
           ash_round_up(shape->K, ASH_CUDA_LINE_ALIGN) * sizeof(uint16_t);
}

static int trial_init(struct trial *trial, const struct ash_lt_shape *shape)
{
    static const char what[] = "a product to compare with";
    size_t a_bytes = operand_bytes(shape->M, shape->K, shape->a_stride, shape->a_columns),
           b_bytes = operand_bytes(shape->N, shape->K, shape->b_stride, shape->b_columns);
    int rc = ash_buffer_init(&trial->a, &ash_memory_cuda, a_bytes, what, NULL);

    if (rc == 0) rc = ash_buffer_init(&trial->b, &ash_memory_cuda, b_bytes, what, NULL);
    if (rc == 0 && shape->add_stride > 0)
        rc = ash_buffer_init(&trial->add, &ash_memory_cuda, shape->M * shape->add_stride * sizeof(float), what, NULL);
    if (rc == 0) rc = ash_buffer_init(&trial->room, &ash_memory_cuda, room_bytes(shape), what, NULL);
    if (rc < 0) trial_fini(trial);
    return rc;
}

/* Two bf16 side by side are a float of the second's exponent. */
static void draw(struct ash_exec *exec, const struct ash_buffer *buffer, uint32_t seed)
{
    struct ash_cuda_draw op = {.out = buffer->data, .count = buffer->size_bytes / sizeof(uint16_t), .seed = seed};

    ash_cuda_run(exec, ASH_KERNEL_draw_bf16, ash_cuda_grid_elements(op.count), &op);
}

static const struct ash_library_choice *stored_for(const struct ash_cuda_library *library,
                                                   const struct ash_lt_shape *shape)
{
    for (size_t i = 0; i < library->stored.count; i++)
        if (memcmp(&library->stored.list[i].shape, shape, sizeof(*shape)) == 0) return &library->stored.list[i];
    return NULL;
}

size_t ash_cuda_library_tried(size_t count, size_t k)
{
    size_t most = TRIAL_BYTES / (k * sizeof(uint16_t)) / TRIAL_LINES_STEP * TRIAL_LINES_STEP;

    return ash_min(count, ash_max(most, TRIAL_LINES));
}

/* What is tried of a shape: fewer lines of its operands where these are large. How sums grow over k stays. */
static struct ash_lt_shape shape_tried(const struct ash_lt_shape *shape)
{
    struct ash_lt_shape tried = *shape;

    tried.M = ash_cuda_library_tried(shape->M, shape->K);
    tried.N = ash_cuda_library_tried(shape->N, shape->K);
    if (tried.M < shape->M && shape->a_columns) tried.a_stride = tried.M;
    if (tried.N < shape->N && shape->b_columns) tried.b_stride = tried.N;
    return tried;
}

/* A product of op's kind, of the operands of a trial. */
static struct ash_cuda_gemm_bf16 drawn_of(const struct ash_cuda_gemm_bf16 *op, const struct ash_lt_shape *tried,
                                          const struct trial *trial)
{
    struct ash_cuda_gemm_bf16 drawn = *op;

    drawn.a.data = trial->a.data;
    drawn.b.data = trial->b.data;
    drawn.a.count = tried->M;
    drawn.b.count = tried->N;
    drawn.a.stride = tried->a_stride;
    drawn.b.stride = tried->b_stride;
    drawn.add = trial->add.data;
    drawn.room = trial->room.data;
    return drawn;
}

/* Has a stored algorithm our bits in a corner of the product? One that has not had them anywhere was not stored. */
static bool is_confirmed(struct ash_exec *exec, const struct ash_cuda_gemm_bf16 *op, const struct ash_lt_shape *shape,
                         const struct ash_library_choice *choice, ash_cuda_own_gemm own)
{
    struct ash_cuda_gemm_bf16 corner = *op;
    uint64_t sum = 0, want = 0;

    corner.a.count = ash_min(op->a.count, CORNER);
    corner.b.count = ash_min(op->b.count, CORNER);
    if (multiply(exec, shape, &choice->algo, op) < 0 || checksum_of(exec, &corner, &sum) < 0) return false;
    own(exec, &corner);
    return checksum_of(exec, &corner, &want) == 0 && sum == want;
}

/* Find out how the library computes a shape with our bits, or take what an earlier process has found out. Where the
 * GPU has no room for a trial, it does not. */
static struct known *learn(struct ash_exec *exec, const struct ash_cuda_gemm_bf16 *op, const struct ash_lt_shape *shape,
                           ash_cuda_own_gemm own)
{
    const struct ash_library_choice *stored = stored_for(exec->cuda->library, shape);
    struct known *known = remember(exec->cuda->library, shape);
    struct ash_lt_shape tried = shape_tried(shape);
    struct ash_cuda_gemm_bf16 drawn;
    struct trial trial = {0};
    uint64_t want = 0;
    double own_ms;

    if (stored != NULL) known->choice = *stored;
    if (stored != NULL && !stored->agrees) return known;
    known->choice.agrees = 0;
    if (trial_init(&trial, &tried) < 0) return known;
    draw(exec, &trial.a, 1);
    draw(exec, &trial.b, 2);
    if (op->add != NULL) draw(exec, &trial.add, 3);
    drawn = drawn_of(op, &tried, &trial);
    known->choice.agrees = stored != NULL && is_confirmed(exec, &drawn, &tried, stored, own);
    if (!known->choice.agrees) {
        own_ms = time_of(exec, &tried, NULL, own, &drawn);
        known->is_new = checksum_of(exec, &drawn, &want) == 0;
        if (known->is_new) try_algos(exec, &drawn, &tried, want, own_ms, known);
    }
    trial_fini(&trial);
    return known;
}

bool ash_cuda_library_takes(const struct ash_exec *exec, const struct ash_cuda_gemm_bf16 *op)
{
    bool is_aligned = ((uintptr_t)op->c_bf16 | (uintptr_t)op->add) % 16 == 0;

    return exec->cuda->library != NULL && !op->accumulate && op->bias == NULL && is_aligned &&
           (op->add == NULL || op->c_bf16 == NULL) && op->a.count * op->b.count * op->a.k >= WORTH_MIN;
}

bool ash_cuda_library_knows(struct ash_exec *exec, const struct ash_cuda_gemm_bf16 *op, ash_cuda_own_gemm own)
{
    struct ash_lt_shape shape = shape_of(op);
    const struct known *known;

    if (!ash_cuda_library_takes(exec, op)) return false;
    known = look_up(exec->cuda->library, &shape);
    if (known == NULL && ash_cuda_is_recording(exec->cuda->cuda)) return false; /* a trial waits */
    if (known == NULL) known = learn(exec, op, &shape, own);
    return known->choice.agrees;
}

bool ash_cuda_library_gemm(struct ash_exec *exec, const struct ash_cuda_gemm_bf16 *op)
{
    struct ash_lt_shape shape = shape_of(op);
    struct known *known = look_up(exec->cuda->library, &shape);

    ash_assert(known != NULL && known->choice.agrees);
    if (multiply(exec, &shape, &known->choice.algo, op) == 0) return true;
    known->choice.agrees = 0;
    known->is_new = false; /* the next process tries it, too */
    return false;
}
