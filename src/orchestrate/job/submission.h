/* submission - a job for a cluster: its requests, its job file, and the arguments of every node's command. Back ends
 * (local, slurm, kubernetes) translate it. */
#ifndef ASH_ORCHESTRATE_JOB_SUBMISSION_H
#define ASH_ORCHESTRATE_JOB_SUBMISSION_H

#include <stdbool.h>
#include <stddef.h>
#include "base/str.h"
#include "orchestrate/job/spec.h"

#define ASH_SUBMISSION_WORDS_MAX 512
#define ASH_SUBMISSION_MEMBERS ".ashlar-members" /* in the folder of the run: members of a job on several nodes */

struct ash_submission {
    const struct ash_spec *spec; /* resolved */
    const char *program;         /* path of ashlar, as the nodes see it */
    bool is_program_given;       /* by the user; else it is this program's own */
    const char *job_file;        /* ... of the job file */
    const char *out;             /* folder of the run */
    const char *const *settings; /* key=value words that override the file */
    size_t setting_count;
    bool allow_change;            /* a run continues although its job changed */
    const char *kind, *scheduler; /* of Kubernetes, by name; NULL: an Indexed Job, the default scheduler */
};

/* What differs between nodes, as text that the back end fills in when the node starts. */
struct ash_submission_place {
    const char *node_rank; /* "3", "$SLURM_NODEID", "$(NODE_RANK)"; NULL: all nodes are on this machine */
    const char *master;    /* HOST:PORT where the first rank listens; NULL with node_rank NULL */
    bool is_looked_at;     /* the back end looks at the nodes itself (job.check) before it starts them */
};

/* Words of the supervisor of one node: ashlar launch ... train JOB --out DIR --resume key=value. */
struct ash_submission_words {
    const char *items[ASH_SUBMISSION_WORDS_MAX + 1]; /* NULL-terminated */
    size_t count;
    char numbers[12][48]; /* texts of the numbers among them */
    size_t number_count;
};

/* Write the arguments of a node's command. Texts are borrowed from the submission, the place and words_out itself.
 * Returns 0 or -E2BIG for too many settings, -ENAMETOOLONG. */
int ash_submission_list_words(const struct ash_submission *submission, const struct ash_submission_place *place,
                              struct ash_submission_words *words_out, struct ash_err *err);

#endif
