/* Lines of a kernel log, the same ones together. A job's output may contain anything, so there a line counts only with
 * a kernel's beginning; a node's own log is all kernel. */
#include "observe/health/diagnose_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "observe/health/kernel_log.h"

#define KINDS_MAX 128
#define LINE_BYTES 1024

struct hit {
    struct ash_kernel_event event;
    size_t lines, first_number;
    char first[160];
};

struct hits {
    struct hit items[KINDS_MAX];
    size_t count;
};

/* Where the text of a line begins that a kernel wrote: after dmesg's "[  12.345678] ", syslog's "kernel: " or the head
 * of a record of /dev/kmsg. NULL: it is none. */
static const char *text_of(const char *line)
{
    const char *text = strstr(line, "kernel: ");
    size_t head;

    if (text != NULL) return text + 8;
    if (line[0] == '[') {
        head = 1 + strspn(line + 1, " ");
        head += strspn(line + head, "0123456789.");
        if (line[head] == ']' && memchr(line, '.', head) != NULL) return line + head + 1;
    }
    head = strspn(line, "0123456789,");
    if (head > 5 && (line[head] == '-' || line[head] == 'c') && (text = strchr(line + head, ';')) != NULL)
        return text + 1;
    return NULL;
}

static bool is_same(const struct ash_kernel_event *a, const struct ash_kernel_event *b)
{
    return a->kind == b->kind && a->code == b->code && a->remedy == b->remedy && a->means == b->means &&
           strcmp(a->part, b->part) == 0;
}

static void take_line(struct hits *hits, const char *text, size_t number)
{
    struct ash_kernel_event event;
    size_t i = 0;

    if (!ash_kernel_log_judge(text + strspn(text, " "), &event)) return;
    while (i < hits->count && !is_same(&hits->items[i].event, &event))
        i++;
    if (i == KINDS_MAX) return;
    if (i == hits->count) {
        hits->items[hits->count++] = (struct hit){.event = event, .first_number = number};
        snprintf(hits->items[i].first, sizeof(hits->items[i].first), "%s", text + strspn(text, " "));
    }
    hits->items[i].lines++;
}

static int report(struct ash_diagnose *diagnose, const struct hit *hit, const char *name, bool is_log)
{
    const struct ash_kernel_event *event = &hit->event;
    bool is_hard = event->remedy > ASH_REMEDY_WATCH;
    struct ash_finding finding = {.layer = event->layer,
                                  .severity = ash_kernel_severity(event->kind, event->remedy),
                                  .metric = is_log ? "log" : "kernel log",
                                  .normal = "no such line",
                                  .means = event->means,
                                  .action = is_hard ? "take the node out; ashlar check node --deep says if it is fit"
                                                    : "see the log around it; count how often it comes",
                                  .source = "the kernel log",
                                  .excess = (double)hit->lines};
    const char *gap = event->part[0] != '\0' ? " " : "";

    if (event->kind == ASH_KERNEL_XID) {
        finding.severity = ASH_BROKEN;
        finding.means = "the driver reported an error of a GPU that no source lists";
        ash_diagnose_explain_xid(&finding, event->code, hit->first, strlen(hit->first));
    }
    if (is_log)
        snprintf(finding.where, sizeof(finding.where), "%.80s:%zu%s%s", name, hit->first_number, gap, event->part);
    else
        snprintf(finding.where, sizeof(finding.where), "%.80s%s%s", name, gap, event->part);
    snprintf(finding.value, sizeof(finding.value), "lines: %zu, first: %.120s", hit->lines, hit->first);
    return ash_diagnose_report(diagnose, &finding);
}

int ash_diagnose_kernel(struct ash_diagnose *diagnose, const char *text, size_t size_bytes, const char *name,
                        bool is_log)
{
    struct hits *hits = calloc(1, sizeof(*hits));
    const char *end = text + size_bytes;
    char line[LINE_BYTES];
    size_t number = 0;
    int rc = hits == NULL ? -ENOMEM : 0;

    for (const char *at = text, *next; rc == 0 && at < end; at = next) {
        const char *newline = memchr(at, '\n', (size_t)(end - at)), *said;
        size_t bytes = (size_t)((newline != NULL ? newline : end) - at);

        next = at + bytes + 1;
        number++;
        snprintf(line, sizeof(line), "%.*s", (int)(bytes < LINE_BYTES ? bytes : LINE_BYTES - 1), at);
        said = is_log ? text_of(line) : line;
        if (said != NULL && !(is_log && strstr(said, "NVRM: Xid") != NULL)) take_line(hits, said, number);
        if (newline == NULL) break;
    }
    for (size_t i = 0; rc == 0 && i < hits->count; i++)
        rc = report(diagnose, &hits->items[i], name, is_log);
    free(hits);
    return rc;
}
