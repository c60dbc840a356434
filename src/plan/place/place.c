/* Placement of a job's hosts. Every axis's bytes go from host to host as its collectives send them; a link's load over
 * the part of it that belongs to the job says what share of the network's rate is left, and the model of the step says
 * what that costs after overlap. Latency of hops is left out: it is microseconds where bytes take milliseconds. */
#include "plan/place/place.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define GAIN_MIN 1e-6 /* of a step: less is rounding */

const char *ash_placement_axis_name(enum ash_placement_axis axis)
{
    static const char *const names[ASH_PLACEMENT_AXES] = {"tp", "cp", "dp", "ep", "pp"};

    ash_assert((size_t)axis < ASH_COUNT(names));
    return names[axis];
}

int ash_placement_check(const struct ash_placement_job *job, struct ash_err *err)
{
    const struct ash_machine *machine = &job->job.cluster.machine;

    if (machine->domain_gpus <= machine->gpus) return 0;
    return ash_err_set(err, -EINVAL,
                       "NVLink joins %d GPUs over several %s: name the whole rack as the machine (ashlar catalog ls) "
                       "and give one line per rack in the topology",
                       machine->domain_gpus, machine->name);
}

/* ---- who sends to whom ------------------------------------------------------------------------------------------- */

/* Called with positions of hosts and bytes from the first to the second. */
typedef void (*flow_fn)(void *ctx, int from, int to, double bytes);

struct flows {
    const struct ash_layout *layout;
    int gpus, hosts;                  /* per host; of the job */
    double bytes[ASH_PLACEMENT_AXES]; /* that one GPU sends to other hosts */
    flow_fn visit;
    void *ctx;
};

static struct flows flows_of(const struct ash_placement_job *job, const struct ash_step_traffic *traffic)
{
    return (struct flows){.layout = &job->layout,
                          .gpus = job->job.cluster.machine.gpus,
                          .hosts = job->job.cluster.machines,
                          .bytes = {traffic->tp, traffic->cp, traffic->dp, traffic->ep, traffic->pp}};
}

/* A ring of size ranks, stride apart: every rank sends to the next that is on another host. */
static void walk_ring(const struct flows *flows, int stride, int size, double bytes)
{
    int ranks = flows->hosts * flows->gpus;

    ash_assert(stride > 0 && size > 0 && ranks % (stride * size) == 0); /* rings are whole */
    for (int rank = 0; rank < ranks; rank++) {
        int position = rank / stride % size, first = rank - position * stride;

        for (int k = 1; k < size; k++) {
            int next = (first + (position + k) % size * stride) / flows->gpus;

            if (next == rank / flows->gpus) continue;
            flows->visit(flows->ctx, rank / flows->gpus, next, bytes);
            break;
        }
    }
}

/* Groups of size neighbours, in which each sends the same to every other host. */
static void walk_all_to_all(const struct flows *flows, int size, double bytes)
{
    int ranks = flows->hosts * flows->gpus, step = size % flows->gpus == 0 ? flows->gpus : 1;

    ash_assert(size > 0 && ranks % size == 0);
    for (int rank = 0; rank < ranks; rank += step) {
        int first = rank / size * size / flows->gpus, last = (rank / size * size + size - 1) / flows->gpus;

        for (int host = first; host <= last; host++)
            if (host != rank / flows->gpus)
                flows->visit(flows->ctx, rank / flows->gpus, host, bytes * step / (last - first));
    }
}

/* Activations go to the next stage, gradients back; interleaved stages also from the last to the first. */
static void walk_pipeline(const struct flows *flows, double bytes)
{
    int ranks = flows->hosts * flows->gpus, stage = ranks / flows->layout->pp;
    int senders = flows->layout->chunks > 1 ? ranks : ranks - stage;

    for (int rank = 0; rank < senders; rank++) {
        int from = rank / flows->gpus, to = (rank + stage) % ranks / flows->gpus;

        if (from == to) continue;
        flows->visit(flows->ctx, from, to, bytes / 2);
        flows->visit(flows->ctx, to, from, bytes / 2);
    }
}

static void walk_axis(const struct flows *flows, enum ash_placement_axis axis)
{
    const struct ash_layout *l = flows->layout;
    double bytes = flows->bytes[axis];

    if (bytes <= 0) return;
    if (axis == ASH_PLACEMENT_TP) walk_ring(flows, 1, l->tp, bytes);
    if (axis == ASH_PLACEMENT_CP) walk_ring(flows, l->tp, l->cp, bytes);
    if (axis == ASH_PLACEMENT_DP) walk_ring(flows, l->tp, l->cp * l->dp, bytes);
    if (axis == ASH_PLACEMENT_EP) walk_all_to_all(flows, l->ep * l->etp, bytes);
    if (axis == ASH_PLACEMENT_PP) walk_pipeline(flows, bytes);
}

/* ---- what the links carry ---------------------------------------------------------------------------------------- */

