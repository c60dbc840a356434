/* mesh: sizes, places and groups of the six axes, and which part of a model each rank holds. */
#include "train/layout/mesh.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

static const char *const axis_names[ASH_MESH_AXES] = {"tp", "cp", "ep", "fsdp", "dp", "pp"};

static void sizes_of(const struct ash_job_mesh *job, size_t sizes[ASH_MESH_AXES])
{
    sizes[ASH_MESH_TP] = (size_t)job->tp;
    sizes[ASH_MESH_CP] = (size_t)job->cp;
    sizes[ASH_MESH_EP] = (size_t)job->ep;
    sizes[ASH_MESH_FSDP] = (size_t)job->fsdp;
    sizes[ASH_MESH_DP] = (size_t)job->dp;
    sizes[ASH_MESH_PP] = (size_t)job->pp;
}

#define SIZES_BYTES 160

/* The sizes above 1, as they are set; if there is none, that of dp. */
static const char *name_sizes(const size_t sizes[ASH_MESH_AXES], char *buf, size_t buf_bytes)
{
    size_t used = 0;

    for (size_t a = 0; a < ASH_MESH_AXES; a++)
        if (sizes[a] > 1 && used < buf_bytes)
            used += (size_t)snprintf(buf + used, buf_bytes - used, "%s%s=%zu", used > 0 ? " " : "", axis_names[a],
                                     sizes[a]);
    if (used == 0) snprintf(buf, buf_bytes, "%s=%zu", axis_names[ASH_MESH_DP], sizes[ASH_MESH_DP]);
    return buf;
}

size_t ash_mesh_unit(const struct ash_job_mesh *job)
{
    return (size_t)(job->fsdp * job->tp * job->pp * job->cp * job->ep * (job->dp > 0 ? job->dp : 1));
}

int ash_mesh_resolve(struct ash_job_mesh *job, size_t ranks, struct ash_err *err)
{
    int64_t others = job->fsdp * job->tp * job->pp * job->cp * job->ep;
    size_t sizes[ASH_MESH_AXES];
    char text[SIZES_BYTES];
    long long wanted;

    sizes_of(job, sizes);
    if (job->dp == 0) {
        if (others > (int64_t)ranks || (int64_t)ranks % others != 0)
            return ash_err_set(err, -EINVAL,
                               "a mesh of %s needs a multiple of %lld ranks, and there %s %zu: "
                               "`ashlar launch --procs %lld train ...` starts them",
                               name_sizes(sizes, text, sizeof(text)), (long long)others, ranks == 1 ? "is" : "are",
                               ranks, (long long)others);
        job->dp = (int64_t)ranks / others;
    }
    wanted = (long long)job->dp * others;
    if (wanted != (long long)ranks)
        return ash_err_set(err, -EINVAL,
                           "a mesh of %s has %lld ranks, and there %s %zu: `ashlar launch --procs %lld train ...` "
                           "starts them, and mesh.dp=0 takes what the other sizes leave",
                           name_sizes(sizes, text, sizeof(text)), wanted, ranks == 1 ? "is" : "are", ranks, wanted);
    return 0;
}

const char *ash_mesh_describe(const struct ash_mesh *mesh, char *buf, size_t buf_bytes)
{
    size_t used = strlen(name_sizes(mesh->size, buf, buf_bytes));

    if (mesh->zero > 0) snprintf(buf + used, buf_bytes - used, " zero=%d", mesh->zero);
    return buf;
}

/* A number for everything about a rank but its place on the axes of mask. */
static int64_t color_without(const struct ash_mesh *mesh, unsigned mask)
{
    int64_t color = 0;

    for (size_t a = ASH_MESH_AXES; a-- > 0;)
        if (!(mask & 1u << a)) color = color * (int64_t)mesh->size[a] + (int64_t)mesh->at[a];
    return color;
}

/* The group of ranks that differ along the axes of mask; NULL if there are none. Keeps the world's order. */
static int split(struct ash_mesh *mesh, unsigned mask, struct ash_group **group_out, struct ash_err *err)
{
    size_t members = 1;

    ash_assert(mask != 0 && mask >> ASH_MESH_AXES == 0);
    for (size_t a = 0; a < ASH_MESH_AXES; a++)
        if (mask & 1u << a) members *= mesh->size[a];
    if (members == 1) return 0;
    return ash_group_split(mesh->world, color_without(mesh, mask), (int64_t)ash_group_rank(mesh->world), group_out,
                           err);
}

