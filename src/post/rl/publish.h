/* publish - the policy's weights for samplers in other processes: versions in memory that others can read, which appear
 * whole (ashlar/transfer.h). Of a policy with adapters they are the adapters. */
#ifndef ASH_POST_RL_PUBLISH_H
#define ASH_POST_RL_PUBLISH_H

#include "ashlar/transfer.h"
#include "model/model.h"

struct ash_publisher {
    struct ash_port *port; /* NULL: not open */
    struct ash_port_memory **slots;
    struct ash_port_description *descriptions;
    uint64_t *versions; /* [slot_count], plus 1; 0: none */
    uint64_t *serials;  /* [slot_count]: by which others know them: each is larger than all before */
    size_t slot_count, count;
    uint64_t last_serial;
};

/* A port for a job whose ranks meet at host: a loopback address needs no network. Returns 0 or a negative errno. */
int ash_publish_open_port(const char *host, struct ash_port **port_out, struct ash_err *err);
/* Room for slot_count versions of the weights of model, for readers as of ash_publish_open_port. Zero-initialise.
 * Returns 0, or a negative errno with a sentence; then it is as before. */
int ash_publisher_open(struct ash_publisher *publisher, const char *host, const struct ash_model *model,
                       size_t slot_count, struct ash_err *err);
/* Total; leaves zeros. */
void ash_publisher_close(struct ash_publisher *publisher);
/* Have others read this version of the weights in a slot, of an owned model in host memory. Nothing happens if they do.
 * Returns 0 or -EINVAL. */
int ash_publisher_publish(struct ash_publisher *publisher, size_t slot, uint64_t version, struct ash_model *model,
                          struct ash_err *err);
/* Is this version in the slot? */
bool ash_publisher_has(const struct ash_publisher *publisher, size_t slot, uint64_t version);
/* The weights of a version into an owned model of the same parameters. */
void ash_publish_load(const float *values, struct ash_model *model);

#endif
