/* reduce: a pipelined reduction. Each rank waits for the partial sums of the rank before it, accumulates its own
 * operands and passes the sums on. The rows are cut into tiles, so that while one rank works on the first tile the rank
 * before it works on the second.
 *
 *     k-chunk 0:  rank 0 -> rank 1 -> rank 2 --+
 *     k-chunk 1:  rank 0 <---------------------+  -> rank 1 -> rank 2 -> the rank that keeps the tile's rows
 *
 * No rank ever waits for room, so none waits for another in a circle: a tile is one message, in one place at a time,
 * and no more tiles are in flight than an axis takes messages. */
#include "model/pass/reduce.h"

#include "base/assert.h"
#include "base/math.h"
#include "model/pass/reduce_shm.h"
#include "model/pass/split.h"
#include "model/pass/stream.h"

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

struct tile {
    struct ash_range rows;
    size_t owner; /* the rank that keeps these rows */
};

/* A walk over the tiles of a reduction. */
struct walk {
    const struct ash_reduction *reduction;
    size_t owners;      /* ranks that keep some of its rows */
    size_t owner, tile; /* of the next tile */
};

/* Rows of a tile: few, so that the next rank can start soon; not so few that products lose their speed, each of which
 * packs its weights again. With work to overlap ranks are in no hurry. */
#define TILE_ROWS ((size_t)128)
#define TILE_ROWS_OVERLAP ((size_t)256)

static size_t rows_per_message(size_t cols)
{
    return cols < ASH_AXIS_MESSAGE ? ASH_AXIS_MESSAGE / cols : 1;
}

/* Rows of the reduction that a rank keeps. */
static struct ash_range rows_of(const struct ash_pass_step *step, const struct ash_reduction *reduction, size_t rank)
{
    ash_assert(rank < step->axes->tp.size);
    return ash_range_overlap(ash_split_rows_tp(step->axes, step->rows, step->seq_rows, rank), reduction->rows);
}

/* Tiles that the rows of one of `owners` ranks are cut into. */
static size_t tile_count(const struct ash_reduction *reduction, size_t owners, size_t rows)
{
    size_t needed = ash_div_up(rows, rows_per_message(reduction->cols));
    size_t wanted = rows / (reduction->overlap != NULL ? TILE_ROWS_OVERLAP : TILE_ROWS), room = 1;

    ash_assert(owners > 0);
    if (owners < ASH_AXIS_PENDING) room = ASH_AXIS_PENDING / owners;
    return ash_max(needed, ash_min(wanted, room));
}

size_t ash_reduce_tile_floats(size_t own, size_t cols)
{
    return ash_min(own * cols, ash_max(cols, ASH_AXIS_MESSAGE));
}

static struct walk walk_start(const struct ash_pass_step *step, const struct ash_reduction *reduction)
{
    size_t owners = 0;

    for (size_t r = 0; r < step->axes->tp.size; r++)
        owners += rows_of(step, reduction, r).count > 0;
    return (struct walk){reduction, owners, 0, 0};
}

/* The next tile that has rows; false: there is none. */
static bool walk_next(const struct ash_pass_step *step, struct walk *walk, struct tile *tile_out)
{
    for (; walk->owner < step->axes->tp.size; walk->owner++, walk->tile = 0) {
        struct ash_range rows = rows_of(step, walk->reduction, walk->owner);
        size_t count = tile_count(walk->reduction, walk->owners, rows.count);

        while (walk->tile < count) {
            size_t first = rows.count * walk->tile / count, end = rows.count * ++walk->tile / count;

            if (first == end) continue;
            *tile_out = (struct tile){{rows.first + first, end - first}, walk->owner};
            return true;
        }
    }
    return false;
}

/* ---- the pipeline ------------------------------------------------------------------------------------------------ */

