/* chain - sums over rows, one chain per column, rows ascending. A chain is one addition after the other, so what counts
 * is that its operands are there in time: one warp adds, a thread per column, and does nothing else. All others read
 * rows ahead, normalise them and leave them in shared memory as columns, of which the adding warp reads four rows at
 * once. */
#ifndef ASH_COMPUTE_CUDA_CHAIN_CUH
#define ASH_COMPUTE_CUDA_CHAIN_CUH

#include "compute/cuda/ptx/ldst.cuh"
#include "compute/cuda/ptx/math.cuh"
#include "compute/cuda/tile/device.cuh"

#define CHAIN_COLS ASH_CUDA_CHAIN_COLS /* of a block */
#define CHAIN_ROWS ASH_CUDA_CHAIN_ROWS
#define CHAIN_STAGES ASH_CUDA_CHAIN_STAGES
#define CHAIN_PITCH ASH_CUDA_CHAIN_PITCH
#define CHAIN_LOADERS 8 /* warps that read */
#define CHAIN_THREADS ((CHAIN_LOADERS + 1) * WARP)

/* What a column's sums are made of. x may be NULL: only dy counts. */
struct chain_rows {
    const float *dy, *x;
    const float *mean, *rstd; /* of each row; mean may be NULL */
    size_t rows, cols;
    bool is_wide; /* every row of dy and x, and their number of columns, is at a 16-byte border */
};

/* A tile of rows. Columns are so far apart that eight neighbours are in different banks. */
struct __align__(16) chain_tile
{
    float dy[CHAIN_COLS][CHAIN_PITCH], xhat[CHAIN_COLS][CHAIN_PITCH];
};

static_assert(CHAIN_ROWS * CHAIN_COLS == CHAIN_LOADERS * WARP * 16, "a loader has four rows of four columns");
static_assert(CHAIN_PITCH % 32 == 4 && CHAIN_PITCH >= CHAIN_ROWS, "columns are in different banks");
static_assert(ASH_CUDA_CHAIN_BYTES == CHAIN_STAGES * sizeof(struct chain_tile), "the host reserves what tiles take");

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* What a loader has of a tile: four rows of four columns. */
struct chain_part {
    float4 dy[4], x[4];
    float mean[4], rstd[4];
};

/* The first row and column of a loader's part. Eight threads in a row have the same columns: what they write to shared
 * memory lies side by side. */
static __device__ inline int part_row(void)
{
    return ((int)threadIdx.x / WARP - 1) * WARP + (int)threadIdx.x % 8 * 4;
}

static __device__ inline int part_column(void)
{
    return (int)threadIdx.x % WARP / 8 * 4;
}

/* Four columns of a row; zeros where there are none. */
static __device__ inline float4 read_columns(const struct chain_rows &of, const float *row, size_t column)
{
    if (of.is_wide) return column < of.cols ? *(const float4 *)(row + column) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    return make_float4(column < of.cols ? row[column] : 0.0f, column + 1 < of.cols ? row[column + 1] : 0.0f,
                       column + 2 < of.cols ? row[column + 2] : 0.0f, column + 3 < of.cols ? row[column + 3] : 0.0f);
}

/* Read this thread's part of the tile that begins with row `first`. at(row, is_x) is where a row begins. */
template <bool HAS_X, bool HAS_MEAN, typename Offset>
static __device__ inline void read_part(const struct chain_rows &of, size_t first, struct chain_part *part, Offset at)
{
    size_t column = (size_t)blockIdx.x * CHAIN_COLS + part_column();

#pragma unroll
    for (int r = 0; r < 4; r++) {
        size_t row = first + part_row() + r;

        part->dy[r] = part->x[r] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (row >= of.rows) continue;
        part->dy[r] = read_columns(of, of.dy + at(row, false), column);
        if (!HAS_X) continue;
        part->x[r] = read_columns(of, of.x + at(row, true), column);
        part->rstd[r] = of.rstd[row];
        if (HAS_MEAN) part->mean[r] = of.mean[row];
    }
}

/* Row r of x, normalised. */
template <bool HAS_MEAN> static __device__ inline float4 normalise(const struct chain_part &part, int r)
{
    float4 x = part.x[r];
    float rstd = part.rstd[r];

    if (HAS_MEAN) {
        float mean = part.mean[r];

        x = make_float4(x.x - mean, x.y - mean, x.z - mean, x.w - mean);
    }
    return make_float4(x.x * rstd, x.y * rstd, x.z * rstd, x.w * rstd);
}

/* Four rows become four columns. */
static __device__ inline void put_columns(const float4 rows[4], float (*to)[CHAIN_PITCH])
{
    int c = part_column(), r = part_row();

    *(float4 *)&to[c][r] = make_float4(rows[0].x, rows[1].x, rows[2].x, rows[3].x);
    *(float4 *)&to[c + 1][r] = make_float4(rows[0].y, rows[1].y, rows[2].y, rows[3].y);
    *(float4 *)&to[c + 2][r] = make_float4(rows[0].z, rows[1].z, rows[2].z, rows[3].z);
    *(float4 *)&to[c + 3][r] = make_float4(rows[0].w, rows[1].w, rows[2].w, rows[3].w);
}

