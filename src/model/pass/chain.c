/* Sums whose terms are dealt out along tp (the inputs of a row-parallel product, the outputs of a column-parallel one
 * on the way back, the vocabulary of a loss). Each is one chain of additions in one process, so here the chain goes
 * through the ranks: each waits for the sums so far, goes on over its own terms and passes them on. The rows are cut
 * into tiles, so that while one rank works on the first tile the rank before it works on the second.
 *
 * No rank ever waits for room, so none waits for another in a circle: a tile is one message, in one place at a time,
 * and no more tiles are under way than an axis takes messages.
 *
 * Where the ranks share memory no sum goes anywhere (by_rows.c), and the rows of the stream that blocks need all of lie
 * beside each other: a norm writes a rank's own rows among those of the others. */
#include "model/pass/pass_priv.h"

#include "base/assert.h"

/* ---- rows of the stream ------------------------------------------------------------------------------------------ */

struct ash_range ash_stream_rows(const struct ash_pass *pass, size_t rank)
{
    size_t first = pass->rows * rank / pass->tp.size;

    return (struct ash_range){first, pass->rows * (rank + 1) / pass->tp.size - first};
}

/* Those of rank that are among rows. */
static struct ash_range rows_among(const struct ash_pass *pass, size_t rank, struct ash_range rows)
{
    struct ash_range own = ash_stream_rows(pass, rank);
    size_t first = own.first > rows.first ? own.first : rows.first, end = own.first + own.count;

    if (end > rows.first + rows.count) end = rows.first + rows.count;
    return (struct ash_range){first, end > first ? end - first : 0};
}

void ash_rows_gather(struct ash_pass *pass, struct ash_range rows, float *data, size_t width)
{
    for (size_t r = 0; pass->tp.size > 1 && r < pass->tp.size; r++)
        pass->tp_counts[r] = rows_among(pass, r, rows).count * width;
    ash_share_gather(pass, &pass->tp, data + rows.first * width, pass->tp_counts);
}

const float *ash_stream_gather(struct ash_pass *pass, const float *own, float *all)
{
    size_t hidden = pass->model->config.hidden;

    if (pass->tp.size == 1) return own;
    if (pass->tp.near) {
        ash_share_meet(pass, ASH_SHARE_POSTS, ++pass->common.posts);
        return own - pass->own.first * hidden;
    }
    pass->exec->memory->copy(all + pass->own.first * hidden, own, pass->own.count * hidden * sizeof(float));
    ash_rows_gather(pass, (struct ash_range){0, pass->rows}, all, hidden);
    return all;
}

const float *ash_stream_again(struct ash_pass *pass, const float *own, float *all)
{
    bool there = pass->tp.near && pass->opts.recompute != ASH_RECOMPUTE_SELECTIVE;

    return there ? own - pass->own.first * pass->model->config.hidden : ash_stream_gather(pass, own, all);
}

void ash_stream_place(struct ash_pass *pass)
{
    size_t hidden = pass->model->config.hidden, here = pass->own.first * hidden,
           skip = pass->shares_sums ? here + pass->first_row * hidden : here;
    struct ash_scratch *s = &pass->scratch;

    if (!pass->tp.near && !pass->shares_sums) return;
    for (size_t i = 0; i < pass->model->config.layers; i++) {
        struct ash_layer_acts *acts = &pass->layers[i];

        acts->attn.norm.out = acts->attn.norm.all + skip;
        acts->ffn_norm.out = acts->ffn_norm.all + skip;
    }
    if (ash_pass_ends(pass)) pass->final_norm.out = pass->final_norm.all + skip;
    if (!pass->opts.backward) return;
    s->dx_turn = 0;
    s->dx = (pass->shares_sums ? s->dx_turns[0] : s->dx_rows) + skip;
    if (pass->tp.near) s->dnorm = s->dnorm_rows + here;
}

