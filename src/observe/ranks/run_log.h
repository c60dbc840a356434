/* run_log - lines of a run's log.jsonl: flat JSON objects, one per step, perhaps cut or damaged. */
#ifndef ASH_OBSERVE_RANKS_RUN_LOG_H
#define ASH_OBSERVE_RANKS_RUN_LOG_H

/* The number of a key, or NaN: there is none, it is null, or it is 1e30 or more (so that sums stay finite). */
double ash_run_log_number(const char *line, const char *key);

#endif