/* Where the finished sums of a tile that this rank keeps go. */
static float *place_of(const struct ash_pass_step *step, const struct ash_reduction *reduction, const struct tile *tile)
{
    return reduction->out + (tile->rows.first - step->own.first) * reduction->cols;
}

/* Receive a tile's partial sums, accumulate this rank's operand of a k-chunk, send them on. */
static void pass_on(const struct ash_pass_step *step, const struct ash_reduction *reduction, size_t chunk,
                    const struct tile *tile)
{
    const struct ash_axis *tp = &step->axes->tp;
    size_t count = tile->rows.count * reduction->cols, before = (tp->rank + tp->size - 1) % tp->size;
    bool is_first = chunk == 0 && tp->rank == 0;
    bool is_last = chunk + 1 == reduction->chunk_count && tp->rank + 1 == tp->size;
    bool stays = is_last && tile->owner == tp->rank;
    float *sums = stays ? place_of(step, reduction, tile) : step->acts->scratch.tile;
    struct ash_operand operand =
        ash_operand_from_row(reduction->chunks[chunk], tile->rows.first - reduction->rows.first);

    ash_assert(chunk < reduction->chunk_count);
    ash_assert(tile->owner < step->axes->tp.size);
    if (!is_first) ash_axes_recv(step->axes, tp, before, sums, count);
    reduction->accumulate(step, reduction->ctx, &operand, tile->rows, is_first, sums);
    if (is_last) ash_reduction_add_bias(step, reduction, tile->rows.count, sums);
    if (!stays) ash_axes_send(step->axes, tp, is_last ? tile->owner : (tp->rank + 1) % tp->size, sums, count);
}

/* The finished sums that this rank keeps come from the last. */
static void receive_own(const struct ash_pass_step *step, const struct ash_reduction *reduction,
                        const struct tile *tiles, size_t count)
{
    const struct ash_axis *tp = &step->axes->tp;
    size_t last = tp->size - 1;

    for (size_t i = 0; i < count && tp->rank != last; i++)
        if (tiles[i].owner == tp->rank)
            ash_axes_recv(step->axes, tp, last, place_of(step, reduction, &tiles[i]),
                          tiles[i].rows.count * reduction->cols);
}

/* The first rank starts with the sums, the others with what they overlap. */
static void run_tiles(const struct ash_pass_step *step, const struct ash_reduction *reduction)
{
    struct walk walk = walk_start(step, reduction);
    struct tile tiles[ASH_AXIS_PENDING];
    bool has_work = reduction->overlap != NULL;
    size_t count, rank = step->axes->tp.rank;

    if (has_work && rank > 0) reduction->overlap(step, reduction->ctx);
    do {
        for (count = 0; count < ASH_AXIS_PENDING && walk_next(step, &walk, &tiles[count]);)
            count++;
        for (size_t chunk = 0; chunk < reduction->chunk_count; chunk++) {
            for (size_t i = 0; i < count; i++)
                pass_on(step, reduction, chunk, &tiles[i]);
            if (has_work && rank == 0) reduction->overlap(step, reduction->ctx);
            has_work = false;
        }
        receive_own(step, reduction, tiles, count);
    } while (count == ASH_AXIS_PENDING);
}

void ash_reduce(const struct ash_pass_step *step, const struct ash_reduction *reduction)
{
    struct ash_reduction sent = *reduction;

    ash_assert(step->axes->tp.size > 1 && ash_range_end(reduction->rows) <= step->rows);
    ash_assert(reduction->cols > 0 && reduction->chunk_count >= 1 && reduction->chunk_count <= ASH_PROJECT_OUTS_MAX);
    if (step->axes->tp.same_node) {
        ash_reduce_shm(step, reduction);
        return;
    }
    if (reduction->all != NULL) sent.out = reduction->all + step->own.first * reduction->cols;
    run_tiles(step, &sent);
    if (reduction->all != NULL) ash_stream_gather_rows(step, reduction->rows, reduction->all, reduction->cols);
}
