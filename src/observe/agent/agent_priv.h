/* agent_priv - the inside of an agent: its judge (judge.c) and its routes (routes.c). */
#ifndef ASH_OBSERVE_AGENT_AGENT_PRIV_H
#define ASH_OBSERVE_AGENT_AGENT_PRIV_H

#include <pthread.h>
#include <stdatomic.h>
#include "http/http.h"
#include "observe/agent/agent.h"
#include "observe/agent/kmsg.h"
#include "observe/agent/sources.h"
#include "observe/health/scrape.h"
#include "observe/health/xid_pairs.h"

struct ash_agent {
    struct ash_agent_opts opts;
    struct ash_sources *sources;
    struct ash_keys_opts keys_opts;
    struct ash_keys *keys;
    struct ash_http *http;
    /* the judge: */
    pthread_t judge;
    bool has_judge;
    int wake_fd; /* an eventfd that ends its waits */
    _Atomic bool is_stopping, wants_clear;
    struct ash_kmsg *kmsg;
    char *before; /* the metrics that were judged last, or NULL */
    size_t before_bytes;
    double before_s;
    uint64_t act_again_ns;     /* next retry of pending actions; 0: none */
    struct ash_xid_pairs xids; /* of this run of the agent */
    /* under the lock: */
    pthread_mutex_t lock;
    struct ash_node_state state;
    bool is_log_read; /* the kernel log can be read */
    char log_error[ASH_ERR_TEXT_BYTES];
    uint64_t lost;    /* records of the kernel log */
    uint64_t changes; /* of the state, for listeners */
    struct ash_listener *listeners;
};

/* judge.c: its thread; arg is the agent. */
void *ash_agent_judge(void *arg);
/* judge.c: open the kernel log and read its records. */
void ash_agent_start_log(struct ash_agent *agent);
/* routes.c: start serving. */
int ash_agent_serve(struct ash_agent *agent, struct ash_err *err);
/* routes.c: the state changed: notify listeners. The lock is held. */
void ash_agent_tell(struct ash_agent *agent);
/* routes.c: free remaining listeners; the server is stopped. */
void ash_agent_drop_listeners(struct ash_agent *agent);
/* agent.c: metrics of the agent itself: verdict, events by kind. */
void ash_agent_write_state(struct ash_agent *agent, struct ash_str *out);
/* trim.c: give back the memory that only starting up needed. */
void ash_agent_trim(void);

#endif
