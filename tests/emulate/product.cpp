/* Tensor cores: mma.sync at once; wgmma as a product in flight, which reads shared memory at a drawn moment and whose
 * accumulators are poisoned until their warp waits for it. */
#include <string.h>
#include "emulate/emulator.h"
extern "C" {
#include "compute/ref/ex2.h"
#include "compute/ref/fp8.h"
}

#define ROWS 16 /* of a warp */
#define K 16

float emu_ex2(float x)
{
    return ash_ex2(x);
}

/* ---- operands that threads have in registers --------------------------------------------------------------------- */

/* Element e of the two pairs of rows and columns that a lane has of an m16n8 tile. */
static int row_of(unsigned lane, int e)
{
    return (int)lane / 4 + e / 2 * 8;
}

static int column_of(unsigned lane, int e)
{
    return (int)lane % 4 * 2 + e % 2;
}

static void put_pair(uint32_t pair, uint16_t *to)
{
    to[0] = (uint16_t)pair;
    to[1] = (uint16_t)(pair >> 16);
}

static void gather_a(unsigned lane, const uint32_t a[4], uint16_t (*out)[K])
{
    for (int i = 0; i < 4; i++)
        put_pair(a[i], &out[(int)lane / 4 + i % 2 * 8][(int)lane % 4 * 2 + i / 2 * 8]);
}

struct mma_lane {
    float *d;
    const uint32_t *a, *b;
};

static void finish_mma(struct emu_meeting *meeting)
{
    uint16_t a[ROWS][K], b[8][K];
    float sums[ROWS][8];

    for (unsigned lane = 0; lane < EMU_WARP; lane++) {
        struct mma_lane *mine = (struct mma_lane *)meeting->of[lane];

        gather_a(lane, mine->a, a);
        for (int i = 0; i < 2; i++)
            put_pair(mine->b[i], &b[lane / 4][lane % 4 * 2 + (unsigned)i * 8]);
        for (int e = 0; e < 4; e++)
            sums[row_of(lane, e)][column_of(lane, e)] = mine->d[e];
    }
    emu_steps(sums[0], 8, a, ROWS, b, 8);
    for (unsigned lane = 0; lane < EMU_WARP; lane++)
        for (int e = 0; e < 4; e++)
            ((struct mma_lane *)meeting->of[lane])->d[e] = sums[row_of(lane, e)][column_of(lane, e)];
}

void emu_mma(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    struct mma_lane mine = {d, a, b};

    emu_meet(0xffffffffu, "mma", &mine, finish_mma, true);
}

struct matrix_lane {
    unsigned at;
    uint32_t *out;
    bool is_transposed;
};

static void finish_matrices(struct emu_meeting *meeting)
{
    uint16_t tile[4][8][8];

    for (unsigned lane = 0; lane < EMU_WARP; lane++) {
        struct matrix_lane *mine = (struct matrix_lane *)meeting->of[lane];

        if (mine->at % 16 != 0) emu_fail("ldmatrix: a row at 0x%x, which is no multiple of 16", mine->at);
        memcpy(tile[lane / 8][lane % 8], emu_shared_at(meeting->warp->block, mine->at, 16), 16);
    }
    for (unsigned lane = 0; lane < EMU_WARP; lane++)
        for (int i = 0; i < 4; i++) {
            struct matrix_lane *mine = (struct matrix_lane *)meeting->of[lane];
            unsigned row = lane / 4, column = lane % 4 * 2;

            mine->out[i] = mine->is_transposed ? tile[i][column][row] | (uint32_t)tile[i][column + 1][row] << 16
                                               : tile[i][row][column] | (uint32_t)tile[i][row][column + 1] << 16;
        }
}

void emu_load_matrices(unsigned at, uint32_t out[4], bool is_transposed)
{
    struct matrix_lane mine = {at, out, is_transposed};

    emu_meet(0xffffffffu, is_transposed ? "ldmatrix.trans" : "ldmatrix", &mine, finish_matrices, true);
}

