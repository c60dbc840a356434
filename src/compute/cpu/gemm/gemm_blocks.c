/* Cutting matrix products into blocks, units and tiles: see gemm_blocks.h for the plan. */
#include "compute/cpu/gemm/gemm_blocks.h"

#include <string.h>
#include "base/assert.h"
#include "compute/cpu/vec/prefetch.h"

#define SHARED_LINES 1024           /* at most, of the operand that all threads read: its block stays in L3 */
#define PART_LINES 192              /* at most, that a thread packs and multiplies at once: its panels stay in L2 */
#define PART_L2_BYTES (1280u << 10) /* where panels pass: of packed lines that stay in L2, half of them shared ones */
#define ALONE_BYTES ((512u << 10) + GEMM_SLACK_BYTES) /* of the shared operand, see packs_alone */
#define ALONE_LINES 128                               /* of the other one, a thread */
#define PACK_LINES_MIN 48                             /* lines that are worth waking a thread for */
#define PANELS_EVEN 8                                 /* panels a thread from which on units come out even */
#define LEVELS_MAX 7                                  /* of units, see unit_start */
#define CHUNK_ROWS 128    /* rows whose panels stay in L2 while a panel of columns stays in L1 */
#define ADJACENT_LINES 96 /* lines beside each other that are packed together: whole cache lines */
#define TILE_MAX 1024     /* sums of a tile */

/* One operand. */
struct side {
    const struct ash_mat *mat;
    size_t line_stride, k_stride;
    size_t lines;    /* M or N */
    size_t width;    /* lines of a panel */
    size_t together; /* lines that are packed at once; whole panels */
};

/* A product and the block of it that is being worked on. */
struct product {
    struct ash_exec *exec;
    const struct ash_gemm_args *args;
    const struct gemm_kernel *kernel;
    struct side rows, cols;
    bool share_rows; /* the shared operand is the left one */
    struct side *shared, *own;
    bool passing;           /* panels of the shared operand pass by the own lines, see tile_ahead */
    size_t first, count;    /* lines of the shared operand */
    size_t k, k_count;      /* from k on */
    size_t line_bytes;      /* of a packed line of this block */
    size_t threads, levels; /* of units */
    size_t part_lines;      /* of the other operand, whole panels */
    size_t own_bytes;       /* scratch of a part */
    unsigned char *shared_panels;
    size_t shared_bytes;
    bool alone;                  /* every thread packs the shared operand for itself */
    bool ready[ASH_WORKERS_MAX]; /* and has done so */
};

/* A part of c and the packed operands that it takes, of which k_count from k on are multiplied. */
struct part {
    size_t row, rows, col, cols;
    unsigned char *left, *right;
    size_t k, k_count;
};

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* ---- packing ----------------------------------------------------------------------------------------------------- */

/* Lines from line on, count of them, of the block's k. */
static void pack_lines(const struct product *op, const struct side *side, size_t line, size_t count, void *out)
{
    size_t at = line * side->line_stride + op->k * side->k_stride;
    struct pack lines = {.data = (const unsigned char *)side->mat->data + at * ash_dtype_bytes(side->mat->dtype),
                         .dtype = side->mat->dtype,
                         .round_bf16 = op->args->round_bf16,
                         .right = side == &op->cols,
                         .line_stride = side->line_stride,
                         .k_stride = side->k_stride,
                         .count = count,
                         .k_count = op->k_count};

    op->kernel->pack(&lines, out, side->width);
}

/* The units [begin, end) of the shared operand. */
static void pack_shared(const struct product *op, size_t begin, size_t end, unsigned char *panels)
{
    size_t step = op->shared->together;

    for (size_t i = begin * step; i < end * step && i < op->count; i += step)
        pack_lines(op, op->shared, op->first + i, min_size(step, op->count - i), panels + i * op->line_bytes);
}

static size_t pack_shared_count(const struct product *op)
{
    return (op->count + op->shared->together - 1) / op->shared->together;
}

