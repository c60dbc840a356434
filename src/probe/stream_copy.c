/* A copy with non-temporal stores: as fast as this machine can read and write memory at the same time. */
#include "probe/stream_copy.h"

#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define LINE_BYTES 64

#if defined(__x86_64__)
static void copy_line(char *to, const char *from)
{
    for (size_t i = 0; i < LINE_BYTES; i += 16)
        _mm_stream_si128((__m128i *)(void *)(to + i), _mm_load_si128((const __m128i *)(const void *)(from + i)));
}
#elif defined(__aarch64__)
static void copy_line(char *to, const char *from)
{
    uint8x16_t a = vld1q_u8((const uint8_t *)from), b = vld1q_u8((const uint8_t *)from + 16),
               c = vld1q_u8((const uint8_t *)from + 32), d = vld1q_u8((const uint8_t *)from + 48);

    __asm__ volatile("stnp %q1, %q2, [%0]\n\tstnp %q3, %q4, [%0, #32]" ::"r"(to), "w"(a), "w"(b), "w"(c), "w"(d)
                     : "memory");
}
#else
static void copy_line(char *to, const char *from)
{
    memcpy(to, from, LINE_BYTES);
}
#endif

void ash_stream_copy(void *to, const void *from, size_t size_bytes)
{
    size_t lines = size_bytes / LINE_BYTES, at = lines * LINE_BYTES;

    for (size_t i = 0; i < lines; i++)
        copy_line((char *)to + i * LINE_BYTES, (const char *)from + i * LINE_BYTES);
    memcpy((char *)to + at, (const char *)from + at, size_bytes - at);
#if defined(__x86_64__)
    _mm_sfence();
#endif
}
