/* Choosing tokens: a thread block has a row. Nothing is sorted: sums of weights are integers and have no order, so the
 * token at which a running sum reaches a target is found digit by digit of the order's key, with a histogram of sums
 * for each. What is counted is found the same way. */
#include "compute/cuda/tile/device.cuh"
#include "compute/sample.h"

#define THREADS 512
#define BINS 256
#define DIGITS 12 /* of a key: 4 of hi, 8 of lo */

/* A place in an order; lower ones are first. By logits: hi 0, lo the falling logit and the id. By distances: hi the
 * distance. By ids: lo the id alone. */
struct key {
    uint32_t hi;
    uint64_t lo;
};

/* What all threads of a row share. */
struct row_memory {
    unsigned long long mass[BINS], sum, target;
    unsigned count[BINS], digit, left;
    unsigned long long warp_best[THREADS / WARP];
    int broken;
    struct key found;
};

/* The row's choice so far; the same in every thread. */
struct choice {
    float *logits, *weight;
    size_t vocab;
    float top;
    double min_p;      /* lighter ones are out */
    uint64_t last;     /* lo of the last token that is in, by logits */
    bool has_distance; /* the order is that of distances, and `typical` the last one that is in */
    bool by_ids;       /* nothing is sorted */
    bool is_warm;      /* masses are those of weights at temperature */
    uint64_t total, expected;
    struct key typical;
    double temperature;
};

/* ---- keys -------------------------------------------------------------------------------------------------------- */

