/* socket - TCP with a deadline on every call, so that nothing waits for a peer without end. */
#ifndef ASH_BASE_SOCKET_H
#define ASH_BASE_SOCKET_H

#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

#define ASH_SOCKET_ADDR_BYTES 64

/* A moment to give up, on the clock of ash_clock_ns; from seconds from now. */
uint64_t ash_deadline_in(double seconds);
/* Milliseconds left, rounded up, at least 0: for poll(2). */
int ash_deadline_ms(uint64_t deadline_ns);

/* Listen on all interfaces at port (0: any), or at host's address where host is not NULL. Returns a descriptor or a
 * negative errno. */
int ash_socket_listen(const char *host, int port, struct ash_err *err);
/* The address to listen at for a job whose ranks meet at host: host if that is a loopback address, which no other
 * machine reaches, else NULL: all interfaces. */
const char *ash_socket_job_host(const char *host);
/* Reserve a port on all interfaces: a free one, and not one of those that the system gives to connections.
 * Until the descriptor is closed no other process can reserve it, and ash_socket_listen() works there, also in other
 * processes. port_out gets the port. Returns the descriptor, which the caller closes, or a negative errno. */
int ash_socket_reserve(int *port_out, struct ash_err *err);
/* The port that a descriptor listens on. */
int ash_socket_port(int fd);
/* The address from which this socket talks to its peer, as text without a port. Returns 0 or a negative errno. */
int ash_socket_own_address(int fd, char *buf, size_t buf_bytes);
/* The address from which this host would talk to another, found without talking to it. Returns 0 or a negative
 * errno. */
int ash_socket_address_towards(const char *host, char *buf, size_t buf_bytes);
/* Connect, with retries until a listener answers or the deadline passes. Returns a descriptor or a negative errno:
 * -ENOENT if host is a name that cannot be resolved. */
int ash_socket_connect(const char *host, int port, uint64_t deadline_ns, struct ash_err *err);
/* Wait until there is something to read, or a connection to accept. Returns 0, -ETIMEDOUT or another negative errno. */
int ash_socket_wait(int fd, uint64_t deadline_ns);
/* Accept one connection. -ETIMEDOUT at the deadline. */
int ash_socket_accept(int listen_fd, uint64_t deadline_ns);

/* Send all bytes, or an error: -ETIMEDOUT, -ECONNRESET (the peer has gone), or another. Never SIGPIPE. */
int ash_socket_send(int fd, const void *data, size_t size_bytes, uint64_t deadline_ns);
/* Exactly size_bytes into data, or an error as of ash_socket_send; then data holds part of them. */
int ash_socket_recv(int fd, void *data, size_t size_bytes, uint64_t deadline_ns);

#endif
