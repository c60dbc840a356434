/* board - data of the page from many sources: agents that are polled every second, runs whose logs grow, ranks
 * on this machine, or a file. */
#ifndef ASH_OBSERVE_PAGE_BOARD_H
#define ASH_OBSERVE_PAGE_BOARD_H

#include <stddef.h>
#include "ashlar/err.h"

struct ash_board;

struct ash_board_opts {
    const char *host;
    int port;                 /* 0: any */
    const char *const *names; /* Host names that it answers to, next to those of this machine (http.h) */
    size_t name_count;
    const char *const *agents; /* HOST:PORT */
    size_t agent_count;
    const char *token;       /* of the agents; NULL: none */
    const char *const *runs; /* folders */
    size_t run_count;
    const char *topology; /* file of the tree of switches above the nodes (infra/topology); NULL: none */
    const char *pages;    /* folder of ranks on this machine; NULL: none */
    const char *frozen;   /* a board as JSON, instead of everything else; NULL: none */
};

/* Serve the page and poll agents. opts is copied, its pointers are borrowed until close. */
int ash_board_open(const struct ash_board_opts *opts, struct ash_board **board_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_board_close(struct ash_board *board);
/* The port it listens on. */
int ash_board_port(const struct ash_board *board);

#endif