static void pack_shared_units(void *ctx, size_t begin, size_t end, int worker)
{
    const struct product *op = ctx;

    (void)worker;
    pack_shared(op, begin, end, op->shared_panels);
}

/* ---- multiplying ------------------------------------------------------------------------------------------------- */

/* Are sums continued? */
static bool adds(const struct product *op, const struct part *part)
{
    return op->args->accumulate || op->k + part->k > 0;
}

/* A tile of which cols columns are needed. */
static void narrow_tile(const struct gemm_kernel *kernel, size_t k_count, const void *a, const void *b, bool add,
                        float *c, size_t c_stride, size_t cols)
{
    if (kernel->tile_part != NULL && cols + kernel->part_cols <= kernel->tile_cols)
        kernel->tile_part(k_count, a, b, add, c, c_stride, round_up(cols, kernel->part_cols));
    else
        kernel->tile(k_count, a, b, add, c, c_stride);
}

/* One tile at the edge of c: the kernel works on a whole one elsewhere, or in place where the columns fit it. */
static void edge_tile(const struct product *op, size_t k_count, const void *a, const void *b, bool add, float *c,
                      size_t rows, size_t cols)
{
    const struct gemm_kernel *kernel = op->kernel;
    float whole[TILE_MAX];

    if (rows == kernel->tile_rows && kernel->tile_part != NULL && cols % kernel->part_cols == 0) {
        narrow_tile(kernel, k_count, a, b, add, c, op->args->c_stride, cols);
        return;
    }

    if (add) {
        memset(whole, 0, kernel->tile_rows * kernel->tile_cols * sizeof(*whole));
        copy_block(c, op->args->c_stride, whole, kernel->tile_cols, rows, cols);
    }
    narrow_tile(kernel, k_count, a, b, add, whole, kernel->tile_cols, cols);
    copy_block(whole, kernel->tile_cols, c, op->args->c_stride, rows, cols);
}

/* Have a tile of c near when its turn comes: c is larger than the caches, and a chain cannot begin without it. */
static void fetch_tile(const struct gemm_kernel *kernel, const float *c, size_t c_stride)
{
    for (size_t r = 0; r < kernel->tile_rows; r++, c += c_stride) {
        prefetch_update(c);
        prefetch_update(c + kernel->tile_cols - 1);
    }
}

/* The tile of the part from row r and column n on. */
static void multiply_tile(const struct product *op, const struct part *part, size_t r, size_t n,
                          const struct gemm_ahead *ahead)
{
    const struct gemm_kernel *kernel = op->kernel;
    const unsigned char *left = part->left + r * op->line_bytes + part->k * kernel->tile_rows * kernel->element_bytes;
    const unsigned char *right = part->right + n * op->line_bytes + part->k * kernel->tile_cols * kernel->element_bytes;
    size_t k_count = round_up(part->k_count, kernel->k_step), stride = op->args->c_stride;
    size_t rows = min_size(kernel->tile_rows, part->rows - r), cols = min_size(kernel->tile_cols, part->cols - n);
    float *c = op->args->c + (part->row + r) * stride + part->col + n;

    if (rows < kernel->tile_rows || cols < kernel->tile_cols)
        edge_tile(op, k_count, left, right, adds(op, part), c, rows, cols);
    else if (ahead != NULL)
        kernel->tile_ahead(k_count, left, right, adds(op, part), c, stride, ahead);
    else
        kernel->tile(k_count, left, right, adds(op, part), c, stride);
}

/* Have the tile at (r, n) on its way, if it is a whole one and is added to for the first time. */
static void fetch_next(const struct product *op, const struct part *part, size_t r, size_t n)
{
    const struct gemm_kernel *kernel = op->kernel;
    bool add = part->k == 0 && adds(op, part);

    if (add && r + kernel->tile_rows <= part->rows && n + kernel->tile_cols <= part->cols)
        fetch_tile(kernel, op->args->c + (part->row + r) * op->args->c_stride + part->col + n, op->args->c_stride);
}

