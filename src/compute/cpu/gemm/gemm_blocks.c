/* Blocked matrix products: packing, units and tiles. gemm_blocks.h has the plan, gemm_blocking.c chooses the sizes. */
#include "compute/cpu/gemm/gemm_blocks.h"

#include <string.h>
#include "base/math.h"
#include "base/assert.h"
#include "compute/cpu/gemm/gemm_blocking.h"
#include "compute/cpu/vec/prefetch.h"
#include "compute/gemm_parts.h"

#define PACK_LINES_MIN 48 /* lines that are worth waking a thread for */
#define CHUNK_ROWS 128    /* rows whose panels stay in L2 while a panel of columns stays in L1 */
#define TILE_MAX 1024     /* sums of a tile */

/* The current block. */
struct block {
    size_t first, count; /* lines of the shared operand */
    size_t k, k_count;   /* from k on */
    size_t line_bytes;   /* of a packed line */
    unsigned char *shared_panels;
};

struct product {
    struct ash_exec *exec;
    const struct ash_gemm_args *args; /* operands and epilogue */
    const struct gemm_kernel *kernel;
    struct gemm_operands in;
    struct gemm_blocking cut;
    struct block block;
    bool ready[ASH_WORKERS_MAX]; /* cut.alone: this thread has packed the shared operand of this block */
};

/* A part of c and the packed operands that it takes, of which k_count from k on are multiplied. */
struct part {
    size_t row, rows, col, cols;
    unsigned char *left, *right;
    size_t k, k_count;
};

/* ---- packing ----------------------------------------------------------------------------------------------------- */

/* Lines from line on, count of them, of the block's k. */
static void pack_lines(const struct product *op, const struct gemm_side *side, size_t line, size_t count, void *out)
{
    size_t at = line * side->line_stride + op->block.k * side->k_stride;
    struct pack lines = {.data = (const unsigned char *)side->mat->data + at * ash_dtype_bytes(side->mat->dtype),
                         .dtype = side->mat->dtype,
                         .round_bf16 = op->args->round_bf16,
                         .right = side == &op->in.cols,
                         .line_stride = side->line_stride,
                         .k_stride = side->k_stride,
                         .count = count,
                         .k_count = op->block.k_count};

    op->kernel->pack(&lines, out, side->width);
}

/* The units [begin, end) of the shared operand. */
static void pack_shared(const struct product *op, size_t begin, size_t end, unsigned char *panels)
{
    size_t step = op->in.shared->together;

    for (size_t i = begin * step; i < end * step && i < op->block.count; i += step)
        pack_lines(op, op->in.shared, op->block.first + i, ash_min(step, op->block.count - i),
                   panels + i * op->block.line_bytes);
}

static size_t pack_shared_count(const struct product *op)
{
    return ash_div_up(op->block.count, op->in.shared->together);
}

static void pack_shared_units(void *ctx, size_t begin, size_t end, int worker)
{
    const struct product *op = ctx;

    (void)worker;
    pack_shared(op, begin, end, op->block.shared_panels);
}

/* ---- multiplying ------------------------------------------------------------------------------------------------- */

/* Are sums continued? */
static bool adds(const struct product *op, const struct part *part)
{
    return op->args->accumulate || op->block.k + part->k > 0;
}

/* What a tile multiplies. */
struct factors {
    size_t k_count;
    const void *a, *b;
    bool add;
};

/* A tile of which cols columns are needed. */
static void narrow_tile(const struct gemm_kernel *kernel, const struct factors *by, float *c, size_t c_stride,
                        size_t cols)
{
    if (kernel->tile_part != NULL && cols + kernel->part_cols <= kernel->tile_cols)
        kernel->tile_part(by->k_count, by->a, by->b, by->add, c, c_stride, ash_round_up(cols, kernel->part_cols));
    else
        kernel->tile(by->k_count, by->a, by->b, by->add, c, c_stride);
}

/* One tile at the edge of c: the kernel works on a whole one elsewhere, or in place where the columns fit it. */
static void edge_tile(const struct product *op, const struct factors *by, float *c, size_t rows, size_t cols)
{
    const struct gemm_kernel *kernel = op->kernel;
    float whole[TILE_MAX];

    if (rows == kernel->tile_rows && kernel->tile_part != NULL && cols % kernel->part_cols == 0) {
        narrow_tile(kernel, by, c, op->args->c_stride, cols);
        return;
    }
    if (by->add) {
        memset(whole, 0, kernel->tile_rows * kernel->tile_cols * sizeof(*whole));
        copy_block(c, op->args->c_stride, whole, kernel->tile_cols, rows, cols);
    }
    narrow_tile(kernel, by, whole, kernel->tile_cols, cols);
    copy_block(whole, kernel->tile_cols, c, op->args->c_stride, rows, cols);
}

