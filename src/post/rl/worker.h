/* worker - a process that samples for a run (rollout.mode=apart). */
#ifndef ASH_POST_RL_WORKER_H
#define ASH_POST_RL_WORKER_H

#include "ashlar/transfer.h"
#include "compute/backends/backends.h"
#include "post/rl/rl.h"
#include "post/rl/wire.h"

struct ash_worker {
    struct ash_policy_run *rl;
    struct ash_worker_opts opts;
    struct ash_exec exec;
    bool has_exec, was_known; /* was_known: a desk has had it */
    struct ash_model *model;
    struct ash_port *port;
    struct ash_port_memory *memory; /* the weights that came last */
    struct ash_port_remote **slots; /* [slot_count]: the desk's */
    size_t slot_count;
    uint64_t serial, salt; /* of the weights in the model; 0: none */
    struct ash_str facts, out;
    uint8_t *body; /* [body_room], of a message */
    size_t body_room;
    int fd;
    int64_t key;              /* of the desk */
    uint64_t sent_ns, met_ns; /* the last message; when a rank that trains was there */
    struct ash_wire_times times;
};

#define ASH_WORKER_MESSAGE_S 60.0 /* for the rest of a message that has begun */

/* Send the messages in out. Returns 0 or a negative errno: the desk is lost. */
int ash_worker_send(struct ash_worker *worker);
/* Draw the tasks of the message in body, and send the answers. Returns 0, -ENOMEM, or another negative errno: the desk
 * is lost. */
int ash_worker_draw(struct ash_worker *worker, size_t size_bytes, struct ash_err *err);

#endif