/* ---- operands in shared memory ----------------------------------------------------------------------------------- */

/* A matrix descriptor, as PTX lays it out. */
struct operand {
    unsigned at, leading, stride; /* bytes */
    unsigned swizzle;             /* bytes of a line: 16 (none), 32, 64 or 128 */
};

static struct operand read_descriptor(uint64_t word)
{
    static const unsigned swizzles[] = {16, 128, 64, 32};

    if ((word >> 49 & 7) != 0) emu_fail("wgmma: a descriptor with a base offset; tiles begin at their own border");
    return {(unsigned)(word & 0x3fff) << 4, (unsigned)(word >> 16 & 0x3fff) << 4, (unsigned)(word >> 32 & 0x3fff) << 4,
            swizzles[word >> 62]};
}

/* Where 16 bytes are after chunks were permuted: bits 4 and up are exchanged by those from 7 on. */
static unsigned swizzled(const struct operand &of, unsigned at)
{
    return at ^ ((at >> 7 & (of.swizzle / 16 - 1)) << 4);
}

/* Eight k of line `line`, from k0 on (K-major). */
static unsigned k_major(const struct operand &of, unsigned line, unsigned k0)
{
    if (of.swizzle == 16) return of.at + line / 8 * of.stride + k0 / 8 * of.leading + line % 8 * 16;
    return swizzled(of, of.at + line / 8 * of.stride + line % 8 * of.swizzle + k0 * 2);
}

/* Eight lines from `line` on, of one k (MN-major). */
static unsigned mn_major(const struct operand &of, unsigned line, unsigned k)
{
    unsigned per = of.swizzle / 2; /* lines side by side */

    if (of.swizzle == 16) return of.at + line / 8 * of.stride + k / 8 * of.leading + k % 8 * 16;
    return swizzled(of, of.at + line % per * 2 + line / per * of.leading + k % 8 * of.swizzle + k / 8 * of.stride);
}

static void read_operand(struct emu_block *block, uint64_t descriptor, bool is_transposed, unsigned first,
                         unsigned lines, uint16_t (*out)[K])
{
    struct operand of = read_descriptor(descriptor);

    if (!is_transposed) {
        for (unsigned l = 0; l < lines; l++)
            for (unsigned k = 0; k < K; k += 8)
                memcpy(&out[l][k], emu_shared_at(block, k_major(of, first + l, k), 16), 16);
        return;
    }
    for (unsigned l = 0; l < lines; l += 8)
        for (unsigned k = 0; k < K; k++) {
            const unsigned char *from = emu_shared_at(block, mn_major(of, first + l, k), 16);

            for (unsigned i = 0; i < 8; i++)
                memcpy(&out[l + i][k], from + 2 * i, 2);
        }
}

/* ---- products in flight ------------------------------------------------------------------------------------------ */

/* Lane's element e of columns 8 n.. in a matrix of a warp's rows. */
static float *element(struct emu_sums *sums, unsigned lane, int n, int e)
{
    return &sums->value[(size_t)row_of(lane, e) * sums->n8 * 8 + (size_t)n * 8 + (size_t)column_of(lane, e)];
}

/* Lines of 16 bf16 have as many bytes as 32 e4m3. */
static void fp8_steps(float *sums, size_t stride, const uint16_t (*a)[K], const uint16_t (*b)[K], size_t columns)
{
    for (size_t m = 0; m < ROWS; m++)
        for (size_t n = 0; n < columns; n++)
            sums[m * stride + n] = ash_fp8_step(sums[m * stride + n], (const uint8_t *)a[m], (const uint8_t *)b[n]);
}

