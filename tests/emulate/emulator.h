/* emulator - CUDA threads on the host. A thread is a fiber; threads of a block share an arena, blocks take turns, and
 * one host thread runs them all, so a schedule is a function of its seed. What a GPU does asynchronously (copies,
 * wgmma) is recorded and happens late: when a thread waits for it, or at a drawn moment. Its destination is poisoned
 * until then. Kernels see this through cuda.h and include/; the driver (driver.cpp) through emu_launch(). */
#ifndef TEST_EMULATE_EMULATOR_H
#define TEST_EMULATE_EMULATOR_H

#include <stddef.h>
#include <stdint.h>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#define EMU_WARP 32
#define EMU_NAMED 16             /* barriers of a thread block */
#define EMU_SHARED_FIRST 1024u   /* the first address of shared memory that kernels get, as on the chip */
#define EMU_SHARED_BYTES 232448u /* that a thread block can have */
#define EMU_POISON 0xff          /* each byte: a NaN as bf16 and as float, and -1 */

struct uint3 {
    unsigned x, y, z;
};

struct emu_block;
struct emu_thread;
struct emu_warp;

/* ---- threads ----------------------------------------------------------------------------------------------------- */

/* Why a thread does not run. */
enum emu_wait { EMU_RUNS, EMU_MEETS, EMU_NAMED_BARRIER, EMU_MBARRIER, EMU_CLUSTER, EMU_SPINS };

/* A copy of a few bytes (cp.async) that was enqueued, or an arrival after all before it. */
struct emu_copy {
    unsigned to;
    const unsigned char *from;
    unsigned size, bytes; /* bytes: of size; zeros follow */
    unsigned barrier;     /* 0: a copy */
};

/* A bulk store: the source is read, and then the destination written. */
struct emu_store {
    std::function<void()> read, write;
    bool is_read;
};

struct emu_thread {
    struct uint3 index; /* threadIdx */
    unsigned number, lane;
    struct emu_block *block;
    struct emu_warp *warp;
    void *stack, *stack_pointer;
    bool has_ended;
    enum emu_wait wait;
    const char *wait_name;
    unsigned wait_at, wait_parity;       /* a barrier */
    int result;                          /* of the block's barrier */
    uint64_t cluster_phase;              /* in which it arrived */
    std::vector<struct emu_copy> copies; /* in flight from copy_first on */
    size_t copy_first, copy_total;       /* copy_total: ever enqueued */
    std::vector<size_t> copy_groups;     /* copy_total at the end of each, the oldest first */
    std::deque<struct emu_store> stores;
    size_t store_total;
    std::vector<size_t> store_groups;
};

/* Lanes that meet at one instruction. Each shows a struct of its own, which stays in place until all have come. */
struct emu_meeting {
    uint32_t mask, arrived;
    const char *name;
    void *of[EMU_WARP];
    void (*finish)(struct emu_meeting *meeting);
    struct emu_warp *warp;
};

/* Accumulators of a warp that products in flight add to: what they will be. */
struct emu_sums {
    float (*to[EMU_WARP])[4];
    int n8;                   /* columns / 8 */
    size_t in_flight;         /* products without a wait so far */
    std::vector<float> value; /* [16][8 n8] */
};

/* A wgmma that was issued: a warp's 16 rows of it. */
struct emu_product {
    std::shared_ptr<struct emu_sums> sums;
    bool has_registers, trans_a, trans_b, keep, is_fp8;
    uint32_t registers[EMU_WARP][4]; /* of a */
    uint64_t a, b;                   /* descriptors */
};

struct emu_warp {
    struct emu_block *block;
    unsigned number, size; /* lanes that there are */
    uint32_t runnable, ended;
    std::vector<struct emu_meeting> meetings;
    std::deque<struct emu_product> products; /* without a wait so far, the first products_landed of them done */
    size_t products_landed, product_total;   /* product_total: ever issued */
    std::vector<size_t> product_groups;      /* product_total at the end of each */
    std::vector<std::shared_ptr<struct emu_sums>> sums;
    bool has_fence; /* since accumulators became valid */
    uint64_t product_hash;
};

