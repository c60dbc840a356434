/* Jobs on this machine, without a scheduler. A keeper process outlives the terminal: it starts the job, forwards
 * signals, and records its end. A job's record is a folder:
 *
 *     STATE/ashlar/jobs/ID/record.json   name, keeper, output, when        (STATE: XDG_STATE_HOME or ~/.local/state)
 *     STATE/ashlar/jobs/ID/end.json      exit code, whether it was stopped */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/command.h"
#include "base/file.h"
#include "base/json.h"
#include "base/opts.h"
#include "orchestrate/job/jobs.h"

#define IDS_MAX 100000
#define EXIT_SIGNAL 128
#define EXIT_SAVED 75 /* saved and stopped */

/* ---- records ----------------------------------------------------------------------------------------------------- */

static int state_folder(char *buf, size_t buf_bytes, struct ash_err *err)
{
    const char *state = ash_env_get("XDG_STATE_HOME"), *home = ash_env_get("HOME");
    int used = state != NULL ? snprintf(buf, buf_bytes, "%s/ashlar/jobs", state)
                             : snprintf(buf, buf_bytes, "%s/.local/state/ashlar/jobs", home != NULL ? home : "");

    if (state == NULL && home == NULL)
        return ash_err_set(err, -ENOENT, "neither XDG_STATE_HOME nor HOME says where jobs are remembered");
    return used > 0 && (size_t)used < buf_bytes ? 0 : ash_err_set(err, -ENAMETOOLONG, "the path of jobs is too long");
}

static int job_path(const char *id, const char *file, char *buf, size_t buf_bytes, struct ash_err *err)
{
    char folder[PATH_MAX];
    int rc = state_folder(folder, sizeof(folder), err), used;

    if (rc < 0) return rc;
    if (strchr(id, '/') != NULL || id[0] == '.' || id[0] == '\0')
        return ash_err_set(err, -ENOENT, "'%.60s' is no job's id", id);
    used = snprintf(buf, buf_bytes, "%s/%s%s%s", folder, id, file[0] != '\0' ? "/" : "", file);
    return used > 0 && (size_t)used < buf_bytes ? 0 : ash_err_set(err, -ENAMETOOLONG, "the path of jobs is too long");
}

/* Start time of a process, in ticks since boot: unique together with its id. 0: there is none, or it is a zombie. */
static int64_t process_start(pid_t pid)
{
    char path[64], text[1024] = "", *at;
    int64_t start = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (file == NULL) return 0;
    if (fgets(text, sizeof(text), file) == NULL) text[0] = '\0';
    fclose(file);
    at = strrchr(text, ')'); /* behind the name, which may hold anything */
    if (at != NULL && strncmp(at, ") Z", 3) == 0) at = NULL;
    for (int field = 2; at != NULL && field < 22; field++)
        at = strchr(at + 1, ' ');
    if (at != NULL) start = strtoll(at, NULL, 10);
    return start;
}

/* A folder of a name that no other job has: NAME-1, NAME-2, ... */
static int make_id(const char *name, char id_out[ASH_JOBS_ID_BYTES], struct ash_err *err)
{
    char path[PATH_MAX], folder[PATH_MAX];
    int rc = state_folder(folder, sizeof(folder), err);

    if (rc == 0) rc = ash_dir_make(folder, err);
    for (int i = 1; rc == 0 && i < IDS_MAX; i++) {
        snprintf(id_out, ASH_JOBS_ID_BYTES, "%s-%d", name, i);
        rc = job_path(id_out, "", path, sizeof(path), err);
        if (rc < 0) return rc;
        if (mkdir(path, 0700) == 0) return 0;
        if (errno != EEXIST) return ash_err_set(err, -errno, "%s: %s", path, strerror(errno));
    }
    return rc < 0 ? rc
                  : ash_err_set(err, -E2BIG, "there are too many jobs called %s: remove %s/%s-*", name, folder, name);
}

/* ---- the keeper -------------------------------------------------------------------------------------------------- */

struct keeper {
    const struct ash_submission *submission;
    const char *const *argv;
    const char *record, *end, *log; /* paths */
    const char *id;
};

