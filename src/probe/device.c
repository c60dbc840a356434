/* The deep check of devices: products whose bits are known beforehand, and patterns that are moved through all of a
 * device's memory and back. It uses the ops tables of training, so it checks what a job will use. */
#include "probe/device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "compute/ops.h"
#include "infra/device/cuda.h"
#include "probe/marks.h"

#define DEVICES_MAX 64
#define SIDE_DEVICE 1024 /* of the matrices on a GPU: sums of 1,024 products of up to 225 are exact in float32 */
#define SIDE_HOST 192
#define CHUNK_DEVICE ((size_t)256 << 20) /* beyond every cache */
#define CHUNK_HOST ((size_t)4 << 20)
#define CHUNKS_MAX 4096
#define CHUNKS_HOST 8
#define CHUNKS_LEFT 4 /* for the driver, and for monitoring processes */
#define PASSES_MAX 64

/* The expected product for devices of one kind, by this machine's integers: computed for the first of them. */
struct known {
    int32_t *product; /* [side, side] */
    size_t side;
};

struct device {
    const char *name;
    const struct ash_check_opts *opts;
    const char *machine;
    struct ash_check_report *report;
    struct ash_exec exec;
    struct known *known;
    bool is_gpu, has_fault;
    size_t side, chunk_bytes;
};

/* ---- products ---------------------------------------------------------------------------------------------------- */

struct products {
    float *a, *b, *c;         /* the device's */
    float *host;              /* [side, side] */
    size_t rounds, wrong, at; /* products, wrong elements, the last of them */
};

/* Small whole numbers: sums of their products are exact in float32 and from bf16, whatever their order. */
static void fill(float *x, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++)
        x[i] = (float)(int)(ash_hash_mix(seed << 40 ^ i) % 31) - 15.0f;
}

static void multiply(const float *a, const float *b, int32_t *c, size_t side)
{
    memset(c, 0, side * side * sizeof(*c));
    for (size_t i = 0; i < side; i++)
        for (size_t k = 0; k < side; k++) {
            int32_t factor = (int32_t)a[i * side + k];

            for (size_t j = 0; j < side; j++)
                c[i * side + j] += factor * (int32_t)b[k * side + j];
        }
}

static int find_known(struct known *known, const float *a, const float *b, size_t side)
{
    if (known->side == side) return 0;
    free(known->product);
    *known = (struct known){.product = malloc(side * side * sizeof(*known->product))};
    if (known->product == NULL) return -ENOMEM;
    multiply(a, b, known->product, side);
    known->side = side;
    return 0;
}

/* Factors to the device, and their product by the host. */
static int prepare(struct device *device, struct products *products)
{
    const struct ash_memory_ops *memory = device->exec.memory;
    size_t count = device->side * device->side, bytes = count * sizeof(float);
    float *b = malloc(bytes);
    int rc;

    products->host = malloc(bytes);
    products->a = memory->alloc(bytes);
    products->b = memory->alloc(bytes);
    products->c = memory->alloc(bytes);
    rc = b != NULL && products->host != NULL && products->a != NULL && products->b != NULL && products->c != NULL
             ? 0
             : -ENOMEM;
    if (rc == 0) {
        fill(products->host, count, 1);
        fill(b, count, 2);
        rc = find_known(device->known, products->host, b, device->side);
    }
    if (rc == 0) rc = memory->copy(products->a, products->host, bytes);
    if (rc == 0) rc = memory->copy(products->b, b, bytes);
    free(b);
    return rc;
}

static void release(struct device *device, struct products *products)
{
    const struct ash_memory_ops *memory = device->exec.memory;
    size_t bytes = device->side * device->side * sizeof(float);

    if (products->a != NULL) memory->free(products->a, bytes);
    if (products->b != NULL) memory->free(products->b, bytes);
    if (products->c != NULL) memory->free(products->c, bytes);
    free(products->host);
}

/* One product, in float32 or from bf16, and every element of it compared. */
static int multiply_once(struct device *device, struct products *products, struct ash_err *err)
{
    size_t side = device->side;
    struct ash_gemm_args args = {.M = side,
                                 .N = side,
                                 .K = side,
                                 .a = {products->a, ASH_F32, side, 1},
                                 .b = {products->b, ASH_F32, side, 1},
                                 .c = products->c,
                                 .c_stride = side,
                                 .round_bf16 = products->rounds % 2 == 1};
    int rc;

    device->exec.ops->matrix->gemm(&device->exec, &args);
    rc = ash_exec_wait(&device->exec, err);
    if (rc == 0) rc = device->exec.memory->copy(products->host, products->c, side * side * sizeof(float));
    if (rc < 0) return rc;
    if (device->has_fault && products->rounds == 0) ((uint32_t *)(void *)products->host)[77] ^= 1u << 12;
    for (size_t i = 0; i < side * side; i++) {
        if (products->host[i] == (float)device->known->product[i]) continue;
        products->wrong++;
        products->at = i;
    }
    products->rounds++;
    return 0;
}

