/* Waiting jobs: a lane per class in the order of submission, and the order in which a pass looks at them. There are
 * three: by class and age, which never changes while jobs wait; by priority, where fair share or size count; queue by
 * queue, where the queue that has least goes first. Also the heap of running jobs by the end of their time limits. */
#include "queue/policy/policy_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

/* ---- lanes ------------------------------------------------------------------------------------------------------- */

static struct ash_policy_lane *lane_of(struct ash_policy *policy, int job)
{
    return &policy->lanes[policy->jobs[job].job.class];
}

/* Drop holes where they are most of the lane. */
static void compact(struct ash_policy_lane *lane)
{
    int at = 0;

    ash_assert(lane->holes >= 0 && lane->holes <= lane->end - lane->first);
    while (lane->first < lane->end && lane->jobs[lane->first] < 0) {
        lane->first++;
        lane->holes--;
    }
    if (lane->holes * 2 < lane->end - lane->first && lane->first * 2 < lane->end) return;
    for (int i = lane->first; i < lane->end; i++)
        if (lane->jobs[i] >= 0) lane->jobs[at++] = lane->jobs[i];
    *lane = (struct ash_policy_lane){.jobs = lane->jobs, .end = at, .capacity = lane->capacity};
}

/* The first place in [first, end) whose job came after seq, or a hole; where nothing is later: end. */
static int find_place(const struct ash_policy *policy, const struct ash_policy_lane *lane, uint64_t seq)
{
    int at = lane->end;

    /* jobs come in order, so the end is nearly always right; one that waits again is looked for from there */
    while (at > lane->first && (lane->jobs[at - 1] < 0 || policy->jobs[lane->jobs[at - 1]].seq > seq))
        at--;
    return at;
}

int ash_policy_lane_add(struct ash_policy *policy, int job)
{
    struct ash_policy_lane *lane = lane_of(policy, job);
    int at;

    if (lane->end == lane->capacity) {
        int capacity = lane->capacity == 0 ? 64 : 2 * lane->capacity;
        int *jobs = realloc(lane->jobs, (size_t)capacity * sizeof(*jobs));

        if (jobs == NULL) return -ENOMEM;
        lane->jobs = jobs;
        lane->capacity = capacity;
    }
    at = find_place(policy, lane, policy->jobs[job].seq);
    ash_assert(at >= lane->first && lane->end < lane->capacity);
    memmove(lane->jobs + at + 1, lane->jobs + at, (size_t)(lane->end - at) * sizeof(*lane->jobs));
    lane->jobs[at] = job;
    lane->end++;
    return 0;
}

/* Lanes are sorted by seq apart from holes: look where a binary search would be, and around holes. */
static int find_job(const struct ash_policy *policy, const struct ash_policy_lane *lane, int job)
{
    uint64_t seq = policy->jobs[job].seq;
    int low = lane->first, high = lane->end;

    while (low < high) {
        int middle = low + (high - low) / 2, at = middle;

        while (at < high && lane->jobs[at] < 0)
            at++;
        if (at == high)
            high = middle;
        else if (policy->jobs[lane->jobs[at]].seq < seq)
            low = at + 1;
        else if (lane->jobs[at] == job)
            return at;
        else
            high = middle;
    }
    return -1;
}