/* A panel of columns, the part's from n on, against the panels of rows from r to end. */
static void multiply_panel(const struct product *op, const struct part *part, size_t n, size_t r, size_t end)
{
    size_t step = op->kernel->tile_rows;

    for (; r < end; r += step) {
        if (r + step < end) fetch_next(op, part, r + step, n);
        multiply_tile(op, part, r, n, NULL);
    }
}

static void add_bias(const struct product *op, const struct part *part, size_t r, size_t end)
{
    const float *bias = op->args->bias + part->col;

    for (; r < end; r++) {
        float *c = op->args->c + (part->row + r) * op->args->c_stride + part->col;

        for (size_t n = 0; n < part->cols; n++)
            c[n] = c[n] + bias[n];
    }
}

/* Pack what of the unit's own lines up to line is not packed yet. */
static void pack_own(const struct product *op, const struct part *part, size_t line, size_t *packed)
{
    const struct side *own = op->own;
    size_t first = op->share_rows ? part->col : part->row, count = op->share_rows ? part->cols : part->rows;
    unsigned char *panels = op->share_rows ? part->right : part->left;

    for (; *packed < min_size(line, count); *packed += own->together)
        pack_lines(op, own, first + *packed, min_size(own->together, count - *packed),
                   panels + *packed * op->line_bytes);
}

static bool last_block(const struct product *op)
{
    return op->k + op->k_count == op->args->K;
}

/* The piece of the shared panel behind the one at line that is fetched beside tile number tile of tiles. */
static struct gemm_ahead ahead_of(const struct product *op, size_t line, size_t tile, size_t tiles)
{
    size_t panel = op->shared->width * op->line_bytes, piece = round_up((panel + tiles - 1) / tiles, 64);
    struct gemm_ahead ahead = {.left_stays = op->share_rows};

    if (op->alone || line + op->shared->width >= op->count || tile * piece >= panel) return ahead;
    ahead.from = op->shared_panels + (line + op->shared->width) * op->line_bytes + tile * piece;
    ahead.size_bytes = min_size(piece, panel - tile * piece);
    return ahead;
}

/* The panel of the shared operand at line, as many k of it at a time as stay in L1, against all of the part's own
 * lines. */
static void multiply_passing_panel(const struct product *op, struct part part, size_t line)
{
    size_t own_count = op->share_rows ? part.cols : part.rows, width = op->own->width, tile = 0;
    size_t step = block_size(op->k_count, op->kernel->l1_k, op->kernel->k_step);
    size_t tiles = (own_count + width - 1) / width * ((op->k_count + step - 1) / step);

    do {
        part.k_count = min_size(step, op->k_count - part.k);
        for (size_t own = 0; own < own_count; own += width) {
            struct gemm_ahead ahead = ahead_of(op, line, tile++, tiles);
            size_t next = own + width;

            fetch_next(op, &part, op->share_rows ? line : next, op->share_rows ? next : line);
            multiply_tile(op, &part, op->share_rows ? line : own, op->share_rows ? own : line, &ahead);
        }
        part.k += step;
    } while (part.k < op->k_count);
}

/* Every panel of the shared operand against all of the part's own lines, which stay in L2. */
static void multiply_passing(const struct product *op, const struct part *part)
{
    size_t packed = 0;

    pack_own(op, part, op->share_rows ? part->cols : part->rows, &packed);
    for (size_t line = 0; line < op->count; line += op->shared->width) {
        multiply_passing_panel(op, *part, line);
        if (op->share_rows && last_block(op) && op->args->bias != NULL)
            add_bias(op, part, line, min_size(line + op->shared->width, op->count));
    }
    if (!op->share_rows && last_block(op) && op->args->bias != NULL) add_bias(op, part, 0, part->rows);
}

