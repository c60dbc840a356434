/* room - free units of every domain of a topology, kept up to date host by host. A host has units (GPUs); a domain
 * knows how many of its hosts have at least n units free, so that "does it fit below this switch" is one look. One
 * owner thread. */
#ifndef ASH_INFRA_ROOM_H
#define ASH_INFRA_ROOM_H

#include "infra/topology/topology.h"

#define ASH_ROOM_UNITS_MAX 64

struct ash_room;

/* Nothing is free yet. No host has more than units_max units (1 to ASH_ROOM_UNITS_MAX). topology is borrowed until
 * close. Returns 0 or -ENOMEM; on 0 the caller owns *room_out. */
int ash_room_open(const struct ash_topology *topology, int units_max, struct ash_room **room_out);
/* NULL and half-built rooms are fine. */
void ash_room_close(struct ash_room *room);

/* A host now has this many units free, 0 to units_max. */
void ash_room_set(struct ash_room *room, int host, int units);
/* The value last set. */
int ash_room_units(const struct ash_room *room, int host);
/* Hosts below a node (the host itself, where it is one) that have at least units free; units is 1 to units_max. */
int ash_room_hosts(const struct ash_room *room, int node, int units);

/* Domains of one height (1: right above hosts), from the lowest index on: a list that lives as long as room, and its
 * length. */
const int *ash_room_domains(const struct ash_room *room, int height, int *count_out);
/* What hangs right below a domain, likewise. */
const int *ash_room_children(const struct ash_room *room, int domain, int *count_out);

/* The fullest domain of that height below `within` that still has `wanted` hosts with that many free units; the first
 * of equals; -1: none has. */
int ash_room_fullest(const struct ash_room *room, int within, int height, int units, int wanted);
/* The host that one job of that many units fits best: the fewest units left over, then the fullest lowest domain. Only
 * below `within`. -1: none. */
int ash_room_tightest(const struct ash_room *room, int within, int units);
/* Choose wanted hosts below domain, which has as many with that many units free: whole parts first, the last part by
 * best fit. hosts_out has room for wanted. Returns 0 or -ENOMEM. */
int ash_room_choose(const struct ash_room *room, int domain, int units, int wanted, int *hosts_out);
/* Groups of `size` hosts that fit below domain, every group inside one domain of that height. */
int ash_room_group_count(const struct ash_room *room, int domain, int height, int units, int size);
/* Groups that are wanted: inside domains of which height, with how many units, how large, how many. */
struct ash_room_groups {
    int height, units, size, count;
};

/* Choose such groups, one after the other in hosts_out (count * size); domain has as many. Returns 0 or -ENOMEM. */
int ash_room_choose_groups(const struct ash_room *room, int domain, const struct ash_room_groups *groups,
                           int *hosts_out);

/* Where whole hosts are wanted: the smallest domain that holds them, and among equals the fullest. */
struct ash_room_domain {
    int domain;  /* -1: none does, even when all of the cluster is free */
    int missing; /* hosts that must become free there first; 0: it can start now */
};

/* Best domain now (best fit among hosts with one unit free) and the one worth waiting for: the lowest in the tree that
 * is large enough, with the fewest missing. */
void ash_room_find(const struct ash_room *room, int wanted, struct ash_room_domain *now_out,
                   struct ash_room_domain *best_out);

#endif
