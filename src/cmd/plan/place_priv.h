/* place_priv - what `ashlar plan place` found, on its way to table and JSON. */
#ifndef ASH_CMD_PLAN_PLACE_PRIV_H
#define ASH_CMD_PLAN_PLACE_PRIV_H

#include "infra/topology/room.h"
#include "plan/place/place.h"

struct ash_placement_answer {
    struct ash_topology *topology;
    struct ash_room *all, *open; /* every host of it; those that are free */
    struct ash_placement_job job;
    /* a running job */
    int *hosts;     /* in the order of ranks */
    int *order;     /* the same in a better order, or as they are */
    bool *crossing; /* the worst link, by position in hosts */
    int span;       /* the smallest domain that holds them all */
    struct ash_placement given, reordered;
    /* a job that waits */
    bool queued;
    int *free_hosts, free_count;
    int *busy_hosts, busy_count;      /* of the domain that is worth waiting for */
    struct ash_room_domain now, best; /* best: the smallest that could hold it; of a running job, were all free */
    struct ash_placement place_now, place_best;
    double wait_minutes;  /* that the user expects to wait; 0: unknown */
    double worth_minutes; /* of waiting that the whole job pays back; 0: unknown */
};

/* One line: what to do. */
const char *ash_place_verdict(const struct ash_placement_answer *answer, char *buf, size_t buf_bytes);
/* Print the tables for people. */
void ash_placement_print_table(const struct ash_placement_answer *answer);
/* Print one JSON object. Returns 0 or a negative errno with the reason in err. */
int ash_placement_print_json(const struct ash_placement_answer *answer, struct ash_err *err);

#endif
