/* recorder - what an engine does, in rings that outlive it (record/serve_ring.h): requests, passes, and each pass's
 * work for each request. Nothing waits; a record costs tens of nanoseconds. NULL as a recorder records nothing. */
#ifndef ASH_SERVE_ENGINE_RECORDER_H
#define ASH_SERVE_ENGINE_RECORDER_H

#include <stdbool.h>
#include "ashlar/err.h"
#include "record/serve_ring.h"

struct ash_recorder;

/* Rings in dir, with these labels. Returns 0 or a negative errno; on 0 the caller owns *recorder_out. */
int ash_recorder_open(const char *dir, const char *labels, struct ash_recorder **recorder_out, struct ash_err *err);
/* keeps: leave the rings for those who ask what happened. NULL is a no-op. */
void ash_recorder_close(struct ash_recorder *recorder, bool keeps);
/* A request came. Returns its number, 0 where nothing is recorded. */
uint64_t ash_recorder_add(struct ash_recorder *recorder, const char *id, uint64_t submit_ns, uint64_t prompt_tokens);
/* Its first row was scheduled; cached_tokens of its prompt need no row. */
void ash_recorder_start(struct ash_recorder *recorder, uint64_t number, uint64_t start_ns, uint64_t cached_tokens);
/* Its first token came. */
void ash_recorder_first(struct ash_recorder *recorder, uint64_t number, uint64_t first_ns);
/* It has ended: last_ns, end_ns, answer_tokens and outcome of `end` are taken. */
void ash_recorder_end(struct ash_recorder *recorder, uint64_t number, const struct ash_request_record *end);
/* A pass, without its number. */
void ash_recorder_pass(struct ash_recorder *recorder, const struct ash_pass_record *pass);
/* Its work for a request, without its number. Of requests that are not recorded, nothing. */
void ash_recorder_piece(struct ash_recorder *recorder, const struct ash_piece_record *piece);

#endif
