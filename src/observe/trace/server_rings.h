/* server_rings - what servers did lately, from the rings that they leave (record/serve_ring.h). */
#ifndef ASH_OBSERVE_TRACE_SERVER_RINGS_H
#define ASH_OBSERVE_TRACE_SERVER_RINGS_H

#include <stdbool.h>
#include <stddef.h>
#include "ashlar/err.h"
#include "record/ring_file.h"
#include "record/serve_ring.h"

/* One server. A ring that is missing is empty. */
struct ash_server_rings {
    char name[128];
    uint32_t pid;
    bool is_alive;
    struct ash_ring_view requests, passes, pieces;
};

/* All of a folder, by name and process. */
struct ash_server_set {
    struct ash_server_rings *servers;
    size_t count;
};

/* Read the rings of every server in dir; has_pieces: also what passes did for each request. Damaged files are left out.
 * Returns 0 or a negative errno; on 0 the caller owns the set. */
int ash_server_set_load(struct ash_server_set *set, const char *dir, bool has_pieces, struct ash_err *err);
/* A zeroed set is fine. */
void ash_server_set_fini(struct ash_server_set *set);
/* Record `index` of the requests. */
const struct ash_request_record *ash_server_request(const struct ash_server_rings *server, size_t index);
/* Record `index` of the passes. */
const struct ash_pass_record *ash_server_pass(const struct ash_server_rings *server, size_t index);
/* Record `index` of the pieces. */
const struct ash_piece_record *ash_server_piece(const struct ash_server_rings *server, size_t index);
/* A request's id as plain text of at most ASH_REQUEST_ID_BYTES, into buf of one more byte: what could be more than text
 * in JSON or on a screen is '?'. Returns buf. */
const char *ash_request_id_text(const struct ash_request_record *request, char *buf);
/* "running", "answered", "cancelled", "failed": static; "unknown" beyond the last. */
const char *ash_request_outcome_name(uint64_t outcome);

#endif