/* Teams of `ranks` neighbours who can share memory, all on one node: the same number on all ranks. */
static size_t count_node_teams(const struct ash_mesh *mesh, size_t ranks)
{
    size_t split = SIZE_MAX, count = ash_group_size(mesh->world) / ranks;

    if (mesh->is_device) return 0;
    for (size_t r = 0; r < ash_group_size(mesh->world); r++) {
        size_t node = ash_group_get_member(mesh->world, r).node_index,
               first = ash_group_get_member(mesh->world, r / ranks * ranks).node_index;

        if (node == first || split == r / ranks) continue;
        split = r / ranks;
        count--;
    }
    return count;
}

/* All ranks must decide alike: those of tp, and of tp and cp, are neighbours. Ranks of tp on one node map each other's
 * shared memory, so either all have some or none has. If nodes split some teams of tp and not others, one rank of a
 * team may have peers on its node and another none. Then no rank shares. */
static void find_shared(struct ash_mesh *mesh)
{
    size_t tp = mesh->size[ASH_MESH_TP], team = tp * mesh->size[ASH_MESH_CP], ranks = ash_group_size(mesh->world),
           whole = count_node_teams(mesh, tp);

    mesh->has_tp_peers = tp > 1 && whole > 0;
    mesh->shares_state = !mesh->is_device && (whole == 0 || whole == ranks / tp);
    mesh->shares_gradients =
        mesh->size[ASH_MESH_CP] > 1 && mesh->zero < 2 && count_node_teams(mesh, team) == ranks / team;
}

/* Replicas on one node. */
static int find_node_replicas(struct ash_mesh *mesh, struct ash_err *err)
{
    unsigned replicas = 1u << ASH_MESH_DP | 1u << ASH_MESH_CP;
    size_t rank = ash_group_rank(mesh->world), node = ash_group_get_member(mesh->world, rank).node_index;
    int64_t color = color_without(mesh, replicas) * (int64_t)ash_group_nodes(mesh->world) + (int64_t)node;
    int rc;

    if (ash_mesh_replicas(mesh) == 1 || mesh->zero > 0 || !mesh->shares_state) return 0;
    rc = ash_group_split(mesh->world, color, (int64_t)rank, &mesh->node_replicas, err);
    if (rc < 0) return rc;
    if (ash_group_size(mesh->node_replicas) > 1) return 0;
    ash_group_close(mesh->node_replicas);
    mesh->node_replicas = NULL;
    return 0;
}

/* Which ranks of ep share a node: rows go to other nodes once. */
static int find_ep_nodes(struct ash_mesh *mesh, struct ash_err *err)
{
    struct ash_group *ep = mesh->groups[ASH_MESH_EP];
    size_t size = mesh->size[ASH_MESH_EP], rank;
    int rc;

    if (ep == NULL || ash_group_nodes(ep) == 1) return 0;
    rank = ash_group_rank(ep);
    mesh->ep_nodes = calloc(size, sizeof(*mesh->ep_nodes));
    if (mesh->ep_nodes == NULL) return ash_err_set(err, -ENOMEM, "out of memory for %zu ranks", size);
    for (size_t r = 0; r < size; r++)
        mesh->ep_nodes[r] = (uint32_t)ash_group_get_member(ep, r).node_index;
    rc = ash_group_split(ep, mesh->ep_nodes[rank], (int64_t)rank, &mesh->ep_node_group, err);
    return rc < 0 ? rc : ash_axis_link_open(&mesh->ep_link, mesh->ep_node_group, &mesh->meter, err);
}

/* Ranks that share a pass, where all of them are on one node. */
static int find_tp_cp(struct ash_mesh *mesh, struct ash_err *err)
{
    int rc;

    if (mesh->size[ASH_MESH_TP] == 1 || mesh->size[ASH_MESH_CP] == 1) return 0;
    rc = split(mesh, 1u << ASH_MESH_TP | 1u << ASH_MESH_CP, &mesh->tp_cp, err);
    if (rc < 0) return rc;
    if (ash_group_shares_memory(mesh->tp_cp))
        return ash_axis_link_open(&mesh->tp_cp_link, mesh->tp_cp, &mesh->meter, err);
    ash_group_close(mesh->tp_cp);
    mesh->tp_cp = NULL;
    return 0;
}

