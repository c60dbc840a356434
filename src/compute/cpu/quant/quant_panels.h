/* quant_panels - the kernels that multiply packed quantised weights (quant_pack.h), as a table for each instruction set
 * and type. The drivers are quant_small_m_body.h and quant_large_m_body.h.
 *
 * Words: x is quantised into micro-panels of micro_rows rows. Up to tile_micros of them make a tile, what tile() takes
 * at once. A tile of prepared x holds, for each group of k, its micro-panels, micro_bytes bytes each, also
 * for a last group that is shorter. Every k that a function gets is whole groups, but for a row's end. */
#ifndef ASH_COMPUTE_QUANT_PANELS_H
#define ASH_COMPUTE_QUANT_PANELS_H

#include <stdbool.h>
#include "compute/cpu/quant/quant_pack.h"

/* Limits that the drivers size their arrays by; tables assert that they keep them. */
#define ASH_QUANT_MICRO_ROWS_MAX 16 /* of micro_rows */
#define ASH_QUANT_TILE_ROWS_MAX 16  /* of tile_micros * micro_rows */
#define ASH_QUANT_SMALL_M_MAX 12    /* of small_m_max */
#define ASH_QUANT_X_SLACK_BYTES 192 /* that kernels may read, and not use, after prepared x */
#define ASH_QUANT_STREAMS 4         /* panels that gemv() walks side by side: one stream does not use all bandwidth */

/* Limits that the drivers rely on, checked next to each table. */
#define ASH_QUANT_CHECK_PANELS(micro_rows, tile_micros, small_m_max)                                                   \
    _Static_assert((micro_rows) <= ASH_QUANT_MICRO_ROWS_MAX, "rows of a micro-panel");                                 \
    _Static_assert((micro_rows) * (tile_micros) <= ASH_QUANT_TILE_ROWS_MAX, "rows of a tile");                         \
    _Static_assert((small_m_max) <= ASH_QUANT_SMALL_M_MAX, "rows of small M")

/* k of count expanded panels times whole tiles of x: what large_m() computes. */
struct ash_quant_large_m {
    enum ash_dtype dtype;
    const uint8_t *const *panels; /* [count], as expand() made them, or as they are packed */
    size_t count;                 /* of panels; at most expanded_panels */
    const uint8_t *x;             /* `tiles` whole tiles, one after the other */
    size_t tiles, k;
    float *sums;       /* for each panel the sums of all tiles, added to */
    size_t panel_sums; /* floats between the sums of two panels */
    /* Only where large_m_writes_y: */
    bool first;      /* sums start from 0 here: memory holds none */
    float *y;        /* the panels' first output: rows y_stride apart, panels side by side; NULL: sums are not final */
    size_t y_stride; /* floats */
    size_t y_tiles;  /* with y, the sums of this many tiles are final and go there instead of to sums */
};

/* Functions are for large and medium M unless they say small M or GEMV. */
struct ash_quant_panels {
    /* -- layout and choice -- */
    enum ash_quant_layout layout;
    /* The table for small M and GEMV, of the same layout, where this one is for larger M alone; NULL: this one. */
    const struct ash_quant_panels *small_m;
    /* Up to this many rows of x are small M: every thread prepares them for itself. At most ASH_QUANT_SMALL_M_MAX. */
    size_t small_m_max;

    /* -- blocking -- */
    size_t micro_rows;      /* rows of a micro-panel of x; at most ASH_QUANT_MICRO_ROWS_MAX */
    size_t micro_bytes;     /* of a group of a prepared micro-panel */
    size_t tile_micros;     /* micro-panels of a tile */
    size_t expanded_bytes;  /* of a group of an expanded panel; 0 without expand() */
    size_t expanded_panels; /* panels that are expanded, then multiplied together */
    size_t k_groups;        /* groups of expanded_panels panels that fit L1 together with a tile of x */
    size_t gemv_bytes;      /* of a group of a single prepared row */
    bool even_tiles;        /* tile() takes fewer than tile_micros about as well: small and medium M get even tiles */
    bool whole_k;           /* tile() takes more than k_groups about as well: medium M gets all of k at once */
    bool large_m_writes_y;  /* large_m() heeds first, y and y_tiles; else sums are zeroed before and stored after */

    /* -- packing -- */
    /* Integer sub-scales of count blocks of Q4_0 (ash_quant_subscales); returns the group scale. NULL: plain C does. */
    float (*subscales)(const uint8_t *blocks, size_t count, int32_t *subscales);
    /* Pack a whole panel; rows of the plain weight are row_bytes apart, padding is already zero. NULL: plain C. */
    void (*pack)(enum ash_dtype dtype, const uint8_t *rows, size_t row_bytes, size_t blocks, uint8_t *panel);

    /* -- prologue -- */
    /* Quantise k of the rows of a micro-panel (rows[i] NULL: zeros; rows[0] is there) into its place in a tile: it is
     * number `micro` of `micros`. */
    void (*quantise)(const float *const *rows, size_t k, size_t micro, size_t micros, uint8_t *tile);
    /* GEMV: quantise the only row of x. */
    void (*quantise_gemv)(enum ash_dtype dtype, const float *row, size_t k, uint8_t *x);
    /* What tile() or large_m() reads of k of a panel, or next to it. NULL: the panel alone. */
    void (*expand)(enum ash_dtype dtype, const uint8_t *panel, size_t k, uint8_t *expanded);

    /* -- products -- */
    /* Add k of a panel times a tile of `micros` micro-panels to sums, which are in an order of the kernel's own:
     * tile_micros * micro_rows times the panel's rows floats, zero at first. expanded is what expand() made of the
     * panel (or the panel); for small M it is NULL, and the panel comes from memory. */
    void (*tile)(enum ash_dtype dtype, const uint8_t *panel, const uint8_t *expanded, const uint8_t *x, size_t micros,
                 size_t k, float *sums);
    /* The same for several panels and whole tiles. A thread calls begin before and end after any number of these. NULL,
     * all three: tile() does it. */
    void (*begin)(void);
    void (*large_m)(const struct ash_quant_large_m *job);
    void (*end)(void);
    /* GEMV: y = the products of the prepared row with count panels, at most ASH_QUANT_STREAMS. */
    void (*gemv)(enum ash_dtype dtype, const uint8_t *const *panels, size_t count, const uint8_t *x, size_t k,
                 float *y);

    /* -- epilogue -- */
    /* The sums of a tile and a panel as rows of y. */
    void (*untile)(const float *sums, size_t rows, float *y, size_t y_stride);
};

#if defined(__aarch64__)
extern const struct ash_quant_panels ash_quant_q8_i8mm, ash_quant_q4_i8mm, ash_quant_q8w_i8mm;
/* The types of quant_open.h: with groups of ASH_QUANT_GROUP, and of one block. */
extern const struct ash_quant_panels ash_quant_open_wide_i8mm, ash_quant_open_block_i8mm;
#elif defined(__x86_64__)
extern const struct ash_quant_panels ash_quant_q8_vnni, ash_quant_wide_vnni; /* the second: Q4_0 and Q8_W */
extern const struct ash_quant_panels ash_quant_q8_amx, ash_quant_q4_amx, ash_quant_q8w_amx;
/* The types of quant_open.h: with groups of ASH_QUANT_GROUP, and of one block. */
extern const struct ash_quant_panels ash_quant_open_wide_vnni, ash_quant_open_block_vnni;
#endif

#endif