/* ---- thread blocks ----------------------------------------------------------------------------------------------- */

struct emu_named {
    unsigned expected, arrived;
    std::vector<struct emu_thread *> waiting;
    int any; /* of __syncthreads_or */
};

struct emu_cluster {
    unsigned arrived;
    uint64_t phase;
    std::vector<struct emu_block *> blocks;
    std::vector<struct emu_thread *> waiting;
};

struct emu_block {
    struct uint3 index; /* blockIdx */
    unsigned rank;      /* in its cluster */
    struct emu_cluster *cluster;
    std::vector<struct emu_warp> warps;
    std::vector<struct emu_thread> threads;
    uint32_t runnable; /* warps */
    unsigned live;     /* threads that have not ended */
    struct emu_named named[EMU_NAMED];
    unsigned char *arena;                    /* of dynamic shared memory */
    std::vector<unsigned char> saved_static; /* while another block runs */
};

/* ---- a launch ---------------------------------------------------------------------------------------------------- */

/* A kernel as an image registers it. */
struct emu_kernel {
    const char *name;
    size_t args_bytes;
    void (*call)(const void *args);
    unsigned cluster;
};

/* What an image (a compiled .cu file) exports as emu_image. */
struct emu_image {
    const struct emu_kernel *kernels;
    size_t count;
    void *(*anchor)(void); /* somewhere in this host thread's copy of static shared memory */
};

struct emu_grid {
    struct uint3 blocks;
    unsigned threads, shared_bytes;
};

/* A bulk copy in flight to a block. */
struct emu_landing {
    struct emu_block *block;
    std::function<void()> land;
};

/* How a schedule was drawn. Chances are of 256. */
struct emu_habits {
    unsigned land_now, land_tick, yields;
    int lanes; /* 0: ascending, 1: descending, 2: drawn */
    int warps; /* 0: drawn, 1: one until it waits, 2: one of them runs only if no other can */
    unsigned starved;
};

struct emu_run {
    const struct emu_kernel *kernel;
    const void *args;
    struct emu_grid grid;
    struct emu_habits habits;
    uint64_t random, seed, number;
    struct emu_thread *now;
    struct emu_block *resident; /* whose static shared memory is in place */
    unsigned char *statics;     /* of the image */
    size_t static_bytes;
    unsigned dynamic_at; /* address of dynamic shared memory */
    std::vector<struct emu_block *> blocks;
    std::vector<struct emu_block *> free_blocks;
    std::vector<struct emu_landing> landings;
    size_t spins;
    uint64_t fetched; /* bytes that this launch asked for ahead of their use */
    bool has_failed;
    std::string failure;
    void *scheduler;
};

extern struct emu_thread *emu_now;
extern struct emu_run emu_run;

/* Run a kernel of an image to its end. Returns 0, or -1 with what went wrong in emu_run.failure. */
int emu_launch(const struct emu_image *image, const struct emu_kernel *kernel, struct emu_grid grid, const void *args);

/* ---- for what kernels call --------------------------------------------------------------------------------------- */

/* Ends the launch: the message names kernel, block and thread. */
[[noreturn]] void emu_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A drawn number below bound. */
unsigned emu_draw(unsigned bound);
/* Let others run, always or by chance. */
void emu_yield(void);
void emu_maybe_yield(void);
/* The same in a loop that waits for another thread's store. */
void emu_spin(const char *name);
/* Wait until woken. */
void emu_sleep(enum emu_wait why, const char *name, unsigned at, unsigned parity);
void emu_wake(struct emu_thread *thread);
/* Meet the lanes of mask that have not ended; with is_aligned all must be there. */
void emu_meet(uint32_t mask, const char *name, void *mine, void (*finish)(struct emu_meeting *meeting),
              bool is_aligned);

/* shared.cpp */
unsigned emu_shared_address(const void *at);
/* `bytes` bytes of a block's shared memory. */
unsigned char *emu_shared_at(struct emu_block *block, unsigned address, size_t bytes);
void *emu_dynamic_shared(unsigned border);
void emu_make_resident(struct emu_block *block);
unsigned char *emu_arena_open(void);
void emu_arena_begin(struct emu_block *block);
/* Before the first block of a launch. */
void emu_shared_begin(const struct emu_image *image);
/* What of it all must be done when a block ends. */
void emu_block_ended(struct emu_block *block);