struct loads {
    const struct ash_topology *topology;
    const int *hosts;
    double uplink_share;
    int *mine;                /* the job's hosts below each node */
    double *up, *down, *sent; /* of one axis: by node, by node, by position of host */
    double *bytes, *work;     /* of all axes, by node: the busier direction; the same over what the job gets of it */
    double flow_bytes, flow_hops;
    int hops_max;
    double *layer_bytes;
};

static void add_flow(void *ctx, int from, int to, double bytes)
{
    struct loads *loads = ctx;
    const struct ash_topology_node *nodes = loads->topology->nodes;
    int a = loads->hosts[from], b = loads->hosts[to], meet = ash_topology_meet(loads->topology, a, b);
    int hops = ash_topology_hops(loads->topology, a, b);

    loads->sent[from] += bytes;
    loads->flow_bytes += bytes;
    loads->flow_hops += bytes * hops;
    if (hops > loads->hops_max) loads->hops_max = hops;
    loads->layer_bytes[nodes[meet].height] += bytes;
    for (; a != meet; a = nodes[a].parent)
        loads->up[a] += bytes;
    for (; b != meet; b = nodes[b].parent)
        loads->down[b] += bytes;
}

/* What of a domain's uplink belongs to the job, in hosts' full rates. A host's own link is whole. */
static double link_hosts(const struct loads *loads, int node)
{
    return loads->mine[node] * pow(loads->uplink_share, loads->topology->nodes[node].height);
}

/* The links' slowest against the hosts' slowest. */
static struct ash_placement_traffic settle_axis(struct loads *loads, int hosts)
{
    struct ash_placement_traffic traffic = {.net_share = 1, .hops_max = loads->hops_max};
    double slowest = 0;

    for (int i = 0; i < hosts; i++)
        traffic.bytes = fmax(traffic.bytes, loads->sent[i]);
    for (int node = 1; node < loads->topology->count; node++) {
        double bytes = fmax(loads->up[node], loads->down[node]);

        if (bytes <= 0 || loads->topology->nodes[node].is_host) continue;
        loads->bytes[node] += bytes;
        loads->work[node] += bytes / link_hosts(loads, node);
        slowest = fmax(slowest, bytes / link_hosts(loads, node));
    }
    if (loads->flow_bytes > 0) traffic.hops = loads->flow_hops / loads->flow_bytes;
    if (slowest > traffic.bytes) traffic.net_share = traffic.bytes / slowest;
    return traffic;
}

static int open_loads(const struct ash_placement_job *job, const struct ash_topology *topology, const int *hosts,
                      struct loads *loads)
{
    size_t nodes = (size_t)topology->count, machines = (size_t)job->job.cluster.machines;
    double *room = calloc(nodes * 4 + machines, sizeof(*room));

    *loads = (struct loads){.topology = topology, .hosts = hosts, .uplink_share = job->uplink_share};
    loads->mine = calloc(nodes, sizeof(*loads->mine));
    loads->up = room;
    if (room == NULL || loads->mine == NULL) return -ENOMEM;
    loads->down = room + nodes;
    loads->bytes = room + 2 * nodes;
    loads->work = room + 3 * nodes;
    loads->sent = room + 4 * nodes;
    for (size_t i = 0; i < machines; i++)
        for (int node = hosts[i]; node >= 0; node = topology->nodes[node].parent)
            loads->mine[node]++;
    return 0;
}

static void close_loads(struct loads *loads)
{
    free(loads->up); /* all of the doubles */
    free(loads->mine);
}

static void clear_axis(struct loads *loads, int hosts)
{
    memset(loads->up, 0, (size_t)loads->topology->count * 2 * sizeof(*loads->up)); /* down follows it */
    memset(loads->sent, 0, (size_t)hosts * sizeof(*loads->sent));
    loads->flow_bytes = loads->flow_hops = 0;
    loads->hops_max = 0;
}

static void find_worst_link(const struct ash_placement_job *job, const struct loads *loads, struct ash_placement *place)
{
    double host_rate = fmax(job->job.cluster.machine.net_bandwidth * job->consts->net_share, 1);

    place->worst_link = -1;
    for (int node = 1; node < loads->topology->count; node++) {
        if (loads->work[node] / host_rate <= place->worst_s) continue;
        place->worst_link = node;
        place->worst_s = loads->work[node] / host_rate;
        place->worst_bytes = loads->bytes[node];
    }
}

int ash_placement_measure(const struct ash_placement_job *job, const struct ash_topology *topology, const int *hosts,
                          struct ash_placement *place_out)
{
    struct ash_plan_job placed = job->job;
    struct ash_placement place = {0};
    struct ash_plan_step flat;
    struct flows flows;
    struct loads loads;
    double *shares[ASH_PLACEMENT_AXES] = {&placed.net.tp, &placed.net.cp, &placed.net.dp, &placed.net.ep,
                                          &placed.net.pp};
    int rc = open_loads(job, topology, hosts, &loads);

