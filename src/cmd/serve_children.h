/* serve_children - servers that are processes of this one: started with the user's words, restarted, ended together. */
#ifndef ASH_CMD_SERVE_CHILDREN_H
#define ASH_CMD_SERVE_CHILDREN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "cmd/serve_priv.h"

/* A server on a port of this machine that only it reaches. */
struct ash_serve_child {
    char name[160]; /* "replica 0": for the log */
    pid_t pid;      /* 0: it does not run */
    int port, port_fd;
    uint64_t start_ns, restart_ns; /* when it was started; when it may start again */
    double pause_s;
    int exit_code;                        /* of its last end; above 128: of a signal, plus 128 */
    char port_word[32], timeout_word[48]; /* of its command line */
};

/* The user's words. */
struct ash_serve_words {
    const struct ash_serve_flags *flags;
    int argc;
    char **argv;
};

/* Reserve its port. ash_serve_child_close releases it. */
int ash_serve_child_open(struct ash_serve_child *child, struct ash_err *err);
/* Release the port of a child that has ended. One that was never opened (all zero) is a no-op. */
void ash_serve_child_close(struct ash_serve_child *child);
/* Start it with the user's words, those that every child gets, and own [count] words of its own. */
int ash_serve_child_start(struct ash_serve_child *child, const struct ash_serve_words *words, const char *const *own,
                          size_t count, struct ash_err *err);
/* Wait for one of children [count] that has ended, without blocking, and note its end. Returns it, or NULL. */
struct ash_serve_child *ash_serve_children_reap(struct ash_serve_child *children, size_t count);
/* Send a signal to all that run. */
void ash_serve_children_signal(const struct ash_serve_child *children, size_t count, int number);
/* End all that run: SIGTERM, and SIGKILL to those that do not end after --shutdown-timeout. */
void ash_serve_children_end(struct ash_serve_child *children, size_t count, const struct ash_serve_flags *flags);

#endif