/* memory.cpp: is all of it in one allocation? */
void *emu_alloc(size_t size_bytes);
void emu_free(void *ptr);
size_t emu_alloc_bytes(void *ptr);
void emu_memory_add(const void *base, size_t size_bytes);
void emu_memory_remove(const void *base);
/* Is it in such memory, or right behind? */
bool emu_memory_holds(uintptr_t address);
void emu_check_memory(const void *at, size_t size_bytes, const char *name);

/* barrier.cpp */
void emu_named_barrier(const char *name, int barrier, unsigned threads, bool waits);
int emu_block_sync(const char *name, int value);
void emu_barrier_init(unsigned barrier, unsigned count);
void emu_barrier_arrive(struct emu_block *block, unsigned barrier, unsigned count);
void emu_barrier_bytes(struct emu_block *block, unsigned barrier, int64_t bytes);
bool emu_barrier_passed(unsigned barrier, unsigned parity);
void emu_barrier_wait(unsigned barrier, unsigned parity);
void emu_cluster_arrive(void);
void emu_cluster_wait(void);
/* Have all of `live` threads arrived? */
void emu_cluster_check(struct emu_cluster *cluster, unsigned live);
struct emu_block *emu_cluster_block(unsigned rank);
/* Barriers of a block count the threads that it still has. */
void emu_thread_ended(struct emu_block *block);
std::string emu_barrier_text(struct emu_block *block, unsigned barrier);

/* late.cpp */
void emu_copy_async(unsigned to, const void *from, unsigned size, unsigned bytes);
void emu_copy_commit(void);
void emu_copy_wait(size_t left);
void emu_copy_arrive(unsigned barrier);
void emu_copy_bulk(unsigned to, const void *from, unsigned bytes, unsigned barrier, uint16_t blocks);
void emu_later(struct emu_block *block, std::function<void()> land);
void emu_store_async(std::function<void()> read, std::function<void()> write);
void emu_store_commit(void);
void emu_store_wait(size_t left, bool until_written);
/* Something of what is in flight lands; false: nothing was. */
bool emu_land_one(struct emu_block *block);
/* Stores that a thread leaves behind have at least read. */
void emu_end_stores(struct emu_thread *thread);

/* tma.cpp: boxes of tensors, whose maps emu_map_encode makes as cuTensorMapEncodeTiled does; -1: no such map. */
struct emu_place {
    int at[5];
};
int emu_map_encode(void *out, int type, unsigned rank, void *data, const uint64_t *sizes, const uint64_t *strides,
                   const unsigned *box, int swizzle);
void emu_tma_load(unsigned to, const void *map, struct emu_place place, unsigned rank, unsigned barrier,
                  uint16_t blocks);
void emu_tma_store(const void *map, struct emu_place place, unsigned rank, unsigned from);

/* product.cpp */
void emu_mma(float d[4], const uint32_t a[4], const uint32_t b[2]);
void emu_load_matrices(unsigned at, uint32_t out[4], bool is_transposed);
void emu_wgmma_fence(void);
void emu_wgmma_commit(void);
void emu_wgmma_wait(size_t left);
/* a: descriptor, or registers if these are not NULL. */
void emu_wgmma(float (*d)[4], int n, uint64_t a, const uint32_t *registers, uint64_t b, bool trans_a, bool trans_b,
               bool keep);
/* The same of e4m3 and 8 columns, both operands by descriptors. */
void emu_wgmma_e4m3(float (*d)[4], uint64_t a, uint64_t b);
/* The oldest of a warp's products happens; false: there was none. */
bool emu_land_product(struct emu_warp *warp);
void emu_check_products(struct emu_block *block);

/* 2^x as the chip has it. */
float emu_ex2(float x);
/* steps.cpp: sums[m][n] += the 16 products of a's row m and b's row n, as ash_wgmma_step adds them. */
void emu_steps(float *sums, size_t stride, const uint16_t (*a)[16], size_t rows, const uint16_t (*b)[16],
               size_t columns);

#endif
