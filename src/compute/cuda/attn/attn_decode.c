/* See attn_decode.h. */
#include "compute/cuda/attn/attn_decode.h"

#include <stdlib.h>
#include <string.h>
#include "base/assert.h"
#include "base/math.h"

#define THREADS 256
#define PLACE_ALIGN 16
#define PLACE_BYTES ((size_t)1 << 20)    /* of tables, at least */
#define HEADS_MAX 16                     /* query heads of a kv head that the kernel takes */
#define COPY_BYTES_MAX ((size_t)1 << 30) /* of keys and values that become rows */

bool ash_cuda_attn_paged(const struct ash_attn_args *args)
{
    for (size_t s = 0; s < args->seq_count; s++)
        if (args->seqs[s].pages == NULL) return false;
    return args->seq_count > 0;
}

/* Is a document decoded by attn_spans? All at borders of 16 bytes. */
static bool is_short(const struct ash_cuda_tables *tables, const struct ash_attn_args *args,
                     const struct ash_attn_seq *seq)
{
    size_t borders = (uintptr_t)args->pool | args->page_bytes | (uintptr_t)args->q;

    return tables->has_wgmma && args->cap == 0 && seq->q_count == 1 && args->q != NULL && args->out != NULL &&
           args->round_bf16 && args->kv_dtype == ASH_BF16 && args->dim_k == args->dim_v &&
           (args->dim_k == 64 || args->dim_k == 128) && args->heads / args->kv_heads <= HEADS_MAX &&
           args->seq_count * args->kv_heads <= ASH_CUDA_DONE_MAX && borders % 16 == 0 &&
           (args->k_page | args->v_page) % 8 == 0 && args->q_stride % 4 == 0;
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

/* A document as far as tables depend on it; its pages follow. */
struct key_seq {
    size_t q_row, q_count, pos, is_short, long_rows;
};

static size_t page_count(const struct ash_attn_seq *seq)
{
    return ash_div_up(seq->pos + seq->q_count, ASH_ATTN_BLOCK);
}

/* Pages of documents that are not short, if their keys and values become rows of bf16 before they are read: one copy
 * for all query heads and tiles of rows. 0: they are read where they are. */
static size_t copied_pages(const struct ash_cuda_tables *tables, const struct ash_attn_args *args)
{
    size_t pages = 0;

    if (!tables->has_wgmma || args->cap != 0 || args->q == NULL || !args->round_bf16 || args->dim_k != args->dim_v ||
        (args->dim_k != 64 && args->dim_k != 128))
        return 0;
    for (size_t s = 0; s < args->seq_count; s++)
        if (!is_short(tables, args, &args->seqs[s])) pages += page_count(&args->seqs[s]);
    if (pages * ASH_ATTN_BLOCK * args->kv_heads * args->dim_k * 2 * sizeof(uint16_t) > COPY_BYTES_MAX) return 0;
    return pages;
}

/* Query rows of a tile. */
static size_t rows_of_tile(const struct ash_cuda_tables *tables, const struct ash_attn_args *args)
{
    return copied_pages(tables, args) > 0 ? ASH_CUDA_ATTN_TILED_ROWS : 16 * ASH_CUDA_ATTN_WARPS_ANY;
}

/* Write the key after the one at hand. Returns where it is. */
static char *make_key(struct ash_cuda_tables *tables, const struct ash_attn_args *args, size_t *bytes_out)
{
    size_t bytes = 0, at = tables->key_bytes, long_rows = rows_of_tile(tables, args);

    for (size_t s = 0; s < args->seq_count; s++)
        bytes += sizeof(struct key_seq) + page_count(&args->seqs[s]) * sizeof(int32_t);
    if (tables->key_room < at + bytes) {
        tables->key_room = 2 * (at + bytes);
        tables->key = realloc(tables->key, tables->key_room);
        ash_assert(tables->key != NULL);
    }
    for (size_t s = 0; s < args->seq_count; s++) {
        const struct ash_attn_seq *seq = &args->seqs[s];
        struct key_seq key = {seq->q_row, seq->q_count, seq->pos, is_short(tables, args, seq), long_rows};
        size_t pages = page_count(seq) * sizeof(int32_t);

        memcpy(tables->key + at, &key, sizeof(key));
        memcpy(tables->key + at + sizeof(key), seq->pages, pages);
        at += sizeof(key) + pages;
    }
    *bytes_out = bytes;
    return tables->key + tables->key_bytes;
}

/* Tiles of a document: its rows (or keys), `each` at a time. Returns how many. */
static size_t cut_tiles(size_t seq, size_t rows, size_t each, bool counts_tiles, struct ash_cuda_attn_tile *tiles)
{
    size_t count = ash_div_up(rows, each);

    for (size_t t = 0; t < count; t++)
        tiles[t] = (struct ash_cuda_attn_tile){.seq = (uint32_t)seq,
                                               .first = (uint32_t)(counts_tiles ? t : t * each),
                                               .count = (uint32_t)ash_min(rows - t * each, each)};
    return count;
}

/* Tiles of long documents, and those documents' pages. */
static void fill_tiles(const struct ash_cuda_tables *tables, const struct ash_attn_args *args,
                       struct ash_cuda_attn_tile *tiles)
{
    size_t at = 0, each = rows_of_tile(tables, args);

    for (size_t s = 0; s < args->seq_count; s++)
        if (!is_short(tables, args, &args->seqs[s])) at += cut_tiles(s, args->seqs[s].q_count, each, false, tiles + at);
    for (size_t s = 0; s < args->seq_count && tables->page_count > 0; s++)
        if (!is_short(tables, args, &args->seqs[s]))
            at += cut_tiles(s, args->seqs[s].pos + args->seqs[s].q_count, ASH_ATTN_BLOCK, true, tiles + at);
    ash_assert(at == tables->long_count + tables->page_count);
}

/* Spans of short documents: whole ones before those that end them, so that the last to begin are short. */
static void fill_spans(const struct ash_cuda_tables *tables, const struct ash_attn_args *args,
                       const struct ash_cuda_attn_seq *seqs, struct ash_cuda_attn_span *spans)
{
    size_t at = 0;

    for (int last = 0; last < 2; last++)
        for (size_t s = 0, slot = 0; s < args->seq_count; s++) {
            size_t count = ash_div_up(args->seqs[s].pos + 1, ASH_ATTN_SPAN);

            if (!is_short(tables, args, &args->seqs[s])) continue;
            for (size_t i = last != 0 ? count - 1 : 0; i < count - (last != 0 ? 0 : 1); i++)
                spans[at++] = (struct ash_cuda_attn_span){.pages = seqs[s].pages,
                                                          .seq = (uint32_t)s,
                                                          .index = (uint32_t)i,
                                                          .slot = (uint32_t)(slot + i),
                                                          .q_row = (uint32_t)seqs[s].q_row,
                                                          .keys = (uint32_t)seqs[s].pos + 1};
            slot += count;
        }
}

/* Where tables are in their block, which has `bytes`. */
struct layout {
    size_t seqs, pages, tiles, spans, bytes;
};

/* Count what there is, and lay it out. The first two tables are where they are whatever the others count. */
static struct layout lay_out(struct ash_cuda_tables *tables, const struct ash_attn_args *args)
{
    struct layout at = {.seqs = ash_round_up(sizeof(struct ash_cuda_attn_batch), PLACE_ALIGN)};
    size_t pages = 0;

    tables->short_count = tables->span_count = tables->long_count = 0;
    for (size_t s = 0; s < args->seq_count; s++) {
        pages += page_count(&args->seqs[s]);
        if (is_short(tables, args, &args->seqs[s])) {
            tables->short_count++;
            tables->span_count += ash_div_up(args->seqs[s].pos + 1, ASH_ATTN_SPAN);
        } else {
            tables->long_count += ash_div_up(args->seqs[s].q_count, rows_of_tile(tables, args));
        }
    }
    tables->page_count = copied_pages(tables, args);
    tables->kv_rows = tables->page_count * ASH_ATTN_BLOCK;
    at.pages = at.seqs + ash_round_up(args->seq_count * sizeof(struct ash_cuda_attn_seq), PLACE_ALIGN);
    at.tiles = at.pages + ash_round_up(pages * sizeof(int32_t), PLACE_ALIGN);
    at.spans = at.tiles +
               ash_round_up((tables->long_count + tables->page_count) * sizeof(struct ash_cuda_attn_tile), PLACE_ALIGN);
    at.bytes = at.spans + tables->span_count * sizeof(struct ash_cuda_attn_span);
    return at;
}

/* Room for what spans leave, between which and whose counters nothing else is written. */
static void grow_parts(struct ash_exec *exec, struct ash_cuda_tables *tables)
{
    size_t counters = ASH_CUDA_DONE_MAX * sizeof(unsigned);
    size_t bytes = counters + tables->span_count * tables->part_floats * sizeof(float);

    if (tables->span_count == 0 || tables->parts.size_bytes >= bytes) return;
    ash_cuda_grow(exec, &tables->parts, ash_max(2 * bytes, 2 * counters));
    if (tables->parts.data != NULL) ash_cuda_zero(exec->cuda->cuda, tables->parts.data, counters);
}

/* Documents, tiles and block tables in one block, whose place on the GPU stays the same while it is large enough: work
 * that was recorded finds the next batch where the last one was. */
static void upload_tables(struct ash_exec *exec, struct ash_cuda_tables *tables, const struct ash_attn_args *args)
{
    struct layout at = lay_out(tables, args);
    size_t kv_first = 0;
    struct ash_cuda_attn_seq *seqs;
    unsigned char *block, *place;

    if (tables->place.size_bytes < at.bytes) ash_cuda_grow(exec, &tables->place, ash_max(2 * at.bytes, PLACE_BYTES));
    place = tables->place.data;
    block = calloc(1, at.bytes);
    ash_assert(block != NULL);
    if (place == NULL) place = exec->cuda->results.data; /* the GPU is full: nothing runs any more */
    *(struct ash_cuda_attn_batch *)(void *)block = (struct ash_cuda_attn_batch){
        (const struct ash_cuda_attn_span *)(const void *)(place + at.spans), tables->span_count};
    seqs = (struct ash_cuda_attn_seq *)(void *)(block + at.seqs);
    fill_tiles(tables, args, (struct ash_cuda_attn_tile *)(void *)(block + at.tiles));
    for (size_t s = 0, to = at.pages; s < args->seq_count; to += page_count(&args->seqs[s++]) * sizeof(int32_t)) {
        memcpy(block + to, args->seqs[s].pages, page_count(&args->seqs[s]) * sizeof(int32_t));
        seqs[s] = (struct ash_cuda_attn_seq){.q_row = args->seqs[s].q_row,
                                             .q_count = args->seqs[s].q_count,
                                             .pos = args->seqs[s].pos,
                                             .kv_first = kv_first,
                                             .pages = (const int32_t *)(const void *)(place + to)};
        if (!is_short(tables, args, &args->seqs[s])) kv_first += page_count(&args->seqs[s]) * ASH_ATTN_BLOCK;
    }
    fill_spans(tables, args, seqs, (struct ash_cuda_attn_span *)(void *)(block + at.spans));
    ash_cuda_upload_to(exec->cuda->cuda, place, block, at.bytes);
    tables->batch = (const struct ash_cuda_attn_batch *)(const void *)place;
    tables->seqs = (const struct ash_cuda_attn_seq *)(const void *)(place + at.seqs);
    tables->long_tiles = (const struct ash_cuda_attn_tile *)(const void *)(place + at.tiles);
    tables->page_tiles = tables->long_tiles + tables->long_count;
    grow_parts(exec, tables);
    free(block);
}

struct ash_cuda_tables *ash_cuda_tables_of(struct ash_exec *exec, const struct ash_attn_args *args)
{
    struct ash_cuda_backend *backend = exec->cuda;
    struct ash_cuda_tables *tables;
    size_t bytes;
    char *key;

    if (backend->tables == NULL) backend->tables = calloc(1, sizeof(*tables));
    ash_assert(backend->tables != NULL);
    tables = backend->tables;
    tables->last = *args;
    tables->has_wgmma = backend->has_wgmma;
    key = make_key(tables, args, &bytes);
    if (bytes == tables->key_bytes && memcmp(key, tables->key, bytes) == 0) return tables;
    memmove(tables->key, key, bytes);
    tables->key_bytes = bytes;
    upload_tables(exec, tables, args);
    return tables;
}

bool ash_cuda_tables_refresh(struct ash_exec *exec, const struct ash_attn_seq *seqs, size_t count)
{
    struct ash_cuda_tables *tables = exec->cuda->tables;
    struct ash_attn_args args;

    if (tables == NULL) return false;
    args = tables->last;
    args.seqs = seqs;
    args.seq_count = count;
    return ash_cuda_tables_of(exec, &args)->short_count == count;
}

void ash_cuda_tables_close(struct ash_cuda_backend *backend)
{
    if (backend->tables == NULL) return;
    ash_buffer_fini(&backend->tables->place);
    ash_buffer_fini(&backend->tables->parts);
    free(backend->tables->key);
    free(backend->tables);
    backend->tables = NULL;
}

/* ---- ops --------------------------------------------------------------------------------------------------------- */

/* The pool's keys or values as matrices of bf16, one for each page: `rows` lines of `cols` from its element `first`
 * on. */
static void map_pages(struct ash_exec *exec, const struct ash_attn_args *args, size_t first, size_t rows, size_t cols,
                      struct ash_cuda_tensor_map *map)
{
    struct ash_cuda_bf16_rows matrix = {(const uint16_t *)args->pool + first, args->kv_heads * rows, cols, cols};

    ash_cuda_map_matrices(exec->cuda->cuda, &matrix, args->page_bytes, rows, map);
}

/* Thread blocks walk over units: spans times kv heads. Several share a multiprocessor where documents are many. */
void ash_cuda_attn_decode(struct ash_exec *exec, const struct ash_attn_args *args, struct ash_cuda_tables *tables)
{
    size_t sm_count = (size_t)ash_cuda_get_facts(exec->cuda->cuda)->sm_count, dim = args->dim_k;
    size_t group = args->heads / args->kv_heads, heads = group <= HEADS_MAX / 2 ? HEADS_MAX / 2 : HEADS_MAX;
    bool is_many = tables->short_count * args->kv_heads > sm_count;
    struct ash_cuda_attn_spans op = {.batch = tables->batch,
                                     .heads = args->heads,
                                     .kv_heads = args->kv_heads,
                                     .window = args->window,
                                     .scale = args->scale,
                                     .q = args->q,
                                     .out = args->out,
                                     .lse = args->lse,
                                     .out_bf16 = args->out_bf16,
                                     .q_stride = args->q_stride,
                                     .out_stride = args->out_stride};

    if (tables->short_count == 0) return;
    tables->part_floats = ash_max(tables->part_floats, args->heads * (dim + 2));
    grow_parts(exec, tables);
    op.done = tables->parts.data != NULL ? tables->parts.data : exec->cuda->results.data; /* then nothing runs */
    op.parts = (float *)(void *)(op.done + ASH_CUDA_DONE_MAX);
    map_pages(exec, args, args->k_page, dim, ASH_ATTN_BLOCK, &op.k);
    map_pages(exec, args, args->v_page, ASH_ATTN_BLOCK, dim, &op.v);
    ash_cuda_run(exec,
                 ASH_KERNEL_attn_spans_64_8 + (dim == 64 ? 0 : 4) + (heads == HEADS_MAX ? 2 : 0) + (is_many ? 1 : 0),
                 (struct ash_cuda_grid){.x = is_many ? (heads == HEADS_MAX ? 2 : 3) * sm_count : sm_count,
                                        .y = 1,
                                        .threads = ASH_CUDA_ATTN_SPANS_THREADS,
                                        .shared_bytes = ASH_CUDA_ATTN_SPANS_BYTES(dim, heads) +
                                                        (is_many ? ASH_CUDA_ATTN_SPANS_MANY : ASH_CUDA_ATTN_SPANS_FEW),
                                        .is_early = true},
                 &op);
}

void ash_cuda_attn_write(struct ash_exec *exec, const struct ash_kv_write_args *args)
{
    const struct ash_attn_args *attn = args->attn;
    struct ash_cuda_kv_write op = {.heads = attn->heads,
                                   .kv_heads = attn->kv_heads,
                                   .dim = attn->dim_k,
                                   .kv_dtype = attn->kv_dtype,
                                   .pool = attn->pool,
                                   .page_bytes = attn->page_bytes,
                                   .k_page = attn->k_page,
                                   .v_page = attn->v_page,
                                   .q = args->q,
                                   .q_stride = args->q_stride,
                                   .dims = args->dims,
                                   .interleaved_in = args->interleaved_in,
                                   .round_bf16 = args->round_bf16,
                                   .positions = args->positions,
                                   .cos = args->cos,
                                   .sin = args->sin,
                                   .seq_count = attn->seq_count};

    ash_assert(attn->dim_k <= ASH_ATTN_HEAD_MAX && attn->dim_k == attn->dim_v);
    for (size_t s = 0; s < attn->seq_count; s++) {
        ash_assert(attn->seqs[s].pages != NULL && attn->seqs[s].q_row == op.rows);
        op.rows += attn->seqs[s].q_count;
    }
    if (op.rows == 0) return;
    op.seqs = ash_cuda_tables_of(exec, attn)->seqs;
    ash_cuda_run(exec, ASH_KERNEL_attn_kv_write,
                 (struct ash_cuda_grid){.x = ash_div_up(op.rows * (op.heads + 2 * op.kv_heads) * 32, THREADS),
                                        .y = 1,
                                        .threads = THREADS,
                                        .is_early = true},
                 &op);
}
