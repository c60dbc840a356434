/* live - progress on the screen during a run: one line that is redrawn on a terminal, plain lines at a quiet rate
 * elsewhere. One owner thread. */
#ifndef ASH_TRAIN_LIVE_H
#define ASH_TRAIN_LIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Caller's storage; fields are private. */
struct ash_live {
    FILE *out; /* NULL: silent */
    bool terminal;
    bool drawn;            /* is there a line that must be cleared first? */
    uint64_t shown_ns;     /* when a step was last shown; 0: none yet */
    uint64_t every_steps;  /* of plain lines */
    double tokens, time_s; /* of the steps since then */
    int width;             /* columns; 0: the terminal's */
};

struct ash_live_view {
    uint64_t step, total, tokens; /* tokens: of this step */
    double loss, lr, norm, step_s;
    double valid_loss;     /* the last one measured; NaN: none */
    double valid_accuracy; /* of pairs, with it; NaN: none */
    bool measured;         /* in this step: worth a line */
    double left_s;
};

/* terminal: out understands control sequences. width 0: the terminal's own (or 80). */
void ash_live_init(struct ash_live *live, FILE *out, bool terminal, int width, uint64_t total_steps);
/* Before the first step, which may take minutes: a terminal sees that it is under way. */
void ash_live_start(struct ash_live *live, uint64_t step, uint64_t total_steps);
/* Show a step: at most ten times a second on a terminal; elsewhere about twenty lines over the run, one more after
 * thirty quiet seconds, and every validation. The last step is always shown. Tokens per second are the mean over the
 * steps since the last one shown. */
void ash_live_step(struct ash_live *live, const struct ash_live_view *view);
/* Clear the line before anything else is printed. */
void ash_live_clear(struct ash_live *live);

/* A count with separators: "1,234,567". Returns buf. */
const char *ash_live_count(uint64_t value, char *buf, size_t buf_bytes);
/* A number in three digits or so: "12", "1.2k", "3.4M", "5.6B". Returns buf. */
const char *ash_live_short(double value, char *buf, size_t buf_bytes);
/* The same for bytes: "12 B", "1.2 kB", "3.4 MB". Returns buf. */
const char *ash_live_bytes(double value, char *buf, size_t buf_bytes);

#endif