bool emu_land_product(struct emu_warp *warp)
{
    static uint16_t a[ROWS][K], b[256][K];
    struct emu_product *product;
    size_t columns;

    if (warp->products_landed == warp->products.size()) return false;
    product = &warp->products[warp->products_landed++];
    if (product->has_registers)
        for (unsigned lane = 0; lane < EMU_WARP; lane++)
            gather_a(lane, product->registers[lane], a);
    else
        read_operand(warp->block, product->a, product->trans_a, warp->number % 4 * ROWS, ROWS, a);
    read_operand(warp->block, product->b, product->trans_b, 0, (unsigned)product->sums->n8 * 8, b);
    if (!product->keep) std::fill(product->sums->value.begin(), product->sums->value.end(), 0.0f);
    columns = (size_t)product->sums->n8 * 8;
    if (product->is_fp8)
        fp8_steps(product->sums->value.data(), columns, a, b, columns);
    else
        emu_steps(product->sums->value.data(), columns, a, ROWS, b, columns);
    return true;
}

/* What a lane brings to a wgmma. */
struct wgmma_lane {
    float (*d)[4];
    int n8;
    const uint32_t *registers;
    uint64_t a, b;
    bool trans_a, trans_b, keep, is_fp8;
};

static struct wgmma_lane *lane_of(struct emu_meeting *meeting, unsigned lane)
{
    return (struct wgmma_lane *)meeting->of[lane];
}

static void check_lanes(struct emu_meeting *meeting)
{
    struct wgmma_lane *first = lane_of(meeting, 0);

    for (unsigned lane = 1; lane < EMU_WARP; lane++) {
        struct wgmma_lane *mine = lane_of(meeting, lane);

        if (mine->n8 != first->n8 || mine->b != first->b || mine->a != first->a || mine->keep != first->keep ||
            (mine->registers == NULL) != (first->registers == NULL))
            emu_fail("wgmma: lanes 0 and %u of warp %u have different operands", lane, meeting->warp->number);
    }
}

/* Accumulators that are not in flight: their values are taken, and poison is left. */
static std::shared_ptr<struct emu_sums> take_sums(struct emu_meeting *meeting)
{
    std::shared_ptr<struct emu_sums> sums = std::make_shared<struct emu_sums>();
    int n8 = lane_of(meeting, 0)->n8;

    if (!meeting->warp->has_fence)
        emu_fail("wgmma: warp %u has had no wgmma_fence since its accumulators were ordinary registers",
                 meeting->warp->number);
    sums->n8 = n8;
    sums->value.resize((size_t)ROWS * (size_t)n8 * 8);
    for (unsigned lane = 0; lane < EMU_WARP; lane++) {
        float(*d)[4] = lane_of(meeting, lane)->d;

        sums->to[lane] = d;
        for (int n = 0; n < n8; n++)
            for (int e = 0; e < 4; e++)
                *element(sums.get(), lane, n, e) = d[n][e];
        memset(d, EMU_POISON, (size_t)n8 * sizeof(*d));
    }
    meeting->warp->sums.push_back(sums);
    return sums;
}

static std::shared_ptr<struct emu_sums> find_sums(struct emu_meeting *meeting)
{
    struct wgmma_lane *first = lane_of(meeting, 0);

    for (std::shared_ptr<struct emu_sums> &sums : meeting->warp->sums) {
        float(*d)[4] = sums->to[0];

        if (d == first->d && sums->n8 == first->n8) return sums;
        if (d < first->d + first->n8 && first->d < d + sums->n8)
            emu_fail("wgmma: warp %u gives another shape to accumulators of a product in flight",
                     meeting->warp->number);
    }
    return take_sums(meeting);
}

static void finish_wgmma(struct emu_meeting *meeting)
{
    struct emu_warp *warp = meeting->warp;
    struct wgmma_lane *first = lane_of(meeting, 0);
    struct emu_product product = {};

    check_lanes(meeting);
    product.sums = find_sums(meeting);
    product.sums->in_flight++;
    product.has_registers = first->registers != NULL;
    product.a = first->a;
    product.b = first->b;
    product.trans_a = first->trans_a;
    product.trans_b = first->trans_b;
    product.keep = first->keep;
    product.is_fp8 = first->is_fp8;
    for (unsigned lane = 0; lane < EMU_WARP && product.has_registers; lane++)
        memcpy(product.registers[lane], lane_of(meeting, lane)->registers, sizeof(product.registers[lane]));
    warp->products.push_back(product);
    warp->product_total++;
    warp->product_hash =
        (warp->product_hash ^ product.a ^ product.b * 31 ^ (uint64_t)first->n8 << 8) * 0x9e3779b97f4a7c15ull;
    if (emu_draw(256) < emu_run.habits.land_now)
        while (emu_land_product(warp))
            ;
}

