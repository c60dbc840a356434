/* wire - messages between the processes that train and the samplers (rollout.mode=apart): answers to draw, and drawn
 * ones. 32-bit words in the order of the machine, which is the same on both sides. */
#ifndef ASH_POST_RL_WIRE_H
#define ASH_POST_RL_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "ashlar/err.h"
#include "base/str.h"

#define ASH_WIRE_BODY_MAX (1u << 30)

enum ash_wire_kind {
    ASH_WIRE_HELLO = 1, /* sampler: its facts, as text */
    ASH_WIRE_WELCOME,   /* desk: descriptions of memory with weights (ashlar/transfer.h), one after the other */
    ASH_WIRE_REFUSED,   /* desk: why, as text */
    ASH_WIRE_WORK,      /* desk: struct ash_wire_work, then tasks */
    ASH_WIRE_ANSWERS,   /* sampler: struct ash_wire_times, then answers to all tasks, or none: the weights were gone */
    ASH_WIRE_PULSE,     /* sampler: nothing; it is at work */
    ASH_WIRE_BYE,       /* desk: nothing; this process trains no more */
    ASH_WIRE_KINDS
};

struct ash_wire_head {
    uint32_t magic, kind, size_bytes; /* of the body */
};

/* Which weights draw the tasks that follow: version `serial` of memory number `slot`. */
struct ash_wire_work {
    uint64_t serial;
    uint32_t slot, reserved;
};

/* Seconds of a sampler since its message before. */
struct ash_wire_times {
    double sampling, transfer, waiting;
};

/* An answer to draw: a group's tasks follow each other. */
struct ash_wire_task {
    uint64_t order, seed;
    uint32_t group, answer; /* in the rollout */
    uint32_t more;          /* tokens at most */
    uint32_t count;
    const int32_t *ids; /* [count], prompt and answer so far; borrowed from the message */
};

/* A drawn one. */
struct ash_wire_answer {
    uint64_t order;
    uint32_t group, answer;
    uint32_t has_ended, count, kept_count;
    const int32_t *ids;       /* [count], borrowed, as all of these */
    const float *logps;       /* [count] */
    const int32_t *kept_ends; /* [count], of each token in kept; only with kept_count > 0 */
    const int32_t *kept;      /* [kept_count] */
};

/* A place in a body. */
struct ash_wire_reader {
    const uint8_t *data;
    size_t size_bytes, at;
};

/* Begin a message at the end of text; ash_wire_end(text, start) sets its size. Returns where it starts, or a negative
 * errno, which text keeps. */
ssize_t ash_wire_begin(struct ash_str *text, enum ash_wire_kind kind);
/* The message that began at start is complete. */
void ash_wire_end(struct ash_str *text, size_t start);
/* A message that is text, or nothing ("" or NULL). Returns 0 or -ENOMEM. */
int ash_wire_add_text(struct ash_str *text, enum ash_wire_kind kind, const char *body);
/* Append a task. Returns 0 or -ENOMEM. */
int ash_wire_add_task(struct ash_str *text, const struct ash_wire_task *task);
/* Append an answer. Returns 0 or -ENOMEM. */
int ash_wire_add_answer(struct ash_str *text, const struct ash_wire_answer *answer);
/* Is there a whole message at the start of data? Returns 1 with its head, 0 if there is more to come, or -EBADMSG. */
int ash_wire_peek(const uint8_t *data, size_t size_bytes, struct ash_wire_head *head_out);
/* The next size_bytes of a body, copied. Returns 0 or -EBADMSG. */
int ash_wire_read(struct ash_wire_reader *reader, void *data, size_t size_bytes);
/* The next task. Returns 1, 0 at the end of the body, or -EBADMSG. The body is aligned to 4 bytes. */
int ash_wire_next_task(struct ash_wire_reader *reader, struct ash_wire_task *task_out);
/* The next answer, likewise. */
int ash_wire_next_answer(struct ash_wire_reader *reader, struct ash_wire_answer *answer_out);

#endif