    if (rc < 0) goto done;
    ash_step_predict(job->consts, &job->job, &job->layout, true, &flat);
    flows = flows_of(job, &flat.traffic);
    flows.visit = add_flow;
    flows.ctx = &loads;
    loads.layer_bytes = place.layer_bytes;
    for (int axis = 0; axis < ASH_PLACEMENT_AXES; axis++) {
        clear_axis(&loads, flows.hosts);
        walk_axis(&flows, (enum ash_placement_axis)axis);
        place.axis[axis] = settle_axis(&loads, flows.hosts);
        *shares[axis] = place.axis[axis].net_share;
    }
    find_worst_link(job, &loads, &place);
    ash_step_predict(job->consts, &placed, &job->layout, true, &place.step);
    place.flat_s = flat.time.total;
    *place_out = place;

done:
    close_loads(&loads);
    return rc;
}

/* ---- who crosses a link ------------------------------------------------------------------------------------------ */

struct crossing {
    const struct ash_topology *topology;
    const int *hosts;
    int link;
    bool *crossing;
};

static void mark_crossing(void *ctx, int from, int to, double bytes)
{
    const struct crossing *c = ctx;
    bool inside = ash_topology_holds(c->topology, c->link, c->hosts[from]);

    (void)bytes;
    if (inside == ash_topology_holds(c->topology, c->link, c->hosts[to])) return;
    c->crossing[inside ? from : to] = true;
}

void ash_placement_crossing(const struct ash_placement_job *job, const struct ash_topology *topology, const int *hosts,
                            int link, bool *crossing_out)
{
    struct crossing crossing = {topology, hosts, link, crossing_out};
    struct ash_plan_step flat;
    struct flows flows;

    ash_step_predict(job->consts, &job->job, &job->layout, false, &flat);
    flows = flows_of(job, &flat.traffic);
    flows.visit = mark_crossing;
    flows.ctx = &crossing;
    memset(crossing_out, 0, (size_t)flows.hosts * sizeof(*crossing_out));
    for (int axis = 0; axis < ASH_PLACEMENT_AXES; axis++)
        walk_axis(&flows, (enum ash_placement_axis)axis);
}

/* ---- a better order ---------------------------------------------------------------------------------------------- */

/* A host's way from the root: nodes in the order of the file. */
struct way {
    int nodes[ASH_TOPOLOGY_HEIGHT_MAX + 2];
    int host;
};

static int by_way(const void *a, const void *b)
{
    const struct way *x = a, *y = b;

    for (size_t i = 0; i < sizeof(x->nodes) / sizeof(x->nodes[0]); i++)
        if (x->nodes[i] != y->nodes[i]) return x->nodes[i] < y->nodes[i] ? -1 : 1;
    return 0;
}

static int sort_by_way(const struct ash_topology *topology, const int *hosts, int count, int *sorted_out)
{
    struct way *ways = calloc((size_t)count, sizeof(*ways));

    if (ways == NULL) return -ENOMEM;
    for (int i = 0; i < count; i++) {
        int depth = 0;

        for (int node = hosts[i]; topology->nodes[node].parent >= 0; node = topology->nodes[node].parent)
            depth++;
        for (int node = hosts[i]; depth >= 0; node = topology->nodes[node].parent)
            ways[i].nodes[depth--] = node;
        ways[i].host = hosts[i];
    }
    qsort(ways, (size_t)count, sizeof(*ways), by_way);
    for (int i = 0; i < count; i++)
        sorted_out[i] = ways[i].host;
    free(ways);
    return 0;
}

/* Measure order and keep it if it is the fastest so far. */
static int keep_faster(const struct ash_placement_job *job, const struct ash_topology *topology, const int *order,
                       int *order_out, struct ash_placement *best)
{
    struct ash_placement place;
    int rc = ash_placement_measure(job, topology, order, &place);

    if (rc < 0 || place.step.time.total >= best->step.time.total * (1 - GAIN_MIN)) return rc;
    memcpy(order_out, order, (size_t)job->job.cluster.machines * sizeof(*order));
    *best = place;
    return 0;
}

int ash_placement_reorder(const struct ash_placement_job *job, const struct ash_topology *topology, const int *hosts,
                          int *order_out, struct ash_placement *place_out)
{
    int count = job->job.cluster.machines, pp = job->layout.pp, rc = -ENOMEM;
    int *sorted = calloc((size_t)count, sizeof(*sorted)), *striped = calloc((size_t)count, sizeof(*striped));
    struct ash_placement best;

    if (sorted == NULL || striped == NULL) goto done;
    memcpy(order_out, hosts, (size_t)count * sizeof(*hosts));
    rc = ash_placement_measure(job, topology, hosts, &best);
    if (rc == 0) rc = sort_by_way(topology, hosts, count, sorted);
    if (rc == 0) rc = keep_faster(job, topology, sorted, order_out, &best);
    if (rc == 0 && pp > 1 && count % pp == 0) { /* the stages of one pipeline side by side */
        for (int i = 0; i < count; i++)
            striped[i % pp * (count / pp) + i / pp] = sorted[i];
        rc = keep_faster(job, topology, striped, order_out, &best);
    }
    if (rc == 0) *place_out = best;

done:
    free(sorted);
    free(striped);
    return rc;
}
