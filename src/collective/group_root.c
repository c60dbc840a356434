/* What all groups of a job share: what each rank sent at the rendezvous, the watch, and the losses that it
 * reports to all groups. */
#include "collective/group_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "collective/net/join.h"
#include "collective/member/rendezvous.h"

/* A rank writes the error that ended its calls to its control block before it leaves: later symptoms follow from that
 * error. Returns the error, or 0 if no rank of this node has one. */
static int find_cause(struct ash_group_root *root, size_t *rank_out, struct ash_err *err)
{
    for (struct ash_group *group = root->groups; group != NULL; group = group->next) {
        int rc = group->local != NULL ? ash_local_check_node(group->local, err) : 0;

        if (rc < 0) {
            *rank_out = ash_local_failed_rank(group->local);
            return rc;
        }
    }
    return 0;
}

void ash_group_root_lose(struct ash_group_root *root, size_t rank, int code, const char *why)
{
    struct ash_err cause = {0};
    int rc;

    pthread_mutex_lock(&root->lock);
    if (!root->lost) {
        rc = find_cause(root, &rank, &cause);
        root->lost = true;
        atomic_store(&root->gives_up, true);
        root->failed_rank = rank;
        root->code = rc < 0 ? rc : code;
        snprintf(root->why, sizeof(root->why), "%s", rc < 0 ? cause.text : why);
    }
    for (struct ash_group *group = root->groups; group != NULL; group = group->next)
        if (group->local != NULL) ash_local_fail(group->local, root->code, root->failed_rank, root->why, NULL);
    pthread_mutex_unlock(&root->lock);
}

int ash_group_check(struct ash_group *group, struct ash_err *err)
{
    struct ash_group_root *root = group->root;
    int rc = group->local != NULL ? ash_local_check(group->local, err) : 0; /* known there first */

    pthread_mutex_lock(&root->lock);
    if (rc == 0 && root->lost) rc = ash_err_set(err, root->code, "%s", root->why);
    pthread_mutex_unlock(&root->lock);
    return rc;
}

/* Runs on the agent's thread. */
static void on_over(void *ctx, size_t rank, int code, const char *why)
{
    ash_group_root_lose(ctx, rank, code, why);
}

