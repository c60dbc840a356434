/* quant_run_vnni_body - panels times rows, group by group. Who includes it has defined, for its types: MICRO_BYTES,
 * group_bytes (of a panel), blocks_of (a group with so much k left), fetch_head, run_block (dots of a block) and
 * add_group (the floats of a group). It is compiled for each type. */
#ifndef ASH_COMPUTE_QUANT_RUN_VNNI_BODY_H
#define ASH_COMPUTE_QUANT_RUN_VNNI_BODY_H

/* k of panels times rows, added to sums: panel by panel, row by row. How many there are of each is known when it is
 * compiled. */
INLINE void run(enum ash_dtype dtype, struct panels panels, struct rows rows, size_t k, float *sums)
{
    const size_t count = panels.count * rows.count, group = ash_quant_group(dtype);
    __m512 acc[AT_ONCE];

    UNROLL
    for (size_t i = 0; i < count; i++)
        acc[i] = _mm512_loadu_ps(sums + i * VNNI_ROWS);
    for (size_t done = 0; done < k; done += group) {
        __m512i totals[AT_ONCE];

        UNROLL
        for (size_t i = 0; i < count; i++)
            totals[i] = _mm512_setzero_si512();
        UNROLL
        for (size_t p = 0; p < panels.count; p++)
            if (panels.far) fetch_head(dtype, panels.at[p]);
        for (size_t block = 0; block < blocks_of(dtype, k - done); block++)
            run_block(dtype, &panels, &rows, block, totals);
        UNROLL
        for (size_t i = 0; i < count; i++)
            acc[i] = add_group(dtype, acc[i], totals[i], &panels, &rows, i);
        UNROLL
        for (size_t p = 0; p < panels.count; p++)
            panels.at[p] += group_bytes(dtype, panels.far);
        rows.tile += rows.micros * MICRO_BYTES(ash_quant_group_blocks(dtype));
    }
    UNROLL
    for (size_t i = 0; i < count; i++)
        _mm512_storeu_ps(sums + i * VNNI_ROWS, acc[i]);
}

/* count rows at a time, as long as there are as many; returns the rest. */
INLINE struct rows run_rows(enum ash_dtype dtype, struct panels panels, struct rows rows, size_t count, size_t k,
                            float *sums)
{
    for (rows.count = count; rows.first + count <= rows.micros; rows.first += count)
        run(dtype, panels, rows, k, sums + rows.first * VNNI_ROWS);
    return rows;
}

INLINE void tile_as(enum ash_dtype dtype, bool far, const uint8_t *panel, struct rows rows, size_t k, float *sums)
{
    const struct panels panels = {.at = {panel}, .count = 1, .far = far};

    rows = run_rows(dtype, panels, rows, 8, k, sums);
    rows = run_rows(dtype, panels, rows, 4, k, sums);
    rows = run_rows(dtype, panels, rows, 2, k, sums);
    run_rows(dtype, panels, rows, 1, k, sums);
}

/* GEMV: panels as separate streams of memory. */
INLINE void run_gemv(enum ash_dtype dtype, const uint8_t *const *at, size_t count, const uint8_t *x, size_t k, float *y)
{
    const struct rows row = {.tile = x, .micros = 1, .count = 1};
    struct panels panels = {.count = count, .far = true};

    memcpy(panels.at, at, count * sizeof(*at));
    memset(y, 0, count * VNNI_ROWS * sizeof(*y));
    run(dtype, panels, row, k, y);
}

#endif
