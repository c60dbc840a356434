/* Three rings. A request's record is made when it comes and filled in as it goes on, so that the records survive a
 * killed server. */
#include "serve/engine/recorder.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "record/ring_file.h"

struct ash_recorder {
    struct ash_ring_file *requests, *passes, *pieces;
};

int ash_recorder_open(const char *dir, const char *labels, struct ash_recorder **recorder_out, struct ash_err *err)
{
    struct ash_recorder *recorder = calloc(1, sizeof(*recorder));
    struct ash_ring_opts opts = {.dir = dir, .labels = labels};
    int rc;

    if (recorder == NULL) return ash_err_set(err, -ENOMEM, "no memory for the rings of a server");
    opts.kind = ASH_REQUEST_RING_KIND;
    opts.record_bytes = sizeof(struct ash_request_record);
    opts.capacity = ASH_REQUEST_RING_CAPACITY;
    rc = ash_ring_open(&opts, &recorder->requests, err);
    if (rc < 0) goto fail;
    opts.kind = ASH_PASS_RING_KIND;
    opts.record_bytes = sizeof(struct ash_pass_record);
    opts.capacity = ASH_PASS_RING_CAPACITY;
    rc = ash_ring_open(&opts, &recorder->passes, err);
    if (rc < 0) goto fail;
    opts.kind = ASH_PIECE_RING_KIND;
    opts.record_bytes = sizeof(struct ash_piece_record);
    opts.capacity = ASH_PIECE_RING_CAPACITY;
    rc = ash_ring_open(&opts, &recorder->pieces, err);
    if (rc < 0) goto fail;
    *recorder_out = recorder;
    return 0;

fail:
    ash_recorder_close(recorder, false);
    return rc;
}

void ash_recorder_close(struct ash_recorder *recorder, bool keeps)
{
    if (recorder == NULL) return;
    ash_ring_close(recorder->requests, keeps);
    ash_ring_close(recorder->passes, keeps);
    ash_ring_close(recorder->pieces, keeps);
    free(recorder);
}

uint64_t ash_recorder_add(struct ash_recorder *recorder, const char *id, uint64_t submit_ns, uint64_t prompt_tokens)
{
    struct ash_request_record record = {.submit_ns = submit_ns, .prompt_tokens = prompt_tokens};

    if (recorder == NULL) return 0;
    if (id != NULL) memcpy(record.id, id, strnlen(id, sizeof(record.id)));
    return ash_ring_add(recorder->requests, &record);
}

#define SET(recorder, number, field, value)                                                                            \
    ash_ring_set((recorder)->requests, (number), offsetof(struct ash_request_record, field), (value))

void ash_recorder_start(struct ash_recorder *recorder, uint64_t number, uint64_t start_ns, uint64_t cached_tokens)
{
    if (recorder == NULL || number == 0) return;
    SET(recorder, number, cached_tokens, cached_tokens);
    SET(recorder, number, start_ns, start_ns);
}

void ash_recorder_first(struct ash_recorder *recorder, uint64_t number, uint64_t first_ns)
{
    if (recorder != NULL && number != 0) SET(recorder, number, first_ns, first_ns);
}

void ash_recorder_end(struct ash_recorder *recorder, uint64_t number, const struct ash_request_record *end)
{
    if (recorder == NULL || number == 0) return;
    SET(recorder, number, last_ns, end->last_ns);
    SET(recorder, number, answer_tokens, end->answer_tokens);
    SET(recorder, number, outcome, end->outcome);
    SET(recorder, number, end_ns, end->end_ns);
}

void ash_recorder_pass(struct ash_recorder *recorder, const struct ash_pass_record *pass)
{
    if (recorder != NULL) ash_ring_add(recorder->passes, pass);
}

void ash_recorder_piece(struct ash_recorder *recorder, const struct ash_piece_record *piece)
{
    if (recorder != NULL && piece->request != 0) ash_ring_add(recorder->pieces, piece);
}
