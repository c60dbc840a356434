/* See attn_docs.h. In GPU memory: what kernels read of each document, written there by attn_point_docs for each
 * attention; rows and counts of the documents; and tiles of every size that attention has asked for. */
#include "compute/cuda/attn/attn_docs.h"

#include <stdlib.h>
#include <string.h>
#include "base/assert.h"
#include "base/math.h"

#define SIZES_MAX 8
#define ROOM_MIN ((size_t)16)

struct ash_cuda_docs {
    bool is_open;
    size_t rows, count, room; /* of the batch: rows, documents, and documents that there is room for */
    size_t sizes[SIZES_MAX];  /* rows of the tiles that attention asked for */
    size_t size_count, laid_out;
    char *block; /* host: documents and tiles as they are on the GPU */
    size_t block_bytes;
    struct ash_buffer place;
};

/* ---- layout ------------------------------------------------------------------------------------------------------ */

static size_t seqs_bytes(const struct ash_cuda_docs *docs)
{
    return (docs->room + 1) * sizeof(struct ash_cuda_attn_seq);
}

/* At most this many tiles of `rows` rows cover the documents. */
static size_t tile_room(const struct ash_cuda_docs *docs, size_t rows)
{
    return docs->rows / rows + docs->room;
}

/* Where the tiles of sizes[which] begin in the block. */
static size_t tiles_at(const struct ash_cuda_docs *docs, size_t which)
{
    size_t at = (docs->room + 1) * sizeof(struct ash_cuda_attn_doc);

    for (size_t i = 0; i < which; i++)
        at += tile_room(docs, docs->sizes[i]) * sizeof(struct ash_cuda_attn_tile);
    return at;
}

static int compare_tiles(const void *a, const void *b)
{
    const struct ash_cuda_attn_tile *x = a, *y = b;

    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x->seq < y->seq ? -1 : 1;
}

void ash_cuda_sort_tiles(struct ash_cuda_attn_tile *tiles, size_t count)
{
    qsort(tiles, count, sizeof(*tiles), compare_tiles);
}

static void fill_tiles(const struct ash_cuda_docs *docs, const struct ash_cuda_attn_doc *list, size_t rows,
                       struct ash_cuda_attn_tile *tiles)
{
    size_t at = 0, room = tile_room(docs, rows);

    for (size_t s = 0; s < docs->count; s++)
        for (uint32_t first = 0; first < list[s].count; first += (uint32_t)rows)
            tiles[at++] =
                (struct ash_cuda_attn_tile){(uint32_t)s, first, (uint32_t)ash_min(list[s].count - first, rows)};
    ash_assert(at <= room);
    ash_cuda_sort_tiles(tiles, at);
    for (; at < room; at++)
        tiles[at] = (struct ash_cuda_attn_tile){.seq = (uint32_t)docs->room};
}

/* The block of these documents. Returns NULL without memory. */
static char *make_block(const struct ash_cuda_docs *docs, const struct ash_attn_seq *seqs, size_t bytes)
{
    char *block = calloc(1, bytes);
    struct ash_cuda_attn_doc *list = (struct ash_cuda_attn_doc *)(void *)block;

    if (block == NULL) return NULL;
    for (size_t s = 0; s < docs->count; s++)
        list[s] = (struct ash_cuda_attn_doc){(uint32_t)seqs[s].q_row, (uint32_t)seqs[s].q_count};
    for (size_t i = 0; i < docs->laid_out; i++)
        fill_tiles(docs, list, docs->sizes[i], (struct ash_cuda_attn_tile *)(void *)(block + tiles_at(docs, i)));
    return block;
}

/* ---- a batch ----------------------------------------------------------------------------------------------------- */

/* Whole documents, one after the other? *rows_out: of all. */
static bool is_whole(const struct ash_attn_seq *seqs, size_t count, size_t *rows_out)
{
    size_t rows = 0;

    for (size_t s = 0; s < count; s++) {
        if (seqs[s].q_row != rows || seqs[s].pos != 0 || seqs[s].pages != NULL) return false;
        rows += seqs[s].q_count;
    }
    *rows_out = rows;
    return rows > 0 && rows < UINT32_MAX;
}

/* Copy a block to the GPU, unless it is there. Takes it. */
static bool put_block(struct ash_exec *exec, struct ash_cuda_docs *docs, char *block, size_t bytes)
{
    struct ash_cuda *cuda = exec->cuda->cuda;
    size_t all = seqs_bytes(docs) + bytes;
    bool is_there = bytes == docs->block_bytes && memcmp(block, docs->block, bytes) == 0;

    if (docs->place.size_bytes < all) {
        ash_cuda_grow(exec, &docs->place, 2 * all);
        is_there = false;
    }
    free(docs->block);
    docs->block = block;
    docs->block_bytes = bytes;
    if (ash_cuda_failure(cuda, NULL) < 0) return false;
    if (!is_there) ash_cuda_upload_to(cuda, (char *)docs->place.data + seqs_bytes(docs), block, bytes);
    return true;
}

