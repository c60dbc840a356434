/* holdings: the list of a slice's parameters and of a shard's parts, made for any rank from the sizes of the mesh, and
 * walked. Lists are kept once they are made: ranks that differ along dp and cp only have the same. */
#include "train/layout/holdings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "model/shards.h"
#include "train/layout/mesh.h"

/* The list of a chunk's parameters on some ranks. */
struct list {
    struct ash_model *outline; /* with its shards; NULL: not made yet */
    size_t *tensors;           /* [its parameters]: their indices in the whole model */
};

struct ash_holdings {
    struct ash_model *whole;
    size_t size[ASH_MESH_AXES], chunks;
    int zero;
    struct list *lists; /* [pp][chunk][fsdp][ep][tp] */
    size_t list_count;
};

static void list_close(struct list *list)
{
    ash_model_close(list->outline);
    free(list->tensors);
    *list = (struct list){0};
}

void ash_holdings_close(struct ash_holdings *holdings)
{
    if (holdings == NULL) return;
    for (size_t i = 0; holdings->lists != NULL && i < holdings->list_count; i++)
        list_close(&holdings->lists[i]);
    free(holdings->lists);
    ash_model_close(holdings->whole);
    free(holdings);
}

int ash_holdings_open(const struct ash_model_config *config, const struct ash_job_mesh *mesh,
                      struct ash_holdings **holdings_out, struct ash_err *err)
{
    struct ash_holdings *holdings = calloc(1, sizeof(*holdings));
    int rc;

