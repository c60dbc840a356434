/* diagnose_priv - what judging scrapes and reading logs share. */
#ifndef ASH_OBSERVE_HEALTH_DIAGNOSE_PRIV_H
#define ASH_OBSERVE_HEALTH_DIAGNOSE_PRIV_H

#include "observe/health/diagnose.h"
#include "observe/health/series.h"

#define ASH_DIAGNOSE_NOTES 32

struct ash_diagnose {
    struct ash_scrape **scrapes; /* owned, and the node names in the same order */
    char **names;
    size_t scrape_count;
    struct ash_series_set now, before;
    double seconds; /* between them, 0: unknown */
    struct ash_finding *findings;
    size_t finding_count, finding_capacity;
    struct ash_check *checks;
    size_t check_count;
    struct ash_check notes[ASH_DIAGNOSE_NOTES];
    size_t note_count;
    size_t nodes, skipped, log_lines, log_good;
};

/* Apply one rule to all series and record the result. The sets must be sorted. Returns 0 or -ENOMEM. */
int ash_diagnose_judge(struct ash_diagnose *diagnose, const struct ash_rule *rule, struct ash_check *check_out);

/* A rule that counts series by node: now_count of them, sorted, from now on. Returns 0 or -ENOMEM. */
int ash_diagnose_judge_count(struct ash_diagnose *diagnose, const struct ash_rule *rule, const struct ash_series *now,
                             size_t now_count, struct ash_check *check);
/* A rule of XIDs. Returns 0 or -ENOMEM. */
int ash_diagnose_judge_xid(struct ash_diagnose *diagnose, const struct ash_rule *rule, const struct ash_series *series,
                           size_t count);
/* Remove findings that have another cause: a job that rereads its pages for lack of memory waits for storage, and
 * storage is not to blame; a job without enough cores computes for longer. Call it once all rules are judged. */
void ash_diagnose_excuse(struct ash_diagnose *diagnose);
/* A finding with a rule's words. */
struct ash_finding ash_finding_of(const struct ash_rule *rule);
/* Add the meaning of a GPU's code to a finding: harmless ones are only watched, others keep their severity and get the
 * remedy. line (NULL: none): the first with the code, which may have details. Returns the verdict's name. */
const char *ash_diagnose_explain_xid(struct ash_finding *finding, int code, const char *line, size_t line_bytes);

#endif
