/* Waiting for a job, with its output as it comes. */
#include "cmd/jobs_priv.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/interrupt.h"

#define LOOK_MS 200
#define FOLLOW_MS 1000 /* between two looks at the output of a job that is followed */
#define EXIT_INTERRUPTED 130

/* Output that grows: a file, or the back end's text. */
struct tail {
    int fd;         /* -1: not open, or not there yet */
    size_t printed; /* bytes of the back end's text */
};

static void print_given(struct tail *tail, const struct ash_jobs_ops *ops, const char *id)
{
    struct ash_str text = {0};

    if (ops->output(id, &text, NULL) == 0 && text.size_bytes > tail->printed) { /* none yet: later */
        fwrite(text.data + tail->printed, 1, text.size_bytes - tail->printed, stdout);
        tail->printed = text.size_bytes;
        fflush(stdout);
    }
    ash_str_fini(&text);
}

static void print_more(struct tail *tail, const char *path)
{
    char piece[65536];
    ssize_t got;

    if (tail->fd < 0 && path[0] != '\0') tail->fd = open(path, O_RDONLY | O_CLOEXEC);
    while (tail->fd >= 0 && (got = read(tail->fd, piece, sizeof(piece))) > 0)
        fwrite(piece, 1, (size_t)got, stdout);
    fflush(stdout);
}

static int end_code(const struct ash_jobs_entry *entry)
{
    if (entry->code >= 0) return entry->code;
    return entry->phase == ASH_JOBS_DONE ? 0 : 1;
}

/* The job as it is now: by notification of the back end, or polled. */
static int look(const struct ash_jobs_ops *ops, const char *id, void *follow, struct ash_jobs_entry *entry_out,
                struct ash_err *err)
{
    struct ash_jobs_list list = {0};
    int rc;

    if (follow != NULL) {
        rc = ops->follow_next(follow, FOLLOW_MS, entry_out, err);
        return rc < 0 ? rc : 0;
    }
    rc = ops->list(id, &list, err);
    if (rc == 0) *entry_out = list.entries[0];
    ash_jobs_free(&list);
    return rc;
}

/* Look until it has ended. Returns as ash_cmd_await_job. */
static int await_end(const struct ash_jobs_ops *ops, const char *id, void *follow, struct tail *tail,
                     struct ash_err *err)
{
    for (;;) {
        struct ash_jobs_entry entry;
        int rc = look(ops, id, follow, &entry, err);

        if (rc < 0) return rc;
        if (tail != NULL && ops->output != NULL)
            print_given(tail, ops, id);
        else if (tail != NULL)
            print_more(tail, entry.log);
        if (ash_jobs_has_ended(entry.phase)) {
            if (entry.phase != ASH_JOBS_DONE)
                fprintf(stderr, "job %s %s%s%s\n", id, ash_jobs_phase_name(entry.phase),
                        entry.reason[0] != '\0' ? ": " : "", entry.reason);
            return end_code(&entry);
        }
        if (ash_interrupt_requested()) {
            fprintf(stderr, "job %s continues: `ashlar jobs wait %s` waits again, `ashlar jobs stop %s` ends it\n", id,
                    id, id);
            return EXIT_INTERRUPTED;
        }
        if (follow == NULL) poll(NULL, 0, LOOK_MS);
    }
}

int ash_cmd_await_job(const struct ash_jobs_ops *ops, const char *id, bool print_output, struct ash_err *err)
{
    struct tail tail = {.fd = -1};
    void *follow = NULL;
    int rc = 0;

    ash_interrupt_install();
    if (ops->follow_open != NULL) rc = ops->follow_open(id, &follow, err);
    if (rc == 0) rc = await_end(ops, id, follow, print_output ? &tail : NULL, err);
    if (follow != NULL) ops->follow_close(follow);
    if (tail.fd >= 0) close(tail.fd);
    return rc;
}
