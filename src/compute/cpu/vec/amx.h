/* amx - x86-64's tile instructions. A tile is up to 16 rows of 64 bytes; each thread says how large its eight are
 * before it uses them, and lets go of them afterwards, so that the kernel need not save them. In assembly: gcc 12's own
 * functions do not tell the compiler what memory they read. */
#ifndef ASH_COMPUTE_AMX_H
#define ASH_COMPUTE_AMX_H

#include <stddef.h>
#include <stdint.h>

#define TILE_SIDE 16                   /* rows of a tile, and its columns of float32 or of pairs of k */
#define TILE_K 32                      /* k of bf16 in one */
#define TILE_SIZE (TILE_SIDE * TILE_K) /* elements of bf16 */

/* Sizes of the tiles: 0 to 3 hold sums, 4 and 5 the left operand, 6 and 7 the right one. */
struct tile_config {
    uint8_t palette, start_row, zero[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

#define TILE_LOAD(tile, from, stride_bytes)                                                                            \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile : : "r"(from), "r"((size_t)(stride_bytes)) : "memory")
/* The same, past L1: it keeps what it has. */
#define TILE_LOAD_PASSING(tile, from, stride_bytes)                                                                    \
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm" #tile : : "r"(from), "r"((size_t)(stride_bytes)) : "memory")
#define TILE_STORE(tile, to, stride_bytes)                                                                             \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" : : "r"(to), "r"((size_t)(stride_bytes)) : "memory")
#define TILE_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile : :)
/* sums += left right, of bf16 */
#define TILE_MULTIPLY(sums, left, right) __asm__ volatile("tdpbf16ps %%tmm" #right ", %%tmm" #left ", %%tmm" #sums : :)

/* sums += left right, of signed bytes */
#define TILE_MULTIPLY_INT8(sums, left, right)                                                                          \
    __asm__ volatile("tdpbssd %%tmm" #right ", %%tmm" #left ", %%tmm" #sums : :)
/* The same, of signed bytes left and unsigned ones right. */
#define TILE_MULTIPLY_INT8_UINT8(sums, left, right)                                                                    \
    __asm__ volatile("tdpbsud %%tmm" #right ", %%tmm" #left ", %%tmm" #sums : :)

static inline void tile_use(const struct tile_config *config)
{
    __asm__ volatile("ldtilecfg %0" : : "m"(*config));
}

/* Eight whole tiles. */
static inline void tile_use_whole(void)
{
    static const struct tile_config whole = {
        .palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

    tile_use(&whole);
}

static inline void tile_release(void)
{
    __asm__ volatile("tilerelease" : :);
}

#endif
