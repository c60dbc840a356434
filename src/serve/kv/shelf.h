/* shelf - pages in memory that other processes read by themselves: what a prefill server has computed, for decode
 * servers. Page files (page_file.h) in slots, behind a directory of their names. Readers take a slot as it is and check
 * it: nothing is locked, and a page that is replaced meanwhile is not a page. Jobs say how much of a prompt is there
 * while it is computed. The engine's thread puts pages; a thread of the shelf answers readers on other machines,
 * and shows that the process is alive. */
#ifndef ASH_SERVE_KV_SHELF_H
#define ASH_SERVE_KV_SHELF_H

#include "ashlar/transfer.h"
#include "serve/kv/kv.h"

struct ash_kv_shelf;

#define ASH_KV_SHELF_MAGIC 0x32464c4853484153u /* "SASHHLF2" */
#define ASH_KV_SHELF_JOBS 1024                 /* prompts at a time whose pages are told as they come */
#define ASH_KV_SHELF_BEAT_SECONDS 0.1          /* between two beats, at most */

/* What the memory begins with; jobs and directory follow, then the slots, each at a multiple of 64 bytes. */
struct ash_kv_shelf_head {
    uint64_t magic, slots, slot_bytes, first_slot; /* first_slot: where the first one begins */
    uint64_t beat;                                 /* grows as long as the process runs */
    uint64_t jobs[ASH_KV_SHELF_JOBS]; /* each at its number modulo their count: number << 32 | is over << 31 | pages */
};

#define ASH_KV_SHELF_JOB_IS_OVER (UINT64_C(1) << 31)

/* An entry of the directory, of the slot with the same number; all zero: the slot is empty. */
struct ash_kv_shelf_entry {
    struct ash_kv_name name;
    uint64_t bytes;
};

/* Room for page files of up to file_bytes, `bytes` together. The caller owns *shelf_out. */
int ash_kv_shelf_open(uint64_t bytes, size_t file_bytes, struct ash_kv_shelf **shelf_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_kv_shelf_close(struct ash_kv_shelf *shelf);
/* Take a page of the pool, unless it is there; the one used longest ago goes. */
void ash_kv_shelf_put(struct ash_kv_shelf *shelf, const struct ash_kv_pool *pool, struct ash_kv_name name,
                      const struct ash_kv_prefix *prefix, int32_t page);
/* Forget all pages. */
void ash_kv_shelf_clear(struct ash_kv_shelf *shelf);
/* A prompt will be computed, whose pages are told as they come. Returns its number, not 0. Of ASH_KV_SHELF_JOBS newer
 * ones it is forgotten, which readers take for its end. Any thread. */
uint64_t ash_kv_shelf_open_job(struct ash_kv_shelf *shelf);
/* So many of its first pages are there; over: no more will come. Any thread. */
void ash_kv_shelf_tell_job(struct ash_kv_shelf *shelf, uint64_t job, size_t pages, bool is_over);
/* Its place, for readers. Any thread. */
const struct ash_port_description *ash_kv_shelf_describe(const struct ash_kv_shelf *shelf);
/* Its figures. */
void ash_kv_shelf_stats(const struct ash_kv_shelf *shelf, struct ash_kv_tier_stats *stats_out);

#endif