/* Prefetch a tile of c: c is larger than the caches, and a chain cannot begin without it. */
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
    size_t k_bytes = part->k * kernel->element_bytes, line_bytes = op->block.line_bytes, stride = op->args->c_stride;
    const struct factors by = {.k_count = ash_round_up(part->k_count, kernel->k_step),
                               .a = part->left + r * line_bytes + k_bytes * kernel->tile_rows,
                               .b = part->right + n * line_bytes + k_bytes * kernel->tile_cols,
                               .add = adds(op, part)};
    size_t rows = ash_min(kernel->tile_rows, part->rows - r), cols = ash_min(kernel->tile_cols, part->cols - n);
    float *c = op->args->c + (part->row + r) * stride + part->col + n;

    if (rows < kernel->tile_rows || cols < kernel->tile_cols)
        edge_tile(op, &by, c, rows, cols);
    else if (ahead != NULL)
        kernel->tile_ahead(by.k_count, by.a, by.b, by.add, c, stride, ahead);
    else
        kernel->tile(by.k_count, by.a, by.b, by.add, c, stride);
}

/* Prefetch the tile at (r, n), if it is a whole one and is added to for the first time. */
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
    const struct gemm_side *own = op->in.own;
    size_t first = op->in.share_rows ? part->col : part->row, count = op->in.share_rows ? part->cols : part->rows;
    unsigned char *panels = op->in.share_rows ? part->right : part->left;

    for (; *packed < ash_min(line, count); *packed += own->together)
        pack_lines(op, own, first + *packed, ash_min(own->together, count - *packed),
                   panels + *packed * op->block.line_bytes);
}

static bool last_block(const struct product *op)
{
    return op->block.k + op->block.k_count == op->args->K;
}

/* The piece of the shared panel after the one at line that is prefetched during tile number tile of tiles. */
static struct gemm_ahead ahead_of(const struct product *op, size_t line, size_t tile, size_t tiles)
{
    size_t panel = op->in.shared->width * op->block.line_bytes, piece = ash_round_up(ash_div_up(panel, tiles), 64);
    struct gemm_ahead ahead = {.left_stays = op->in.share_rows};

    if (op->cut.alone || line + op->in.shared->width >= op->block.count || tile * piece >= panel) return ahead;
    ahead.from = op->block.shared_panels + (line + op->in.shared->width) * op->block.line_bytes + tile * piece;
    ahead.size_bytes = ash_min(piece, panel - tile * piece);
    return ahead;
}

/* The panel of the shared operand at line, as many k of it at a time as stay in L1, against all of the part's own
 * lines. */
static void multiply_passing_panel(const struct product *op, struct part part, size_t line)
{
    size_t own_count = op->in.share_rows ? part.cols : part.rows, width = op->in.own->width, tile = 0;
    size_t step = gemm_block_size(op->block.k_count, op->kernel->l1_k, op->kernel->k_step);
    size_t tiles = ash_div_up(own_count, width) * ash_max(ash_div_up(op->block.k_count, step), 1); /* k may be none */

    do {
        part.k_count = ash_min(step, op->block.k_count - part.k);
        for (size_t own = 0; own < own_count; own += width) {
            struct gemm_ahead ahead = ahead_of(op, line, tile++, tiles);
            size_t next = own + width;

            fetch_next(op, &part, op->in.share_rows ? line : next, op->in.share_rows ? next : line);
            multiply_tile(op, &part, op->in.share_rows ? line : own, op->in.share_rows ? own : line, &ahead);
        }
        part.k += step;
    } while (part.k < op->block.k_count);
}

/* Every panel of the shared operand against all of the part's own lines, which stay in L2. */
static void multiply_passing(const struct product *op, const struct part *part)
{
    size_t packed = 0;

    pack_own(op, part, op->in.share_rows ? part->cols : part->rows, &packed);
    for (size_t line = 0; line < op->block.count; line += op->in.shared->width) {
        multiply_passing_panel(op, *part, line);
        if (op->in.share_rows && last_block(op) && op->args->bias != NULL)
            add_bias(op, part, line, ash_min(line + op->in.shared->width, op->block.count));
    }
    if (!op->in.share_rows && last_block(op) && op->args->bias != NULL) add_bias(op, part, 0, part->rows);
}

static void multiply_part(const struct product *op, const struct part *part)
{
    size_t packed = 0;

    for (size_t r = 0; r < part->rows; r += CHUNK_ROWS) {
        size_t end = ash_min(r + CHUNK_ROWS, part->rows);

        if (!op->in.share_rows) pack_own(op, part, end, &packed);
        for (size_t n = 0; n < part->cols; n += op->in.cols.width) {
            if (op->in.share_rows) pack_own(op, part, n + op->in.cols.width, &packed);
            multiply_panel(op, part, n, r, end);
        }
        if (last_block(op) && op->args->bias != NULL) add_bias(op, part, r, end);
    }
}