bool ash_cuda_docs_begin(struct ash_exec *exec, const struct ash_attn_seq *seqs, size_t count,
                         struct ash_cuda_docs_key *key_out)
{
    struct ash_cuda_docs *docs = exec->cuda->docs;
    size_t rows = 0, bytes;
    char *block;

    if (!is_whole(seqs, count, &rows)) return false;
    if (docs == NULL) docs = exec->cuda->docs = calloc(1, sizeof(*docs));
    if (docs == NULL) return false;
    docs->rows = rows;
    docs->count = count;
    for (docs->room = ROOM_MIN; docs->room < count;)
        docs->room *= 2;
    docs->laid_out = docs->size_count;
    bytes = tiles_at(docs, docs->laid_out);
    block = make_block(docs, seqs, bytes);
    if (block == NULL || !put_block(exec, docs, block, bytes)) return false;
    docs->is_open = true;
    *key_out = (struct ash_cuda_docs_key){docs->room, docs->place.data};
    return true;
}

void ash_cuda_docs_end(struct ash_exec *exec)
{
    if (exec->cuda->docs != NULL) exec->cuda->docs->is_open = false;
}

void ash_cuda_docs_close(struct ash_cuda_backend *backend)
{
    if (backend->docs == NULL) return;
    ash_buffer_fini(&backend->docs->place);
    free(backend->docs->block);
    free(backend->docs);
    backend->docs = NULL;
}

/* ---- what attention asks for ------------------------------------------------------------------------------------- */

/* Are keys (or values, or a gradient) of all documents rows of one block of memory? */
static bool is_row(const void *data, const void *first, size_t row, size_t row_bytes)
{
    if (data == NULL || first == NULL) return data == first;
    return (const char *)data == (const char *)first + row * row_bytes;
}

/* Is an attention over the documents of the batch at hand? */
static bool is_at_hand(const struct ash_cuda_docs *docs, const struct ash_attn_args *args)
{
    const struct ash_cuda_attn_doc *list;
    const struct ash_attn_seq *first = args->seqs;
    size_t element = ash_dtype_size(args->kv_dtype, 1);

    if (docs == NULL || !docs->is_open || args->seq_count != docs->count) return false;
    list = (const struct ash_cuda_attn_doc *)(const void *)docs->block;
    for (size_t s = 0; s < docs->count; s++) {
        const struct ash_attn_seq *seq = &args->seqs[s];

        if (seq->q_row != list[s].row || seq->q_count != list[s].count || seq->pos != 0 || seq->pages != NULL)
            return false;
        if (!is_row(seq->k, first->k, seq->q_row, args->k_stride * element) ||
            !is_row(seq->v, first->v, seq->q_row, args->v_stride * element) ||
            !is_row(seq->dk, first->dk, seq->q_row, args->k_stride * sizeof(float)) ||
            !is_row(seq->dv, first->dv, seq->q_row, args->v_stride * sizeof(float)))
            return false;
    }
    return true;
}

const struct ash_cuda_attn_seq *ash_cuda_docs_seqs(struct ash_exec *exec, const struct ash_attn_args *args)
{
    struct ash_cuda_docs *docs = exec->cuda->docs;
    size_t element = ash_dtype_size(args->kv_dtype, 1);
    struct ash_cuda_attn_docs op;

    if (!is_at_hand(docs, args)) return NULL;
    op = (struct ash_cuda_attn_docs){
        .docs = (const struct ash_cuda_attn_doc *)(const void *)((char *)docs->place.data + seqs_bytes(docs)),
        .count = docs->room + 1,
        .k = args->seqs[0].k,
        .v = args->seqs[0].v,
        .dk = args->seqs[0].dk,
        .dv = args->seqs[0].dv,
        .k_row_bytes = args->k_stride * element,
        .v_row_bytes = args->v_stride * element,
        .k_stride = args->k_stride,
        .v_stride = args->v_stride,
        .seqs = docs->place.data};
    ash_cuda_run(exec, ASH_KERNEL_attn_point_docs, ash_cuda_grid_elements(op.count), &op);
    return docs->place.data;
}

size_t ash_cuda_docs_tiles(struct ash_exec *exec, const struct ash_attn_args *args, size_t rows,
                           const struct ash_cuda_attn_tile **tiles_out)
{
    struct ash_cuda_docs *docs = exec->cuda->docs;
    size_t which = 0;

    if (!is_at_hand(docs, args)) return 0;
    while (which < docs->size_count && docs->sizes[which] != rows)
        which++;
    if (which == docs->size_count && which < SIZES_MAX) docs->sizes[docs->size_count++] = rows;
    if (which >= docs->laid_out) return 0;
    *tiles_out = (const struct ash_cuda_attn_tile *)(const void *)((char *)docs->place.data + seqs_bytes(docs) +
                                                                   tiles_at(docs, which));
    return tile_room(docs, rows);
}
