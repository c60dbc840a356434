/* workload - which requests a load test sends: when, how long their prompts and answers are, what prompts share. A
 * pure function of its options (and of the trace's lines). */
#ifndef ASH_SERVE_CLIENT_WORKLOAD_H
#define ASH_SERVE_CLIENT_WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/str.h"

#define ASH_PROMPT_WORDS 64                 /* in the list that prompts are drawn from */
#define ASH_WORKLOAD_TRACE_BLOCK_TOKENS 512 /* of prompt that one hash of a trace stands for */

/* A run of a prompt. Runs of the same name and length are the same text everywhere. */
struct ash_workload_block {
    uint64_t name;
    size_t tokens;
};

struct ash_workload_item {
    double at_s; /* after the start; where requests have times */
    size_t first_block, block_count;
    size_t prompt_tokens, answer_tokens;
};

struct ash_workload_opts {
    size_t requests;      /* trace: at most; 0: all of it */
    double rate;          /* requests a second, exponential gaps; 0: no times */
    size_t prompt_tokens; /* after the shared prefix */
    size_t answer_tokens;
    double spread; /* lengths are uniform in n (1 - spread) … n (1 + spread) */
    size_t prefixes, prefix_tokens;
    const char *trace;  /* JSON lines with timestamp (ms), input_length, output_length, hash_ids; NULL: none */
    double trace_speed; /* times of the trace are divided by it; 0: no times */
    double trace_scale; /* lengths of the trace are multiplied by it */
    uint64_t seed;
};

struct ash_workload {
    struct ash_workload_item *items;
    size_t count, capacity;
    struct ash_workload_block *blocks;
    size_t block_count, block_capacity;
    bool has_times;
};

/* Draw or read the requests, in the order of their times. Returns 0, -EINVAL (the trace, with its line), -ENOMEM or the
 * error of reading. The caller finis *workload_out. */
int ash_workload_make(const struct ash_workload_opts *opts, struct ash_workload *workload_out, struct ash_err *err);
/* Add the lines of a trace; name is for messages. For ash_workload_make and its tests. */
int ash_workload_add_trace(struct ash_workload *workload, const struct ash_workload_opts *opts, const char *text,
                           const char *name, struct ash_err *err);
/* Free it; a zeroed one is fine. */
void ash_workload_fini(struct ash_workload *workload);

/* How prompts are written: as ids below `vocab`, or as words, of which a server makes word_tokens each and
 * overhead_tokens a prompt. */
struct ash_prompt_form {
    size_t vocab; /* 0: words */
    double word_tokens, overhead_tokens;
    uint64_t seed;
};
/* Append every word of the list, all of them `times` times: for what a word is in tokens, on average. Returns 0 or
 * -ENOMEM. */
int ash_prompt_add_all_words(size_t times, struct ash_str *out);
/* Append an item's prompt as JSON: a list of ids, or a string. Returns 0 or -ENOMEM. */
int ash_prompt_add(const struct ash_prompt_form *form, const struct ash_workload *workload,
                   const struct ash_workload_item *item, struct ash_str *out);

#endif