/* The first panel of a unit. Units come in levels of one per thread: together they take half of the panels that are
 * left, those of the last level all. So there are few to begin with, and small ones to fill the gap at the end. */
static size_t unit_start(const struct product *op, size_t unit)
{
    size_t panels = ash_div_up(op->in.own->lines, op->in.own->width), level = unit / op->cut.threads;
    size_t left = level < op->cut.levels ? panels >> level : 0,
           next = level + 1 < op->cut.levels ? panels >> (level + 1) : 0;

    return panels - left + unit % op->cut.threads * (left - next) / op->cut.threads;
}

static void multiply_lines(const struct product *op, size_t first, size_t count, unsigned char *own,
                           unsigned char *shared)
{
    struct part part =
        op->in.share_rows
            ? (struct part){op->block.first, op->block.count, first, count, shared, own, 0, op->block.k_count}
            : (struct part){first, count, op->block.first, op->block.count, own, shared, 0, op->block.k_count};

    if (op->cut.passing)
        multiply_passing(op, &part);
    else
        multiply_part(op, &part);
}

static void multiply_units(void *ctx, size_t begin, size_t end, int worker)
{
    struct product *op = ctx;
    size_t width = op->in.own->width, line = unit_start(op, begin) * width;
    size_t last = ash_min(unit_start(op, end) * width, op->in.own->lines);
    unsigned char *own =
        ash_exec_scratch(op->exec, worker, op->cut.own_bytes + (op->cut.alone ? op->cut.shared_bytes : 0));
    unsigned char *shared = op->cut.alone ? own + op->cut.own_bytes : op->block.shared_panels;

    if (op->cut.alone && !op->ready[worker]) pack_shared(op, 0, pack_shared_count(op), shared);
    op->ready[worker] = true;
    if (op->kernel->begin != NULL) op->kernel->begin();
    for (; line < last; line += op->cut.part_lines)
        multiply_lines(op, line, ash_min(op->cut.part_lines, last - line), own, shared);
    if (op->kernel->end != NULL) op->kernel->end();
}

/* ---- the product ------------------------------------------------------------------------------------------------- */

static void run_block(struct product *op)
{
    op->block.line_bytes = ash_round_up(op->block.k_count, op->kernel->k_step) * op->kernel->element_bytes;
    memset(op->ready, 0, sizeof(op->ready));
    if (!op->cut.alone) {
        op->block.shared_panels = ash_exec_broadcast(op->exec, op->cut.shared_bytes);
        ash_workers_run(op->exec->workers, pack_shared_count(op), ash_max(PACK_LINES_MIN / op->in.shared->together, 1),
                        pack_shared_units, op);
    }
    ash_workers_run(op->exec->workers, op->cut.threads * op->cut.levels, 1, multiply_units, op);
}

/* What a kernel promises, and what callers do. */
static void check(const struct ash_gemm_args *args, const struct gemm_kernel *kernel)
{
    ash_assert(args->M > 0 && args->N > 0 && (args->bias == NULL || !args->accumulate) && !ash_gemm_has_epilogue(args));
    ash_assert(kernel->tile_rows > 0 && kernel->tile_cols > 0 && kernel->tile_rows * kernel->tile_cols <= TILE_MAX);
    ash_assert(kernel->k_step > 0 && kernel->block_k > 0 && kernel->block_k % kernel->k_step == 0);
    ash_assert(kernel->element_bytes > 0 && kernel->pack != NULL && kernel->tile != NULL);
    ash_assert(kernel->tile_part == NULL || kernel->part_cols > 0);
    ash_assert(kernel->tile_ahead == NULL || (kernel->l1_k > 0 && kernel->l1_k % kernel->k_step == 0));
}

void ash_gemm_blocks(struct ash_exec *exec, const struct ash_gemm_args *args, const struct gemm_kernel *kernel)
{
    struct product op = {.exec = exec, .args = args, .kernel = kernel};
    struct block *block = &op.block;

    check(args, kernel);
    ash_gemm_operands_init(&op.in, args, kernel, (size_t)ash_workers_count(exec->workers));
    ash_gemm_choose_blocking(&op.cut, &op.in, args, kernel);
    for (block->first = 0; block->first < op.in.shared->lines; block->first += op.cut.shared_lines) {
        block->count = ash_min(op.cut.shared_lines, op.in.shared->lines - block->first);
        block->k = 0;
        do {
            block->k_count = ash_min(op.cut.block_k, args->K - block->k);
            run_block(&op);
            block->k += block->k_count;
        } while (block->k < args->K);
    }
}