static int check_products(struct device *device, struct ash_err *err)
{
    uint64_t start_ns = ash_clock_ns(), end_ns;
    struct products products = {0};
    int rc = prepare(device, &products);

    if (rc < 0) ash_err_set(err, rc, "no memory for matrices of %zu x %zu", device->side, device->side);
    start_ns = ash_clock_ns();
    end_ns = start_ns + (uint64_t)(device->opts->deep_seconds * 1e9);
    while (rc == 0 && (products.rounds < 2 || ash_clock_ns() < end_ns))
        rc = multiply_once(device, &products, err);
    if (rc == 0 && products.wrong > 0)
        ash_check_add(device->report, "device products", ASH_GRADE_BAD, "the known bits",
                      "%s: %zu wrong elements in %zu products, the last at row %zu, column %zu", device->name,
                      products.wrong, products.rounds, products.at / device->side, products.at % device->side);
    else if (rc == 0)
        ash_check_add(device->report, "device products", ASH_GRADE_GOOD, "the known bits",
                      "%s: %zu of %zu x %zu in float32 and bf16, every bit as known", device->name, products.rounds,
                      device->side, device->side);
    release(device, &products);
    return rc;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

struct chain {
    void *chunks[CHUNKS_MAX];
    size_t count, passes;
    uint64_t *host; /* a chunk of this machine's memory, pinned where a GPU reads it */
    const struct ash_memory_ops *host_memory;
    double in_s, across_s, out_s; /* of all copies to the device, within it, and back */
    size_t bad_words, bad_chunk;
    uint64_t bad_bits;
};

static uint64_t pattern(size_t word, size_t pass)
{
    static const uint64_t plain[] = {0, UINT64_MAX, 0x5555555555555555u, 0xaaaaaaaaaaaaaaaau};

    return pass % 6 < 4 ? plain[pass % 6] : ash_hash_mix(word ^ (uint64_t)pass << 48);
}

static int timed_copy(const struct device *device, void *dst, const void *src, double *seconds)
{
    uint64_t start_ns = ash_clock_ns();
    int rc = device->exec.memory->copy(dst, src, device->chunk_bytes);

    *seconds += (double)(ash_clock_ns() - start_ns) * 1e-9;
    return rc;
}

/* Compare the result. Returns the number of wrong words. */
static size_t compare_chunk(const struct device *device, const struct chain *chain, size_t pass, uint64_t *bits)
{
    size_t wrong = 0;

    for (size_t i = 0; i < device->chunk_bytes / sizeof(uint64_t); i++) {
        uint64_t difference = chain->host[i] ^ pattern(i, pass);

        wrong += difference != 0;
        *bits |= difference;
    }
    return wrong;
}

/* The last chunk came back wrong: which is the first that is? */
static int find_chunk(const struct device *device, struct chain *chain, size_t pass)
{
    double unused = 0;
    uint64_t bits = 0;
    int rc = 0;

    for (size_t i = 0; i < chain->count && rc == 0; i++) {
        rc = timed_copy(device, chain->host, chain->chunks[i], &unused);
        if (rc == 0 && compare_chunk(device, chain, pass, &bits) > 0) {
            chain->bad_chunk = i;
            return 0;
        }
    }
    chain->bad_chunk = chain->count - 1;
    return rc;
}

/* A pattern goes to the first chunk, from each to the next, and back from the last: a bit that any of them loses is
 * missing there. */
static int send_pattern(const struct device *device, struct chain *chain, size_t pass)
{
    size_t wrong;
    int rc;

    for (size_t i = 0; i < device->chunk_bytes / sizeof(uint64_t); i++)
        chain->host[i] = pattern(i, pass);
    rc = timed_copy(device, chain->chunks[0], chain->host, &chain->in_s);
    for (size_t i = 1; i < chain->count && rc == 0; i++) {
        rc = timed_copy(device, chain->chunks[i], chain->chunks[i - 1], &chain->across_s);
        if (rc == 0 && device->has_fault && pass == 0 && i == chain->count / 2) {
            const uint64_t wrong_word = 1u << 5;

            rc = device->exec.memory->copy((char *)chain->chunks[i] + 4096, &wrong_word, sizeof(wrong_word));
        }
    }
    if (rc == 0) rc = timed_copy(device, chain->host, chain->chunks[chain->count - 1], &chain->out_s);
    if (rc < 0) return rc;
    chain->passes++;
    wrong = compare_chunk(device, chain, pass, &chain->bad_bits);
    chain->bad_words += wrong;
    return wrong > 0 ? find_chunk(device, chain, pass) : 0;
}

/* All that a GPU has but a little; a few chunks of the host's. */
static void take_chunks(const struct device *device, struct chain *chain)
{
    const struct ash_memory_ops *memory = device->exec.memory;
    size_t most = device->is_gpu ? CHUNKS_MAX : CHUNKS_HOST;

    while (chain->count < most && (chain->chunks[chain->count] = memory->alloc(device->chunk_bytes)) != NULL)
        chain->count++;
    for (size_t i = 0; device->is_gpu && i < CHUNKS_LEFT && chain->count > 2; i++)
        memory->free(chain->chunks[--chain->count], device->chunk_bytes);
}

/* Rates against the marks of this kind of GPU. */
static void report_rates(const struct device *device, double memory, double in, double out)
{
    const char *colon = strchr(device->name, ':');
    struct ash_cuda_facts facts;
    struct ash_gpu_marks marks = {0};

    if (device->is_gpu && ash_cuda_look(colon != NULL ? (int)strtol(colon + 1, NULL, 10) : 0, &facts, NULL) == 0)
        ash_gpu_marks_find(facts.name, device->machine, &marks);
    ash_check_add(device->report, "device rates",
                  memory < marks.memory || in < marks.host || out < marks.host ? ASH_GRADE_WARN : ASH_GRADE_GOOD,
                  marks.rates_text, "%s: memory %.4g GB/s (reads and writes), from the host %.4g GB/s, to it %.4g GB/s",
                  device->name, memory * 1e-9, in * 1e-9, out * 1e-9);
}

static void report_memory(const struct device *device, const struct chain *chain)
{
    double bytes = (double)device->chunk_bytes * (double)chain->passes, all = (double)(chain->count - 1) * bytes;

    if (chain->bad_words > 0)
        ash_check_add(device->report, "device memory", ASH_GRADE_BAD, "what was written",
                      "%s: %zu words wrong, bits %016llx, first at %.3g GB of it", device->name, chain->bad_words,
                      (unsigned long long)chain->bad_bits, (double)(chain->bad_chunk * device->chunk_bytes) * 1e-9);
    else
        ash_check_add(device->report, "device memory", ASH_GRADE_GOOD, "what was written",
                      "%s: %.3g GB, %zu patterns, every bit came back", device->name,
                      (double)(chain->count * device->chunk_bytes) * 1e-9, chain->passes);
    report_rates(device, 2 * all / chain->across_s, bytes / chain->in_s, bytes / chain->out_s);
}

static int check_memory(struct device *device, struct ash_err *err)
{
    uint64_t end_ns = ash_clock_ns() + (uint64_t)(device->opts->deep_seconds * 1e9);
    struct chain *chain = calloc(1, sizeof(*chain));
    int rc = 0;

    if (chain == NULL) return ash_err_set(err, -ENOMEM, "no memory for a check");
    chain->host_memory = device->is_gpu ? &ash_memory_pinned : &ash_memory_host;
    chain->host = chain->host_memory->alloc(device->chunk_bytes);
    if (chain->host != NULL) take_chunks(device, chain);
    if (chain->count < 2)
        rc = ash_err_set(err, -ENOMEM, "no memory for two pieces of %zu MiB", device->chunk_bytes >> 20);
    for (size_t pass = 0; rc == 0 && pass < PASSES_MAX && (pass < 6 || ash_clock_ns() < end_ns); pass++)
        if ((rc = send_pattern(device, chain, pass)) < 0) ash_err_set(err, rc, "a copy failed: %s", strerror(-rc));
    if (rc == 0) report_memory(device, chain);
    for (size_t i = 0; i < chain->count; i++)
        device->exec.memory->free(chain->chunks[i], device->chunk_bytes);
    if (chain->host != NULL) chain->host_memory->free(chain->host, device->chunk_bytes);
    free(chain);
    return rc;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

/* Returns -ENODEV if there is no such device. */
static int check_device(struct device *device, struct ash_err *err)
{
    int rc = ash_exec_init(&device->exec, device->name, 0, err);

    if (rc < 0) return rc;
    device->is_gpu = device->exec.cuda != NULL;
    device->side = device->is_gpu ? SIDE_DEVICE : SIDE_HOST;
    device->chunk_bytes = device->is_gpu ? CHUNK_DEVICE : CHUNK_HOST;
    rc = check_products(device, err);
    if (rc == 0) rc = check_memory(device, err);
    if (rc < 0) ash_check_add(device->report, "device", ASH_GRADE_BAD, "", "%s: %.150s", device->name, err->text);
    ash_exec_fini(&device->exec);
    return 0;
}

void ash_probe_devices(const struct ash_device_check *check, const char *name, struct ash_check_report *report)
{
    bool is_all = strcmp(name, "cuda") == 0;
    uint64_t start_ns = ash_clock_ns();
    struct known known = {0};

    if (strcmp(name, "none") == 0) return;
    for (int i = 0; i < (is_all ? DEVICES_MAX : 1); i++) {
        char one[32];
        struct device device = {.name = is_all ? one : name,
                                .opts = check->opts,
                                .machine = check->machine,
                                .report = report,
                                .known = &known,
                                .has_fault = check->fault_device == i};
        struct ash_err err = {0};

        snprintf(one, sizeof(one), "cuda:%d", i);
        if (check_device(&device, &err) == 0) continue;
        if (i == 0) ash_check_add(report, "device", is_all ? ASH_GRADE_SKIPPED : ASH_GRADE_BAD, "", "%.190s", err.text);
        break;
    }
    free(known.product);
    report->seconds += (double)(ash_clock_ns() - start_ns) * 1e-9;
}