void ash_stream_turn(struct ash_pass *pass)
{
    struct ash_scratch *s = &pass->scratch;
    size_t next = (s->dx_turn + 1) % ASH_DX_TURNS;
    float *dx;

    if (!pass->shares_sums) return;
    dx = s->dx_turns[next] + (s->dx - s->dx_turns[s->dx_turn]);
    pass->exec->memory->copy(dx, s->dx, pass->own.count * pass->model->config.hidden * sizeof(float));
    s->dx = dx;
    s->dx_turn = next;
}

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

struct tile {
    struct ash_range rows;
    size_t owner; /* the rank that keeps these rows */
};

/* Where a walk over the tiles of a chain is. */
struct walk {
    const struct ash_chain *chain;
    size_t owners;       /* ranks that keep some of its rows */
    size_t owner, piece; /* of the next tile */
};

/* Rows of a tile: few, so that the next rank can start soon; not so few that products lose their speed, each of which
 * packs its weights anew. Ranks that have something else to do are in no hurry. */
#define TILE_ROWS ((size_t)128)
#define TILE_ROWS_UNHURRIED ((size_t)256)

static size_t rows_per_message(size_t cols)
{
    return cols < ASH_AXIS_MESSAGE ? ASH_AXIS_MESSAGE / cols : 1;
}

/* Tiles that the rows of one of owners ranks are cut into. */
static size_t tile_count(const struct ash_chain *chain, size_t owners, size_t rows)
{
    size_t most = rows_per_message(chain->cols), needed = (rows + most - 1) / most;
    size_t wanted = rows / (chain->meanwhile != NULL ? TILE_ROWS_UNHURRIED : TILE_ROWS);
    size_t room = owners < ASH_AXIS_PENDING ? ASH_AXIS_PENDING / owners : 1;

    if (wanted > room) wanted = room;
    return needed > wanted ? needed : wanted;
}

size_t ash_chain_tile_most(size_t own, size_t cols)
{
    size_t most = cols < ASH_AXIS_MESSAGE ? ASH_AXIS_MESSAGE : cols;

    return own * cols < most ? own * cols : most;
}

static struct walk walk_start(const struct ash_pass *pass, const struct ash_chain *chain)
{
    size_t owners = 0;

    for (size_t r = 0; r < pass->tp.size; r++)
        owners += rows_among(pass, r, chain->rows).count > 0;
    return (struct walk){chain, owners, 0, 0};
}

/* The next tile that has rows; false: there is none. */
static bool walk_next(const struct ash_pass *pass, struct walk *walk, struct tile *tile_out)
{
    for (; walk->owner < pass->tp.size; walk->owner++, walk->piece = 0) {
        struct ash_range rows = rows_among(pass, walk->owner, walk->chain->rows);
        size_t count = tile_count(walk->chain, walk->owners, rows.count);

        while (walk->piece < count) {
            size_t first = rows.count * walk->piece / count, end = rows.count * ++walk->piece / count;

            if (first == end) continue;
            *tile_out = (struct tile){{rows.first + first, end - first}, walk->owner};
            return true;
        }
    }
    return false;
}

/* ---- the chain --------------------------------------------------------------------------------------------------- */

static float *place_of(const struct ash_pass *pass, const struct ash_chain *chain, const struct tile *tile)
{
    return chain->out + (tile->rows.first - pass->own.first) * chain->cols;
}

/* This rank's part of a tile's sums, in one round, as a message. */
static void pass_on(struct ash_pass *pass, const struct ash_chain *chain, size_t round, const struct tile *tile)
{
    const struct ash_axis *tp = &pass->tp;
    size_t count = tile->rows.count * chain->cols, before = (tp->rank + tp->size - 1) % tp->size;
    bool start = round == 0 && tp->rank == 0, done = round + 1 == chain->rounds && tp->rank + 1 == tp->size;
    bool stays = done && tile->owner == tp->rank;
    float *sums = stays ? place_of(pass, chain, tile) : pass->scratch.tile;
    struct ash_terms terms = ash_terms_from(chain->terms[round], tile->rows.first - chain->rows.first);

    if (!start) ash_share_recv(pass, tp, before, sums, count);
    chain->step(pass, chain->ctx, &terms, tile->rows, start, sums);
    if (done) ash_chain_end(pass, chain, tile->rows.count, sums);
    if (!stays) ash_share_send(pass, tp, done ? tile->owner : (tp->rank + 1) % tp->size, sums, count);
}

