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
#define COLUMNS 16                       /* of values, that a warp of it adds up */
#define COPY_BYTES_MAX ((size_t)1 << 30) /* of keys and values that become rows */

bool ash_cuda_attn_paged(const struct ash_attn_args *args)
{
    for (size_t s = 0; s < args->seq_count; s++)
        if (args->seqs[s].pages == NULL) return false;
    return args->seq_count > 0;
}

/* Are a document's keys read by attn_decode? All at borders of 16 bytes. */
static bool is_short(const struct ash_attn_args *args, const struct ash_attn_seq *seq)
{
    size_t borders = (uintptr_t)args->pool | args->page_bytes | (uintptr_t)args->q | (uintptr_t)args->out;

    return seq->q_count == 1 && args->q != NULL && args->out != NULL && args->round_bf16 &&
           args->kv_dtype == ASH_BF16 && args->dim_k == args->dim_v && (args->dim_k == 64 || args->dim_k == 128) &&
           args->heads / args->kv_heads <= HEADS_MAX && borders % 16 == 0 && (args->k_page | args->v_page) % 8 == 0 &&
           (args->q_stride | args->out_stride) % 4 == 0;
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
static size_t copied_pages(const struct ash_attn_args *args)
{
    size_t pages = 0;

    if (args->q == NULL || !args->round_bf16 || args->dim_k != args->dim_v || (args->dim_k != 64 && args->dim_k != 128))
        return 0;
    for (size_t s = 0; s < args->seq_count; s++)
        if (!is_short(args, &args->seqs[s])) pages += page_count(&args->seqs[s]);
    if (pages * ASH_ATTN_BLOCK * args->kv_heads * args->dim_k * 2 * sizeof(uint16_t) > COPY_BYTES_MAX) return 0;
    return pages;
}

/* Query rows of a tile. */
static size_t rows_of_tile(const struct ash_attn_args *args)
{
    return copied_pages(args) > 0 ? ASH_CUDA_ATTN_TILED_ROWS : 16 * ASH_CUDA_ATTN_WARPS_ANY;
}

/* Write the key after the one at hand. Returns where it is. */
static char *make_key(struct ash_cuda_tables *tables, const struct ash_attn_args *args, size_t *bytes_out)
{
    size_t bytes = 0, at = tables->key_bytes, long_rows = rows_of_tile(args);

    for (size_t s = 0; s < args->seq_count; s++)
        bytes += sizeof(struct key_seq) + page_count(&args->seqs[s]) * sizeof(int32_t);
    if (tables->key_room < at + bytes) {
        tables->key_room = 2 * (at + bytes);
        tables->key = realloc(tables->key, tables->key_room);
        ash_assert(tables->key != NULL);
    }
    for (size_t s = 0; s < args->seq_count; s++) {
        const struct ash_attn_seq *seq = &args->seqs[s];
        struct key_seq key = {seq->q_row, seq->q_count, seq->pos, is_short(args, seq), long_rows};
        size_t pages = page_count(seq) * sizeof(int32_t);

        memcpy(tables->key + at, &key, sizeof(key));
        memcpy(tables->key + at + sizeof(key), seq->pages, pages);
        at += sizeof(key) + pages;
    }
    *bytes_out = bytes;
    return tables->key + tables->key_bytes;
}

static size_t count_tiles(const struct ash_attn_args *args)
{
    size_t count = copied_pages(args), rows = rows_of_tile(args);

    for (size_t s = 0; s < args->seq_count; s++)
        count += ash_div_up(args->seqs[s].q_count, rows);
    return count;
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

/* Tiles of all kinds: the short ones, those of long documents, and those documents' pages. */
static void fill_tiles(struct ash_cuda_tables *tables, const struct ash_attn_args *args,
                       struct ash_cuda_attn_tile *tiles)
{
    size_t at = 0, each = rows_of_tile(args);

    for (size_t s = 0; s < args->seq_count; s++)
        if (is_short(args, &args->seqs[s])) tiles[at++] = (struct ash_cuda_attn_tile){.seq = (uint32_t)s, .count = 1};
    tables->short_count = at;
    for (size_t s = 0; s < args->seq_count; s++)
        if (!is_short(args, &args->seqs[s])) at += cut_tiles(s, args->seqs[s].q_count, each, false, tiles + at);
    tables->long_count = at - tables->short_count;
    for (size_t s = 0; s < args->seq_count && copied_pages(args) > 0; s++)
        if (!is_short(args, &args->seqs[s]))
            at += cut_tiles(s, args->seqs[s].pos + args->seqs[s].q_count, ASH_ATTN_BLOCK, true, tiles + at);
    tables->page_count = at - tables->short_count - tables->long_count;
    tables->kv_rows = tables->page_count * ASH_ATTN_BLOCK;
}

/* Documents, tiles and block tables in one block, whose place on the GPU stays the same while it is large enough: work
 * that was recorded finds the next batch where the last one was. */
static void upload_tables(struct ash_exec *exec, struct ash_cuda_tables *tables, const struct ash_attn_args *args)
{
    size_t tiles_at = ash_round_up(args->seq_count * sizeof(struct ash_cuda_attn_seq), PLACE_ALIGN);
    size_t pages_at = ash_round_up(tiles_at + count_tiles(args) * sizeof(struct ash_cuda_attn_tile), PLACE_ALIGN);
    size_t bytes = pages_at, kv_first = 0;
    struct ash_cuda_attn_seq *seqs;
    unsigned char *block, *place;

    for (size_t s = 0; s < args->seq_count; s++)
        bytes += page_count(&args->seqs[s]) * sizeof(int32_t);
    if (tables->place.size_bytes < bytes) {
        ash_cuda_wait(exec->cuda->cuda, NULL);
        ash_cuda_backend_grow(exec->cuda, &tables->place, ash_max(2 * bytes, PLACE_BYTES));
    }
    place = tables->place.data;
    block = calloc(1, ash_max(bytes, 1));
    ash_assert(block != NULL);
    if (place == NULL) place = exec->cuda->results.data; /* the GPU is full: nothing runs any more */
    seqs = (struct ash_cuda_attn_seq *)(void *)block;
    fill_tiles(tables, args, (struct ash_cuda_attn_tile *)(void *)(block + tiles_at));
    for (size_t s = 0, at = pages_at; s < args->seq_count; at += page_count(&args->seqs[s++]) * sizeof(int32_t)) {
        memcpy(block + at, args->seqs[s].pages, page_count(&args->seqs[s]) * sizeof(int32_t));
        seqs[s] = (struct ash_cuda_attn_seq){.q_row = args->seqs[s].q_row,
                                             .q_count = args->seqs[s].q_count,
                                             .pos = args->seqs[s].pos,
                                             .kv_first = kv_first,
                                             .pages = (const int32_t *)(const void *)(place + at)};
        if (!is_short(args, &args->seqs[s])) kv_first += page_count(&args->seqs[s]) * ASH_ATTN_BLOCK;
    }
    ash_cuda_upload_to(exec->cuda->cuda, place, block, bytes);
    tables->seqs = (const struct ash_cuda_attn_seq *)(const void *)place;
    tables->short_tiles = (const struct ash_cuda_attn_tile *)(const void *)(place + tiles_at);
    tables->long_tiles = tables->short_tiles + tables->short_count;
    tables->page_tiles = tables->long_tiles + tables->long_count;
    free(block);
}

const struct ash_cuda_tables *ash_cuda_tables_of(struct ash_exec *exec, const struct ash_attn_args *args)
{
    struct ash_cuda_backend *backend = exec->cuda;
    struct ash_cuda_tables *tables;
    size_t bytes;
    char *key;

    if (backend->tables == NULL) backend->tables = calloc(1, sizeof(*tables));
    ash_assert(backend->tables != NULL);
    tables = backend->tables;
    tables->last = *args;
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
    free(backend->tables->key);
    free(backend->tables);
    backend->tables = NULL;
}

/* ---- ops --------------------------------------------------------------------------------------------------------- */

/* Where documents and kv heads are fewer than multiprocessors, each has as many thread blocks as there is room for;
 * else each multiprocessor has one thread block, which takes one after the other. */
void ash_cuda_attn_decode(struct ash_exec *exec, const struct ash_attn_args *args, const struct ash_cuda_tables *tables)
{
    size_t sm_count = (size_t)ash_cuda_get_facts(exec->cuda->cuda)->sm_count, parts = 1;
    struct ash_cuda_grid grid = {.x = tables->short_count, .y = args->kv_heads, .threads = THREADS, .is_early = true};
    enum ash_cuda_kernel_id id = ASH_KERNEL_attn_decode_64;
    struct ash_cuda_attn op = ash_cuda_attn_args(args);

    op.seqs = tables->seqs;
    op.tiles = tables->short_tiles;
    op.units = tables->short_count * args->kv_heads;
    while (parts < args->dim_k / COLUMNS && 2 * parts * op.units <= sm_count)
        parts *= 2;
    grid.z = parts;
    if (op.units > sm_count) {
        id = ASH_KERNEL_attn_stream_64;
        grid = (struct ash_cuda_grid){.x = sm_count,
                                      .y = 1,
                                      .threads = THREADS + 32,
                                      .shared_bytes = ASH_CUDA_ATTN_STREAM_BYTES,
                                      .is_early = true};
    }
    ash_cuda_run(exec, id + (args->dim_k == 64 ? 0 : 1), grid, &op);
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
