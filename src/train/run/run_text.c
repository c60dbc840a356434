/* run: its texts on the screen and in the report. */
#include "train/run/bill.h"
#include "train/run/run_priv.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/command.h"
#include "base/log.h"
#include "base/math.h"
#include "infra/cpu.h"
#include "train/run/report.h"

#define FACT_BYTES 512
#define EPOCHS_MAX 40

double ash_run_elapsed_s(const struct ash_run *run)
{
    return run->progress.earlier_s + (double)(ash_clock_ns() - run->progress.start_ns) * 1e-9;
}

void ash_run_warn(struct ash_run *run, const char *fmt, ...)
{
    char text[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    ash_live_clear(&run->progress.live);
    ash_log(ASH_LOG_WARN, "%s", text);
}

/* ---- facts, shared by screen and report -------------------------------------------------------------------------- */

static void say_model(const struct ash_run *run, char *buf)
{
    const struct ash_trainer_facts *facts = &run->facts;
    char weights[32], vocab[32];

    snprintf(buf, FACT_BYTES, "%s, %s parameters (%zu layers, hidden %zu, %zu heads, vocabulary %s)", facts->family,
             ash_live_count(facts->weights, weights, sizeof(weights)), facts->layers, facts->hidden, facts->heads,
             ash_live_count(facts->vocab, vocab, sizeof(vocab)));
}

static void say_data(const struct ash_run *run, char *buf)
{
    char train[32], valid[32];

    if (run->facts.valid_sequences == 0)
        snprintf(buf, FACT_BYTES, "%s tokens, no validation",
                 ash_live_short((double)run->facts.train_tokens, train, sizeof(train)));
    else
        snprintf(buf, FACT_BYTES, "%s tokens, validation on %s",
                 ash_live_short((double)run->facts.train_tokens, train, sizeof(train)),
                 ash_live_short((double)run->facts.valid_sequences * (double)run->job->data.seq_tokens, valid,
                                sizeof(valid)));
}

static double epoch_count(const struct ash_run *run)
{
    const struct ash_job_train *train = &run->job->train;

    return (double)train->steps * (double)train->global_batch / (double)run->facts.train_windows;
}

static void say_length(const struct ash_run *run, char *buf)
{
    const struct ash_job *job = run->job;
    double step_tokens = (double)job->train.global_batch * (double)job->data.seq_tokens;
    char steps[32], tokens[32];

    snprintf(buf, FACT_BYTES, "%s steps, %s tokens, %.2f epochs",
             ash_live_count((uint64_t)job->train.steps, steps, sizeof(steps)),
             ash_live_short((double)job->train.steps * step_tokens, tokens, sizeof(tokens)), epoch_count(run));
}

static void say_batch(const struct ash_run *run, char *buf)
{
    const struct ash_job *job = run->job;

    snprintf(buf, FACT_BYTES, "%" PRId64 " sequences of %" PRId64 " tokens in %" PRId64 " grains, micro-batch %" PRId64,
             job->train.global_batch, job->data.seq_tokens, job->train.grains, job->train.micro_batch);
}

static size_t rank_count(const struct ash_run *run)
{
    return ash_group_size(run->group);
}

/* Of one rank. */
static double needed_bytes(const struct ash_run *run)
{
    return (double)ash_train_memory_total(&run->facts.memory);
}

/* What lies on a device, part by part. */
static void say_device_memory(const struct ash_run *run, char *buf)
{
    const struct ash_train_memory *memory = &run->facts.memory;
    size_t known = memory->state + memory->gradients + memory->logits + memory->scratch;
    const struct {
        const char *name;
        size_t bytes;
    } parts[] = {{"weights", memory->state - memory->moments},
                 {"moments", memory->moments},
                 {"gradients", memory->gradients},
                 {"activations", memory->device > known ? memory->device - known : 0},
                 {"logits", memory->logits},
                 {"scratch", memory->scratch}};
    char text[32];
    int used =
        snprintf(buf, FACT_BYTES, "%s on the device", ash_live_bytes((double)memory->device, text, sizeof(text)));

    for (size_t i = 0; i < ASH_COUNT(parts); i++)
        used += snprintf(buf + used, FACT_BYTES - (size_t)used, "%s%s %s", i == 0 ? " (" : ", ", parts[i].name,
                         ash_live_bytes((double)parts[i].bytes, text, sizeof(text)));
    snprintf(buf + used, FACT_BYTES - (size_t)used, ")");
}

static void say_memory(const struct ash_run *run, char *buf)
{
    const struct ash_train_memory *memory = &run->facts.memory;
    char total[32], state[32], gradients[32], activations[32], program[32];

    if (memory->device > 0) {
        say_device_memory(run, buf);
        return;
    }
    snprintf(buf, FACT_BYTES, "%s%s (state %s, gradients %s, activations %s, program %s)",
             ash_live_bytes(needed_bytes(run), total, sizeof(total)), rank_count(run) > 1 ? " a rank" : "",
             ash_live_bytes((double)memory->state, state, sizeof(state)),
             ash_live_bytes((double)memory->gradients, gradients, sizeof(gradients)),
             ash_live_bytes((double)memory->activations, activations, sizeof(activations)),
             ash_live_bytes((double)memory->program, program, sizeof(program)));
}

static void say_mesh(const struct ash_run *run, char *buf)
{
    size_t nodes = ash_group_nodes(run->group);
    char sizes[FACT_BYTES / 2];

    buf[0] = '\0';
    if (rank_count(run) == 1) return;
    snprintf(buf, FACT_BYTES, "%s: %zu ranks on %zu node%s", ash_mesh_describe(run->facts.mesh, sizes, sizeof(sizes)),
             rank_count(run), nodes, nodes == 1 ? "" : "s");
}

static void say_machine(const struct ash_run *run, char *buf)
{
    static const char *const precisions[] = {"fp32", "bf16", "fp8"};
    char device[FACT_BYTES / 2];

    ash_backend_describe(run->facts.exec, device, sizeof(device));
    if (run->facts.exec->cuda == NULL)
        snprintf(buf, FACT_BYTES, "%d thread%s%s, %s", run->facts.threads, run->facts.threads == 1 ? "" : "s",
                 rank_count(run) > 1 ? " a rank" : "", device);
    else
        snprintf(buf, FACT_BYTES, "%s", device);
    snprintf(buf + strlen(buf), FACT_BYTES - strlen(buf), ", %s", precisions[run->job->train.precision]);
    if (run->facts.why_cpu[0] != '\0')
        snprintf(buf + strlen(buf), FACT_BYTES - strlen(buf), " (%s)", run->facts.why_cpu);
}

/* Checkpoints in the run's folder need no line. */
static void say_saves(const struct ash_run *run, char *buf)
{
    int used = 0;

    buf[0] = '\0';
    for (size_t i = 0; i < run->job->save.to.count && used < FACT_BYTES; i++)
        used += snprintf(buf + used, FACT_BYTES - (size_t)used, "%s%s", i == 0 ? "checkpoints to " : ", ",
                         run->job->save.to.items[i]);
}

static const struct {
    const char *label;
    void (*say)(const struct ash_run *run, char *buf); /* at most FACT_BYTES; empty: nothing to say */
} fact_table[] = {
    {"model", say_model}, {"data", say_data},     {"length", say_length},   {"batch", say_batch},
    {"mesh", say_mesh},   {"memory", say_memory}, {"machine", say_machine}, {"saves", say_saves},
};

/* ---- screen ------------------------------------------------------------------------------------------------------ */

/* The system hands memory out before it has it, and ends the process later, without a word. What counts is this
 * machine's memory, or the limit of the container or job that the process runs in. */
static void warn_of_memory(struct ash_run *run)
{
    size_t here = ash_group_here(run->group);
    double present = (double)ash_cpu_get()->memory_bytes, needed = (double)here * needed_bytes(run);
    double machine = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    char need[32], have[32];

    if (present <= 0.0 || needed < present || run->facts.memory.device > 0) return;
    ash_run_warn(run,
                 "this run needs %s of memory and %s %s: fewer train.grains, a smaller train.micro_batch or "
                 "train.recompute=full need less",
                 ash_live_bytes(needed, need, sizeof(need)),
                 present < machine ? "the limit of this container or job is" : "the machine has",
                 ash_live_bytes(present, have, sizeof(have)));
}

/* Beyond this, a model learns hardly anything new from data that it has seen (Muennighoff et al. 2023, figure 3). */
static void warn_of_epochs(struct ash_run *run)
{
    double epochs = epoch_count(run);

    if (epochs < EPOCHS_MAX) return;
    ash_run_warn(run,
                 "the run reads its data %.0f times: after %d epochs a model learns little but memorises the "
                 "text; more data or fewer steps (train.steps, train.tokens) are better",
                 epochs, EPOCHS_MAX);
}

/* Warn of model settings that model.from overrides. */
static void warn_of_unused(struct ash_run *run)
{
    char names[FACT_BYTES];

    ash_job_unused(run->job, names, sizeof(names));
    if (names[0] != '\0') ash_run_warn(run, "%s: for new models only; the sizes of model.from are used", names);
}

void ash_run_print_start(struct ash_run *run)
{
    FILE *screen = run->opts->screen;
    char text[FACT_BYTES];

    if (run->facts.tokenizer_dir == NULL)
        ash_run_warn(
            run, "no tokenizer.json next to the data: the model is saved without one (data.tokenizer names a folder)");
    warn_of_unused(run);
    warn_of_memory(run);
    warn_of_epochs(run);
    if (screen == NULL) return;
    for (size_t i = 0; i < ASH_COUNT(fact_table); i++) {
        fact_table[i].say(run, text);
        if (text[0] != '\0') fprintf(screen, "%-9s %s\n", fact_table[i].label, text);
    }
    if (run->progress.start_step > 0)
        fprintf(screen, "%-9s at step %" PRIu64 " of %" PRId64 "\n", "resumed", run->progress.start_step,
                run->job->train.steps);
    fflush(screen);
}

/* The time is the ledger's: the whole run's, across first ranks. */
static void print_outcome(const struct ash_run *run, FILE *screen)
{
    size_t count = ash_runlog_count(run->files.log);
    const struct ash_log_record *last = count > 0 ? &ash_runlog_records(run->files.log)[count - 1] : NULL;
    const struct ash_state *state = ash_trainer_state(run->trainer);
    char time[32];

    fprintf(screen, "%" PRIu64 " steps in %s", state->step,
            ash_clock_format(ash_ledger_wall_s(&run->progress.ledger), time, sizeof(time)));
    if (last != NULL) fprintf(screen, ", loss %.4f", (double)last->loss);
    if (!isnan(run->progress.valid_loss)) fprintf(screen, ", validation loss %.4f", run->progress.valid_loss);
    if (!isnan(run->progress.pairs.accuracy))
        fprintf(screen, ", %.1f %% of pairs ranked right, mean reward %.4f of chosen and %.4f of rejected answers",
                run->progress.pairs.accuracy * 100, run->progress.pairs.chosen, run->progress.pairs.rejected);
    if (state->guard.skipped > 0) fprintf(screen, ", %" PRIu64 " steps skipped", state->guard.skipped);
    fprintf(screen, ", state %016" PRIx64 "\n", run->saves.state_hash);
}

/* Where the time of a step went, as a mean over steps and ranks. */
static void print_spent(const struct ash_run *run, FILE *screen)
{
    static const struct {
        const char *name;
        enum ash_meter_kind kind;
    } parts[] = {{"compute", ASH_METER_COMPUTE},
                 {"exposed communication", ASH_METER_COMM},
                 {"data", ASH_METER_DATA},
                 {"idle", ASH_METER_IDLE}};
    double total = 0, step_s;
    char replayed[64];

    for (size_t i = 0; i < ASH_COUNT(parts); i++)
        total += run->progress.spent_s[i];
    if (run->progress.spent_steps == 0 || total <= 0) return;
    step_s = total / (double)run->progress.spent_steps;
    if (step_s < 0.9995)
        fprintf(screen, "%-9s %.3g ms:", "a step", step_s * 1e3);
    else
        fprintf(screen, "%-9s %.*f s:", "a step", step_s < 9.995 ? 2 : step_s < 99.95 ? 1 : 0, step_s);
    for (size_t i = 0; i < ASH_COUNT(parts); i++)
        fprintf(screen, "%s %s %.1f%%", i > 0 ? "," : "", parts[i].name,
                run->progress.spent_s[parts[i].kind] / total * 100);
    ash_backend_say_replayed(run->facts.exec, replayed, sizeof(replayed));
    fprintf(screen, "%s%s\n", replayed[0] != '\0' ? "; " : "", replayed);
}

/* How to resume: on one node, with as many ranks as there were, and as many more as the job's mesh is a multiple of;
 * elsewhere it depends on the launcher. */
static void print_resume(const struct ash_run *run, FILE *screen)
{
    size_t ranks = ash_round_up(rank_count(run), ash_mesh_unit(&run->job->mesh));

    fprintf(screen, "resume with: ashlar ");
    if (ranks > 1 && ash_group_nodes(run->group) == 1) fprintf(screen, "launch --procs %zu ", ranks);
    fprintf(screen, "train --resume --out %s\n", run->opts->dir);
}

void ash_run_print_lost(struct ash_run *run)
{
    uint64_t step = ash_trainer_state(run->trainer)->step;
    FILE *screen = run->opts->screen;

    ash_live_clear(&run->progress.live);
    if (screen == NULL) return;
    if (run->saves.saved_step == UINT64_MAX)
        fprintf(screen, "ended after step %" PRIu64 " of %" PRId64 ": nothing was saved\n", step,
                run->job->train.steps);
    else if (run->saves.saved_step == step)
        fprintf(screen, "ended and saved at step %" PRIu64 " of %" PRId64 "\n", step, run->job->train.steps);
    else
        fprintf(screen,
                "ended after step %" PRIu64 " of %" PRId64 ": the newest checkpoint is that of step %" PRIu64 "\n",
                step, run->job->train.steps, run->saves.saved_step);
    if (run->saves.saved_step != UINT64_MAX) print_resume(run, screen);
    fflush(screen);
}

/* Hours of its processes by kind, and dollars if a price is known. */
static void print_bill(const struct ash_run *run, FILE *screen)
{
    const struct ash_ledger *ledger = &run->progress.ledger;
    const struct ash_bill_rates rates = {.usd_hour = ledger->usd_hour};
    struct ash_bill bill = ash_bill_of(ledger, &rates);

    if (rates.usd_hour <= 0.0) return;
    fprintf(screen, "cost      $%.2f of %.3g rank hours:", (double)bill.total_cents / 100.0, bill.total_hours);
    for (int kind = 0; kind < ASH_BILL_KINDS; kind++)
        fprintf(screen, "%s %s $%.2f", kind > 0 ? "," : "", ash_bill_kind_name((enum ash_bill_kind)kind),
                (double)bill.cents[kind] / 100.0);
    fprintf(screen, "\n");
}

void ash_run_print_end(struct ash_run *run, bool stopped)
{
    FILE *screen = run->opts->screen;
    struct ash_str model = {0};

    ash_live_clear(&run->progress.live);
    if (screen == NULL) return;
    if (stopped) {
        fprintf(screen, "stopped and saved at step %" PRIu64 " of %" PRId64 "\n", ash_trainer_state(run->trainer)->step,
                run->job->train.steps);
        print_resume(run, screen);
    } else {
        print_outcome(run, screen);
        print_spent(run, screen);
        print_bill(run, screen);
        fprintf(screen, "model     %s\nreport    %s\n", run->files.model, run->files.report);
        if (run->job->train.method == ASH_METHOD_REWARD)
            fprintf(screen, "use it    ashlar rl JOB.yaml rl.rewards=model=%s\n", run->files.model);
        else if (run->facts.tokenizer_dir != NULL && ash_command_quote(&model, run->files.model) == 0)
            fprintf(screen, "try it    ashlar generate --model %s --prompt TEXT\n", model.data);
        ash_str_fini(&model);
    }
    for (size_t i = 0; run->saves.is_uncopied && i < run->saves.places.count; i++)
        if (ash_copier_has_failed(run->saves.copier, i))
            fprintf(screen, "not in    %s: ashlar checkpoint copy %s %s\n", run->saves.places.urls[i],
                    run->files.checkpoints, run->saves.places.urls[i]);
    fflush(screen);
}

/* ---- report ------------------------------------------------------------------------------------------------------ */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

void ash_run_report(struct ash_run *run, const char *status)
{
    char texts[ASH_COUNT(fact_table) + 2][FACT_BYTES];
    struct ash_report_fact facts[ASH_COUNT(fact_table) + 2];
    const struct ash_trainer_parts *parts = run->opts->parts;
    json_t *more = parts != NULL && parts->report != NULL ? parts->report(parts->ctx) : NULL;
    struct ash_err err = {0};
    size_t count = 0;
    char time[32];

    for (size_t i = 0; i < ASH_COUNT(fact_table); i++) {
        fact_table[i].say(run, texts[count]);
        facts[count] = (struct ash_report_fact){fact_table[i].label, texts[count]};
        if (texts[count][0] != '\0') count++;
    }
    snprintf(texts[count], FACT_BYTES, "%s",
             ash_clock_format(ash_ledger_wall_s(&run->progress.ledger), time, sizeof(time)));
    facts[count] = (struct ash_report_fact){"time", texts[count]};
    count++;
    snprintf(texts[count], FACT_BYTES, "%016" PRIx64, run->saves.state_hash);
    facts[count] = (struct ash_report_fact){"state hash", texts[count]};
    count++;
    struct ash_report report = {.title = base_name(run->opts->dir),
                                .status = status,
                                .running = strcmp(status, "running") == 0,
                                .total_steps = (uint64_t)run->job->train.steps,
                                .facts = facts,
                                .fact_count = count,
                                .ledger = &run->progress.ledger,
                                .records = ash_runlog_records(run->files.log),
                                .record_count = ash_runlog_count(run->files.log),
                                .more = more};
    run->files.report_ns = ash_clock_ns();
    if (ash_report_write(run->files.report, &report, &err) == 0)
        run->files.report_failing = false;
    else if (!run->files.report_failing) {
        run->files.report_failing = true;
        ash_run_warn(run, "the report was not written, training continues: %s", err.text);
    }
    json_decref(more);
}