static int open_groups(struct ash_mesh *mesh, struct ash_err *err)
{
    unsigned experts = 1u << ASH_MESH_DP | 1u << ASH_MESH_FSDP, data = experts | 1u << ASH_MESH_EP,
             blocks = 1u << ASH_MESH_DP | 1u << ASH_MESH_EP;
    int rc;

    for (size_t a = 0; a < ASH_MESH_AXES; a++) {
        rc = split(mesh, 1u << a, &mesh->groups[a], err);
        if (rc < 0) return rc;
        if (mesh->groups[a] != NULL) ash_group_set_name(mesh->groups[a], axis_names[a]);
    }
    rc = split(mesh, data, &mesh->data, err);
    if (rc < 0) return rc;
    if (mesh->data != NULL) ash_group_set_name(mesh->data, "data");
    rc = split(mesh, experts, &mesh->experts, err);
    if (rc < 0) return rc;
    if (mesh->zero > 1) {
        rc = split(mesh, blocks, &mesh->blocks, err);
        if (rc < 0) return rc;
    }
    find_shared(mesh);
    rc = find_node_replicas(mesh, err);
    if (rc < 0) return rc;
    for (size_t a = 0; a <= ASH_MESH_EP; a++) {
        if (mesh->groups[a] != NULL) {
            rc = ash_axis_link_open(&mesh->links[a], mesh->groups[a], &mesh->meter, err);
            if (rc < 0) return rc;
        }
    }
    rc = find_tp_cp(mesh, err);
    if (rc < 0) return rc;
    return find_ep_nodes(mesh, err);
}

int ash_mesh_open(struct ash_mesh *mesh, const struct ash_job_mesh *job, struct ash_group *world, struct ash_err *err)
{
    size_t rank = world != NULL ? ash_group_rank(world) : 0;
    int rc;

    memset(mesh, 0, sizeof(*mesh));
    mesh->world = world;
    sizes_of(job, mesh->size);
    mesh->zero = job->fsdp > 1 ? (int)job->zero : 0;
    for (size_t a = 0; a < ASH_MESH_AXES; a++) {
        mesh->at[a] = rank % mesh->size[a];
        rank /= mesh->size[a];
    }
    if (world == NULL) return 0;
    mesh->is_device = ash_group_is_staged(world);
    rc = open_groups(mesh, err);
    if (rc < 0) ash_mesh_close(mesh);
    return rc;
}

void ash_mesh_close(struct ash_mesh *mesh)
{
    for (size_t a = 0; a <= ASH_MESH_EP; a++)
        ash_axis_link_close(&mesh->links[a]);
    ash_axis_link_close(&mesh->ep_link);
    ash_axis_link_close(&mesh->tp_cp_link);
    ash_group_close(mesh->tp_cp);
    ash_group_close(mesh->ep_node_group);
    free(mesh->ep_nodes);
    for (size_t a = 0; a < ASH_MESH_AXES; a++)
        ash_group_close(mesh->groups[a]);
    ash_group_close(mesh->data);
    ash_group_close(mesh->experts);
    ash_group_close(mesh->blocks);
    ash_group_close(mesh->node_replicas);
    memset(mesh, 0, sizeof(*mesh));
}

bool ash_mesh_is_whole(const struct ash_mesh *mesh)
{
    return mesh->size[ASH_MESH_TP] * mesh->size[ASH_MESH_EP] * mesh->size[ASH_MESH_FSDP] * mesh->size[ASH_MESH_PP] == 1;
}

bool ash_mesh_is_reporting_rank(const struct ash_mesh *mesh)
{
    return mesh->at[ASH_MESH_TP] == 0 && mesh->at[ASH_MESH_CP] == 0 &&
           mesh->at[ASH_MESH_PP] + 1 == mesh->size[ASH_MESH_PP];
}

