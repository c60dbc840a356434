/* All calls of all ranks, sorted by group, number and rank: what belongs together lies together. */
#include "observe/flight/flight.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "observe/ranks/run_id.h"

#define WAIT_LEAST_S 1.0

/* ---- reading ----------------------------------------------------------------------------------------------------- */

const struct ash_flight_call *ash_flight_call_at(const struct ash_flight_rank *rank, size_t index)
{
    return (const struct ash_flight_call *)(const void *)(rank->view.records + index * rank->view.record_bytes);
}

static int compare_ranks(const void *a, const void *b)
{
    const struct ash_flight_rank *left = a, *right = b;

    return left->rank < right->rank ? -1 : left->rank > right->rank;
}

/* A rank's last record, on the common clock. */
static int64_t last_ns(const struct ash_flight_rank *rank)
{
    const struct ash_flight_call *last = rank->view.count > 0 ? ash_flight_call_at(rank, rank->view.count - 1) : NULL;

    return last != NULL ? (int64_t)last->start_ns + rank->view.wall_ns : INT64_MIN;
}

/* Keep those of a run. */
static void keep_run(struct ash_flight_set *set, const char *run_id)
{
    size_t kept = 0;

    for (size_t i = 0; i < set->count; i++)
        if (strcmp(set->ranks[i].run_id, run_id) == 0)
            set->ranks[kept++] = set->ranks[i];
        else
            ash_ring_view_fini(&set->ranks[i].view);
    set->count = kept;
}

/* Keep one job: the given one, or the last that recorded. Of a rank that is there twice the later one counts. */
static void keep_job(struct ash_flight_set *set, const char *job)
{
    const struct ash_flight_rank *last = NULL;
    char wanted[64];
    size_t kept = 0;

    for (size_t i = 0; i < set->count; i++)
        if (last == NULL || last_ns(&set->ranks[i]) > last_ns(last)) last = &set->ranks[i];
    snprintf(wanted, sizeof(wanted), "%s", job != NULL ? job : last != NULL ? last->job : "");
    for (size_t i = 0; i < set->count; i++) {
        struct ash_flight_rank rank = set->ranks[i];
        size_t same = kept;

        for (size_t k = 0; k < kept; k++)
            if (set->ranks[k].rank == rank.rank) same = k;
        if (strcmp(rank.job, wanted) != 0 || (same < kept && last_ns(&set->ranks[same]) >= last_ns(&rank))) {
            ash_ring_view_fini(&rank.view);
            continue;
        }
        if (same < kept)
            ash_ring_view_fini(&set->ranks[same].view);
        else
            kept++;
        set->ranks[same] = rank;
    }
    set->count = kept;
}

/* Is the process stopped (SIGSTOP, a debugger)? It is the one that records only if it has mapped its file; a number may
 * be another process here, outside of a container. */
static bool is_stopped(uint32_t pid)
{
    char path[64], line[512], state = '?', own[32];
    bool is_mapped = false;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%u/stat", pid);
    file = fopen(path, "re");
    if (file == NULL) return false;
    if (fgets(line, sizeof(line), file) != NULL) {
        const char *end = strrchr(line, ')'); /* a program's name may hold anything */

        if (end != NULL && end[1] == ' ') state = end[2];
    }
    fclose(file);
    if (state != 'T' && state != 't') return false;
    snprintf(path, sizeof(path), "/proc/%u/maps", pid);
    snprintf(own, sizeof(own), "/%u-", pid);
    file = fopen(path, "re");
    if (file == NULL) return false;
    while (!is_mapped && fgets(line, sizeof(line), file) != NULL)
        is_mapped = strstr(line, own) != NULL && strstr(line, "." ASH_FLIGHT_KIND) != NULL;
    fclose(file);
    return is_mapped;
}