void ash_policy_lane_remove(struct ash_policy *policy, int job)
{
    struct ash_policy_lane *lane = lane_of(policy, job);
    int at = find_job(policy, lane, job);

    if (at < 0) return;
    lane->jobs[at] = -1;
    lane->holes++;
    compact(lane);
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

static double size_factor(const struct ash_policy *policy, const struct ash_policy_job *job)
{
    double milli = (double)job->nodes * job->gpus * job->gpu_milli;
    double part = ((double)job->nodes / policy->host_count +
                   (policy->gpu_milli_total > 0 ? milli / (double)policy->gpu_milli_total : 0)) /
                  2;

    return policy->conf->favors_small ? 1 - part : part;
}

struct ash_policy_priority ash_policy_priority_of(const struct ash_policy *policy, int job)
{
    const struct ash_policy_conf *conf = policy->conf;
    const struct ash_policy_entry *entry = &policy->jobs[job];
    double highest = conf->classes[policy->class_order[0]].priority, age = policy->now_s - entry->submit_s;
    struct ash_policy_priority priority = {.size = conf->size_weight * size_factor(policy, &entry->job)};

    if (highest > 0) priority.class = conf->class_weight * conf->classes[entry->job.class].priority / highest;
    if (conf->age_max_s > 0) priority.age = conf->age_weight * fmin(1, age / conf->age_max_s);
    if (conf->fair == ASH_POLICY_FAIR_MULTIFACTOR || conf->fair == ASH_POLICY_FAIR_TREE)
        priority.fair_share = conf->fair_weight * policy->shares[policy->usages[entry->usage].node].factor;
    priority.sum = priority.class + priority.age + priority.size + priority.fair_share;
    return priority;
}

struct ranked {
    double key; /* smaller goes first */
    uint64_t seq;
    int job, queue;
};

static int by_key(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->seq < y->seq ? -1 : x->seq > y->seq;
}

static int by_queue(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    if (x->queue != y->queue) return x->queue < y->queue ? -1 : 1;
    return by_key(a, b);
}

/* All waiting jobs with their priorities. */
static struct ranked *rank_all(struct ash_policy *policy)
{
    struct ranked *ranked = malloc(((size_t)policy->waiting + 1) * sizeof(*ranked));
    int at = 0;

    for (int class = 0; class < policy->conf->class_count && ranked != NULL; class ++) {
        const struct ash_policy_lane *lane = &policy->lanes[class];

        for (int i = lane->first; i < lane->end; i++) {
            struct ash_policy_entry *entry;

            if (lane->jobs[i] < 0) continue;
            entry = &policy->jobs[lane->jobs[i]];
            entry->priority = ash_policy_priority_of(policy, lane->jobs[i]).sum;
            ranked[at++] = (struct ranked){-entry->priority, entry->seq, lane->jobs[i], entry->job.queue};
        }
    }
    ash_assert(ranked == NULL || at == policy->waiting); /* the lanes hold what waits, each job once */
    return ranked;
}

/* By class, then by age: the lanes one after the other. */
static void order_lanes(struct ash_policy *policy, int depth)
{
    for (int i = 0; i < policy->conf->class_count; i++) {
        const struct ash_policy_lane *lane = &policy->lanes[policy->class_order[i]];

        for (int at = lane->first; at < lane->end && policy->order_count < depth; at++)
            if (lane->jobs[at] >= 0) policy->order[policy->order_count++] = lane->jobs[at];
    }
}

/* A queue's use over its share, if its next job started. */
static double claim_of(const struct ash_policy *policy, int queue, int64_t planned, const struct ash_policy_job *job)
{
    int64_t amount[ASH_POLICY_RESOURCES];

    ash_policy_amount(job, ash_policy_wanted(job), amount);
    amount[ASH_POLICY_GPU] += planned;
    if (policy->conf->fair == ASH_POLICY_FAIR_DOMINANT) return ash_quota_share(policy->quota, queue, amount, 1);
    if (policy->queue_given[queue] <= 0) return INFINITY;
    return (double)(policy->queue_used[queue] + planned) / policy->queue_given[queue];
}

struct cursor {
    double claim;
    int at, end; /* into ranked */
    int64_t planned;
};

static bool cursor_before(const struct cursor *a, const struct cursor *b, const struct ranked *ranked)
{
    if (a->claim != b->claim) return a->claim < b->claim;
    return by_key(&ranked[a->at], &ranked[b->at]) < 0;
}

static void sift_cursor(struct cursor *heap, int count, int at, const struct ranked *ranked)
{
    for (;;) {
        int least = at;

        for (int child = 2 * at + 1; child <= 2 * at + 2 && child < count; child++)
            if (cursor_before(&heap[child], &heap[least], ranked)) least = child;
        if (least == at) return;
        struct cursor swapped = heap[at];

        heap[at] = heap[least];
        heap[least] = swapped;
        at = least;
    }
}

static int make_cursors(const struct ash_policy *policy, const struct ranked *ranked, struct cursor *cursors)
{
    int count = 0;

    for (int i = 0; i < policy->waiting; i++) {
        if (i == 0 || ranked[i].queue != ranked[i - 1].queue)
            cursors[count++] = (struct cursor){
                .at = i, .claim = claim_of(policy, ranked[i].queue, 0, &policy->jobs[ranked[i].job].job)};
        cursors[count - 1].end = i + 1;
    }
    return count;
}

/* The queue that would have the least of its share goes first, as if each of its jobs started. */
static int order_queues(struct ash_policy *policy, struct ranked *ranked, int depth)
{
    struct cursor *cursors = malloc(((size_t)policy->conf->queue_count + 1) * sizeof(*cursors));
    int count;

    if (cursors == NULL) return -ENOMEM;
    qsort(ranked, (size_t)policy->waiting, sizeof(*ranked), by_queue);
    count = make_cursors(policy, ranked, cursors);
    for (int i = count / 2; i >= 0; i--)
        sift_cursor(cursors, count, i, ranked);
    while (count > 0 && policy->order_count < depth) {
        struct cursor *first = &cursors[0];
        const struct ash_policy_entry *entry = &policy->jobs[ranked[first->at].job];

        policy->order[policy->order_count++] = ranked[first->at].job;
        first->planned += (int64_t)ash_policy_wanted(&entry->job) * entry->job.gpus * entry->job.gpu_milli;
        if (++first->at < first->end)
            first->claim = claim_of(policy, entry->job.queue, first->planned, &policy->jobs[ranked[first->at].job].job);
        else
            *first = cursors[--count];
        sift_cursor(cursors, count, 0, ranked);
    }
    free(cursors);
    return 0;
}

/* Over-quota: what every queue is due of the cluster now. */
static int divide_cluster(struct ash_policy *policy)
{
    int count = policy->conf->queue_count;
    struct ash_share_claim *claims = calloc((size_t)count, sizeof(*claims));

    if (claims == NULL) return -ENOMEM;
    for (int i = 0; i < count; i++) {
        const struct ash_policy_queue *queue = &policy->conf->queues[i];

        claims[i].deserved = queue->has_quota ? (double)queue->nominal[ASH_POLICY_GPU] : 0;
        claims[i].weight = queue->weight;
        claims[i].limit = queue->gpus_max == ASH_POLICY_UNLIMITED ? INFINITY : (double)queue->gpus_max;
        claims[i].asked = (double)(policy->queue_waiting[i]);
    }
    for (int i = 0; i < policy->usage_count; i++)
        claims[policy->usages[i].queue].asked += (double)policy->usages[i].running_milli;
    ash_share_divide(claims, count, (double)policy->gpu_milli_total);
    for (int i = 0; i < count; i++)
        policy->queue_given[i] = claims[i].given;
    free(claims);
    return 0;
}

int ash_policy_sort(struct ash_policy *policy, int depth)
{
    const struct ash_policy_conf *conf = policy->conf;
    bool by_queues = conf->fair == ASH_POLICY_FAIR_DOMINANT || conf->fair == ASH_POLICY_FAIR_OVER_QUOTA;
    bool is_static = conf->fair == ASH_POLICY_FAIR_NONE && conf->size_weight == 0;
    struct ranked *ranked;
    int rc = 0;

    policy->order_count = 0;
    if (is_static) {
        order_lanes(policy, depth);
        return 0;
    }
    if (conf->fair == ASH_POLICY_FAIR_OVER_QUOTA) rc = divide_cluster(policy);
    ranked = rc == 0 ? rank_all(policy) : NULL;
    if (ranked == NULL) return -ENOMEM;
    if (by_queues) {
        rc = order_queues(policy, ranked, depth);
    } else {
        qsort(ranked, (size_t)policy->waiting, sizeof(*ranked), by_key);
        for (int i = 0; i < policy->waiting && i < depth; i++)
            policy->order[policy->order_count++] = ranked[i].job;
    }
    free(ranked);
    return rc;
}

/* ---- running jobs by end ----------------------------------------------------------------------------------------- */

static bool ends_before(const struct ash_policy *policy, int a, int b)
{
    const struct ash_policy_entry *x = &policy->jobs[a], *y = &policy->jobs[b];

    return x->end_s != y->end_s ? x->end_s < y->end_s : x->seq < y->seq;
}

static void put(struct ash_policy *policy, int at, int job)
{
    policy->heap[at] = job;
    policy->jobs[job].heap_at = at;
}

static void sift(struct ash_policy *policy, int at, int job)
{
    while (at > 0 && ends_before(policy, job, policy->heap[(at - 1) / 2])) {
        put(policy, at, policy->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (;;) {
        int child = 2 * at + 1;

        if (child + 1 < policy->heap_count && ends_before(policy, policy->heap[child + 1], policy->heap[child]))
            child++;
        if (child >= policy->heap_count || !ends_before(policy, policy->heap[child], job)) break;
        put(policy, at, policy->heap[child]);
        at = child;
    }
    put(policy, at, job);
}

void ash_policy_heap_add(struct ash_policy *policy, int job)
{
    sift(policy, policy->heap_count++, job);
}

void ash_policy_heap_remove(struct ash_policy *policy, int job)
{
    int at = policy->jobs[job].heap_at, last = policy->heap[--policy->heap_count];

    ash_assert(at >= 0 && at <= policy->heap_count && policy->heap[at] == job);
    if (last != job) sift(policy, at, last);
}