size_t ash_mesh_data_rank(const struct ash_mesh *mesh)
{
    return (mesh->at[ASH_MESH_DP] * mesh->size[ASH_MESH_FSDP] + mesh->at[ASH_MESH_FSDP]) * mesh->size[ASH_MESH_EP] +
           mesh->at[ASH_MESH_EP];
}

size_t ash_mesh_data_size(const struct ash_mesh *mesh)
{
    return mesh->size[ASH_MESH_DP] * mesh->size[ASH_MESH_FSDP] * mesh->size[ASH_MESH_EP];
}

size_t ash_mesh_replica(const struct ash_mesh *mesh)
{
    return mesh->at[ASH_MESH_DP] * mesh->size[ASH_MESH_CP] + mesh->at[ASH_MESH_CP];
}

size_t ash_mesh_replicas(const struct ash_mesh *mesh)
{
    return mesh->size[ASH_MESH_DP] * mesh->size[ASH_MESH_CP];
}

bool ash_mesh_can_overwrite_grads(const struct ash_mesh *mesh)
{
    return (mesh->size[ASH_MESH_CP] == 1 || mesh->shares_gradients) && mesh->size[ASH_MESH_EP] == 1;
}

bool ash_mesh_shares_gradients(const struct ash_mesh *mesh)
{
    return mesh->shares_gradients;
}

bool ash_mesh_is_leader(const struct ash_mesh *mesh)
{
    return !mesh->shares_gradients || mesh->at[ASH_MESH_CP] == 0;
}

int ash_mesh_cp_barrier(struct ash_mesh *mesh, struct ash_err *err)
{
    int rc;

    if (!mesh->shares_gradients) return 0;
    ash_meter_begin(&mesh->meter);
    rc = ash_group_barrier(mesh->groups[ASH_MESH_CP], err);
    ash_meter_end(&mesh->meter, ASH_METER_COMM);
    return rc;
}

struct ash_group *ash_mesh_node_shard_group(const struct ash_mesh *mesh)
{
    struct ash_group *fsdp = mesh->groups[ASH_MESH_FSDP];

    return mesh->zero > 0 && mesh->shares_state && ash_group_shares_memory(fsdp) ? fsdp : NULL;
}

struct ash_group *ash_mesh_tp_peers(const struct ash_mesh *mesh)
{
    struct ash_group *tp = mesh->groups[ASH_MESH_TP];

    return tp != NULL && ash_group_shares_memory(tp) ? tp : NULL;
}

size_t ash_mesh_stage_rank(const struct ash_mesh *mesh, size_t stage)
{
    size_t rank = stage;

    ash_assert(stage < mesh->size[ASH_MESH_PP]);
    for (size_t a = ASH_MESH_PP; a-- > 0;)
        rank = rank * mesh->size[a] + mesh->at[a];
    return rank;
}

/* ---- slices ------------------------------------------------------------------------------------------------------ */

struct ash_slice ash_mesh_slice(const struct ash_mesh *mesh, const struct ash_model_config *config, size_t chunk,
                                size_t chunks)
{
    size_t stages = mesh->size[ASH_MESH_PP] * chunks, stage = chunk * mesh->size[ASH_MESH_PP] + mesh->at[ASH_MESH_PP];
    struct ash_range layers = ash_range_split(config->layers, 1, stage, stages);
    struct ash_slice slice = {.tp_rank = mesh->at[ASH_MESH_TP],
                              .tp_size = mesh->size[ASH_MESH_TP],
                              .expert_rank = mesh->at[ASH_MESH_EP] * mesh->size[ASH_MESH_TP] + mesh->at[ASH_MESH_TP],
                              .expert_size = mesh->size[ASH_MESH_EP] * mesh->size[ASH_MESH_TP],
                              .embed = stage == 0,
                              .head = stage + 1 == stages,
                              .shard_rank = mesh->at[ASH_MESH_FSDP],
                              .shard_size = mesh->size[ASH_MESH_FSDP],
                              .shard_weights = mesh->zero == 3};

    ash_assert(chunk < chunks && stages <= ASH_MODEL_LAYERS_MAX);
    memset(slice.layers + layers.first, 1, layers.count);
    return slice;
}

