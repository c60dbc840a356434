/* xid - a GPU logged XIDs: is it kept, reset, its machine rebooted, or is it replaced, and must the job end?
 * The codes and their meanings in public sources are rows of xid_list.h. A code without a row gets no verdict instead
 * of a guess. */
#ifndef ASH_OBSERVE_HEALTH_XID_H
#define ASH_OBSERVE_HEALTH_XID_H

#include <stdbool.h>
#include <stddef.h>
#include "ashlar/err.h"

/* From mild to hard: of several codes the hardest decides. */
enum ash_xid_verdict { ASH_XID_UNKNOWN, ASH_XID_MONITOR, ASH_XID_RESET, ASH_XID_REBOOT, ASH_XID_ISOLATE };

/* What runs on the GPU. */
enum ash_xid_job {
    ASH_XID_JOB_GOES_ON,
    ASH_XID_JOB_PROCESS, /* the process that met the fault is lost, and with it a job that spans it */
    ASH_XID_JOB_GPU,     /* every process on the GPU must end */
    ASH_XID_JOB_NODE,    /* every process on the machine must end */
};

/* Which rules apply. XIDs are NVIDIA's alone. */
enum ash_xid_kind { ASH_XID_ANY_GPU, ASH_XID_A100, ASH_XID_AMPERE, ASH_XID_HOPPER, ASH_XID_BLACKWELL, ASH_XID_OLDER };

/* NVLink 5 units of Blackwell report these, whose lines contain Fatal or Nonfatal. */
static inline bool ash_xid_is_nvlink5(int code)
{
    return code >= 144 && code <= 150;
}

/* The driver's own advice in the text of an XID 154 (numbers of NVML's GPU recovery actions). */
enum ash_xid_action {
    ASH_XID_ACTION_ABSENT = -1,
    ASH_XID_ACTION_NONE,
    ASH_XID_ACTION_RESET,
    ASH_XID_ACTION_REBOOT,
    ASH_XID_ACTION_DRAIN_P2P,
    ASH_XID_ACTION_DRAIN_RESET,
    ASH_XID_ACTION_UNREAD, /* there is one, but not one of these */
};

#define ASH_XID_GPUS_MAX 128
#define ASH_XID_CODES_MAX 64
#define ASH_XID_NOTES_MAX 12

/* What one GPU logged. */
struct ash_xid_seen {
    int code, count;
};

struct ash_xid_gpu {
    char address[32];                            /* "0000:3b:00"; empty where codes came without a log */
    bool mig;                                    /* a line named a MIG instance */
    enum ash_xid_action action;                  /* of the last XID 154 */
    bool is_link_fatal;                          /* a line of XID 144 to 150 contains Fatal */
    struct ash_xid_seen seen[ASH_XID_CODES_MAX]; /* in the order of their first line */
    size_t count;
};

struct ash_xid_log {
    struct ash_xid_gpu gpus[ASH_XID_GPUS_MAX];
    size_t gpu_count;
    size_t lines;        /* with an XID */
    size_t switch_lines; /* with an SXid: of an NVSwitch, which is not judged */
};

/* "79" or "48,63". -EINVAL: not a list of whole numbers from 1 to 9999. */
int ash_xid_codes_parse(const char *text, struct ash_xid_gpu *gpu_out, struct ash_err *err);
/* The XID lines of one machine's kernel log, whatever precedes "Xid (" in them; all other lines are skipped.
 * text need not end in NUL. -E2BIG: more GPUs or codes than a machine has; log_out then has the GPUs read before. A log
 * without XIDs has gpu_count 0. */
int ash_xid_log_parse(const char *text, size_t size_bytes, struct ash_xid_log *log_out, struct ash_err *err);

/* Facts in addition to the codes. */
struct ash_xid_setting {
    enum ash_xid_kind kind;
    bool mig;                 /* MIG is on */
    bool strict;              /* the harder verdict where sources differ */
    bool uvm;                 /* unified memory is in use */
    int remaps_left;          /* spare rows of the memory bank that has the fewest; negative: unknown */
    double corrected_per_day; /* corrected memory errors; negative: unknown */
};

/* The kind of a GPU by the catalog's name and architecture. -EINVAL: it is not NVIDIA's and logs no XIDs. */
int ash_xid_kind_of(const char *name, const char *arch, enum ash_xid_kind *kind_out, struct ash_err *err);

/* One code on one GPU. Strings are static. */
struct ash_xid_finding {
    int code, count;
    enum ash_xid_verdict verdict; /* ASH_XID_UNKNOWN: the code has no row, and the strings are NULL */
    enum ash_xid_job job;
    const char *meaning, *why, *next, *source;
    const char *differ; /* how public sources disagree; NULL where they do not */
};

struct ash_xid_answer {
    enum ash_xid_verdict verdict; /* the hardest of the known; ASH_XID_UNKNOWN where none is known */
    enum ash_xid_job job;
    size_t decided; /* index of the finding that gave the verdict; 0 where none did */
    size_t unknown; /* codes without a row */
    struct ash_xid_finding findings[ASH_XID_CODES_MAX];
    size_t count;
    const char *notes[ASH_XID_NOTES_MAX]; /* notes on the setting and the combination of codes; static */
    size_t note_count;
};

/* Judge what one GPU logged. Never fails: a code without a row is a finding without a verdict. */
void ash_xid_judge(const struct ash_xid_setting *setting, const struct ash_xid_gpu *gpu,
                   struct ash_xid_answer *answer_out);

/* "reset", "the job must end: ...": words for people and programs. */
const char *ash_xid_verdict_name(enum ash_xid_verdict verdict);
/* What becomes of the job, as a part of a sentence; mig: the GPU is divided. Static. */
const char *ash_xid_job_text(enum ash_xid_job job, bool mig);
/* The sources that rows name, with their addresses: index from 0, NULL after the last. */
const char *ash_xid_source(size_t index);

#endif