static void multiply_part(const struct product *op, const struct part *part)
{
    size_t packed = 0;

    for (size_t r = 0; r < part->rows; r += CHUNK_ROWS) {
        size_t end = min_size(r + CHUNK_ROWS, part->rows);

        if (!op->share_rows) pack_own(op, part, end, &packed);
        for (size_t n = 0; n < part->cols; n += op->cols.width) {
            if (op->share_rows) pack_own(op, part, n + op->cols.width, &packed);
            multiply_panel(op, part, n, r, end);
        }
        if (last_block(op) && op->args->bias != NULL) add_bias(op, part, r, end);
    }
}

/* The first panel of a unit. Units come in levels of one per thread: together they take half of the panels that are
 * left, those of the last level all. So there are few to begin with, and small ones to fill the gap at the end. */
static size_t unit_start(const struct product *op, size_t unit)
{
    size_t panels = (op->own->lines + op->own->width - 1) / op->own->width, level = unit / op->threads;
    size_t left = level < op->levels ? panels >> level : 0, next = level + 1 < op->levels ? panels >> (level + 1) : 0;

    return panels - left + unit % op->threads * (left - next) / op->threads;
}

static void multiply_lines(const struct product *op, size_t first, size_t count, unsigned char *own,
                           unsigned char *shared)
{
    struct part part = op->share_rows ? (struct part){op->first, op->count, first, count, shared, own, 0, op->k_count}
                                      : (struct part){first, count, op->first, op->count, own, shared, 0, op->k_count};

    if (op->passing)
        multiply_passing(op, &part);
    else
        multiply_part(op, &part);
}

static void multiply_units(void *ctx, size_t begin, size_t end, int worker)
{
    struct product *op = ctx;
    size_t width = op->own->width, line = unit_start(op, begin) * width;
    size_t last = min_size(unit_start(op, end) * width, op->own->lines);
    unsigned char *own = ash_exec_scratch(op->exec, worker, op->own_bytes + (op->alone ? op->shared_bytes : 0));
    unsigned char *shared = op->alone ? own + op->own_bytes : op->shared_panels;

    if (op->alone && !op->ready[worker]) pack_shared(op, 0, pack_shared_count(op), shared);
    op->ready[worker] = true;
    if (op->kernel->begin != NULL) op->kernel->begin();
    for (; line < last; line += op->part_lines)
        multiply_lines(op, line, min_size(op->part_lines, last - line), own, shared);
    if (op->kernel->end != NULL) op->kernel->end();
}

/* ---- the product ------------------------------------------------------------------------------------------------- */

/* Does the operand with so many lines stay small enough for every thread to pack it for itself? */
static bool packs_small(const struct ash_gemm_args *args, const struct gemm_kernel *kernel, size_t lines)
{
    return lines * min_size(round_up(args->K, kernel->k_step), kernel->block_k) * kernel->element_bytes <= ALONE_BYTES;
}

/* The operand with fewer lines is the shared one. Of two alike, if it is small, the one that is fewer bytes, because
 * every thread reads all of it; else the left one, unless the right one has too few panels to be dealt out evenly. */
static bool shares_rows(const struct ash_gemm_args *args, const struct gemm_kernel *kernel, size_t threads)
{
    size_t col_panels = (args->N + kernel->tile_cols - 1) / kernel->tile_cols;
    size_t a_bytes = ash_dtype_bytes(args->a.dtype), b_bytes = ash_dtype_bytes(args->b.dtype);

    if (args->M != args->N) return args->M < args->N;
    if (a_bytes != b_bytes && packs_small(args, kernel, args->N)) return a_bytes < b_bytes;
    return col_panels >= threads * PANELS_EVEN;
}

static struct side side_of(const struct ash_mat *mat, size_t line_stride, size_t k_stride, size_t lines, size_t width)
{
    size_t panels = line_stride == 1 && width < ADJACENT_LINES ? ADJACENT_LINES / width : 1;

