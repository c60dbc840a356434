/* Judging XIDs: a row's own verdict, then adjustments by the GPU's kind, MIG, unified memory, spare rows, the driver's
 * own advice and the strict flag. Only ever upwards from the row, so that no flag hides a fault. */
#include "observe/health/xid.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"

#define REMAPS_FEW 2 /* of the eight that a bank has */

/* ---- the table --------------------------------------------------------------------------------------------------- */

#define PUSH_BUFFER "the stream of commands of a program was corrupt or not allowed"
#define COPY_ENGINE "a copy engine raised an exception"
#define VIDEO "an engine for video, pictures or optical flow raised an exception"

#define CATALOG "NVIDIA XID catalog"
#define BOTH "NVIDIA XID catalog; AWS health check"
#define MEMORY "NVIDIA XID catalog; NVIDIA memory errors"
#define MEMORY_BOTH "NVIDIA XID catalog; NVIDIA memory errors; AWS health check"
#define REPOST "NVIDIA XID catalog; AWS health check; AWS re:Post"
#define HYPERPOD "NVIDIA XID catalog; HyperPod"
#define HYPERPOD_BOTH "NVIDIA XID catalog; AWS health check; HyperPod"

static const char *const sources[] = {
    "NVIDIA XID catalog: https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",
    "NVIDIA memory errors: https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/",
    "AWS health check: https://github.com/awslabs/awsome-distributed-ai, 2.gpu-cluster-healthcheck (NVIDIA r590)",
    "HyperPod: https://github.com/awslabs/ai-on-sagemaker-hyperpod, website/docs",
    "AWS re:Post: https://repost.aws/knowledge-center/ec2-linux-troubleshoot-xid-errors",
};

enum bucket_id {
#define BUCKET(id, verdict, job, why, next) BUCKET_##id,
#include "observe/health/xid_list.h"
#undef BUCKET
};

struct bucket {
    enum ash_xid_verdict verdict;
    enum ash_xid_job job;
    const char *why, *next;
};

static const struct bucket buckets[] = {
#define BUCKET(id, verdict, job, why, next) [BUCKET_##id] = {ASH_XID_##verdict, ASH_XID_JOB_##job, why, next},
#include "observe/health/xid_list.h"
#undef BUCKET
};

struct row {
    int first, last;
    enum bucket_id bucket;
    enum ash_xid_verdict strict; /* ASH_XID_UNKNOWN: the bucket's */
    bool memory;
    const char *meaning, *next, *differ, *source;
};

#define ASH_XID_0 ASH_XID_UNKNOWN

