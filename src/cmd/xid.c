/* ashlar xid: a GPU logged XIDs: keep, reset, reboot or replace, and must the job end? */
#include "cmd/catalog_priv.h"
#include "cmd/cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/str.h"
#include "observe/health/xid.h"

struct flags {
    const char *log, *gpu;
    bool mig, strict, uvm, json;
    int64_t remaps_left;
    double corrected_per_day;
    struct ash_catalog_flags machines;
};

#define FIELD(name) offsetof(struct flags, name)

static const struct ash_opt xid_opts[] = {
    {"log", ASH_OPT_STRING, FIELD(log), NULL, "one machine's kernel log instead of codes (- is standard input)", 0, 0,
     NULL},
    {"gpu", ASH_OPT_STRING, FIELD(gpu), NULL, "which GPU it is (ashlar catalog ls): rules differ by generation", 0, 0,
     NULL},
    {"mig", ASH_OPT_BOOL, FIELD(mig), NULL, "the GPU is divided (MIG)", 0, 0, NULL},
    {"uvm", ASH_OPT_BOOL, FIELD(uvm), NULL, "programs use unified memory: matters for XID 159", 0, 0, NULL},
    {"strict", ASH_OPT_BOOL, FIELD(strict), NULL, "where public sources differ, the harder verdict", 0, 0, NULL},
    {"remaps-left", ASH_OPT_INT, FIELD(remaps_left), NULL,
     "spare rows of the memory bank that has the fewest (nvidia-smi -q -d ROW_REMAPPER)", 0, 512, NULL},
    {"corrected-per-day", ASH_OPT_DOUBLE, FIELD(corrected_per_day), NULL, "corrected memory errors in a day", 0, 1e15,
     NULL},
    {"json", ASH_OPT_BOOL, FIELD(json), NULL, "print one JSON object", 0, 0, NULL},
};

