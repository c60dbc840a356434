/* jobs - one table of what can be done with jobs, the same for this machine, Slurm and Kubernetes. */
#ifndef ASH_ORCHESTRATE_JOB_JOBS_H
#define ASH_ORCHESTRATE_JOB_JOBS_H

#include <stdbool.h>
#include <stddef.h>
#include "ashlar/err.h"
#include "base/str.h"
#include "orchestrate/job/submission.h"
#include "orchestrate/job/usage.h"

#define ASH_JOBS_ID_BYTES 128
#define ASH_JOBS_REASON_BYTES 512

enum ash_jobs_phase {
    ASH_JOBS_WAITING,
    ASH_JOBS_HELD,
    ASH_JOBS_RUNNING,
    ASH_JOBS_DONE,
    ASH_JOBS_FAILED,
    ASH_JOBS_STOPPED, /* on request */
    ASH_JOBS_PHASES
};

/* A job as a back end lists it. Texts are truncated. */
struct ash_jobs_entry {
    char id[ASH_JOBS_ID_BYTES], name[ASH_JOBS_ID_BYTES], user[64];
    enum ash_jobs_phase phase;
    char reason[ASH_JOBS_REASON_BYTES]; /* why it waits or how it ended, in the back end's words; may be empty */
    size_t nodes;
    double age_s;   /* since it was submitted; < 0: not known */
    char log[4096]; /* file with its output; empty: none that this machine sees */
    int code;       /* exit code of one that ended; -1: not known */
};

/* A growing list. Zero-initialise; free with ash_jobs_free. */
struct ash_jobs_list {
    struct ash_jobs_entry *entries;
    size_t count, capacity;
};

struct ash_jobs_ops {
    const char *name; /* "local", "slurm", "kubernetes" */
    /* Can this machine reach one? Quick, prints nothing. */
    bool (*is_here)(void);
    /* Append exactly what submit would send, as text for people. */
    int (*print)(const struct ash_submission *submission, struct ash_str *text_out, struct ash_err *err);
    /* Hand it over. The job's id comes back. */
    int (*submit)(const struct ash_submission *submission, char id_out[ASH_JOBS_ID_BYTES], struct ash_err *err);
    /* Append the jobs of this user; with an id only that one, also when it has ended (as long as it is remembered).
     * An id that is not known is -ENOENT. */
    int (*list)(const char *id, struct ash_jobs_list *list_out, struct ash_err *err);
    /* Append all that the back end reports of a job. */
    int (*show)(const char *id, struct ash_str *text_out, struct ash_err *err);
    /* Append the reason of waiting, the holders of the resources, the expected start, and changes that would make it
     * sooner. */
    int (*why)(const char *id, struct ash_str *text_out, struct ash_err *err);
    /* Append its output so far. NULL: it is in the file that entries name. */
    int (*output)(const char *id, struct ash_str *text_out, struct ash_err *err);
    /* Follow a job as it changes, if the back end has notifications; NULL, all three: it is polled. follow_out is the
     * handle of the other two. follow_next waits for a change, at most limit_ms, and fills in the job: 1 if it changed,
     * 0 if not; -ENOENT: it is gone. */
    int (*follow_open)(const char *id, void **follow_out, struct ash_err *err);
    int (*follow_next)(void *follow, int limit_ms, struct ash_jobs_entry *entry_out, struct ash_err *err);
    void (*follow_close)(void *follow);
    /* Request it to save and end. */
    int (*stop)(const char *id, struct ash_err *err);
    /* Keep it from starting, and let it again. NULL: the back end cannot. */
    int (*hold)(const char *id, struct ash_err *err);
    int (*release)(const char *id, struct ash_err *err);
    /* Append what jobs of all users that the back end tells of had between these moments (seconds since 1970). NULL: it
     * keeps no accounts. */
    int (*usage)(double from_s, double to_s, struct ash_usage_list *list_out, struct ash_err *err);
    /* All other calls are about this namespace from now on; space is borrowed. NULL: the back end has none. */
    int (*use_namespace)(const char *space, struct ash_err *err);
};

extern const struct ash_jobs_ops ash_jobs_local, ash_jobs_slurm, ash_jobs_kubernetes;

/* "waiting", "running", ... */
const char *ash_jobs_phase_name(enum ash_jobs_phase phase);
/* Has it ended, whichever way? */
bool ash_jobs_has_ended(enum ash_jobs_phase phase);
/* The back end called name; NULL: the one that is here (Slurm before Kubernetes before this machine). -EINVAL if there
 * is none of that name; err lists the names. */
int ash_jobs_choose(const char *name, const struct ash_jobs_ops **ops_out, struct ash_err *err);

/* Set the namespace of calls of ops; NULL: the user's default. Returns 0, or -EINVAL if it is no valid name, or if ops
 * has no namespaces. */
int ash_jobs_use_namespace(const struct ash_jobs_ops *ops, const char *space, struct ash_err *err);

/* Append a copy of entry. Returns 0 or -ENOMEM. */
int ash_jobs_add(struct ash_jobs_list *list, const struct ash_jobs_entry *entry);
/* Frees the entries. */
void ash_jobs_free(struct ash_jobs_list *list);

#endif