template <bool HAS_X, bool HAS_MEAN>
static __device__ inline void put_part(const struct chain_part &part, struct chain_tile *tile)
{
    put_columns(part.dy, tile->dy);
    if (HAS_X) {
        float4 xhat[4];

#pragma unroll
        for (int r = 0; r < 4; r++)
            xhat[r] = normalise<HAS_MEAN>(part, r);
        put_columns(xhat, tile->xhat);
    }
}

/* ---- adding ------------------------------------------------------------------------------------------------------ */

#define CHAIN_AHEAD 4 /* times four rows that are read before they are added: reading takes about as long */

/* Four rows of a column. */
struct chain_four {
    float dy[4], xhat[4];
};

/* Instructions stay in the order in which they stand here: a read after every few additions, in the cycles in which an
 * addition waits for the one before it. */
template <bool HAS_X>
static __device__ inline void read_rows(const struct chain_tile *tile, int first, struct chain_four *to)
{
    int c = threadIdx.x % CHAIN_COLS;

    load_four_here(&tile->dy[c][first], to->dy);
    if (HAS_X) load_four_here(&tile->xhat[c][first], to->xhat);
}

/* weight += dy xhat and bias += dy. */
template <bool HAS_X, bool HAS_MEAN>
static __device__ inline void add_row(const struct chain_four &rows, int i, float *weight, float *bias)
{
    if (HAS_X) add_product_here(weight, rows.dy[i], rows.xhat[i]);
    if (!HAS_X || HAS_MEAN) add_here(bias, rows.dy[i]);
}

/* The same over the rows of a tile, of which count are real: one that is not adds nothing, not even 0 to -0. */
template <bool HAS_X, bool HAS_MEAN>
static __device__ inline void add_rows(const struct chain_tile *tile, int count, float *weight, float *bias)
{
    struct chain_four ring[CHAIN_AHEAD];

    if (count < CHAIN_ROWS) {
#pragma unroll 1
        for (int first = 0; first < count; first += 4) {
            read_rows<HAS_X>(tile, first, &ring[0]);
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (first + i < count) add_row<HAS_X, HAS_MEAN>(ring[0], i, weight, bias);
        }
        return;
    }
#pragma unroll
    for (int f = 0; f < CHAIN_AHEAD; f++)
        read_rows<HAS_X>(tile, f * 4, &ring[f]);
#pragma unroll
    for (int f = 0; f < CHAIN_ROWS / 4; f++) {
        struct chain_four now = ring[f % CHAIN_AHEAD];

#pragma unroll
        for (int i = 0; i < 4; i++) {
            add_row<HAS_X, HAS_MEAN>(now, i, weight, bias);
            if (i == 1 && f + CHAIN_AHEAD < CHAIN_ROWS / 4)
                read_rows<HAS_X>(tile, (f + CHAIN_AHEAD) * 4, &ring[f % CHAIN_AHEAD]);
        }
    }
}

/* dweight and dbias continue from what they hold; either may be NULL. */
template <bool HAS_X, bool HAS_MEAN, typename Offset>
static __device__ inline void column_chains(const struct chain_rows &of, float *dweight, float *dbias, Offset at)
{
    DYNAMIC_SHARED(unsigned char, shared, 16);
    struct chain_tile *tiles = (struct chain_tile *)shared;
    size_t c = (size_t)blockIdx.x * CHAIN_COLS + threadIdx.x % CHAIN_COLS,
           count = (of.rows + CHAIN_ROWS - 1) / CHAIN_ROWS;
    bool real = threadIdx.x < CHAIN_COLS && c < of.cols, loads = threadIdx.x >= WARP;
    float weight = real && dweight != NULL ? dweight[c] : 0.0f, bias = real && dbias != NULL ? dbias[c] : 0.0f;
    struct chain_part part;

    /* While a tile is added, loaders write the next one and read the one after that. */
    if (loads) read_part<HAS_X, HAS_MEAN>(of, 0, &part, at);
    if (loads) put_part<HAS_X, HAS_MEAN>(part, &tiles[0]);
    if (loads) read_part<HAS_X, HAS_MEAN>(of, CHAIN_ROWS, &part, at);
    __syncthreads();
    for (size_t t = 0; t < count; t++) {
        size_t left = of.rows - t * CHAIN_ROWS;

        if (loads) {
            put_part<HAS_X, HAS_MEAN>(part, &tiles[(t + 1) % CHAIN_STAGES]);
            read_part<HAS_X, HAS_MEAN>(of, (t + 2) * CHAIN_ROWS, &part, at);
        } else {
            add_rows<HAS_X, HAS_MEAN>(&tiles[t % CHAIN_STAGES], left < CHAIN_ROWS ? (int)left : CHAIN_ROWS, &weight,
                                      &bias);
        }
        __syncthreads();
    }
    if (!real) return;
    if (dweight != NULL) dweight[c] = weight;
    if (dbias != NULL) dbias[c] = bias;
}

#endif