static const struct ash_opt_table xid_table = {
    .section = "", .help = "flags", .opts = xid_opts, .count = ASH_COUNT(xid_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar xid CODE[,CODE...] | --log FILE [flags]",
    .about =
        "Says for each GPU what the XIDs that NVIDIA's driver logged mean, what to do (isolate and replace, reboot,\n"
        "reset, or monitor; the hardest of all codes), whether the job must end, and who says so. A code that is\n"
        "not in the table gets no verdict.",
    .examples = "  ashlar xid 79\n"
                "  ashlar xid 48,63 --gpu A100-SXM4-80GB --remaps-left 5\n"
                "  dmesg | ashlar xid --log - --gpu H100 --json",
};

/* ---- people ------------------------------------------------------------------------------------------------------ */

static const char *verdict_text(enum ash_xid_verdict verdict)
{
    static const char *const texts[] = {
        [ASH_XID_UNKNOWN] = "no verdict: no code is known here",
        [ASH_XID_MONITOR] = "monitor: keep it in service",
        [ASH_XID_RESET] = "reset the GPU",
        [ASH_XID_REBOOT] = "reboot the machine",
        [ASH_XID_ISOLATE] = "isolate the machine and replace the GPU",
    };

    ash_assert((size_t)verdict < ASH_COUNT(texts));
    return texts[verdict];
}

static void print_finding(const struct ash_xid_finding *finding)
{
    printf("  XID %d", finding->code);
    if (finding->count > 1) printf(" (%d times)", finding->count);
    if (finding->verdict == ASH_XID_UNKNOWN) {
        printf(": not in the table, so no verdict; see NVIDIA's XID catalog\n");
        return;
    }
    printf(": %s\n    %-8s %s\n    %-8s %s\n", finding->meaning, ash_xid_verdict_name(finding->verdict), finding->why,
           "next", finding->next);
    if (finding->differ != NULL) printf("    %-8s %s\n", "differ", finding->differ);
    printf("    %-8s %s\n", "source", finding->source);
}

static void print_answer(const struct ash_xid_gpu *gpu, const struct ash_xid_answer *answer, bool mig)
{
    printf("%s%s: %s", gpu->address[0] != '\0' ? "GPU " : "this GPU", gpu->address, verdict_text(answer->verdict));
    if (answer->verdict != ASH_XID_UNKNOWN)
        printf(" (XID %d); %s", answer->findings[answer->decided].code, ash_xid_job_text(answer->job, mig));
    printf("\n");
    for (size_t i = 0; i < answer->count; i++)
        print_finding(&answer->findings[i]);
    for (size_t i = 0; i < answer->note_count; i++)
        printf("  note: %s\n", answer->notes[i]);
    printf("\n");
}

static void print_end(size_t switch_lines)
{
    if (switch_lines > 0)
        printf("lines of NVSwitches (SXid), not judged: %zu; with XID 74 they point at the switch, not the GPU\n\n",
               switch_lines);
    printf("sources\n");
    for (size_t i = 0; ash_xid_source(i) != NULL; i++)
        printf("  %s\n", ash_xid_source(i));
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

static json_t *encode_finding(const struct ash_xid_finding *finding)
{
    if (finding->verdict == ASH_XID_UNKNOWN)
        return json_pack("{s:i, s:i, s:b, s:s}", "xid", finding->code, "count", finding->count, "known", 0, "verdict",
                         "unknown");
    return json_pack("{s:i, s:i, s:b, s:s, s:s, s:s, s:s, s:s?, s:s}", "xid", finding->code, "count", finding->count,
                     "known", 1, "verdict", ash_xid_verdict_name(finding->verdict), "meaning", finding->meaning, "why",
                     finding->why, "next", finding->next, "sources_differ", finding->differ, "source", finding->source);
}

/* The work that ends: none, that of one process, of the GPU, of the machine. */
static const char *job_ends(enum ash_xid_job job)
{
    static const char *const names[] = {"no", "process", "gpu", "node"};

    ash_assert((size_t)job < ASH_COUNT(names));
    return names[job];
}

static json_t *encode_answer(const struct ash_xid_gpu *gpu, const struct ash_xid_answer *answer, bool mig)
{
    const struct ash_xid_finding *decided = &answer->findings[answer->decided];
    bool known = answer->verdict != ASH_XID_UNKNOWN;
    json_t *codes = json_array(), *notes = json_array();

    for (size_t i = 0; i < answer->count; i++)
        json_array_append_new(codes, encode_finding(&answer->findings[i]));
    for (size_t i = 0; i < answer->note_count; i++)
        json_array_append_new(notes, json_string(answer->notes[i]));
    return json_pack("{s:s?, s:s, s:o, s:s?, s:s?, s:s?, s:s?, s:o, s:o}", "gpu",
                     gpu->address[0] != '\0' ? gpu->address : NULL, "verdict", ash_xid_verdict_name(answer->verdict),
                     "job_must_end", known ? json_boolean(answer->job >= ASH_XID_JOB_GPU) : json_null(), "job_ends",
                     known ? job_ends(answer->job) : NULL, "job", known ? ash_xid_job_text(answer->job, mig) : NULL,
                     "why", decided->why, "next", decided->next, "codes", codes, "notes", notes);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static int read_log(const char *path, struct ash_xid_log *log, struct ash_err *err)
{
    struct ash_str text = {0};
    int rc = ash_cmd_read_text(path, "the log", &text, err);

    if (rc == 0) rc = ash_xid_log_parse(text.data, text.size_bytes, log, err);
    ash_str_fini(&text);
    return rc;
}

/* The codes of the word or of the log. */
static int read_codes(const struct flags *flags, const char *word, struct ash_xid_log *log, struct ash_err *err)
{
    if (word == NULL) return read_log(flags->log, log, err);
    log->gpu_count = 1;
    return ash_xid_codes_parse(word, &log->gpus[0], err);
}

static int fill_setting(const struct flags *flags, const struct ash_opts *opts, struct ash_xid_setting *setting,
                        struct ash_err *err)
{
    struct ash_catalog *catalog = NULL;
    const struct ash_gpu *gpu = NULL;
    int rc = 0;

    *setting = (struct ash_xid_setting){
        .mig = flags->mig,
        .strict = flags->strict,
        .uvm = flags->uvm,
        .remaps_left = ash_opts_is_set(opts, "remaps-left") ? (int)flags->remaps_left : -1,
        .corrected_per_day = ash_opts_is_set(opts, "corrected-per-day") ? flags->corrected_per_day : -1,
    };
    if (flags->gpu == NULL) return 0;
    rc = ash_cmd_catalog_open(&flags->machines, &catalog, err);
    if (rc == 0) rc = ash_catalog_gpu(catalog, flags->gpu, &gpu, err);
    if (rc == 0) rc = ash_xid_kind_of(gpu->name, gpu->arch, &setting->kind, err);
    ash_catalog_close(catalog);
    return rc;
}

static int answer_all(const struct flags *flags, const struct ash_xid_setting *setting, const struct ash_xid_log *log,
                      struct ash_err *err)
{
    json_t *gpus = flags->json ? json_array() : NULL;
    enum ash_xid_verdict hardest = ASH_XID_UNKNOWN;

    for (size_t i = 0; i < log->gpu_count; i++) {
        const struct ash_xid_gpu *gpu = &log->gpus[i];
        bool mig = setting->mig || gpu->mig;
        struct ash_xid_answer answer;

        ash_xid_judge(setting, gpu, &answer);
        if (answer.verdict > hardest) hardest = answer.verdict;
        if (flags->json)
            json_array_append_new(gpus, encode_answer(gpu, &answer, mig));
        else
            print_answer(gpu, &answer, mig);
    }
    if (flags->json)
        return ash_cmd_print_json(json_pack("{s:s, s:o, s:I}", "verdict",
                                            log->gpu_count > 0 ? ash_xid_verdict_name(hardest) : "none", "gpus", gpus,
                                            "switch_lines", (json_int_t)log->switch_lines),
                                  err);
    if (log->gpu_count == 0) printf("no XID was logged: nothing to do\n\n");
    print_end(log->switch_lines);
    return 0;
}

static int respond(const void *ctx, const struct ash_opts *opts, const char *word)
{
    static struct ash_xid_log log; /* large; one command per process */
    const struct flags *flags = ctx;
    struct ash_xid_setting setting;
    struct ash_err err = {0};
    int rc;

    if (word == NULL && flags->log == NULL)
        return ash_cmd_misuse("xid", "which codes (79 or 48,63), or which log (--log FILE)?");
    if (word != NULL && flags->log != NULL)
        return ash_cmd_misuse("xid", "give codes or --log FILE, not both: one of them");
    rc = fill_setting(flags, opts, &setting, &err);
    if (rc == 0) rc = read_codes(flags, word, &log, &err);
    if (rc == 0) rc = answer_all(flags, &setting, &log, &err);
    return rc < 0 ? ash_cmd_fail(&err) : 0;
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};
    const struct ash_cmd_form form = {.usage = &usage,
                                      .bindings = {{&xid_table, &flags}, {&ash_catalog_table, &flags.machines}},
                                      .takes_word = true,
                                      .respond = respond,
                                      .flags = &flags};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_xid = {"xid", "a GPU logged an XID: keep, reset, reboot or replace it?", run};