/* The finished sums that this rank keeps come from the last. */
static void take_own(struct ash_pass *pass, const struct ash_chain *chain, const struct tile *tiles, size_t count)
{
    size_t last = pass->tp.size - 1;

    for (size_t i = 0; i < count && pass->tp.rank != last; i++)
        if (tiles[i].owner == pass->tp.rank)
            ash_share_recv(pass, &pass->tp, last, place_of(pass, chain, &tiles[i]), tiles[i].rows.count * chain->cols);
}

static void run_tiles(struct ash_pass *pass, const struct ash_chain *chain)
{
    struct walk walk = walk_start(pass, chain);
    struct tile tiles[ASH_AXIS_PENDING];
    bool busy = chain->meanwhile != NULL; /* the first rank starts with the sums, the others with what is beside them */
    size_t count;

    if (busy && pass->tp.rank > 0) chain->meanwhile(pass, chain->ctx);
    do {
        for (count = 0; count < ASH_AXIS_PENDING && walk_next(pass, &walk, &tiles[count]);)
            count++;
        for (size_t round = 0; round < chain->rounds; round++) {
            for (size_t i = 0; i < count; i++)
                pass_on(pass, chain, round, &tiles[i]);
            if (busy && pass->tp.rank == 0) chain->meanwhile(pass, chain->ctx);
            busy = false;
        }
        take_own(pass, chain, tiles, count);
    } while (count == ASH_AXIS_PENDING);
}

