/* amx_vector - products of one to four rows with weights packed as tiles (amx_packed.h), on vectors of float32: to the
 * bit what TDPBF16PS gives, as ref/tdpbf16.h defines it. So few rows are bound by reading the weights, and loads of
 * tiles do not run ahead of what they wait for as loads of vectors do, presumably least of all while the other
 * hyperthread of a core is busy. */
#ifndef ASH_COMPUTE_AMX_VECTOR_H
#define ASH_COMPUTE_AMX_VECTOR_H

#include "compute/cpu/gemm/amx_packed.h"
#include "compute/cpu/gemm/gemm_small_m.h"

#define VECTOR_ROWS 4                         /* of x, at most: more are bound by arithmetic */
#define VECTOR_X (2 * TILE_SIDE)              /* floats of 32 k of a row of x: the even ones, then the odd ones */
#define VECTOR_UNROLL _Pragma("GCC unroll 4") /* pairs: more instructions than that are slower */
#define VECTOR_FLUSH 0x8040 /* of MXCSR: denormals are zeros, read and written, as they are to tiles */

/* How the thread's floats behave. The compiler moves no load or store across it, so no arithmetic on what they bring
 * either. */
INLINE void vector_mode(uint32_t mxcsr)
{
    __asm__ volatile("ldmxcsr %0" : : "m"(mxcsr) : "memory");
}

/* 32 k of a row of x, bf16, as they are used. */
INLINE void vector_x(__m512i line, float *x)
{
    _mm512_storeu_si512(x, _mm512_slli_epi32(line, 16));
    _mm512_storeu_si512(x + TILE_SIDE, _mm512_and_si512(line, _mm512_set1_epi32((int)0xffff0000)));
}

/* M rows of x, interleaved by steps of 32 k, times panels of 16 rows of w: sums[M, panels]. */
INLINE void vector_panels(const uint16_t *const *w, size_t panels, const float *x, size_t M, size_t steps, __m512 *sums)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);

    for (size_t step = 0; step < steps; step++, x += M * VECTOR_X) {
        __m512 even[VECTOR_ROWS * PACKED_STREAMS], odd[VECTOR_ROWS * PACKED_STREAMS];

        UNROLL
        for (size_t i = 0; i < M * panels; i++)
            even[i] = odd[i] = _mm512_setzero_ps();
        VECTOR_UNROLL
        for (size_t pair = 0; pair < TILE_SIDE; pair++) {
            UNROLL
            for (size_t i = 0; i < panels; i++) {
                const uint16_t *at = w[i] + step * TILE_SIZE + pair * TILE_K;
                __m512i both = _mm512_loadu_si512(at);

                _mm_prefetch((const char *)(at + PACKED_AHEAD), _MM_HINT_T0);
                UNROLL
                for (size_t m = 0; m < M; m++) {
                    const float *x_pair = x + m * VECTOR_X + pair;
                    size_t to = m * panels + i;

                    even[to] = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(both, 16)),
                                               _mm512_set1_ps(x_pair[0]), even[to]);
                    odd[to] = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(both, upper)),
                                              _mm512_set1_ps(x_pair[TILE_SIDE]), odd[to]);
                }
            }
        }
        UNROLL
        for (size_t i = 0; i < M * panels; i++)
            sums[i] = _mm512_add_ps(sums[i], _mm512_add_ps(even[i], odd[i]));
    }
}

/* All rows of a job. M and count, of streams, are known to the compiler. */
INLINE void vector_streams(const struct ash_small_m *job, const float *x, size_t M, size_t count)
{
    const struct streams streams = streams_of(job, count);

    for (size_t at = 0; at < streams.length; at++) {
        const uint16_t *w[PACKED_STREAMS];
        __m512 sums[VECTOR_ROWS * PACKED_STREAMS];

        UNROLL
        for (size_t i = 0; i < count; i++)
            w[i] = stream_at(&streams, i, at);
        UNROLL
        for (size_t i = 0; i < M * count; i++)
            sums[i] = _mm512_setzero_ps();
        vector_panels(w, count, x, M, streams.panel_size / TILE_SIZE, sums);
        UNROLL
        for (size_t i = 0; i < M * count; i++)
            if (stream_has(&streams, i % count, at))
                _mm512_storeu_ps(job->sums + i / count * job->sums_stride +
                                     stream_panel(&streams, i % count, at) * TILE_SIDE,
                                 sums[i]);
    }
}

static void vector_sums(const struct ash_small_m *job, const float *x)
{
    uint32_t before = _mm_getcsr();

    vector_mode(before | VECTOR_FLUSH);
    if (job->M == 1)
        vector_streams(job, x, 1, 4);
    else if (job->M == 2)
        vector_streams(job, x, 2, 4);
    else if (job->M == 3)
        vector_streams(job, x, 3, 2);
    else
        vector_streams(job, x, 4, 2);
    vector_mode(before);
}

#endif