void emu_wgmma(float (*d)[4], int n, uint64_t a, const uint32_t *registers, uint64_t b, bool trans_a, bool trans_b,
               bool keep)
{
    struct wgmma_lane mine = {d, n, registers, a, b, trans_a, trans_b, keep, false};

    emu_meet(0xffffffffu, "wgmma", &mine, finish_wgmma, true);
}

void emu_wgmma_e4m3(float (*d)[4], uint64_t a, uint64_t b)
{
    struct wgmma_lane mine = {d, 1, NULL, a, b, false, false, true, true};

    emu_meet(0xffffffffu, "wgmma", &mine, finish_wgmma, true);
}

void emu_wgmma_fence(void)
{
    emu_meet(
        0xffffffffu, "wgmma_fence", NULL, [](struct emu_meeting *m) { m->warp->has_fence = true; }, true);
}

void emu_wgmma_commit(void)
{
    emu_meet(
        0xffffffffu, "wgmma_commit", NULL,
        [](struct emu_meeting *m) { m->warp->product_groups.push_back(m->warp->product_total); }, true);
}

/* No product is in flight any more that adds to these: registers get them. */
static void give_sums(struct emu_warp *warp, struct emu_sums *sums)
{
    for (unsigned lane = 0; lane < EMU_WARP; lane++)
        for (int n = 0; n < sums->n8; n++)
            for (int e = 0; e < 4; e++) {
                uint32_t was;

                memcpy(&was, &sums->to[lane][n][e], sizeof(was));
                if (was != 0xffffffffu)
                    emu_fail("wgmma: warp %u wrote to accumulators of a product in flight", warp->number);
                sums->to[lane][n][e] = *element(sums, lane, n, e);
            }
    for (size_t i = 0; i < warp->sums.size(); i++)
        if (warp->sums[i].get() == sums) {
            warp->sums.erase(warp->sums.begin() + (long)i);
            break;
        }
    warp->has_fence = false;
}

static void finish_wait(struct emu_meeting *meeting)
{
    struct emu_warp *warp = meeting->warp;
    size_t left = *(size_t *)meeting->of[0], groups = warp->product_groups.size(), until;

    if (groups <= left) return;
    until = warp->product_groups[groups - left - 1];
    warp->product_groups.erase(warp->product_groups.begin(), warp->product_groups.begin() + (long)(groups - left));
    while (warp->product_total - warp->products.size() < until) {
        std::shared_ptr<struct emu_sums> sums = warp->products.front().sums;

        if (warp->products_landed == 0) emu_land_product(warp);
        warp->products.pop_front();
        warp->products_landed--;
        if (--sums->in_flight == 0) give_sums(warp, sums.get());
    }
}

void emu_wgmma_wait(size_t left)
{
    emu_meet(0xffffffffu, "wgmma_wait", &left, finish_wait, true);
}

/* The four warps of a group issue the same products. */
void emu_check_products(struct emu_block *block)
{
    for (size_t w = 0; w < block->warps.size(); w++) {
        struct emu_warp *warp = &block->warps[w], *first = &block->warps[w / 4 * 4];

        if (warp->product_total != first->product_total || warp->product_hash != first->product_hash ||
            (warp->product_total > 0 && w / 4 * 4 + 4 > block->warps.size()))
            emu_fail("wgmma: warps %zu and %zu of block (%u, %u, %u) did not issue the same products", w / 4 * 4, w,
                     block->index.x, block->index.y, block->index.z);
    }
}
