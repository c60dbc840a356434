/* The copy engine of boxes (TMA): a tensor map is what emu_map_encode wrote into its 128 bytes. */
#include <string.h>
#include "emulate/emulator.h"

#define RANKS 5
#define MAGIC 0x454d5450u

struct tensor_map {
    uint32_t magic;
    uint8_t rank, element_bytes, swizzle; /* swizzle: bytes of a line, 16: none */
    unsigned char *base;
    uint64_t sizes[RANKS], strides[RANKS - 1]; /* elements; bytes */
    uint16_t box[RANKS];
};
static_assert(sizeof(struct tensor_map) <= 128, "a map has 128 bytes");

int emu_map_encode(void *out, int type, unsigned rank, void *data, const uint64_t *sizes, const uint64_t *strides,
                   const unsigned *box, int swizzle)
{
    static const uint8_t bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4}, lines[] = {16, 32, 64, 128};
    struct tensor_map map = {};

    if (rank < 1 || rank > RANKS || type < 0 || type > 12 || swizzle < 0 || swizzle > 3) return -1;
    map.magic = MAGIC;
    map.rank = (uint8_t)rank;
    map.element_bytes = bytes[type];
    map.swizzle = lines[swizzle];
    map.base = (unsigned char *)data;
    if ((uintptr_t)data % 16 != 0 || (uintptr_t)out % 64 != 0) return -1;
    for (unsigned r = 0; r < RANKS; r++) {
        map.sizes[r] = r < rank ? sizes[r] : 1;
        map.box[r] = r < rank ? (uint16_t)box[r] : 1;
        if (map.sizes[r] == 0 || map.sizes[r] > (uint64_t)1 << 32) return -1;
        if (r < rank && (box[r] == 0 || box[r] > 256)) return -1;
        if (r + 1 < rank) map.strides[r] = strides[r];
        if (r + 1 < rank && (strides[r] % 16 != 0 || strides[r] >= (uint64_t)1 << 40)) return -1;
    }
    if (map.box[0] * map.element_bytes % 16 != 0) return -1;
    if (map.swizzle > 16 && map.box[0] * map.element_bytes > map.swizzle) return -1;
    memset(out, 0, 128);
    memcpy(out, &map, sizeof(map));
    return 0;
}

static struct tensor_map read_map(const void *from)
{
    struct tensor_map map;

    memcpy(&map, from, sizeof(map));
    if (map.magic != MAGIC) emu_fail("there is no tensor map at %p", from);
    if ((uintptr_t)from % 64 != 0) emu_fail("a tensor map at %p, which is no multiple of 64", from);
    return map;
}

static unsigned box_bytes(const struct tensor_map &map)
{
    unsigned bytes = map.element_bytes;

    for (unsigned r = 0; r < RANKS; r++)
        bytes *= map.box[r];
    return bytes;
}

/* A row of a box: its 16-byte chunks in shared memory and the elements that there are in memory. */
struct box_row {
    unsigned at;         /* bytes from the box's begin, before chunks are permuted */
    unsigned char *from; /* of element 0 of the matrix's row; NULL: outside */
};

/* f(row) for each row of the box at `place`. */
template <typename F> static void each_row(const struct tensor_map &map, struct emu_place place, F f)
{
    unsigned count = box_bytes(map) / (map.box[0] * map.element_bytes);

    for (unsigned i = 0; i < count; i++) {
        struct box_row row = {i * map.box[0] * map.element_bytes, map.base};
        unsigned left = i;

        for (unsigned r = 1; r < map.rank; r++) {
            int64_t at = (int64_t)place.at[r] + left % map.box[r];

            left /= map.box[r];
            if (at < 0 || (uint64_t)at >= map.sizes[r])
                row.from = NULL;
            else if (row.from != NULL)
                row.from += (uint64_t)at * map.strides[r - 1];
        }
        f(row);
    }
}

static unsigned swizzled(const struct tensor_map &map, unsigned at)
{
    return at ^ ((at >> 7 & (map.swizzle / 16u - 1)) << 4);
}

/* Element e of a row of the box is in the matrix. */
static bool is_inside(const struct tensor_map &map, struct emu_place place, const struct box_row &row, unsigned e)
{
    int64_t at = (int64_t)place.at[0] + e;

    return row.from != NULL && at >= 0 && (uint64_t)at < map.sizes[0];
}

static void load_box(struct emu_block *block, const struct tensor_map &map, struct emu_place place, unsigned to)
{
    unsigned size = map.element_bytes;

    each_row(map, place, [&](const struct box_row &row) {
        for (unsigned e = 0; e < map.box[0]; e++) {
            unsigned char *out = emu_shared_at(block, swizzled(map, to + row.at + e * size), size);

            if (is_inside(map, place, row, e))
                memcpy(out, row.from + ((int64_t)place.at[0] + e) * size, size);
            else
                memset(out, 0, size);
        }
    });
}

/* The elements that a box has of each row are memory. */
static void check_box(const struct tensor_map &map, struct emu_place place, const char *name)
{
    each_row(map, place, [&](const struct box_row &row) {
        int64_t first = place.at[0] < 0 ? 0 : place.at[0], end = (int64_t)place.at[0] + map.box[0];

        if (end > (int64_t)map.sizes[0]) end = (int64_t)map.sizes[0];
        if (row.from != NULL && first < end)
            emu_check_memory(row.from + first * map.element_bytes, (size_t)(end - first) * map.element_bytes, name);
    });
}

void emu_tma_load(unsigned to, const void *at, struct emu_place place, unsigned rank, unsigned barrier, uint16_t blocks)
{
    struct tensor_map map = read_map(at);
    unsigned bytes = box_bytes(map);

    if (map.rank != rank) emu_fail("tma_load_%ud of a map of %u dimensions", rank, map.rank);
    if (to % 128 != 0) emu_fail("tma_load to 0x%x, which is no multiple of 128", to);
    check_box(map, place, "tma_load");
    for (unsigned r = 0; r < 16; r++) {
        struct emu_block *block;

        if ((blocks >> r & 1) == 0) continue;
        block = emu_cluster_block(r);
        memset(emu_shared_at(block, to, bytes), EMU_POISON, bytes);
        emu_later(block, [=]() {
            load_box(block, map, place, to);
            emu_barrier_bytes(block, barrier, -(int64_t)bytes);
        });
    }
}

void emu_tma_store(const void *at, struct emu_place place, unsigned rank, unsigned from)
{
    struct tensor_map map = read_map(at);
    struct emu_block *block = emu_now->block;
    std::shared_ptr<std::vector<unsigned char>> box = std::make_shared<std::vector<unsigned char>>(box_bytes(map));

    if (map.rank != rank) emu_fail("tma_store_%ud of a map of %u dimensions", rank, map.rank);
    if (from % 128 != 0) emu_fail("tma_store from 0x%x, which is no multiple of 128", from);
    check_box(map, place, "tma_store");
    emu_store_async(
        [=]() {
            for (unsigned i = 0; i < box->size(); i += 16)
                memcpy(box->data() + i, emu_shared_at(block, swizzled(map, from + i), 16), 16);
        },
        [=]() {
            unsigned size = map.element_bytes;

            each_row(map, place, [&](const struct box_row &row) {
                for (unsigned e = 0; e < map.box[0]; e++)
                    if (is_inside(map, place, row, e))
                        memcpy(row.from + ((int64_t)place.at[0] + e) * size, box->data() + row.at + e * size, size);
            });
        });
}