    return (struct side){.mat = mat,
                         .line_stride = line_stride,
                         .k_stride = k_stride,
                         .lines = lines,
                         .width = width,
                         .together = panels * width};
}

/* Levels of units, down to one of about a panel (or a few) for each thread. */
static size_t level_count(const struct product *op)
{
    size_t panels = (op->own->lines + op->own->width - 1) / op->own->width, levels = 1;
    size_t least = op->threads * max_size(op->kernel->unit_panels, 1);

    while (op->threads > 1 && levels < LEVELS_MAX && panels >> levels >= least)
        levels++;
    return levels;
}

/* Own lines that a thread packs and multiplies at once, where a block of the shared ones has so many lines. */
static size_t part_lines(const struct product *op, size_t shared_lines, size_t line_bytes)
{
    size_t most = PART_LINES, shared;

    if (op->passing) {
        shared = min_size(shared_lines * line_bytes, PART_L2_BYTES / 2);
        most = max_size((PART_L2_BYTES - shared) / line_bytes, op->own->width);
    }
    return block_size(op->own->lines, most, op->own->width);
}

/* Whether every thread packs all of the shared operand for itself: where that is little beside what it multiplies,
 * it costs less than waiting for the others, and than reading lines that lie in their caches. */
static bool packs_alone(const struct product *op)
{
    return op->threads > 1 && op->shared_bytes <= ALONE_BYTES && op->own->lines >= op->threads * ALONE_LINES;
}

static void run_block(struct product *op)
{
    op->line_bytes = round_up(op->k_count, op->kernel->k_step) * op->kernel->element_bytes;
    memset(op->ready, 0, sizeof(op->ready));
    if (!op->alone) {
        op->shared_panels = ash_exec_broadcast(op->exec, op->shared_bytes);
        ash_workers_run(op->exec->workers, pack_shared_count(op), max_size(PACK_LINES_MIN / op->shared->together, 1),
                        pack_shared_units, op);
    }
    ash_workers_run(op->exec->workers, op->threads * op->levels, 1, multiply_units, op);
}

void ash_gemm_blocks(struct ash_exec *exec, const struct ash_gemm_args *args, const struct gemm_kernel *kernel)
{
    struct product op = {.exec = exec, .args = args, .kernel = kernel};
    size_t block_k = block_size(args->K, kernel->block_k, round_up(32, kernel->k_step)), lines, bytes;

    ash_assert(kernel->tile_rows * kernel->tile_cols <= TILE_MAX);
    op.rows = side_of(&args->a, args->a.row_stride, args->a.col_stride, args->M, kernel->tile_rows);
    op.cols = side_of(&args->b, args->b.col_stride, args->b.row_stride, args->N, kernel->tile_cols);
    op.threads = (size_t)ash_workers_count(exec->workers);
    op.share_rows = shares_rows(args, kernel, op.threads);
    op.shared = op.share_rows ? &op.rows : &op.cols;
    op.own = op.share_rows ? &op.cols : &op.rows;
    op.passing = kernel->tile_ahead != NULL && (!op.share_rows || kernel->rows_ahead);
    op.levels = level_count(&op);
    lines = block_size(op.shared->lines, SHARED_LINES, op.shared->together);
    bytes = block_k * kernel->element_bytes;
    op.part_lines = part_lines(&op, lines, bytes);
    op.own_bytes = round_up(op.part_lines * bytes + GEMM_SLACK_BYTES, 64);
    op.shared_bytes = lines * bytes + GEMM_SLACK_BYTES;
    op.alone = packs_alone(&op);
    for (op.first = 0; op.first < op.shared->lines; op.first += lines) {
        op.count = min_size(lines, op.shared->lines - op.first);
        op.k = 0;
        do {
            op.k_count = min_size(block_k, args->K - op.k);
            run_block(&op);
            op.k += op.k_count;
        } while (op.k < args->K);
    }
}
