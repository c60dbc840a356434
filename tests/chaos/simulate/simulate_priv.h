/* simulate_priv - the inside of a simulated job: simulate.c (processes, events, a run), simulate_queue.c (time),
 * simulate_network.c (who reaches whom, messages, the register), simulate_faults.c (what goes wrong), simulate_check.c
 * (what must be true), simulate_owner.c (for owners of processes). */
#ifndef ASH_TESTS_CHAOS_SIMULATE_SIMULATE_PRIV_H
#define ASH_TESTS_CHAOS_SIMULATE_SIMULATE_PRIV_H

#include "collective/member/member.h"
#include "chaos/simulate/simulate.h"

#define ASH_SIM_CUTS 4
#define ASH_SIM_NEVER UINT64_MAX
#define ASH_SIM_ID_SHIFT 24  /* of the incarnation in a process's id */
#define ASH_SIM_SPARES 65536 /* messages that are kept to be used again */

enum ash_sim_event_kind {
    ASH_SIM_MESSAGE,
    ASH_SIM_TICK,
    ASH_SIM_DIED,        /* `other` is known to be dead */
    ASH_SIM_UNREACHABLE, /* the host of `other` does not answer */
    ASH_SIM_READY,       /* the owner comes to the meeting */
    ASH_SIM_STEP,        /* a view may finish a step: `other` is its proposal */
    ASH_SIM_OWNER,       /* a time that the owner asked for: `other` is its token */
    ASH_SIM_FAULT,
    ASH_SIM_KILL,
    ASH_SIM_WAKE,
    ASH_SIM_RESTART,
    ASH_SIM_HEAL,  /* cut `other` ends */
    ASH_SIM_QUIET, /* noise ends */
};

/* What lies in the queue. */
struct ash_sim_event {
    uint64_t at_ns, order;
    uint64_t other;
    struct ash_member_msg *msg;
    uint32_t slot, incarnation;
    enum ash_sim_event_kind kind;
};

enum ash_sim_life { ASH_SIM_ABSENT, ASH_SIM_ALIVE, ASH_SIM_ASLEEP, ASH_SIM_DEAD, ASH_SIM_OUT };

struct ash_sim;

/* A place for a process, and the process in it. */
struct ash_sim_process {
    struct ash_sim *sim;
    struct ash_member *member;
    uint32_t slot, incarnation, host;
    enum ash_sim_life life;
    uint64_t tick_at_ns;       /* of the tick that is in the queue */
    uint64_t free_ns;          /* when it can take the next message */
    uint64_t waits_since_ns;   /* for a view; ASH_SIM_NEVER: it does not */
    uint64_t asleep_ns;        /* of its wait */
    uint64_t over_ns;          /* when it learnt that its epoch is over */
    struct ash_sim_view *view; /* that it runs; NULL: none */
    int64_t held_step;         /* the newest step whose state it has; -1: none */
    int64_t kept_step;         /* the same, had no mistake been planted */
    uint64_t wake_ns;
    bool is_leaving;
};

/* A view that a process has started. */
struct ash_sim_view {
    struct ash_view *view;
    size_t running; /* processes that run it and are awake */
    bool has_run;   /* all did, at some time */
    bool has_step_due;
    int64_t step; /* the newest that it has, once it has run */
    struct ash_sim_view *next;
};

struct ash_sim_cut {
    bool is_set, is_one_way;
    uint64_t salt;     /* which hosts are on the far side */
    uint32_t far_host; /* at least this one */
    unsigned share;
};

struct ash_sim {
    struct ash_fault_sim_opts opts;
    struct ash_fault_sim_result *result;
    struct ash_member_opts machine;
    struct ash_member_ops ops;
    uint64_t now_ns, order, draws;
    struct ash_sim_event *heap;
    size_t heap_count, heap_room;
    struct ash_member_msg **spare; /* messages that can be used again */
    size_t spare_count, spare_room;
    struct ash_sim_process *processes;
    bool *host_is_dead;
    size_t hosts;
    struct ash_sim_cut cuts[ASH_SIM_CUTS];
    double loss, spike; /* probabilities, while there is noise */
    bool has_register;
    uint64_t *entries; /* of the register, by epoch */
    size_t entry_room;
    struct ash_sim_view *views; /* newest first */
    struct ash_sim_view *last;  /* that finished a step */
    int64_t finished_step;
    uint64_t faults_end_ns, settled_ns;
    size_t pending; /* faults that have not ended, restarts that are due */
    bool is_out_of_memory, is_over;
};

