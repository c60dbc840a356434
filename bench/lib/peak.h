/* peak - what the arithmetic units of this machine can do: multiply-adds on registers alone, as many in flight as hide
 * their latency. A product that reads memory cannot be faster. */
#ifndef BENCH_PEAK_H
#define BENCH_PEAK_H

enum bench_peak { BENCH_PEAK_F32, BENCH_PEAK_BF16, BENCH_PEAK_INT8, BENCH_PEAK_COUNT };

/* The widest instruction that this processor has for it ("fmla.4s", "vfmadd231ps zmm"), or NULL when it has none. */
const char *bench_peak_instruction(enum bench_peak kind);

/* Measure once, for some milliseconds: 1e9 operations (a multiply-add is two) per second over thread_count pinned
 * threads; 0 when there is no instruction or no thread. */
double bench_peak_gops(enum bench_peak kind, int thread_count);

#endif