/* The recorders of all ranks and jobs in dir. */
static int load_all(struct ash_flight_set *set, const char *dir, struct ash_err *err)
{
    struct ash_ring_view *views = NULL;
    size_t count = 0;
    int rc = ash_ring_read_dir(dir, ASH_FLIGHT_KIND, sizeof(struct ash_flight_call), &views, &count, err);

    if (rc < 0) return rc;
    set->ranks = calloc(count + 1, sizeof(*set->ranks));
    for (size_t i = 0; i < count; i++) {
        char number[32] = "0";

        if (set->ranks == NULL) {
            ash_ring_view_fini(&views[i]);
            continue;
        }
        set->ranks[i].view = views[i];
        ash_ring_label(&views[i], "rank", number, sizeof(number));
        ash_ring_label(&views[i], "job", set->ranks[i].job, sizeof(set->ranks[i].job));
        ash_ring_label(&views[i], ASH_RUN_ID_LABEL, set->ranks[i].run_id, sizeof(set->ranks[i].run_id));
        set->ranks[i].rank = strtoul(number, NULL, 10);
        set->ranks[i].is_stopped = views[i].is_alive && is_stopped(views[i].pid);
    }
    free(views);
    if (set->ranks == NULL) return ash_err_set(err, -ENOMEM, "no memory for the recorders of '%s'", dir);
    set->count = count;
    return 0;
}

int ash_flight_set_load(struct ash_flight_set *set, const char *dir, const char *job, const char *run_id,
                        struct ash_err *err)
{
    struct ash_flight_set loaded = {0};
    int rc = load_all(&loaded, dir, err);

    if (rc < 0) return rc;
    if (run_id != NULL) keep_run(&loaded, run_id);
    keep_job(&loaded, job);
    if (loaded.count == 0) {
        ash_flight_set_fini(&loaded);
        return ash_err_set(err, -ENOENT, "'%s' holds no flight recorder%s%s: jobs leave theirs in --pages DIR", dir,
                           job != NULL ? " of job " : "", job != NULL ? job : "");
    }
    qsort(loaded.ranks, loaded.count, sizeof(*loaded.ranks), compare_ranks);
    *set = loaded;
    return 0;
}