static int write_record(const struct keeper *keeper)
{
    json_t *json = json_pack("{ss ss ss ss sI sI sf sI}", "id", keeper->id, "name", keeper->submission->spec->name,
                             "out", keeper->submission->out, "log", keeper->log, "pid", (json_int_t)getpid(), "start",
                             (json_int_t)process_start(getpid()), "submitted", ash_clock_wall_s(), "nodes",
                             (json_int_t)ash_spec_all_nodes(keeper->submission->spec));
    int rc = json == NULL ? -ENOMEM : ash_json_save(keeper->record, json, NULL);

    json_decref(json);
    return rc;
}

static void write_end(const struct keeper *keeper, int code, bool was_stopped)
{
    json_t *json = json_pack("{si sb}", "code", code, "stopped", was_stopped);

    if (json != NULL) (void)ash_json_save(keeper->end, json, NULL); /* there is no one to report to */
    json_decref(json);
}

static pid_t start_job(const struct keeper *keeper, const sigset_t *usual)
{
    pid_t pid = fork();

    if (pid != 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* without its keeper it saves and ends */
    sigprocmask(SIG_SETMASK, usual, NULL);
    for (size_t i = 0; i < keeper->submission->spec->env.count; i++) {
        char *pair = strdup(keeper->submission->spec->env.items[i]), *value = pair != NULL ? strchr(pair, '=') : NULL;

        if (value == NULL) _exit(126);
        *value = '\0';
        setenv(pair, value + 1, 1);
    }
    execv(keeper->argv[0], (char *const *)keeper->argv);
    dprintf(STDERR_FILENO, "ashlar: error: %s cannot be run: %s\n", keeper->argv[0], strerror(errno));
    _exit(127);
}

static double now_s(void)
{
    return (double)ash_clock_ns() * 1e-9;
}

/* Wait for a signal, or until the notice before the job's time limit is due (0: never). Returns the signal, 0 then. */
static int next_signal(const sigset_t *watched, double told_s)
{
    double left_s = told_s - now_s();
    struct timespec wait;

    if (told_s <= 0) return sigwaitinfo(watched, NULL);
    if (left_s <= 0) return 0;
    wait = (struct timespec){.tv_sec = (time_t)left_s, .tv_nsec = (long)((left_s - floor(left_s)) * 1e9)};
    return sigtimedwait(watched, NULL, &wait);
}

/* Wait for the end of the job, forwarding signals. job.notice before its time limit it gets SIGTERM, as from a
 * scheduler. Returns its exit code. */
static int keep(const struct keeper *keeper, pid_t job, const sigset_t *watched, bool *was_stopped_out)
{
    const struct ash_spec *spec = keeper->submission->spec;
    double told_s = spec->time_s > 0 ? now_s() + spec->time_s - spec->notice_s : 0;

    for (;;) {
        int status = 0, number = next_signal(watched, told_s);
        bool is_over = told_s > 0 && now_s() >= told_s;

        if (is_over) {
            dprintf(STDERR_FILENO, "ashlar: the time of job %s (%s) ends in %s: it saves and ends\n", keeper->id,
                    spec->time, spec->notice);
            told_s = 0;
        }
        if (is_over || (number > 0 && number != SIGCHLD)) {
            *was_stopped_out = true;
            kill(job, SIGTERM);
        }
        if (waitpid(job, &status, WNOHANG) == job)
            return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_SIGNAL + WTERMSIG(status);
    }
}

static _Noreturn void run_keeper(const struct keeper *keeper, int report_fd)
{
    sigset_t watched, usual;
    bool was_stopped = false;
    int log = open(keeper->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666), none = open("/dev/null", O_RDONLY);
    int cause = log < 0 ? -errno : 0, code;
    pid_t job;

    setsid();
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    sigaddset(&watched, SIGTERM);
    sigaddset(&watched, SIGINT);
    sigprocmask(SIG_BLOCK, &watched, &usual);
    if (cause == 0) cause = write_record(keeper);
    if (write(report_fd, &cause, sizeof(cause)) < 0 || cause < 0) _exit(1);
    close(report_fd);
    dup2(none, STDIN_FILENO);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    job = start_job(keeper, &usual);
    code = job < 0 ? 1 : keep(keeper, job, &watched, &was_stopped);
    write_end(keeper, code, was_stopped);
    _exit(0);
}

/* Double fork: the keeper is reparented to init. */
static int start_keeper(const struct keeper *keeper, struct ash_err *err)
{
    int report[2], cause = -EIO;
    pid_t pid;

    if (pipe2(report, O_CLOEXEC) < 0) return ash_err_set(err, -errno, "no pipe: %s", strerror(errno));
    pid = fork();
    if (pid == 0) {
        close(report[0]);
        if (fork() == 0) run_keeper(keeper, report[1]);
        _exit(0);
    }
    close(report[1]);
    if (pid > 0) waitpid(pid, NULL, 0);
    if (pid < 0 || read(report[0], &cause, sizeof(cause)) != sizeof(cause)) cause = -EIO;
    close(report[0]);
    return cause < 0 ? ash_err_set(err, cause, "the job cannot be started: %s: %s", keeper->log, strerror(-cause)) : 0;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static bool is_here(void)
{
    return true;
}

static int print(const struct ash_submission *submission, struct ash_str *text_out, struct ash_err *err)
{
    struct ash_submission_words words;
    int rc = ash_submission_list_words(submission, &(struct ash_submission_place){0}, &words, err);

    for (size_t i = 0; i < submission->spec->env.count && rc == 0; i++) {
        rc = ash_command_quote(text_out, submission->spec->env.items[i]);
        if (rc == 0) rc = ash_str_adds(text_out, " ");
    }
    for (size_t i = 0; i < words.count && rc == 0; i++) {
        if (i > 0) rc = ash_str_adds(text_out, " ");
        if (rc == 0) rc = ash_command_quote(text_out, words.items[i]);
    }
    if (rc == 0) rc = ash_str_adds(text_out, "\n");
    return rc;
}

static int submit(const struct ash_submission *submission, char id_out[ASH_JOBS_ID_BYTES], struct ash_err *err)
{
    struct ash_submission_words words;
    char record[PATH_MAX], end[PATH_MAX], log[PATH_MAX];
    struct keeper keeper = {.submission = submission, .record = record, .end = end, .log = log, .id = id_out};
    int rc = ash_submission_list_words(submission, &(struct ash_submission_place){0}, &words, err);

    if (rc == 0) rc = ash_dir_make(submission->out, err);
    if (rc == 0) rc = make_id(submission->spec->name, id_out, err);
    if (rc == 0) rc = job_path(id_out, "record.json", record, sizeof(record), err);
    if (rc == 0) rc = job_path(id_out, "end.json", end, sizeof(end), err);
    if (rc < 0) return rc;
    if (snprintf(log, sizeof(log), "%s/%s.out", submission->out, id_out) >= (int)sizeof(log))
        return ash_err_set(err, -ENAMETOOLONG, "%.100s: the path is too long", submission->out);
    keeper.argv = words.items;
    return start_keeper(&keeper, err);
}

static void judge(const json_t *record, const json_t *end, struct ash_jobs_entry *entry)
{
    pid_t pid = (pid_t)json_integer_value(json_object_get(record, "pid"));
    int64_t start = json_integer_value(json_object_get(record, "start"));
    char how[64] = "";

    if (end == NULL) {
        bool is_alive = pid > 0 && start > 0 && process_start(pid) == start;

        entry->phase = is_alive ? ASH_JOBS_RUNNING : ASH_JOBS_FAILED;
        if (!is_alive) snprintf(entry->reason, sizeof(entry->reason), "its keeper, process %d, was killed", (int)pid);
        return;
    }
    entry->code = (int)json_integer_value(json_object_get(end, "code"));
    if (entry->code == 0)
        entry->phase = ASH_JOBS_DONE;
    else if (json_is_true(json_object_get(end, "stopped")))
        entry->phase = ASH_JOBS_STOPPED;
    else
        entry->phase = ASH_JOBS_FAILED;
    if (entry->code == EXIT_SAVED)
        snprintf(how, sizeof(how), "saved and stopped");
    else if (entry->code != 0)
        snprintf(how, sizeof(how), "exit code %d", entry->code);
    snprintf(entry->reason, sizeof(entry->reason), "%s", how);
}

static int read_entry(const char *id, struct ash_jobs_entry *entry_out, pid_t *pid_out, struct ash_err *err)
{
    char path[PATH_MAX];
    json_t *record = NULL, *end = NULL;
    const char *name, *log;
    int rc = job_path(id, "record.json", path, sizeof(path), err);

    if (rc == 0 && ash_json_load(path, &record, NULL) < 0)
        rc = ash_err_set(err, -ENOENT, "there is no job '%.60s' on this machine: `ashlar jobs ls` lists them", id);
    if (rc == 0) rc = job_path(id, "end.json", path, sizeof(path), err);
    if (rc < 0) return rc;
    (void)ash_json_load(path, &end, NULL); /* none: it runs */
    *entry_out = (struct ash_jobs_entry){.code = -1};
    name = json_string_value(json_object_get(record, "name"));
    log = json_string_value(json_object_get(record, "log"));
    snprintf(entry_out->id, sizeof(entry_out->id), "%s", id);
    snprintf(entry_out->name, sizeof(entry_out->name), "%s", name != NULL ? name : "?");
    snprintf(entry_out->log, sizeof(entry_out->log), "%s", log != NULL ? log : "");
    entry_out->nodes = (size_t)json_integer_value(json_object_get(record, "nodes"));
    entry_out->age_s = ash_clock_wall_s() - json_number_value(json_object_get(record, "submitted"));
    if (pid_out != NULL) *pid_out = (pid_t)json_integer_value(json_object_get(record, "pid"));
    judge(record, end, entry_out);
    json_decref(record);
    json_decref(end);
    return 0;
}

static int by_age(const void *a, const void *b)
{
    double x = ((const struct ash_jobs_entry *)a)->age_s, y = ((const struct ash_jobs_entry *)b)->age_s;

    return x < y ? 1 : x > y ? -1 : 0; /* oldest first */
}

static int list(const char *id, struct ash_jobs_list *list_out, struct ash_err *err)
{
    char folder[PATH_MAX];
    struct ash_jobs_entry entry;
    struct dirent *item;
    int rc = id != NULL ? read_entry(id, &entry, NULL, err) : state_folder(folder, sizeof(folder), err);
    DIR *dir;

    if (rc < 0 || id != NULL) return rc < 0 ? rc : ash_jobs_add(list_out, &entry);
    dir = opendir(folder);
    if (dir == NULL) return 0; /* nothing was ever submitted */
    while (rc == 0 && (item = readdir(dir)) != NULL)
        if (item->d_name[0] != '.' && read_entry(item->d_name, &entry, NULL, NULL) == 0)
            rc = ash_jobs_add(list_out, &entry);
    closedir(dir);
    if (list_out->count > 1) qsort(list_out->entries, list_out->count, sizeof(entry), by_age);
    return rc;
}

static int show(const char *id, struct ash_str *text_out, struct ash_err *err)
{
    struct ash_jobs_entry entry;
    char age[32];
    int rc = read_entry(id, &entry, NULL, err);

    if (rc < 0) return rc;
    return ash_str_addf(
        text_out, "id         %s\nname       %s\nstate      %s%s%s%s\nsubmitted  %s ago\noutput     %s\n", entry.id,
        entry.name, ash_jobs_phase_name(entry.phase), entry.reason[0] != '\0' ? " (" : "", entry.reason,
        entry.reason[0] != '\0' ? ")" : "", ash_clock_format(entry.age_s, age, sizeof(age)), entry.log);
}

static int why(const char *id, struct ash_str *text_out, struct ash_err *err)
{
    struct ash_jobs_entry entry;
    int rc = read_entry(id, &entry, NULL, err);

    if (rc < 0) return rc;
    return ash_str_addf(text_out, "job %s does not wait: jobs on this machine start at once; it is %s%s%s\n", entry.id,
                        ash_jobs_phase_name(entry.phase), entry.reason[0] != '\0' ? ": " : "", entry.reason);
}

static int stop(const char *id, struct ash_err *err)
{
    struct ash_jobs_entry entry;
    pid_t pid = 0;
    int rc = read_entry(id, &entry, &pid, err);

    if (rc < 0) return rc;
    if (entry.phase != ASH_JOBS_RUNNING)
        return ash_err_set(err, -ESRCH, "job %.60s does not run: it is %s", id, ash_jobs_phase_name(entry.phase));
    return kill(pid, SIGTERM) < 0 ? ash_err_set(err, -errno, "job %.60s: %s", id, strerror(errno)) : 0;
}

const struct ash_jobs_ops ash_jobs_local = {.name = "local",
                                            .is_here = is_here,
                                            .print = print,
                                            .submit = submit,
                                            .list = list,
                                            .show = show,
                                            .why = why,
                                            .stop = stop};