/* Bits that ascend with x; both zeros have the same. */
static __device__ inline uint32_t ascending(float x)
{
    uint32_t bits = __float_as_uint(x == 0.0f ? 0.0f : x);

    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

static __device__ inline uint64_t place_of(const struct choice *c, size_t i)
{
    return c->by_ids ? (uint64_t)i : (uint64_t)~ascending(c->logits[i]) << 32 | i;
}

static __device__ inline struct key key_of(const struct choice *c, size_t i)
{
    struct key key = {0, place_of(c, i)};

    if (c->has_distance) key.hi = ascending(ash_sample_distance(ash_sample_share(c->weight[i], c->total), c->expected));
    return key;
}

/* Is token i still there? */
static __device__ inline bool is_in(const struct choice *c, size_t i)
{
    if (place_of(c, i) > c->last || (double)c->weight[i] < c->min_p) return false;
    if (!c->has_distance) return true;
    struct key key = key_of(c, i);
    return key.hi < c->typical.hi || (key.hi == c->typical.hi && key.lo <= c->typical.lo);
}

static __device__ inline unsigned long long mass_of(const struct choice *c, size_t i)
{
    return ash_sample_units(c->is_warm ? ash_sample_weight(c->logits[i], c->top, c->temperature) : c->weight[i]);
}

static __device__ inline unsigned digit_of(struct key key, int digit)
{
    return digit < 4 ? key.hi >> (24 - 8 * digit) & 255 : (unsigned)(key.lo >> (88 - 8 * digit)) & 255;
}

/* Do the digits before `digit` agree? */
static __device__ inline bool same_start(struct key a, struct key b, int digit)
{
    if (digit == 0) return true;
    if (digit < 4) return a.hi >> (32 - 8 * digit) == b.hi >> (32 - 8 * digit);
    if (a.hi != b.hi) return false;
    return digit == 4 || a.lo >> (96 - 8 * digit) == b.lo >> (96 - 8 * digit);
}

static __device__ inline void set_digit(struct key *key, int digit, unsigned value)
{
    if (digit < 4)
        key->hi |= value << (24 - 8 * digit);
    else
        key->lo |= (uint64_t)value << (88 - 8 * digit);
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

static __device__ unsigned long long block_sum(struct row_memory *m, unsigned long long value)
{
    unsigned long long sum;

    for (int half = WARP / 2; half > 0; half /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, half);
    __syncthreads();
    if (threadIdx.x == 0) m->sum = 0;
    __syncthreads();
    if (threadIdx.x % WARP == 0 && value != 0) atomicAdd(&m->sum, value);
    __syncthreads();
    sum = m->sum;
    __syncthreads();
    return sum;
}

static __device__ unsigned long long total_of(struct row_memory *m, const struct choice *c)
{
    unsigned long long sum = 0;

    for (size_t i = threadIdx.x; i < c->vocab; i += THREADS)
        if (is_in(c, i)) sum += mass_of(c, i);
    return block_sum(m, sum);
}

static __device__ void flush(struct row_memory *m, unsigned bin, unsigned long long mass, unsigned count)
{
    if (mass != 0) atomicAdd(&m->mass[bin], mass);
    if (count != 0) atomicAdd(&m->count[bin], count);
}

/* Histogram of one digit, over tokens whose digits before it are the prefix's. A thread keeps adding while its tokens
 * fall into one bin. */
static __device__ void fill_bins(struct row_memory *m, const struct choice *c, struct key prefix, int digit,
                                 bool by_count)
{
    unsigned long long mass = 0;
    unsigned bin = 0, count = 0;

    for (unsigned b = threadIdx.x; b < BINS; b += THREADS) {
        m->mass[b] = 0;
        m->count[b] = 0;
    }
    __syncthreads();
    for (size_t i = threadIdx.x; i < c->vocab; i += THREADS) {
        struct key key;

        if (!is_in(c, i)) continue;
        key = key_of(c, i);
        if (!same_start(key, prefix, digit)) continue;
        if (digit_of(key, digit) != bin) {
            flush(m, bin, mass, count);
            bin = digit_of(key, digit);
            mass = count = 0;
        }
        mass += by_count ? 1 : mass_of(c, i);
        count++;
    }
    flush(m, bin, mass, count);
    __syncthreads();
}

/* The bin in which the running sum reaches the target, into m->digit; what is left of the target after the bins before
 * it, and how many tokens it has. No such bin: m->left is 0. The first warp's work. */
static __device__ void find_bin(struct row_memory *m, unsigned long long target)
{
    unsigned lane = threadIdx.x;
    unsigned long long own = 0, before;

    if (lane == 0) m->left = 0;
    __syncwarp();
    for (unsigned b = 0; b < BINS / WARP; b++)
        own += m->mass[lane * (BINS / WARP) + b];
    before = own;
    for (int step = 1; step < WARP; step *= 2) {
        unsigned long long other = __shfl_up_sync(0xffffffffu, before, step);

        if (lane >= (unsigned)step) before += other;
    }
    before -= own;
    if (before >= target || before + own < target) return;
    for (unsigned b = lane * (BINS / WARP);; b++) {
        if (before + m->mass[b] >= target) {
            m->digit = b;
            m->left = m->count[b];
            m->target = target - before;
            return;
        }
        before += m->mass[b];
    }
}

/* The first token, in order, at which the running sum of masses (or the count) of those that are in reaches the target,
 * above 0. Returns false where all together do not. */
static __device__ bool find_reaching(struct row_memory *m, const struct choice *c, unsigned long long target,
                                     bool by_count, struct key *found)
{
    struct key prefix = {0, 0};
    int digit = c->has_distance ? 0 : c->by_ids ? 8 : 4;

    for (; digit < DIGITS; digit++) {
        if (digit == 8) digit = 9; /* ids have 23 bits */
        fill_bins(m, c, prefix, digit, by_count);
        if (threadIdx.x < WARP) find_bin(m, target);
        __syncthreads();
        if (m->left == 0) return false;
        set_digit(&prefix, digit, m->digit);
        target = m->target;
        if (m->left == 1) break;
        __syncthreads();
    }
    if (digit < DIGITS) /* there is one left */
        for (size_t i = threadIdx.x; i < c->vocab; i += THREADS)
            if (is_in(c, i) && same_start(key_of(c, i), prefix, digit + 1)) m->found = key_of(c, i);
    if (digit == DIGITS && threadIdx.x == 0) m->found = prefix;
    __syncthreads();
    *found = m->found;
    __syncthreads();
    return true;
}

/* ---- edits and the best ------------------------------------------------------------------------------------------ */

static __device__ void edit(const struct ash_cuda_sample *op, const struct ash_cuda_sample_row *row, float *logits)
{
    const struct ash_logit_bias *bias = (const struct ash_logit_bias *)(op->block + row->bias_at);
    const struct ash_token_count *counts = (const struct ash_token_count *)(op->block + row->counts_at);
    const uint64_t *mask = (const uint64_t *)(op->block + row->mask_at);

    for (size_t i = 0; i < row->bias_count && threadIdx.x == 0; i++) /* one after the other: ids may come twice */
        if (bias[i].id >= 0 && bias[i].id < op->vocab) logits[bias[i].id] += bias[i].bias;
    __syncthreads();
    for (size_t i = threadIdx.x; i < row->count_count; i += THREADS)
        if (counts[i].id >= 0 && counts[i].id < op->vocab)
            logits[counts[i].id] =
                ash_sample_penalise(logits[counts[i].id], &counts[i], row->repetition, row->presence, row->frequency);
    __syncthreads();
    for (size_t i = threadIdx.x; i < op->vocab && row->has_mask; i += THREADS)
        if ((mask[i / 64] >> i % 64 & 1) == 0) logits[i] = -INFINITY;
    __syncthreads();
}

/* As ash_sample_best. The best one: the largest (logit, lower id). */
static __device__ int find_best(struct row_memory *m, const float *logits, size_t vocab)
{
    unsigned long long best = 0;
    int id;

    if (threadIdx.x == 0) m->broken = INT32_MAX;
    __syncthreads();
    for (size_t i = threadIdx.x; i < vocab; i += THREADS) {
        unsigned long long found = (unsigned long long)ascending(logits[i]) << 32 | (uint32_t)~i;

        if (isnan(logits[i]) || logits[i] == INFINITY) atomicMin(&m->broken, (int)i);
        if (logits[i] > -INFINITY && found > best) best = found;
    }
    for (int half = WARP / 2; half > 0; half /= 2) {
        unsigned long long other = __shfl_xor_sync(0xffffffffu, best, half);

        best = other > best ? other : best;
    }
    if (threadIdx.x % WARP == 0) m->warp_best[threadIdx.x / WARP] = best;
    __syncthreads();
    for (int w = 0; w < THREADS / WARP; w++)
        best = m->warp_best[w] > best ? m->warp_best[w] : best;
    id = m->broken != INT32_MAX ? ASH_SAMPLE_BROKEN - m->broken : best == 0 ? ASH_SAMPLE_NOTHING : (int)~(uint32_t)best;
    __syncthreads();
    return id;
}

/* ---- filters ----------------------------------------------------------------------------------------------------- */

static __device__ void filter(struct row_memory *m, const struct ash_cuda_sample_row *row, struct choice *c)
{
    struct key last;

    if (row->top_k > 0 && row->top_k < c->vocab && find_reaching(m, c, row->top_k, true, &last)) c->last = last.lo;
    if (row->top_p < 1.0 && find_reaching(m, c, ash_sample_need(row->top_p, total_of(m, c)), false, &last))
        c->last = last.lo;
    c->min_p = row->min_p;
    if (row->typical_p < 1.0) {
        unsigned long long expected = 0;

        c->total = total_of(m, c);
        for (size_t i = threadIdx.x; i < c->vocab; i += THREADS)
            if (is_in(c, i)) expected += ash_sample_surprise(ash_sample_share(c->weight[i], c->total));
        c->expected = block_sum(m, expected);
        c->has_distance = true;
        if (find_reaching(m, c, ash_sample_need(row->typical_p, c->total), false, &last)) c->typical = last;
    }
}

static __device__ void put(const struct ash_cuda_sample *op, int32_t id)
{
    if (threadIdx.x != 0) return;
    op->ids[blockIdx.x] = id;
    if (op->next != NULL) op->next[blockIdx.x] = id < 0 ? 0 : id;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    sample_choose(const __grid_constant__ struct ash_cuda_sample op)
{
    __shared__ struct row_memory memory;
    const struct ash_cuda_sample_row *row = (const struct ash_cuda_sample_row *)op.block + blockIdx.x;
    struct choice c = {.logits = op.logits + blockIdx.x * op.stride,
                       .weight = op.weight + blockIdx.x * op.vocab,
                       .vocab = op.vocab,
                       .min_p = 0.0,
                       .last = UINT64_MAX,
                       .has_distance = false,
                       .by_ids = !row->sorts,
                       .is_warm = false,
                       .typical = {UINT32_MAX, UINT64_MAX},
                       .temperature = row->temperature};
    unsigned long long total;
    struct key drawn;
    int best;

    edit(&op, row, c.logits);
    best = find_best(&memory, c.logits, c.vocab);
    if (best < 0 || row->temperature == 0.0) {
        put(&op, best);
        return;
    }
    c.top = c.logits[best];
    for (size_t i = threadIdx.x; i < c.vocab; i += THREADS)
        c.weight[i] = ash_sample_weight(c.logits[i], c.top, row->filters_first ? 1.0 : row->temperature);
    __syncthreads();
    filter(&memory, row, &c);
    c.is_warm = row->filters_first;
    total = total_of(&memory, &c);
    if (total == 0)
        find_reaching(&memory, &c, 1, true, &drawn);
    else
        find_reaching(&memory, &c, __umul64hi(row->random, total) + 1, false, &drawn);
    put(&op, (int32_t)(uint32_t)drawn.lo);
}