void ash_flight_set_fini(struct ash_flight_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        ash_ring_view_fini(&set->ranks[i].view);
    free(set->ranks);
    *set = (struct ash_flight_set){0};
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

/* A call and its rank. */
struct entry {
    uint64_t group, sequence;
    uint32_t rank; /* index in the set */
    uint32_t index;
};

/* The entries of a group's ranks. */
struct span {
    const struct entry *entries;
    size_t count;
};

static int compare_entries(const void *a, const void *b)
{
    const struct entry *left = a, *right = b;

    if (left->group != right->group) return left->group < right->group ? -1 : 1;
    if (left->sequence != right->sequence) return left->sequence < right->sequence ? -1 : 1;
    return left->rank < right->rank ? -1 : left->rank > right->rank;
}

static const struct ash_flight_call *call_of(const struct ash_flight_set *set, const struct entry *entry)
{
    ash_assert(entry->rank < set->count && entry->index < set->ranks[entry->rank].view.count);
    return ash_flight_call_at(&set->ranks[entry->rank], entry->index);
}

static bool is_same(const struct ash_flight_call *a, const struct ash_flight_call *b)
{
    if (a->op != b->op || a->reduction != b->reduction || memcmp(a->dtype, b->dtype, sizeof(a->dtype)) != 0)
        return false;
    if (a->op == ASH_FLIGHT_ALL_TO_ALL) return true; /* sizes differ by rank */
    return a->bytes == b->bytes && a->peer == b->peer;
}

static void name_rank(struct ash_flight_finding *finding, size_t rank)
{
    if (finding->named_count < ASH_FLIGHT_NAMED_MAX) finding->named[finding->named_count++] = (uint32_t)rank;
    finding->all_count++;
}

static struct ash_flight_finding begin_finding(enum ash_flight_fault fault, const struct ash_flight_call *call)
{
    struct ash_flight_finding finding = {
        .fault = fault, .sequence = call->sequence, .size = call->size, .call = call, .first_waiter = UINT32_MAX};

    memcpy(finding.group, call->name, sizeof(call->name));
    return finding;
}

/* The rank that has waited longest in this call. */
static void find_waiter(const struct ash_flight_set *set, struct span at, struct ash_flight_finding *finding)
{
    uint64_t earliest = UINT64_MAX;

    for (size_t i = 0; i < at.count; i++) {
        const struct ash_flight_rank *rank = &set->ranks[at.entries[i].rank];
        const struct ash_flight_call *call = call_of(set, &at.entries[i]);
        uint64_t wall_ns = call->start_ns + (uint64_t)rank->view.wall_ns;

        if (call->end_ns != 0 || wall_ns >= earliest) continue;
        earliest = wall_ns;
        finding->first_waiter = (uint32_t)rank->rank;
    }
    if (earliest != UINT64_MAX) finding->since_s = ash_clock_wall_s() - (double)earliest * 1e-9;
}

/* The call that most ranks make; those that make another differ. Returns whether some do. */
static bool find_difference(const struct ash_flight_set *set, struct span at, struct ash_flight_finding *finding_out)
{
    const struct ash_flight_call *most = NULL;
    size_t most_count = 0;
    struct ash_flight_finding finding;
    bool differs = false;

    for (size_t i = 1; i < at.count && !differs; i++)
        differs = !is_same(call_of(set, &at.entries[0]), call_of(set, &at.entries[i]));
    if (!differs) return false;
    for (size_t i = 0; i < at.count; i++) {
        size_t same = 0;

        if (most != NULL && is_same(most, call_of(set, &at.entries[i]))) continue;
        for (size_t k = 0; k < at.count; k++)
            same += is_same(call_of(set, &at.entries[i]), call_of(set, &at.entries[k]));
        if (same <= most_count) continue;
        most_count = same;
        most = call_of(set, &at.entries[i]);
    }
    ash_assert(most != NULL); /* a call is the same as itself */
    finding = begin_finding(ASH_FLIGHT_DIFFERS, most);
    for (size_t i = 0; i < at.count; i++) {
        const struct ash_flight_call *call = call_of(set, &at.entries[i]);

        if (is_same(most, call)) continue;
        if (finding.other == NULL) finding.other = call;
        name_rank(&finding, set->ranks[at.entries[i].rank].rank);
    }
    find_waiter(set, at, &finding);
    *finding_out = finding;
    return true;
}

/* Ranks that have calls of a group, as bits by index in the set. */
static void mark_ranks(struct span group, bool *has)
{
    for (size_t i = 0; i < group.count; i++)
        has[group.entries[i].rank] = true;
}

/* Ranks of the group that have not entered its last call. */
static void find_missing(const struct ash_flight_set *set, struct span group, struct span last, const bool *has,
                         struct ash_flight_finding *finding)
{
    size_t members = 0, next = 0;

    (void)group;
    for (size_t r = 0; r < set->count; r++) {
        while (next < last.count && last.entries[next].rank < r)
            next++;
        members += has[r];
        if (has[r] && (next == last.count || last.entries[next].rank != r)) name_rank(finding, set->ranks[r].rank);
    }
    if (finding->size > members) finding->all_count += finding->size - members; /* they left no recorder */
}

/* Ranks of the group whose processes are stopped: in the call or not, the others wait for them. Returns whether there
 * are any. */
static bool find_stopped(const struct ash_flight_set *set, const bool *has, struct ash_flight_finding *finding)
{
    struct ash_flight_finding stopped = *finding;

    stopped.named_count = stopped.all_count = 0;
    for (size_t r = 0; r < set->count; r++)
        if (has[r] && set->ranks[r].is_stopped) name_rank(&stopped, set->ranks[r].rank);
    if (stopped.all_count == 0) return false;
    stopped.fault = ASH_FLIGHT_STOPPED;
    *finding = stopped;
    return true;
}

/* Ranks that ended in the middle of a call, if no living rank is in it. Returns whether that is so. */
static bool find_ended(const struct ash_flight_set *set, struct span last, struct ash_flight_finding *finding)
{
    struct ash_flight_finding ended = *finding;
    bool is_waited = false;

    for (size_t i = 0; i < last.count; i++) {
        const struct ash_flight_rank *rank = &set->ranks[last.entries[i].rank];

        if (call_of(set, &last.entries[i])->end_ns != 0) continue;
        is_waited = is_waited || rank->view.is_alive;
        name_rank(&ended, rank->rank);
    }
    if (is_waited || ended.all_count == 0 || ended.all_count == last.count) return false;
    ended.fault = ASH_FLIGHT_ENDED;
    *finding = ended;
    return true;
}

static int keep(struct ash_flight_report *report, const struct ash_flight_finding *finding)
{
    struct ash_flight_finding *list = realloc(report->findings, (report->count + 1) * sizeof(*list));

    if (list == NULL) return -ENOMEM;
    report->findings = list;
    report->findings[report->count++] = *finding;
    return 0;
}

/* The calls from `at` on that have one number. */
static struct span take_call(struct span group, size_t at)
{
    struct span call = {group.entries + at, 0};

    while (at + call.count < group.count && group.entries[at + call.count].sequence == group.entries[at].sequence)
        call.count++;
    return call;
}

/* The first number that every rank's ring still has. */
static uint64_t common_start(const struct ash_flight_set *set, struct span group, uint64_t *first)
{
    uint64_t start = 0;

    for (size_t r = 0; r < set->count; r++)
        first[r] = UINT64_MAX;
    for (size_t i = 0; i < group.count; i++)
        if (first[group.entries[i].rank] == UINT64_MAX) first[group.entries[i].rank] = group.entries[i].sequence;
    for (size_t r = 0; r < set->count; r++)
        if (first[r] != UINT64_MAX && first[r] > start && set->ranks[r].view.added > set->ranks[r].view.count)
            start = first[r];
    return start;
}

static int compare_group(const struct ash_flight_set *set, struct span group, struct ash_flight_report *report,
                         bool *has, uint64_t *first)
{
    uint64_t start = common_start(set, group, first);
    struct ash_flight_finding finding;
    struct span last = {0};
    int rc = 0;

    memset(has, 0, set->count * sizeof(*has));
    mark_ranks(group, has);
    for (size_t at = 0; at < group.count; at += last.count) {
        last = take_call(group, at);
        if (last.entries[0].sequence < start) continue;
        report->calls += last.count;
        if (find_difference(set, last, &finding)) return keep(report, &finding);
    }
    finding = begin_finding(ASH_FLIGHT_MISSING, call_of(set, &last.entries[0]));
    find_missing(set, group, last, has, &finding);
    find_waiter(set, last, &finding);
    if (finding.first_waiter == UINT32_MAX) return 0; /* the last call of a job that ended well is not waited for */
    if (finding.since_s < WAIT_LEAST_S) return 0;     /* a job that runs is always in some call */
    if (!find_stopped(set, has, &finding) && finding.all_count == 0 && !find_ended(set, last, &finding))
        finding.fault = ASH_FLIGHT_SLOW;
    rc = keep(report, &finding);
    return rc;
}

static struct entry *list_entries(const struct ash_flight_set *set, size_t *count_out)
{
    size_t total = 0, used = 0;
    struct entry *entries;

    for (size_t r = 0; r < set->count; r++)
        total += set->ranks[r].view.count;
    entries = malloc((total + 1) * sizeof(*entries));
    for (size_t r = 0; entries != NULL && r < set->count; r++)
        for (size_t i = 0; i < set->ranks[r].view.count; i++) {
            const struct ash_flight_call *call = ash_flight_call_at(&set->ranks[r], i);

            if (!call->is_message && call->op < ASH_FLIGHT_OPS)
                entries[used++] = (struct entry){call->group, call->sequence, (uint32_t)r, (uint32_t)i};
        }
    *count_out = used;
    return entries;
}

/* Differences first, then by the longest wait. */
static int compare_findings(const void *a, const void *b)
{
    const struct ash_flight_finding *left = a, *right = b;

    if (left->fault != right->fault) return left->fault < right->fault ? -1 : 1;
    return left->since_s > right->since_s ? -1 : left->since_s < right->since_s;
}

int ash_flight_compare(const struct ash_flight_set *set, struct ash_flight_report *report_out)
{
    struct ash_flight_report report = {0};
    size_t count = 0;
    struct entry *entries = list_entries(set, &count);
    bool *has = calloc(set->count + 1, sizeof(*has));
    uint64_t *first = calloc(set->count + 1, sizeof(*first));
    int rc = entries != NULL && has != NULL && first != NULL ? 0 : -ENOMEM;

    if (rc == 0) qsort(entries, count, sizeof(*entries), compare_entries);
    for (size_t at = 0; rc == 0 && at < count;) {
        struct span group = {entries + at, 0};

        while (at + group.count < count && entries[at + group.count].group == entries[at].group)
            group.count++;
        rc = compare_group(set, group, &report, has, first);
        report.groups++;
        at += group.count;
    }
    free(entries);
    free(has);
    free(first);
    if (rc < 0) {
        ash_flight_report_fini(&report);
        return rc;
    }
    if (report.count > 1) qsort(report.findings, report.count, sizeof(*report.findings), compare_findings);
    *report_out = report;
    return 0;
}

void ash_flight_report_fini(struct ash_flight_report *report)
{
    free(report->findings);
    *report = (struct ash_flight_report){0};
}