void ash_chain_run(struct ash_pass *pass, const struct ash_chain *chain)
{
    struct ash_chain sent = *chain;

    ash_assert(pass->tp.size > 1);
    if (pass->tp.near) {
        ash_chain_by_rows(pass, chain);
        return;
    }
    if (chain->all != NULL) sent.out = chain->all + pass->own.first * chain->cols;
    run_tiles(pass, &sent);
    if (chain->all != NULL) ash_rows_gather(pass, chain->rows, chain->all, chain->cols);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

void ash_chain_end(struct ash_pass *pass, const struct ash_chain *chain, size_t rows, float *sums)
{
    struct ash_copy_args add = {.rows = rows,
                                .blocks = 1,
                                .cols = chain->cols,
                                .src = chain->bias,
                                .dst = sums,
                                .dst_dtype = ASH_F32,
                                .dst_row = chain->cols,
                                .add = true};

    if (chain->bias != NULL) pass->exec->ops->row->copy(pass->exec, &add);
}

void ash_product_step(struct ash_pass *pass, const struct ash_terms *terms, size_t rows, bool start, float *sums)
{
    struct ash_gemm_args args = terms->product;

    args.M = rows;
    args.a.data = terms->x;
    args.c = sums;
    args.accumulate = !start;
    pass->exec->ops->matrix->gemm(pass->exec, &args);
}

struct ash_terms ash_product_terms(const struct ash_pass *pass, const struct ash_linear_term *term)
{
    struct ash_gemm_args part = ash_linear_part(pass->model, term);

    return (struct ash_terms){.rank = pass->tp.rank, .x = part.a.data, .x_stride = part.a.row_stride, .product = part};
}

static void product_step(struct ash_pass *pass, void *ctx, const struct ash_terms *terms, struct ash_range rows,
                         bool start, float *sums)
{
    (void)ctx;
    ash_product_step(pass, terms, rows.count, start, sums);
}

void ash_rows_forward(struct ash_pass *pass, int32_t weight, int32_t bias, const float *x, size_t x_stride, float *out)
{
    struct ash_linear_term term = {.weight = weight, .x = x, .x_stride = x_stride};
    struct ash_chain chain = {.rows = {0, pass->rows},
                              .cols = pass->model->config.hidden,
                              .rounds = 1,
                              .terms[0] = ash_product_terms(pass, &term),
                              .step = product_step,
                              .bias = ash_model_vector(pass->model, bias),
                              .out = out};

    ash_chain_run(pass, &chain);
}

/* One term for each run of the weight's outputs: the runs of all ranks take turns (q, k and v in one matrix). */
static void add_terms(const struct ash_pass *pass, const struct ash_column *column, struct ash_chain *chain)
{
    const struct ash_param *weight = &pass->model->params[column->weight];
    size_t done = 0;

    for (size_t i = 0; i < weight->run_count; i++) {
        struct ash_linear_term term = {.weight = column->weight,
                                       .back = true,
                                       .outs = {done, weight->runs[i].count},
                                       .x = column->dy,
                                       .x_stride = column->dy_stride};

        ash_assert(chain->rounds < ASH_PROJECT_OUTS_MAX);
        chain->terms[chain->rounds++] = ash_product_terms(pass, &term);
        done += weight->runs[i].count;
    }
}

/* The gradients of the weights whose columns a chain is about. */
struct beside {
    const struct ash_columns *columns;
    void (*weight_grads)(struct ash_pass *pass, const struct ash_columns *columns);
};

static void grads_meanwhile(struct ash_pass *pass, void *ctx)
{
    const struct beside *beside = ctx;

    beside->weight_grads(pass, beside->columns);
    ash_parts_take(pass, beside->columns->count); /* those before */
}

/* Who has to wait for a turn at the weights along cp does dx first. */
void ash_columns_backward_rows(struct ash_pass *pass, const struct ash_columns *columns,
                               void (*weight_grads)(struct ash_pass *pass, const struct ash_columns *columns))
{
    bool waits = pass->cp.rank > 0 && !columns->among_all;
    struct beside beside = {columns, weight_grads};
    struct ash_chain chain = {.rows = {columns->first, columns->rows},
                              .cols = columns->in,
                              .step = product_step,
                              .meanwhile = waits ? NULL : grads_meanwhile,
                              .ctx = &beside,
                              .out = columns->dx};

    for (size_t i = 0; i < columns->count; i++)
        add_terms(pass, &columns->columns[i], &chain);
    ash_chain_run(pass, &chain);
    if (waits) weight_grads(pass, columns);
}

/* Everything but dx, or with it. */
static void columns_grads(struct ash_pass *pass, const struct ash_columns *columns, float *dx)
{
    for (size_t i = 0; i < columns->count; i++)
        ash_pass_linear_backward(pass, columns->columns[i].weight, columns->columns[i].bias,
                                 &(struct ash_linear_io){.rows = columns->rows,
                                                         .x = columns->x,
                                                         .x_stride = columns->in,
                                                         .dy = columns->columns[i].dy,
                                                         .dy_stride = columns->columns[i].dy_stride,
                                                         .dx = dx,
                                                         .dx_stride = columns->in,
                                                         .dx_add = i > 0,
                                                         .seq_rows = columns->seq_rows,
                                                         .among_all = columns->among_all});
}

static void columns_weight_grads(struct ash_pass *pass, const struct ash_columns *columns)
{
    columns_grads(pass, columns, NULL);
}

void ash_columns_backward(struct ash_pass *pass, const struct ash_columns *columns)
{
    bool shared = pass->tp.size > 1 && pass->model->params[columns->columns[0].weight].cut >= 0;

    if (shared) {
        ash_columns_backward_rows(pass, columns, columns_weight_grads);
        return;
    }
    columns_grads(pass, columns, columns->dx);
}
