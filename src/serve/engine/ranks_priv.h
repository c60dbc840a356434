/* ranks_priv - the inside of ranks: their messages. */
#ifndef ASH_SERVE_ENGINE_RANKS_PRIV_H
#define ASH_SERVE_ENGINE_RANKS_PRIV_H

#include <pthread.h>

#include "collective/group.h"
#include "parallel/axis_link.h"
#include "serve/engine/ranks.h"

#define ASH_RANKS_HEAD_WORDS 256 /* of each message; a longer one's others follow */
#define ASH_RANKS_DOC_WORDS 5    /* of a document in a message: row, count, position, adapter, pages; then the pages */

enum ash_ranks_message {
    ASH_RANKS_END,
    ASH_RANKS_MEASURE,
    ASH_RANKS_OPEN,
    ASH_RANKS_CLOSE,
    ASH_RANKS_PACK,
    ASH_RANKS_COPY,
    ASH_RANKS_SHARE_PAGES,
    ASH_RANKS_READ_PAGE,
    ASH_RANKS_WRITE_PAGE,
    ASH_RANKS_LOAD_ADAPTER, /* its number, the folder */
    ASH_RANKS_DROP_ADAPTER,
    ASH_RANKS_SWAP, /* the folder of the new weights */
    ASH_RANKS_LAYERS,
    ASH_RANKS_LOGITS,
    ASH_RANKS_STATES,
};

/* How a call went on one rank. */
struct ash_ranks_outcome {
    int32_t rc;
    char text[ASH_ERR_TEXT_BYTES];
};

/* An adapter that all ranks have. */
struct ash_ranks_adapter {
    const struct ash_model *model; /* the first rank's part; NULL: it is gone, and the others are to forget it */
    size_t id;
};

struct ash_ranks {
    struct ash_opts *settings; /* the environment's, of the two below */
    struct ash_group_opts group_opts;
    struct ash_fabric_opts fabric_opts;
    struct ash_group *group;
    struct ash_slice_parts parts;
    struct ash_group *stage; /* the ranks of this one's stage; NULL: all */
    struct ash_axis_link link, stage_link;
    size_t per_gpu;                      /* ranks of a host that may share a GPU */
    const struct ash_memory_ops *memory; /* of what a rank computes */
    struct ash_meter meter;
    int32_t *words; /* [capacity] the current message: kind, count of all words, then its own */
    size_t count, capacity;
    bool has_packed;
    bool *was_stopped;             /* [size], when ash_ranks_watch looked */
    struct ash_shared_floats page; /* a whole page, of which each rank has a part; NULL: none is shared */
    void *sent_page;               /* the same, of ranks on several nodes: parts are sent */
    size_t page_bytes;
    struct ash_shared_floats stream; /* with stages: [max_rows, hidden], then two of rows_floats */
    size_t stream_floats, rows_floats, hidden, vocab;
    float *sent_rows; /* [rows_floats], of ranks on several nodes; NULL: without stages, or all share memory */
    uint64_t turns;   /* of the two */
    struct ash_ranks_outcome *outcomes; /* [size] */
    /* the first rank's: */
    pthread_mutex_t adapters_lock; /* guards the list */
    struct ash_ranks_adapter *adapters;
    size_t adapter_count, adapter_room, next_adapter;
};

/* ranks_message.c, the first rank: begin a message that has `count` words of its own; add them; send it. Returns 0,
 * -ENOMEM or the group's error. */
int ash_ranks_begin(struct ash_ranks *ranks, enum ash_ranks_message kind, size_t count, struct ash_err *err);
/* A word, at most INT32_MAX. */
void ash_ranks_add(struct ash_ranks *ranks, size_t word);
/* Several. */
void ash_ranks_add_all(struct ash_ranks *ranks, const int32_t *words, size_t count);
/* A text, in that many words. */
void ash_ranks_add_text(struct ash_ranks *ranks, const char *text);
/* How many those are. */
size_t ash_ranks_text_words(const char *text);
/* See above. */
int ash_ranks_send(struct ash_ranks *ranks, struct ash_err *err);
/* All ranks: has a call that any of them may fail gone well (rc) on each? Returns 0 or the error of the first rank on
 * which it has not; then none of them does what follows. */
int ash_ranks_agree(struct ash_ranks *ranks, int rc, struct ash_err *err);
/* The current message, from the first rank to all: sent there, received here. Returns 0 or the group's
 * error. */
int ash_ranks_broadcast(struct ash_ranks *ranks, struct ash_err *err);
/* A message about one page. Returns 0 or the group's error. */
int ash_ranks_send_page(struct ash_ranks *ranks, enum ash_ranks_message kind, int32_t page, struct ash_err *err);
/* A message without words, if this is the first rank. The group may have ended: then it is dropped. NULL is a no-op. */
void ash_ranks_send_plain(struct ash_ranks *ranks, enum ash_ranks_message kind);

/* ranks_adapters.c, the first rank: the number of adapters (NULL: 0), which all ranks have. */
size_t ash_ranks_adapter_id(struct ash_ranks *ranks, const struct ash_model *adapters);
/* The others forget those that are gone. */
int ash_ranks_drop_adapters(struct ash_ranks *ranks, struct ash_err *err);

/* ranks_send.c: tell the others about a batch; about some of its rows. */
int ash_ranks_send_layers(struct ash_ranks *ranks, const struct ash_batch *batch, struct ash_err *err);
/* kind: ASH_RANKS_LOGITS or ASH_RANKS_STATES. */
int ash_ranks_send_rows(struct ash_ranks *ranks, enum ash_ranks_message kind, const size_t *rows, size_t count,
                        struct ash_err *err);

/* ranks_stages.c, on all ranks: this one's stage of the layers, once the stages before are through. */
int ash_ranks_run_layers(struct ash_ranks *ranks, struct ash_pass *pass, const struct ash_batch *batch,
                         struct ash_cache *cache, struct ash_err *err);
/* Some rows of the current batch. */
struct ash_ranks_rows {
    enum ash_ranks_message kind; /* ASH_RANKS_LOGITS or ASH_RANKS_STATES */
    const size_t *rows;          /* [count] */
    size_t count;
    float *out; /* of the first rank; NULL on the others */
};
/* Their logits or states, from the last stage to the first rank. */
int ash_ranks_run_rows(struct ash_ranks *ranks, struct ash_pass *pass, const struct ash_ranks_rows *wanted,
                       struct ash_err *err);
/* Close the memory for what goes from stage to stage. Without it, and of NULL, a no-op. */
void ash_ranks_close_stages(struct ash_ranks *ranks);

/* ranks_pages.c, on all ranks: memory for a page of this cache, whole. */
int ash_ranks_open_page(struct ash_ranks *ranks, const struct ash_cache *cache, struct ash_err *err);
/* Close it. Without it, and of NULL, a no-op. */
void ash_ranks_close_page(struct ash_ranks *ranks);
/* Put this rank's part of a page there and wait for all. */
int ash_ranks_put_part(struct ash_ranks *ranks, const struct ash_cache *cache, int32_t page, struct ash_err *err);
/* The same the other way. */
int ash_ranks_take_part(struct ash_ranks *ranks, struct ash_cache *cache, int32_t page, struct ash_err *err);

#endif
