/* exporter - serves this process's metrics to Prometheus over HTTP, from its own thread.
 * GET /metrics: every instrument bumped so far and the process's own figures. GET /healthz: "ok".
 * Anything else is 404. */
#ifndef ASH_OBSERVE_EXPORTER_EXPORTER_H
#define ASH_OBSERVE_EXPORTER_EXPORTER_H

#include "ashlar/err.h"

struct ash_exporter;

/* Listen on address (NULL: 127.0.0.1; an IPv4 or IPv6 address) and port (0 picks a free one). Returns 0, -EINVAL,
 * -EADDRINUSE or another negative errno; on 0 the caller owns *exporter_out. */
int ash_exporter_open(const char *address, int port, struct ash_exporter **exporter_out, struct ash_err *err);
/* Stop serving, also in the middle of a request, and free. NULL is a no-op. */
void ash_exporter_close(struct ash_exporter *exporter);
/* The port it listens on. */
int ash_exporter_port(const struct ash_exporter *exporter);

#endif