/* ---- simulate_queue.c -------------------------------------------------------------------------------------------- */
/* A random number below bound. */
uint64_t ash_sim_below(struct ash_sim *sim, uint64_t bound);
/* Seconds between two bounds, in nanoseconds. */
uint64_t ash_sim_between(struct ash_sim *sim, double from_s, double to_s);
/* An event for the process that is in this place now. */
struct ash_sim_event ash_sim_make_event(struct ash_sim *sim, uint64_t at_ns, enum ash_sim_event_kind kind,
                                        uint32_t slot);
/* Put it into the queue; out of memory is noted in sim. */
void ash_sim_push(struct ash_sim *sim, const struct ash_sim_event *event);
/* Make an event and put it into the queue. */
void ash_sim_post(struct ash_sim *sim, uint64_t at_ns, enum ash_sim_event_kind kind, uint32_t slot, uint64_t other);
/* Take the next event; there is one. */
struct ash_sim_event ash_sim_pop(struct ash_sim *sim);

/* ---- simulate_network.c ------------------------------------------------------------------------------------------ */
/* The id of the process that is in a place now. */
uint64_t ash_sim_id(const struct ash_sim_process *process);
/* The process whose id this is, if it is the one in its place now; NULL: another one is. */
struct ash_sim_process *ash_sim_find(struct ash_sim *sim, uint64_t id);
/* Can a message go from one host to the other? */
bool ash_sim_connects(const struct ash_sim *sim, uint32_t from, uint32_t to);
/* How long the next message takes. */
uint64_t ash_sim_draw_delay(struct ash_sim *sim);
/* As send of struct ash_member_ops; ctx is the process that sends. */
void ash_sim_send(void *ctx, uint64_t to_id, const struct ash_member_msg *msg);
/* A message that was delivered, or never will be. */
void ash_sim_drop_message(struct ash_sim *sim, struct ash_member_msg *msg);
/* As decide of struct ash_member_ops. The register is on the first host, or on whichever network that belongs to. */
int ash_sim_decide(void *ctx, uint32_t epoch, uint64_t proposal, uint64_t *winner_out);

/* ---- simulate.c -------------------------------------------------------------------------------------------------- */
/* Put a new process into a place: a joiner. */
void ash_sim_restart(struct ash_sim *sim, struct ash_sim_process *process);
/* End a process at once. Its host says so, unless it is dead too. */
void ash_sim_kill(struct ash_sim *sim, struct ash_sim_process *process);

/* A view that runs has finished a step: where joiners or leavers wait, its members re-form. */
void ash_sim_meet_at_edge(struct ash_sim *sim, struct ash_sim_view *known);

/* The owner of a process comes to the meeting of the next view. */
void ash_sim_be_ready(struct ash_sim *sim, struct ash_sim_process *process);
/* Put the next timer of a process's machine into the queue, if it is sooner than the one there. */
void ash_sim_schedule(struct ash_sim *sim, struct ash_sim_process *process);

/* ---- simulate_faults.c ------------------------------------------------------------------------------------------- */
/* Draw when and what goes wrong. */
void ash_sim_faults_plan(struct ash_sim *sim);
/* A fault, or the end of one. */
void ash_sim_faults_happen(struct ash_sim *sim, const struct ash_sim_event *event);

/* ---- simulate_check.c -------------------------------------------------------------------------------------------- */
/* The job is wrong: the first time counts. */
void ash_sim_violate(struct ash_sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A process runs a view. */
void ash_sim_enter(struct ash_sim *sim, struct ash_sim_process *process, struct ash_view *view);
/* It no longer does, and keeps what it holds. */
void ash_sim_leave(struct ash_sim *sim, struct ash_sim_process *process);
/* It sleeps, or wakes: its view cannot finish steps meanwhile. */
void ash_sim_count(struct ash_sim *sim, struct ash_sim_process *process, bool is_awake);
/* A view may finish a step now. */
void ash_sim_step(struct ash_sim *sim, uint64_t proposal);
/* The wait of a process is over: was it too long? */
void ash_sim_waited(struct ash_sim *sim, struct ash_sim_process *process);
/* Do all that live run one view? */
bool ash_sim_is_settled(const struct ash_sim *sim);
/* At the end: what is left. */
void ash_sim_conclude(struct ash_sim *sim);
/* Free the views. */
void ash_sim_views_free(struct ash_sim *sim);

#endif