    ash_assert(mesh->dp > 0 && mesh->interleave > 0);
    if (holdings == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    *holdings = (struct ash_holdings){.size = {[ASH_MESH_TP] = (size_t)mesh->tp,
                                               [ASH_MESH_CP] = (size_t)mesh->cp,
                                               [ASH_MESH_EP] = (size_t)mesh->ep,
                                               [ASH_MESH_FSDP] = (size_t)mesh->fsdp,
                                               [ASH_MESH_DP] = (size_t)mesh->dp,
                                               [ASH_MESH_PP] = (size_t)mesh->pp},
                                      .chunks = (size_t)mesh->interleave,
                                      .zero = mesh->fsdp > 1 ? (int)mesh->zero : 0};
    holdings->list_count = (size_t)(mesh->tp * mesh->ep * mesh->fsdp * mesh->pp) * holdings->chunks;
    holdings->lists = calloc(holdings->list_count, sizeof(*holdings->lists));
    rc = holdings->lists != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory for the lists of a mesh");
    if (rc == 0) rc = ash_model_outline(config, &holdings->whole, err);
    if (rc < 0) {
        ash_holdings_close(holdings);
        return rc;
    }
    *holdings_out = holdings;
    return 0;
}

const struct ash_model *ash_holdings_outline(const struct ash_holdings *holdings)
{
    return holdings->whole;
}

size_t ash_holdings_ranks(const struct ash_holdings *holdings)
{
    size_t ranks = 1;

    for (size_t a = 0; a < ASH_MESH_AXES; a++)
        ranks *= holdings->size[a];
    return ranks;
}

bool ash_holdings_has(const struct ash_holdings *holdings, enum ash_holding_kind kind, size_t tensor)
{
    ash_assert(tensor < ash_model_param_count(holdings->whole));
    return kind == ASH_HOLDING_WEIGHTS || ash_model_param(holdings->whole, tensor)->is_trained;
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

/* A mesh without groups: sizes, and the place of a rank. */
static struct ash_mesh place_of(const struct ash_holdings *holdings, size_t rank)
{
    struct ash_mesh mesh = {.zero = holdings->zero};

    ash_assert(rank < ash_holdings_ranks(holdings));
    for (size_t a = 0; a < ASH_MESH_AXES; a++) {
        mesh.size[a] = holdings->size[a];
        mesh.at[a] = rank % mesh.size[a];
        rank /= mesh.size[a];
    }
    return mesh;
}

/* Parameters of a slice come in the order of the whole model's, but for a tied output matrix: look ahead, then
 * everywhere. */
static size_t find_tensor(const struct ash_model *whole, const char *name, size_t from)
{
    size_t count = ash_model_param_count(whole);

    for (size_t i = 0; i < count; i++) {
        size_t index = (from + i) % count;
        if (strcmp(ash_model_param(whole, index)->name, name) == 0) return index;
    }
    ash_assert(false);
    return 0;
}

static int list_open(const struct ash_holdings *holdings, const struct ash_mesh *place, size_t chunk, struct list *list,
                     struct ash_err *err)
{
    const struct ash_model_config *config = ash_model_get_config(holdings->whole);
    struct ash_slice slice = ash_mesh_slice(place, config, chunk, holdings->chunks);
    int rc = ash_model_outline_slice(config, &slice, &list->outline, err);
    size_t count, next = 0;

    ash_assert(chunk < holdings->chunks);
    if (rc < 0) return rc;
    count = ash_model_param_count(list->outline);
    list->tensors = calloc(count + 1, sizeof(*list->tensors));
    if (list->tensors == NULL) {
        list_close(list);
        return ash_err_set(err, -ENOMEM, "out of memory for a list of tensors");
    }
    for (size_t i = 0; i < count; i++) {
        list->tensors[i] = find_tensor(holdings->whole, ash_model_param(list->outline, i)->name, next);
        next = list->tensors[i] + 1;
    }
    return 0;
}

static int get_list(struct ash_holdings *holdings, const struct ash_mesh *place, size_t chunk,
                    const struct list **list_out, struct ash_err *err)
{
    const size_t *at = place->at, *size = place->size;
    size_t index = at[ASH_MESH_PP] * holdings->chunks + chunk;
    struct list *list;
    int rc = 0;

    index =
        ((index * size[ASH_MESH_FSDP] + at[ASH_MESH_FSDP]) * size[ASH_MESH_EP] + at[ASH_MESH_EP]) * size[ASH_MESH_TP] +
        at[ASH_MESH_TP];
    ash_assert(index < holdings->list_count);
    list = &holdings->lists[index];
    if (list->outline == NULL) rc = list_open(holdings, place, chunk, list, err);
    *list_out = list;
    return rc;
}

/* ---- walks ------------------------------------------------------------------------------------------------------- */

/* A walk over some of a rank's holdings. */
struct walk {
    const struct ash_mesh *place;
    size_t rank, chunk;
    ash_holding_fn each;
    void *ctx;
};

/* The replicas of a holding. Experts of ep ranks differ; all other parameters are the same on all of them. */
static void set_replica(const struct ash_mesh *place, const struct ash_param *param, struct ash_holding *holding)
{
    holding->replica = ash_mesh_replica(place);
    holding->replicas = ash_mesh_replicas(place);
    if (param->is_expert) return;
    holding->replica = holding->replica * place->size[ASH_MESH_EP] + place->at[ASH_MESH_EP];
    holding->replicas *= place->size[ASH_MESH_EP];
}

/* The holdings of one kind of a parameter. */
static int walk_kind(const struct walk *walk, const struct list *list, size_t index, enum ash_holding_kind kind)
{
    const struct ash_param *param = ash_model_param(list->outline, index);
    struct ash_shard_part part = ash_shards_part(ash_model_shards(list->outline), param);
    struct ash_range held = {part.first, part.count};
    struct ash_holding holding = {.kind = kind,
                                  .tensor = list->tensors[index],
                                  .rank = walk->rank,
                                  .chunk = walk->chunk,
                                  .is_counted = param->is_counted && !param->is_tied_copy,
                                  .is_copy = param->is_tied_copy};
    int rc = 0;

    ash_assert(index < ash_model_param_count(list->outline));
    ash_assert(kind < ASH_HOLDING_KINDS);
    set_replica(walk->place, param, &holding);
    for (size_t p = 0; rc == 0 && p < ash_param_piece_count(param); p++) {
        struct ash_piece piece = ash_param_piece(param, p);
        struct ash_range some = ash_range_overlap((struct ash_range){piece.local, piece.count}, held);

        if (some.count == 0) continue;
        holding.elements = (struct ash_range){piece.full + (some.first - piece.local), some.count};
        holding.at = kind == ASH_HOLDING_WEIGHTS ? param->offset + some.first : part.at + (some.first - part.first);
        rc = walk->each(walk->ctx, &holding);
    }
    return rc;
}

static bool has_kind(const struct ash_param *param, enum ash_holding_kind kind)
{
    return kind == ASH_HOLDING_WEIGHTS || (param->is_trained && !param->is_tied_copy);
}

int ash_holdings_each(struct ash_holdings *holdings, size_t rank, ash_holding_fn each, void *ctx, struct ash_err *err)
{
    struct ash_mesh place = place_of(holdings, rank);
    struct walk walk = {.place = &place, .rank = rank, .each = each, .ctx = ctx};
    int rc = 0;

    for (walk.chunk = 0; rc == 0 && walk.chunk < holdings->chunks; walk.chunk++) {
        const struct list *list;

        rc = get_list(holdings, &place, walk.chunk, &list, err);
        for (size_t i = 0; rc == 0 && i < ash_model_param_count(list->outline); i++)
            for (int kind = 0; rc == 0 && kind < ASH_HOLDING_KINDS; kind++)
                if (has_kind(ash_model_param(list->outline, i), (enum ash_holding_kind)kind))
                    rc = walk_kind(&walk, list, i, (enum ash_holding_kind)kind);
    }
    return rc;
}

bool ash_holding_is_writer(const struct ash_holding *holding, uint64_t block)
{
    return holding->is_counted && block % holding->replicas == holding->replica;
}
