/* transfer - bytes from the memory of one process into that of another, on one machine or between machines: pages of a
 * KV cache, new weights, whatever both sides agree on.
 *
 *     owner                                                 user
 *     ash_port_open(NULL, &port, &err);                     ash_port_open(NULL, &port, &err);
 *     ash_port_register(port, NULL, bytes, &memory, &err);  ash_port_register(port, NULL, bytes, &memory, &err);
 *     ash_port_describe(port, memory, &description);        ash_port_attach(port, &description, &remote, &err);
 *     ... send the description, as any bytes ...            ash_port_post(port, &transfer);
 *     ash_port_wait(port, events, 8, 1);                    ash_port_wait(port, events, 8, 1);
 *
 * A description is plain data: it goes through a file, a socket, a header. Inside a machine bytes go through shared
 * memory, between machines through libfabric; the caller sees no difference. Memory of versions
 * (ash_port_register_versions) never shows half of one: a reader has the whole old version or the whole new one,
 * if any process dies too.
 *
 * Calls return 0 or a negative errno; then the struct ash_err that was passed (may be NULL) holds a sentence for the
 * user. A port and its memory belong to one thread at a time. A port that is not polled may not answer
 * others. */
#ifndef ASHLAR_TRANSFER_H
#define ASHLAR_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default) /* of the shared library, these are what one sees */

struct ash_port; /* a process's attachment */

struct ash_port_opts {
    size_t size;           /* of this struct */
    const char *path;      /* "auto" (NULL): shared memory inside a machine, libfabric between them; "shm"; "ofi" */
    const char *provider;  /* libfabric's: tcp, efa, ...; NULL: the best it finds */
    const char *interface; /* network interfaces or addresses, comma-separated; NULL: the provider's */
    double silence_s;      /* a machine that does not answer for so long is lost; 0: the default */
};

/* The defaults: what a NULL opts means. */
void ash_port_opts_init(struct ash_port_opts *opts);
/* Attach this process. opts and its strings are borrowed during the call. The caller owns *port_out. */
int ash_port_open(const struct ash_port_opts *opts, struct ash_port **port_out, struct ash_err *err);
/* Memory and remotes must be closed before. Others see it as lost. NULL is a no-op. */
void ash_port_close(struct ash_port *port);

/* ---- memory ------------------------------------------------------------------------------------------------------ */

struct ash_port_memory; /* memory of this process that others may read and write */

/* Register size_bytes at data, borrowed until close. data NULL: new zeroed memory, which others on this machine map:
 * the fastest kind. The caller owns *memory_out. */
int ash_port_register(struct ash_port *port, void *data, size_t size_bytes, struct ash_port_memory **memory_out,
                      struct ash_err *err);
/* The same for versions of up to size_bytes, which appear whole or not at all; it takes twice the memory. */
int ash_port_register_versions(struct ash_port *port, size_t size_bytes, struct ash_port_memory **memory_out,
                               struct ash_err *err);
/* Transfers from or into it must have ended. NULL is a no-op. */
void ash_port_memory_close(struct ash_port_memory *memory);
/* The bytes; of versions, where the next one is to be written. */
void *ash_port_memory_data(const struct ash_port_memory *memory);

/* The first size_bytes at ash_port_memory_data are version `version` (larger than the one before): from now on others
 * take it, and ash_port_memory_data is another place with other bytes. Returns 0 or -EINVAL. */
int ash_port_publish(struct ash_port_memory *memory, size_t size_bytes, uint64_t version);
/* The version that was published or taken last: its bytes, valid until the next one is published or taken. NULL: there
 * is none. */
const void *ash_port_version(const struct ash_port_memory *memory, size_t *size_out, uint64_t *version_out);

/* ---- others' memory ---------------------------------------------------------------------------------------------- */

#define ASH_PORT_DESCRIPTION_BYTES 704

/* Memory of a process, for others. Plain data. */
struct ash_port_description {
    uint8_t bytes[ASH_PORT_DESCRIPTION_BYTES];
};

/* Describe memory; NULL: only the port, for others to notify. */
void ash_port_describe(const struct ash_port *port, const struct ash_port_memory *memory,
                       struct ash_port_description *description_out);

struct ash_port_remote; /* memory of another process as this one sees it */

/* Attach what a description says. The caller owns *remote_out. -EPROTO: not a description, a damaged one, or one of
 * another version of this library. -ESRCH: its process is gone. -ENETUNREACH: no path leads there. */
int ash_port_attach(struct ash_port *port, const struct ash_port_description *description,
                    struct ash_port_remote **remote_out, struct ash_err *err);
/* Transfers from or to it end with -ECONNRESET if it is all that is attached of its process; else they must have ended.
 * NULL is a no-op. */
void ash_port_detach(struct ash_port_remote *remote);
/* Its size, 0 if only a port was described; of versions, the largest. */
size_t ash_port_remote_bytes(const struct ash_port_remote *remote);
/* The number of its process in events: equal for all that was described by one port. */
uint64_t ash_port_remote_peer(const struct ash_port_remote *remote);

/* ---- transfers --------------------------------------------------------------------------------------------------- */

enum ash_port_direction { ASH_PORT_READ, ASH_PORT_WRITE };

struct ash_port_transfer {
    size_t size; /* of this struct */
    enum ash_port_direction direction;
    struct ash_port_memory *local;
    size_t local_offset;
    struct ash_port_remote *remote;
    size_t remote_offset;
    size_t size_bytes;
    uint64_t cookie; /* of its event */
};

/* Copy bytes from remote to local (read) or from local to remote (write); neither may be memory of versions. An event
 * ASH_PORT_DONE follows. Returns 0, -EAGAIN (too much is under way: poll, then try again), -ERANGE (outside of the
 * memory), -EINVAL, or -ECONNRESET (the process is lost). */
int ash_port_post(struct ash_port *port, const struct ash_port_transfer *transfer);
/* Take the newest version of remote into local, both memory of versions. An event ASH_PORT_DONE follows: with status 0
 * ash_port_version(local) is it; with any other, ash_port_version(local) has not changed. -ENODATA: none is published.
 * -EAGAIN: it was overwritten meanwhile, take again. -EMSGSIZE: local is too small. One take at a time into local.
 * Returns as ash_port_post, -EBUSY if one is under way. */
int ash_port_take(struct ash_port *port, struct ash_port_remote *remote, struct ash_port_memory *local,
                  uint64_t cookie);
/* Tell the process of remote one word, after everything written to it before. It hears it once it has attached a
 * description of this port. Returns as ash_port_post. */
int ash_port_notify(struct ash_port *port, struct ash_port_remote *remote, uint64_t word);

enum ash_port_event_kind { ASH_PORT_DONE, ASH_PORT_NOTIFIED, ASH_PORT_LOST };

struct ash_port_event {
    enum ash_port_event_kind kind;
    int status;    /* DONE: 0 or a negative errno; LOST: why */
    uint64_t peer; /* whose memory, whose word, who is lost */
    uint64_t word; /* DONE: the cookie; NOTIFIED: the word */
};

/* Make progress and take up to max events; returns how many. Never waits. A lost process is reported once, after the
 * end of everything posted to it. */
size_t ash_port_poll(struct ash_port *port, struct ash_port_event *events, size_t max);
/* The same, but wait up to timeout_s for the first event. */
size_t ash_port_wait(struct ash_port *port, struct ash_port_event *events, size_t max, double timeout_s);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