static const struct row rows[] = {
#define X(first, last, bucket, strict, memory, meaning, next, differ, source)                                          \
    {first, last, BUCKET_##bucket, ASH_XID_##strict, memory, meaning, next, differ, source},
#include "observe/health/xid_list.h"
#undef X
};

static const struct row *find_row(int code)
{
    for (size_t i = 0; i < ASH_COUNT(rows); i++)
        if (code >= rows[i].first && code <= rows[i].last) return &rows[i];
    return NULL;
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

const char *ash_xid_verdict_name(enum ash_xid_verdict verdict)
{
    static const char *const names[] = {"unknown", "monitor", "reset", "reboot", "isolate"};

    ash_assert((size_t)verdict < ASH_COUNT(names));
    return names[verdict];
}

const char *ash_xid_job_text(enum ash_xid_job job, bool mig)
{
    switch (job) {
    case ASH_XID_JOB_PROCESS:
        return mig ? "the process that met it is lost and its job restarts; other MIG instances continue"
                   : "the process that met it is lost and its job restarts; other processes continue";
    case ASH_XID_JOB_GPU:
        return mig ? "the job must end: a reset takes all MIG instances of the GPU with it"
                   : "the job must end: a reset takes every process on the GPU with it";
    case ASH_XID_JOB_NODE:
        return "the job must end: everything on the machine has to stop";
    default:
        return "the job may continue";
    }
}

const char *ash_xid_source(size_t index)
{
    return index < ASH_COUNT(sources) ? sources[index] : NULL;
}

int ash_xid_kind_of(const char *name, const char *arch, enum ash_xid_kind *kind_out, struct ash_err *err)
{
    static const struct {
        const char *arch;
        enum ash_xid_kind kind;
    } kinds[] = {{"Ampere", ASH_XID_AMPERE},       {"Ada", ASH_XID_AMPERE},  {"Hopper", ASH_XID_HOPPER},
                 {"Blackwell", ASH_XID_BLACKWELL}, {"Volta", ASH_XID_OLDER}, {"Turing", ASH_XID_OLDER},
                 {"Pascal", ASH_XID_OLDER}};

    for (size_t i = 0; i < ASH_COUNT(kinds); i++) {
        if (arch == NULL || strncmp(arch, kinds[i].arch, strlen(kinds[i].arch)) != 0) continue;
        *kind_out = kinds[i].kind == ASH_XID_AMPERE && strstr(name, "A100") != NULL ? ASH_XID_A100 : kinds[i].kind;
        return 0;
    }
    return ash_err_set(err, -EINVAL,
                       "%s (%s) is not an NVIDIA GPU of a generation that is known here: XIDs are NVIDIA's", name,
                       arch != NULL ? arch : "no architecture in the catalog");
}

/* ---- one code ---------------------------------------------------------------------------------------------------- */

/* Isolating by itself ends nothing: a job that the code does not end finishes first. */
static void raise_to(struct ash_xid_finding *finding, enum ash_xid_verdict verdict, const char *why, const char *next)
{
    if (verdict <= finding->verdict) return;
    finding->verdict = verdict;
    if (verdict == ASH_XID_RESET) finding->job = ASH_XID_JOB_GPU;
    if (verdict == ASH_XID_REBOOT) finding->job = ASH_XID_JOB_NODE;
    finding->why = why;
    finding->next = next;
}

/* A100s restart where later GPUs are reset. */
static void apply_kind(const struct ash_xid_setting *setting, bool mig, struct ash_xid_finding *finding)
{
    const char *next = buckets[BUCKET_RESTART_BM].next;

    if (setting->kind != ASH_XID_A100) return;
    if (finding->code == 64)
        raise_to(finding, ASH_XID_REBOOT, "on an A100 a failed remap needs the machine restarted", next);
    if (finding->code == 95 && !mig)
        raise_to(finding, ASH_XID_REBOOT, "on an A100 without MIG an uncontained error needs the machine restarted",
                 next);
}

static void apply_action(enum ash_xid_action action, struct ash_xid_finding *finding)
{
    switch (action) {
    case ASH_XID_ACTION_REBOOT:
        raise_to(finding, ASH_XID_REBOOT, "the driver itself asks for a reboot of the node",
                 buckets[BUCKET_RESTART_BM].next);
        break;
    case ASH_XID_ACTION_RESET:
        raise_to(finding, ASH_XID_RESET, "the driver itself asks for a reset of the GPU",
                 buckets[BUCKET_RESET_GPU].next);
        break;
    case ASH_XID_ACTION_DRAIN_RESET:
        raise_to(finding, ASH_XID_RESET, "the driver itself asks to drain the GPU and reset it",
                 "give it no new work, let what runs on it end where it can, then nvidia-smi --gpu-reset");
        break;
    case ASH_XID_ACTION_DRAIN_P2P:
        raise_to(finding, ASH_XID_RESET, "the driver itself asks to end all traffic between GPUs first",
                 "end the processes that talk to other GPUs, then read GPU Recovery Action in nvidia-smi -q again");
        break;
    case ASH_XID_ACTION_NONE:
        finding->why = "the driver's last word is that it needs no action";
        finding->next = "nothing for this line; lines before it may be of a time before a reset";
        break;
    default:
        break;
    }
}

static void judge_code(const struct ash_xid_setting *setting, const struct ash_xid_gpu *gpu,
                       const struct ash_xid_seen *seen, struct ash_xid_finding *finding)
{
    const struct row *row = find_row(seen->code);

    *finding = (struct ash_xid_finding){.code = seen->code, .count = seen->count};
    if (row == NULL) return;
    finding->verdict = buckets[row->bucket].verdict;
    finding->job = buckets[row->bucket].job;
    finding->meaning = row->meaning;
    finding->why = buckets[row->bucket].why;
    finding->next = row->next != NULL ? row->next : buckets[row->bucket].next;
    finding->differ = row->differ;
    finding->source = row->source;
    apply_kind(setting, setting->mig || gpu->mig, finding);
    if (seen->code == 154) apply_action(gpu->action, finding);
    if (ash_xid_is_nvlink5(seen->code) && gpu->is_link_fatal)
        raise_to(finding, ASH_XID_RESET, "its line says Fatal", buckets[BUCKET_WORKFLOW_NVLINK_ERR].next);
    if (seen->code == 159 && setting->uvm)
        raise_to(finding, ASH_XID_RESET, "unified memory is in use, so the error can have reached a program",
                 buckets[BUCKET_RESET_GPU].next);
    if (setting->strict)
        raise_to(finding, row->strict, "--strict: the hardest of what sources do",
                 row->strict == ASH_XID_ISOLATE ? "give it no new job and have it replaced"
                                                : buckets[BUCKET_RESTART_BM].next);
    if (row->memory && setting->remaps_left == 0)
        raise_to(finding, ASH_XID_ISOLATE, "a bank has no spare row left, so the next bad row stays in use",
                 "give it no new job and have it replaced; a failed remap is NVIDIA's own reason for a return");
}

/* ---- one GPU ----------------------------------------------------------------------------------------------------- */

static bool logged(const struct ash_xid_gpu *gpu, int first, int last)
{
    for (size_t i = 0; i < gpu->count; i++)
        if (gpu->seen[i].code >= first && gpu->seen[i].code <= last) return true;
    return false;
}

static void note(struct ash_xid_answer *answer, bool when, const char *text)
{
    if (when && answer->note_count < ASH_XID_NOTES_MAX) answer->notes[answer->note_count++] = text;
}

static void add_notes(const struct ash_xid_setting *setting, const struct ash_xid_gpu *gpu,
                      struct ash_xid_answer *answer)
{
    int left = setting->remaps_left;
    enum ash_xid_kind kind = setting->kind;

    note(
        answer, answer->unknown > 0,
        "a code that is not in this table was logged: look it up in NVIDIA's XID catalog before you trust the verdict");
    note(answer, kind == ASH_XID_ANY_GPU && (logged(gpu, 64, 64) || logged(gpu, 95, 95)),
         "64 and 95 reboot an A100 (95: without MIG) and reset later GPUs: say which it is with --gpu");
    note(answer, kind == ASH_XID_OLDER,
         "NVIDIA's catalog covers Ampere and later: older GPUs have a list of their own");
    note(answer, (kind == ASH_XID_A100 || kind == ASH_XID_AMPERE || kind == ASH_XID_HOPPER) && logged(gpu, 144, 150),
         "144 to 150 are codes of Blackwell: this is another GPU than --gpu says, or the line is not what it seems");
    note(answer, logged(gpu, 48, 48) && logged(gpu, 63, 64),
         "48 with 63 or 64 is one story: drain the GPU before the reset, so that the recorded row is swapped");
    note(answer, logged(gpu, 154, 154) && gpu->action == ASH_XID_ACTION_ABSENT && gpu->address[0] == '\0',
         "154 says what to do in the text of its line: give the log instead of the code");
    note(answer, logged(gpu, 154, 154) && gpu->action == ASH_XID_ACTION_UNREAD,
         "the action in the line of 154 is none that is known here: read the line");
    note(answer, left >= 1 && left <= REMAPS_FEW,
         "few spare rows are left in a bank: keep it, and plan its replacement (NVIDIA takes a GPU back after a remap "
         "that failed; a bank has eight)");
    note(
        answer, left == 0 && answer->verdict < ASH_XID_ISOLATE,
        "a bank has no spare row left, but no memory error was logged: keep it until one is, and plan its replacement");
    note(answer, setting->corrected_per_day > 0,
         "corrected errors alone never change the verdict: no public source gives a rate at which a GPU goes; a rate "
         "that rises is a reason for dcgmi diag -r 3 between jobs");
    note(answer, setting->corrected_per_day > 0 && left == 0,
         "corrected errors without spare rows: the first uncorrected one there ends the GPU's service");
}

void ash_xid_judge(const struct ash_xid_setting *setting, const struct ash_xid_gpu *gpu,
                   struct ash_xid_answer *answer_out)
{
    struct ash_xid_answer *answer = answer_out;

    ash_assert(gpu->count <= ASH_COUNT(answer->findings)); /* one a code */
    memset(answer, 0, sizeof(*answer));
    for (size_t i = 0; i < gpu->count; i++) {
        struct ash_xid_finding *finding = &answer->findings[answer->count++];

        judge_code(setting, gpu, &gpu->seen[i], finding);
        if (finding->verdict == ASH_XID_UNKNOWN) answer->unknown++;
        if (finding->verdict > answer->verdict) {
            answer->verdict = finding->verdict;
            answer->decided = i;
        }
        if (finding->job > answer->job) answer->job = finding->job;
    }
    add_notes(setting, gpu, answer);
}
