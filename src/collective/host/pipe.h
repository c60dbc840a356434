/* pipe - large calls, piece by piece through the bounce buffers of the control blocks. While one piece is reduced,
 * the next is copied in; a piece fits a cache, so what one rank writes another reads from there. Private to
 * collective/host. */
#ifndef ASH_COLLECTIVE_HOST_PIPE_H
#define ASH_COLLECTIVE_HOST_PIPE_H

#include "collective/host/control.h"

/* A large call as the pipeline sees it: pieces that are copied in, reduced and copied out. A step may be
 * NULL. */
struct ash_pipe {
    struct ash_local *local;
    const char *in;
    const void *const *parts; /* sums: this rank's parts, instead of in */
    const struct ash_shares *shares;
    char *out;
    size_t size_bytes;  /* of the operand that is cut into pieces */
    size_t piece_bytes; /* the last piece may be smaller */
    enum ash_coll_dtype dtype;
    enum ash_coll_op op;
    size_t root;
    const size_t *send_bytes, *recv_bytes; /* all-to-all: of each pair */
    void (*copy_in)(const struct ash_pipe *pipe, size_t first, size_t bytes, uint8_t *bounce);
    void (*reduce)(const struct ash_pipe *pipe, size_t first, size_t bytes, size_t slot); /* when all have copied in */
    void (*copy_out)(const struct ash_pipe *pipe, size_t first, size_t bytes, size_t slot); /* when all have reduced */
};

/* Run the present call (after ash_control_begin). */
int ash_pipe_run(const struct ash_pipe *pipe, struct ash_err *err);
/* The copy_in that copies a piece of in as it is. */
void ash_pipe_copy_in(const struct ash_pipe *pipe, size_t first, size_t bytes, uint8_t *bounce);

#endif