static int check_tokens(const struct ash_mesh *mesh, const struct ash_model_config *config, const struct ash_job *job,
                        struct ash_err *err)
{
    size_t cp = mesh->size[ASH_MESH_CP], tp = mesh->size[ASH_MESH_TP], seq = (size_t)job->data.seq_tokens;
    bool rounded = job->train.precision != ASH_JOB_FP32;

    if (cp == 1) return 0;
    if (seq < cp * (rounded ? ASH_K_GROUP : 1))
        return ash_err_set(err, -EINVAL, "mesh.cp=%zu cannot cut sequences of %zu tokens%s", cp, seq,
                           rounded ? " into parts of at least 32, as bf16 needs" : "");
    if (config->state.heads > 0)
        return ash_err_set(err, -ENOTSUP, "mesh.cp=%zu does not cut recurrent states: choose mesh.cp=1", cp);
    if (config->kv_heads < cp * tp)
        return ash_err_set(err, -EINVAL,
                           "mesh.cp=%zu times mesh.tp=%zu is more than the %zu key-value heads that attention splits",
                           cp, tp, config->kv_heads);
    return 0;
}

int ash_mesh_check(const struct ash_mesh *mesh, const struct ash_model_config *config, const struct ash_job *job,
                   struct ash_err *err)
{
    size_t chunks = (size_t)job->mesh.interleave, stages = mesh->size[ASH_MESH_PP] * chunks;
    size_t data = ash_mesh_data_size(mesh), grains = (size_t)job->train.grains;
    struct ash_slice slice = ash_mesh_slice(mesh, config, 0, chunks);
    int rc;

    if (stages > config->layers)
        return ash_err_set(err, -EINVAL,
                           "%zu stages (mesh.pp times mesh.interleave) are more than the model's %zu layers", stages,
                           config->layers);
    if (chunks > 1 && mesh->size[ASH_MESH_PP] == 1)
        return ash_err_set(err, -EINVAL, "mesh.interleave=%zu makes no sense without stages: set mesh.pp", chunks);
    if (data > grains)
        return ash_err_set(err, -EINVAL,
                           "%zu ranks (%s, %s and %s) cannot share %zu grains: set train.grains to at least %zu, or "
                           "give ranks other work",
                           data, axis_names[ASH_MESH_DP], axis_names[ASH_MESH_FSDP], axis_names[ASH_MESH_EP], grains,
                           data);
    if (mesh->size[ASH_MESH_EP] > 1 && config->expert.experts == 0)
        return ash_err_set(err, -EINVAL, "mesh.ep=%zu shards experts, and this model has none: use mesh.dp",
                           mesh->size[ASH_MESH_EP]);
    rc = check_tokens(mesh, config, job, err);
    if (rc < 0) return rc;
    if (job->train.precision == ASH_JOB_FP8 && mesh->size[ASH_MESH_TP] * mesh->size[ASH_MESH_CP] > 1)
        return ash_err_set(err, -ENOTSUP,
                           "train.precision=fp8 has scales of 128 values, which mesh.tp and mesh.cp would cut: choose "
                           "mesh.dp, mesh.fsdp, mesh.ep or mesh.pp, or train.precision=bf16");
    return ash_slice_check(config, &slice, job->train.precision != ASH_JOB_FP32, err);
}

/* ---- axes of a pass ---------------------------------------------------------------------------------------------- */

struct ash_axis ash_mesh_tp_cp_axis(struct ash_mesh *mesh)
{
    return mesh->tp_cp != NULL ? ash_axis_link_axis(&mesh->tp_cp_link, 0) : (struct ash_axis){.size = 1};
}

struct ash_axis ash_mesh_pass_axis(struct ash_mesh *mesh, enum ash_mesh_axis axis, size_t message_floats)
{
    struct ash_axis_link *link = &mesh->links[axis];
    struct ash_axis all;

    ash_assert(axis <= ASH_MESH_EP);
    if (mesh->groups[axis] == NULL) return (struct ash_axis){.size = 1};
    all = ash_axis_link_axis(link, message_floats);
    if (axis != ASH_MESH_EP || mesh->ep_nodes == NULL) return all;
    mesh->ep_axis = ash_axis_link_axis(&mesh->ep_link, message_floats);
    all.node_of = mesh->ep_nodes;
    all.node_ranks = &mesh->ep_axis;
    return all;
}
