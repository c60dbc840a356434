/* simulate - the membership code of this program (member/member.h) under a virtual clock and network: thousands of
 * processes on hosts, messages that are late, lost and out of order, cuts in both or one direction, processes and hosts
 * that die, sleep, come back and leave. Everything is drawn from a seed, so a run that fails can be repeated.
 *
 * Held to be true, at every moment:
 *   one side    steps are finished by one view at a time, and never by an older one again
 *   bounded     no process waits for a view longer than its own limits allow
 *   settled     once faults end, all that live run one view, within a limit
 *   not lost    a view goes on from the last finished step, as long as one process lives that holds it */
#ifndef ASH_TESTS_CHAOS_SIMULATE_SIMULATE_H
#define ASH_TESTS_CHAOS_SIMULATE_SIMULATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "collective/member/view.h"

#define ASH_FAULT_SIM_TEXT_BYTES 256

/* What happens to processes and network; a set of these. */
enum ash_fault_sim_fault {
    ASH_FAULT_SIM_CRASH = 1,   /* processes die; their hosts say so */
    ASH_FAULT_SIM_HOST = 2,    /* hosts die without a word */
    ASH_FAULT_SIM_PAUSE = 4,   /* processes sleep and wake */
    ASH_FAULT_SIM_CUT = 8,     /* hosts cannot reach each other, in one or both directions */
    ASH_FAULT_SIM_NOISE = 16,  /* messages are lost, late, out of order */
    ASH_FAULT_SIM_LEAVE = 32,  /* processes leave as planned */
    ASH_FAULT_SIM_FOLLOW = 64, /* the coordinator dies during the meeting */
    ASH_FAULT_SIM_ALL = 127,
};

/* A mistake that is made on purpose, to see that it is caught. */
enum ash_fault_sim_plant {
    ASH_FAULT_SIM_NO_PLANT,
    ASH_FAULT_SIM_PLANT_RIGHT,   /* every side is told that it may go on */
    ASH_FAULT_SIM_PLANT_FOREVER, /* silence is never noticed */
    ASH_FAULT_SIM_PLANT_DEAF,    /* a view's start is never delivered */
    ASH_FAULT_SIM_PLANT_FORGET,  /* survivors drop the last step when they form a view */
};

enum ash_fault_sim_right { ASH_FAULT_SIM_RIGHT_DRAWN, ASH_FAULT_SIM_RIGHT_REGISTER, ASH_FAULT_SIM_RIGHT_MAJORITY };

struct ash_sim;

/* What processes do while their view runs, if not finish a step every 20 ms. Promises other than bounded waits are the
 * owner's to check. `process`: its place, from 0; a process that comes back has the same one. */
struct ash_fault_sim_owner {
    void *ctx;
    void (*begin)(void *ctx, struct ash_sim *sim, uint32_t process); /* a new process, without a view */
    void (*started)(void *ctx, uint32_t process, const struct ash_view *view, size_t rank); /* its view runs */
    void (*over)(void *ctx, uint32_t process);    /* its view is over; then ash_fault_sim_reform */
    bool (*removed)(void *ctx, uint32_t process); /* it is in no view any more. Returns whether it comes back to join */
    void (*died)(void *ctx, uint32_t process);
    void (*wake)(void *ctx, uint32_t process, uint64_t token); /* the time that ash_fault_sim_wake asked for */
    bool (*is_done)(void *ctx);                                /* nothing more will happen */
};

struct ash_fault_sim_opts {
    size_t ranks, per_host;
    uint64_t seed;
    unsigned faults;    /* enum ash_fault_sim_fault */
    size_t fault_count; /* at most; 0: drawn, up to 6 */
    enum ash_fault_sim_right right;
    enum ash_fault_sim_plant plant;
    double silent_s;
    const struct ash_fault_sim_owner *owner; /* NULL: see above */
};

struct ash_fault_sim_result {
    bool is_good, has_ended;                  /* the job ended in good order: no side was allowed to continue */
    char violation[ASH_FAULT_SIM_TEXT_BYTES]; /* which of the four, when and how; empty where none */
    double settle_s;                          /* from the end of the last fault until all run one view */
    double form_s;                            /* the longest time from a loss that is known to the next view */
    double virtual_s;
    size_t faults, epochs, steps, fallbacks; /* fallbacks: no holder of the last step lived */
    size_t final_size;
    uint64_t messages, events;
};

/* Run one. Returns 0 (look at result_out->is_good) or -ENOMEM. */
int ash_fault_sim_run(const struct ash_fault_sim_opts *opts, struct ash_fault_sim_result *result_out);

/* ---- for owners ----------------------------------------------------------------------------------------------------
 * In calls of their table; in begin, started, over, removed and died only what says "anywhere". */

/* Virtual time. Anywhere. */
uint64_t ash_fault_sim_now(const struct ash_sim *sim);
/* A random number below bound. Anywhere. */
uint64_t ash_fault_sim_below(struct ash_sim *sim, uint64_t bound);
/* Call owner->wake for this process after this time; later if it sleeps, never if it dies before. Anywhere. */
void ash_fault_sim_wake(struct ash_sim *sim, uint32_t process, uint64_t after_ns, uint64_t token);
/* Form the next view: started or removed follows. */
void ash_fault_sim_reform(struct ash_sim *sim, uint32_t process, bool leaves);
/* The first rank of the view is to know that this process wants to leave. */
void ash_fault_sim_want_leave(struct ash_sim *sim, uint32_t process);
/* Give up the view for all its members. */
void ash_fault_sim_abort(struct ash_sim *sim, uint32_t process);
/* Processes that wait to join and want to leave, as this one knows. Anywhere. */
void ash_fault_sim_news(struct ash_sim *sim, uint32_t process, size_t *joiners_out, size_t *leavers_out);
/* The process ends in good order and stays away; is_failure: it dies, and may come back. */
void ash_fault_sim_end(struct ash_sim *sim, uint32_t process, bool is_failure);
/* Does it live and not sleep? Anywhere. */
bool ash_fault_sim_is_awake(const struct ash_sim *sim, uint32_t process);
/* Do two processes reach each other? Anywhere. */
bool ash_fault_sim_reaches(const struct ash_sim *sim, uint32_t a, uint32_t b);
/* The process with this id in a view; UINT32_MAX: it has ended. Anywhere. */
uint32_t ash_fault_sim_find(struct ash_sim *sim, uint64_t id);
/* The run is wrong; the first sentence counts. Anywhere. */
void ash_fault_sim_violate(struct ash_sim *sim, const char *sentence);

#endif
