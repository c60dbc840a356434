/* ends - ends of processes and jobs: names, exit codes and consequences, in one table for every back end. */
#ifndef ASH_ORCHESTRATE_NODE_ENDS_H
#define ASH_ORCHESTRATE_NODE_ENDS_H

#include <stdbool.h>
#include <stddef.h>

#define ASH_END_DONE 0
#define ASH_END_FAILED 1
#define ASH_END_BAD_SETTINGS 2
#define ASH_END_TAKEN 73       /* another machine's process trains into the folder, or its lock has not expired yet */
#define ASH_END_SAVED 75       /* stopped on request, and saved: to be restarted elsewhere or later */
#define ASH_END_BAD_MACHINE 78 /* not fit for the job: another one may be */
#define ASH_END_SIGNAL 128     /* plus the signal's number */
#define ASH_END_INTERRUPTED 130

struct ash_end {
    int code;
    const char *name;   /* "bad settings" */
    bool is_worth_more; /* could it end otherwise another time? */
};

/* The end of an exit code; never NULL. */
const struct ash_end *ash_end_of(int code);
/* "killed by signal 9 (Killed)", "bad settings (exit code 2)": for messages. Returns buf. */
const char *ash_end_describe(int code, char *buf, size_t buf_bytes);

#endif
