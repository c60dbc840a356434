/* Large copies. x86: stores that go past the caches save reading the target first. arm64: the memory system sees a
 * streaming write by itself (STNP measures the same as plain stores); two streams at once are a tenth faster. */
#include "fabric/shm/copy.h"

#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define LARGE_BYTES ((size_t)4 << 20) /* more than a core's share of any cache */
#define LINE_BYTES ((size_t)64)

#if defined(__x86_64__)

/* dst is aligned to a line, size_bytes is whole lines. */
static void copy_lines(uint8_t *dst, const uint8_t *src, size_t size_bytes)
{
    for (size_t i = 0; i < size_bytes; i += LINE_BYTES) {
        const __m128i *from = (const __m128i *)(const void *)(src + i);
        __m128i *to = (__m128i *)(void *)(dst + i);
        __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1), c = _mm_loadu_si128(from + 2),
                d = _mm_loadu_si128(from + 3);

        _mm_stream_si128(to, a);
        _mm_stream_si128(to + 1, b);
        _mm_stream_si128(to + 2, c);
        _mm_stream_si128(to + 3, d);
    }
    _mm_sfence(); /* before any notification */
}

#elif defined(__aarch64__)

static void copy_line(uint8_t *dst, const uint8_t *src)
{
    uint8x16_t a = vld1q_u8(src), b = vld1q_u8(src + 16), c = vld1q_u8(src + 32), d = vld1q_u8(src + 48);

    vst1q_u8(dst, a);
    vst1q_u8(dst + 16, b);
    vst1q_u8(dst + 32, c);
    vst1q_u8(dst + 48, d);
}

static void copy_lines(uint8_t *dst, const uint8_t *src, size_t size_bytes)
{
    size_t half = size_bytes / 2 / LINE_BYTES * LINE_BYTES;

    for (size_t i = 0; i < half; i += LINE_BYTES) {
        copy_line(dst + i, src + i);
        copy_line(dst + half + i, src + half + i);
    }
    if (size_bytes > 2 * half) copy_line(dst + 2 * half, src + 2 * half);
}

#else

static void copy_lines(uint8_t *dst, const uint8_t *src, size_t size_bytes)
{
    memcpy(dst, src, size_bytes);
}

#endif

void ash_copy(void *restrict dst, const void *restrict src, size_t size_bytes)
{
    size_t head = (LINE_BYTES - (uintptr_t)dst % LINE_BYTES) % LINE_BYTES, lines;

    if (size_bytes < LARGE_BYTES) {
        memcpy(dst, src, size_bytes);
        return;
    }
    memcpy(dst, src, head);
    lines = (size_bytes - head) / LINE_BYTES * LINE_BYTES;
    copy_lines((uint8_t *)dst + head, (const uint8_t *)src + head, lines);
    memcpy((uint8_t *)dst + head + lines, (const uint8_t *)src + head + lines, size_bytes - head - lines);
}
