/* The meeting behind a group and its parts: everyone's card, the watch, and the bad news that it brings to all groups.
 */
#include "collective/group_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collective/net/join.h"
#include "collective/rendezvous.h"

void ash_group_root_lose(struct ash_group_root *root, size_t rank, int code, const char *why)
{
    pthread_mutex_lock(&root->lock);
    if (!root->lost) {
        root->lost = true;
        root->culprit = rank;
        root->code = code;
        snprintf(root->why, sizeof(root->why), "%s", why);
    }
    for (struct ash_group *group = root->groups; group != NULL; group = group->next)
        if (group->local != NULL) ash_local_fail(group->local, root->code, root->culprit, root->why, NULL);
    pthread_mutex_unlock(&root->lock);
}

/* Runs on the watching thread. */
static void on_loss(void *ctx, size_t rank, int code, const char *why)
{
    ash_group_root_lose(ctx, rank, code, why);
}

void ash_group_root_add(struct ash_group_root *root, struct ash_group *group)
{
    pthread_mutex_lock(&root->lock);
    group->next = root->groups;
    root->groups = group;
    if (root->lost && group->local != NULL) ash_local_fail(group->local, root->code, root->culprit, root->why, NULL);
    pthread_mutex_unlock(&root->lock);
}

void ash_group_root_remove(struct ash_group_root *root, struct ash_group *group)
{
    pthread_mutex_lock(&root->lock);
    for (struct ash_group **at = &root->groups; *at != NULL; at = &(*at)->next)
        if (*at == group) {
            *at = group->next;
            break;
        }
    pthread_mutex_unlock(&root->lock);
}

static void fill_card(const struct ash_group_root *root, const char *address, struct ash_group_card *card)
{
    memset(card, 0, sizeof(*card)); /* it is compared and sent as bytes */
    snprintf(card->watch.address, sizeof(card->watch.address), "%s", address);
    if (gethostname(card->watch.host, sizeof(card->watch.host) - 1) < 0)
        snprintf(card->watch.host, sizeof(card->watch.host), "unknown");
    card->watch.pid = getpid();
    card->watch.port = ash_socket_port(root->listen_fd);
    snprintf(card->node, sizeof(card->node), "%s", root->opts.node != NULL ? root->opts.node : card->watch.host);
}

/* Cards come from other processes: no string in them may run on. */
static void tidy_cards(struct ash_group_root *root)
{
    for (size_t i = 0; i < root->size; i++) {
        struct ash_group_card *card = &root->cards[i];

        card->node[sizeof(card->node) - 1] = '\0';
        card->watch.address[sizeof(card->watch.address) - 1] = '\0';
        card->watch.host[sizeof(card->watch.host) - 1] = '\0';
        root->watched[i] = card->watch;
    }
}

/* Are there ranks that do not share memory? */
static bool several_nodes(const struct ash_group_root *root)
{
    for (size_t r = 1; r < root->size; r++)
        if (strcmp(root->cards[r].node, root->cards[0].node) != 0) return true;
    return false;
}

/* own_address: numeric, or empty where it is not known. */
static int join_net(struct ash_group_root *root, const struct ash_place *place, const char *own_address,
                    struct ash_err *err)
{
    const struct ash_group_card *first = &root->cards[0], *own = &root->cards[root->rank];
    struct ash_net_join join = {.fabric = root->opts.fabric,
                                .node = own->node,
                                .address = own_address[0] != '\0' ? own_address : NULL,
                                .job = place->job,
                                .rank = root->rank,
                                .size = root->size,
                                .host = first->watch.address,
                                .port = first->watch.port,
                                .door_fd = root->rank == 0 ? root->listen_fd : -1,
                                .timeout_s = root->opts.join_timeout};

    return ash_net_join(&join, &root->harbor, &root->docks, &root->addresses, err);
}

static int meet(struct ash_group_root *root, const struct ash_place *place, const struct ash_local *board,
                struct ash_err *err)
{
    struct ash_rendezvous meeting = {.job = place->job,
                                     .rank = place->rank,
                                     .size = place->size,
                                     .host = place->host,
                                     .port = place->port,
                                     .timeout_s = root->opts.join_timeout,
                                     .fd = -1};
    struct ash_group_card card;
    int rc = ash_rendezvous_open(&meeting, -1, err);

    if (rc == 0) {
        fill_card(root, meeting.own_address, &card);
        card.board = ash_local_key(board);
        rc = ash_rendezvous_meet(&meeting, &card, sizeof(card), root->cards, err);
    }
    ash_rendezvous_close(&meeting);
    if (rc < 0) return rc;
    tidy_cards(root);
    if (!several_nodes(root)) return 0;
    return join_net(root, place, root->rank == 0 ? meeting.met_address : meeting.own_address, err);
}

static int start_watch(struct ash_group_root *root, const struct ash_place *place, struct ash_err *err)
{
    struct ash_watch_opts opts = {.rank = root->rank,
                                  .size = root->size,
                                  .job = place->job,
                                  .listen_fd = root->listen_fd,
                                  .members = root->watched,
                                  .silent_s = root->opts.silent_timeout,
                                  .on_loss = on_loss,
                                  .ctx = root};

    return ash_watch_open(&opts, &root->watch, err);
}

int ash_group_root_open(const struct ash_place *place, const struct ash_group_opts *opts, struct ash_local *board,
                        struct ash_group_root **root_out, struct ash_err *err)
{
    struct ash_group_root *root = calloc(1, sizeof(*root));
    int rc;

    if (root == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a group");
    pthread_mutex_init(&root->lock, NULL);
    root->opts = *opts;
    root->rank = place->rank;
    root->size = place->size;
    root->listen_fd = -1;
    root->cards = calloc(place->size, sizeof(*root->cards));
    root->watched = calloc(place->size, sizeof(*root->watched));
    rc = root->cards != NULL && root->watched != NULL
             ? 0
             : ash_err_set(err, -ENOMEM, "out of memory for %zu ranks", place->size);
    if (rc == 0 && place->size > 1) {
        root->listen_fd = ash_socket_listen(NULL, 0, err);
        rc = root->listen_fd < 0 ? root->listen_fd : meet(root, place, board, err);
        if (rc == 0) rc = start_watch(root, place, err);
    } else if (rc == 0) {
        fill_card(root, place->host, &root->cards[0]);
        tidy_cards(root);
    }
    if (rc < 0) {
        ash_group_root_close(root);
        return rc;
    }
    *root_out = root;
    return 0;
}

void ash_group_root_close(struct ash_group_root *root)
{
    if (root == NULL) return;
    ash_watch_close(root->watch);
    ash_net_docks_close(&root->docks);
    free(root->addresses);
    ash_harbor_close(root->harbor);
    if (root->listen_fd >= 0) close(root->listen_fd);
    pthread_mutex_destroy(&root->lock);
    free(root->watched);
    free(root->cards);
    free(root);
}