void ash_group_root_add(struct ash_group_root *root, struct ash_group *group)
{
    pthread_mutex_lock(&root->lock);
    group->next = root->groups;
    root->groups = group;
    if (root->lost && group->local != NULL)
        ash_local_fail(group->local, root->code, root->failed_rank, root->why, NULL);
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

static void fill_info(const struct ash_group_root *root, const char *address, struct ash_member_info *info)
{
    memset(info, 0, sizeof(*info)); /* it is compared and sent as bytes */
    snprintf(info->watch.address, sizeof(info->watch.address), "%s", address);
    if (gethostname(info->watch.host, sizeof(info->watch.host) - 1) < 0)
        snprintf(info->watch.host, sizeof(info->watch.host), "unknown");
    info->watch.pid = getpid();
    info->id = root->id;
    info->folder = ash_membership_folder_mark(root->opts.job_dir);
    info->net_port = root->net_fd >= 0 ? ash_socket_port(root->net_fd) : 0;
    info->cost = root->cost;
    info->watch.port = ash_socket_port(root->listen_fd);
    info->machine = ash_segment_machine();
    snprintf(info->node, sizeof(info->node), "%s",
             root->opts.node != NULL ? root->opts.node
             : root->node[0] != '\0' ? root->node
                                     : info->watch.host);
}

/* Infos come from other processes: every string in them must end. */
static void terminate_strings(struct ash_group_root *root)
{
    for (size_t i = 0; i < root->size; i++) {
        struct ash_member_info *info = &root->infos[i];

        info->node[sizeof(info->node) - 1] = '\0';
        info->watch.address[sizeof(info->watch.address) - 1] = '\0';
        info->watch.host[sizeof(info->watch.host) - 1] = '\0';
    }
}

bool ash_group_same_node(const struct ash_group_root *root, size_t a, size_t b)
{
    const struct ash_member_info *infos = root->infos;

    ash_assert(a < root->size);
    ash_assert(b < root->size);
    return strcmp(infos[a].node, infos[b].node) == 0 && infos[a].machine == infos[b].machine;
}

/* Are there ranks that do not share memory? */
static bool several_nodes(const struct ash_group_root *root)
{
    for (size_t r = 1; r < root->size; r++)
        if (!ash_group_same_node(root, r, 0)) return true;
    return false;
}

/* known: ranks that the progress engine knew in an earlier epoch. */
static int join_net(struct ash_group_root *root, size_t known, struct ash_err *err)
{
    const struct ash_member_info *first = &root->infos[0], *own = &root->infos[root->rank];
    struct ash_net_join_opts join = {.fabric = root->opts.fabric,
                                     .node = own->node,
                                     .address = root->own_address[0] != '\0' ? root->own_address : NULL,
                                     .job = root->job,
                                     .epoch = root->epoch,
                                     .rank = root->rank,
                                     .size = root->size,
                                     .host = first->watch.address,
                                     .port = first->net_port,
                                     .listen_fd = root->rank == 0 ? root->net_fd : -1,
                                     .timeout_s = root->opts.join_timeout,
                                     .gives_up = &root->gives_up,
                                     .progress = root->progress,
                                     .known = known};

    return ash_net_join(&join, &root->progress, &root->mailboxes, &root->addresses, err);
}

/* Close the progress engine of an earlier epoch. Its peers are forgotten first: else it would wait for the last
 * messages to a lost one. */
static void leave_net(struct ash_group_root *root, size_t known)
{
    for (size_t r = 0; root->progress != NULL && r < known; r++)
        ash_progress_disconnect(root->progress, (uint32_t)r);
    ash_progress_close(root->progress);
    root->progress = NULL;
}

static int start_membership(struct ash_group_root *root, struct ash_err *err)
{
    struct ash_membership_opts opts = {.job = root->job,
                                       .id = root->id,
                                       .card_bytes = sizeof(struct ash_member_info),
                                       .listen_fd = root->listen_fd,
                                       .job_dir = root->opts.job_dir,
                                       .host = root->host,
                                       .port = root->port,
                                       .silent_s = root->opts.silent_timeout,
                                       .ready_s = root->opts.call_timeout,
                                       .on_over = on_over,
                                       .ctx = root};

    return ash_membership_open(&opts, &root->membership, err);
}

/* The first epoch, which the rendezvous has given. */
static int begin_first(struct ash_group_root *root, struct ash_err *err)
{
    struct ash_view *view = ash_view_new(root->size, sizeof(struct ash_member_info));
    int rc = view != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory for %zu ranks", root->size);

    for (size_t r = 0; r < root->size && rc == 0; r++) {
        memcpy(ash_view_card(view, r), &root->infos[r], sizeof(root->infos[r]));
        view->members[r] = (struct ash_view_member){.id = root->infos[r].id, .rank_before = ASH_VIEW_NEW};
    }
    if (rc == 0) {
        view->proposal = root->job | 1;
        rc = ash_view_seal(view);
        if (rc < 0) ash_err_set(err, rc, "two ranks have one identity");
    }
    if (rc == 0) rc = start_membership(root, err);
    if (rc < 0) {
        ash_view_put(view);
        return rc;
    }
    ash_membership_begin(root->membership, view);
    return 0;
}

/* Once the info of all ranks is there: reach other nodes. */
static int settle(struct ash_group_root *root, size_t known, struct ash_err *err)
{
    if (several_nodes(root)) return join_net(root, known, err);
    leave_net(root, known);
    return 0;
}

static int join(struct ash_group_root *root, const struct ash_local *local, struct ash_err *err)
{
    struct ash_rendezvous meeting = {.job = root->job,
                                     .rank = root->rank,
                                     .size = root->size,
                                     .host = root->host,
                                     .port = root->port,
                                     .timeout_s = root->opts.join_timeout,
                                     .fd = -1};
    struct ash_member_info info;
    int rc = ash_rendezvous_open(&meeting, -1, err);

    root->infos = calloc(root->size, sizeof(*root->infos));
    if (rc == 0 && root->infos == NULL) rc = ash_err_set(err, -ENOMEM, "out of memory for %zu ranks", root->size);
    if (rc == 0) {
        fill_info(root, meeting.own_address, &info);
        info.control = ash_local_key(local);
        rc = ash_rendezvous_exchange(&meeting, &info, sizeof(info), root->infos, err);
    }
    ash_rendezvous_close(&meeting);
    if (rc < 0) return rc;
    terminate_strings(root);
    ash_group_check_folder(root);
    rc = begin_first(root, err);
    snprintf(root->own_address, sizeof(root->own_address), "%s",
             root->rank == 0 ? meeting.met_address : meeting.own_address);
    return rc < 0 ? rc : settle(root, 0, err);
}

/* Take over what the meeting of an epoch has given. */
static int take_view(struct ash_group_root *root, const struct ash_view *view, struct ash_err *err)
{
    root->size = view->size;
    root->epoch = view->epoch;
    root->rank = ash_view_find(view, root->id);
    root->infos = calloc(view->size, sizeof(*root->infos));
    root->ranks_before = calloc(view->size, sizeof(*root->ranks_before));
    if (root->infos == NULL || root->ranks_before == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory for %zu ranks", view->size);
    for (size_t r = 0; r < view->size; r++) {
        memcpy(&root->infos[r], ash_view_card(view, r), sizeof(root->infos[r]));
        root->ranks_before[r] = view->members[r].rank_before;
    }
    terminate_strings(root);
    return 0;
}

static const char *numeric(const char *address)
{
    return strspn(address, "0123456789abcdef.:") == strlen(address) ? address : "";
}

/* Ask to join a running job. A process that may have to wait opens its endpoint before, because that is the slowest
 * part. */
static int join_running(struct ash_group_root *root, const struct ash_local *local, struct ash_err *err)
{
    struct ash_member_info card;
    struct ash_view *view = NULL;
    char address[ASH_SOCKET_ADDR_BYTES];
    int rc;

    ash_group_find_address(root, address);
    fill_info(root, address, &card);
    card.control = ash_local_key(local);
    if (ash_progress_open(root->opts.fabric, card.node, address, &root->progress, NULL) < 0)
        root->progress = NULL; /* a job on one node does without; one on several will report why it cannot */
    rc = start_membership(root, err);
    if (rc < 0) return rc;
    ash_log(ASH_LOG_INFO, "process %d is ready and asks for a place", (int)getpid());
    rc = ash_membership_join(root->membership, &card, 0, &view, err);
    if (rc < 0) return rc;
    rc = view != NULL ? take_view(root, view, err) : ash_err_set(err, -ESTALE, "the job has no place");
    ash_membership_put_view(root->membership, view);
    snprintf(root->own_address, sizeof(root->own_address), "%s", numeric(address));
    return rc < 0 ? rc : settle(root, 0, err);
}

static struct ash_group_root *new_root(const struct ash_group_opts *opts, size_t rank, size_t size, struct ash_err *err)
{
    struct ash_group_root *root = calloc(1, sizeof(*root));

    if (root == NULL) {
        ash_err_set(err, -ENOMEM, "out of memory for a group");
        return NULL;
    }
    pthread_mutex_init(&root->lock, NULL);
    ash_staging_init(&root->staging);
    root->opts = *opts;
    root->rank = rank;
    root->size = size;
    root->listen_fd = root->net_fd = -1;
    return root;
}

/* A group of one needs no socket. */
static int be_alone(struct ash_group_root *root, struct ash_err *err)
{
    root->infos = calloc(1, sizeof(*root->infos));
    if (root->infos == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a group");
    fill_info(root, root->host, &root->infos[0]);
    snprintf(root->own_address, sizeof(root->own_address), "%.*s", ASH_SOCKET_ADDR_BYTES - 1, numeric(root->host));
    if (root->listen_fd < 0) return 0;
    return begin_first(root, err); /* others may join it */
}

/* A socket that is polled: accepting from it must not wait. */
static int listen_quietly(const char *host, struct ash_err *err)
{
    int fd = ash_socket_listen(host, 0, err);

    if (fd >= 0) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    return fd;
}

int ash_group_root_open(const struct ash_launch_env *env, const struct ash_group_opts *opts, struct ash_local *local,
                        struct ash_group_root **root_out, struct ash_err *err)
{
    struct ash_group_root *root = new_root(opts, env->rank, env->size, err);
    int rc = 0;

    ash_assert(env->rank < env->size);
    if (root == NULL) return -ENOMEM;
    root->job = env->job;
    root->port = env->port;
    snprintf(root->node, sizeof(root->node), "%.*s", (int)sizeof(root->node) - 1, env->node);
    memcpy(root->host, env->host, sizeof(root->host));
    root->cost = ash_cost_default;
    if (opts->cost != NULL) rc = ash_cost_load(opts->cost, &root->cost, err);
    if (rc < 0) goto fail;
    rc = ash_mac_random(&root->id, sizeof(root->id));
    if (rc < 0) goto fail;
    root->id |= 1; /* not 0 */
    if (env->size > 1 || env->joins || opts->job_dir != NULL) {
        rc = root->listen_fd = listen_quietly(ash_socket_job_host(root->host), err);
        if (rc < 0) goto fail;
        rc = root->net_fd = ash_socket_listen(ash_socket_job_host(root->host), 0, err);
        if (rc < 0) goto fail;
    }
    rc = env->joins ? join_running(root, local, err) : env->size == 1 ? be_alone(root, err) : join(root, local, err);
    if (rc < 0) goto fail;
    *root_out = root;
    return 0;

fail:
    ash_group_root_close(root);
    return rc;
}

/* What stays with the process goes to the next epoch's root. */
static void hand_over(struct ash_group_root *old, struct ash_group_root *root)
{
    root->job = old->job;
    root->id = old->id;
    root->cost = old->cost;
    root->port = old->port;
    memcpy(root->node, old->node, sizeof(root->node));
    memcpy(root->own_address, old->own_address, sizeof(root->own_address));
    memcpy(root->host, old->host, sizeof(root->host));
    root->listen_fd = old->listen_fd;
    root->net_fd = old->net_fd;
    root->progress = old->progress;
    root->membership = old->membership;
    old->listen_fd = old->net_fd = -1;
    old->progress = NULL;
    old->membership = NULL;
    ash_membership_set_owner(root->membership, NULL); /* what comes now is of the old epoch */
}

int ash_group_root_reform(struct ash_group_root *old, const struct ash_epoch_opts *opts, const struct ash_local *local,
                          struct ash_group_root **root_out, struct ash_err *err)
{
    struct ash_group_root *root = new_root(&old->opts, old->rank, old->size, err);
    struct ash_member_info card;
    const struct ash_member_terms terms = {.leaves = opts->leaves,
                                           .wait_ns = (uint64_t)(opts->wait_s * 1e9),
                                           .want_size = opts->want_size,
                                           .min_size = opts->min_size,
                                           .card = &card};
    struct ash_view *view = NULL;
    int rc;

    if (root == NULL) return -ENOMEM;
    hand_over(old, root);
    fill_info(root, old->infos[old->rank].watch.address, &card);
    card.control = ash_local_key(local);
    rc = ash_membership_reform(root->membership, &terms, &view, err);
    if (rc < 0 || view == NULL) goto none;
    rc = take_view(root, view, err);
    ash_membership_put_view(root->membership, view);
    if (rc < 0) goto none;
    if (ash_membership_set_owner(root->membership, root))
        ash_group_root_lose(root, SIZE_MAX, -ECONNRESET, "a rank was lost before the new group stood");
    if (atomic_load(&root->gives_up)) {
        *root_out = root; /* over before it began: the caller tries again */
        return 0;
    }
    rc = settle(root, old->size, err);
    if (rc == -ECONNRESET || rc == -EPIPE || rc == -ECONNREFUSED) /* known here before the membership knows it */
        ash_group_root_lose(root, SIZE_MAX, -ECONNRESET, "a rank was lost before the new group stood");
    if (rc < 0 && !atomic_load(&root->gives_up)) goto none;
    *root_out = root;
    return 0;

none:
    ash_group_root_close(root);
    return rc;
}

void ash_group_root_close(struct ash_group_root *root)
{
    if (root == NULL) return;
    ash_membership_close(root->membership);
    ash_net_mailboxes_close(&root->mailboxes);
    free(root->addresses);
    ash_progress_close(root->progress);
    if (root->listen_fd >= 0) close(root->listen_fd);
    if (root->net_fd >= 0) close(root->net_fd);
    pthread_mutex_destroy(&root->lock);
    ash_staging_fini(&root->staging);
    free(root->ranks_before);
    free(root->infos);
    free(root);
}
