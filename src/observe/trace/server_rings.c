/* Rings of a folder, server by server: those of one process belong together. */
#include "observe/trace/server_rings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

static int compare(const void *a, const void *b)
{
    const struct ash_server_rings *left = a, *right = b;
    int order = strcmp(left->name, right->name);

    if (order != 0) return order;
    return left->pid < right->pid ? -1 : left->pid > right->pid;
}

/* Give each view to the server of its process, at this offset; others are freed. */
static void share_out(struct ash_server_set *set, struct ash_ring_view *views, size_t count, size_t offset)
{
    ash_assert(offset % _Alignof(struct ash_ring_view) == 0 && offset + sizeof(*views) <= sizeof(*set->servers));
    for (size_t i = 0; i < count; i++) {
        struct ash_ring_view *place = NULL;

        for (size_t s = 0; s < set->count && place == NULL; s++)
            if (set->servers[s].pid == views[i].pid && strcmp(set->servers[s].requests.labels, views[i].labels) == 0)
                place = (struct ash_ring_view *)(void *)((char *)&set->servers[s] + offset);
        if (place == NULL || place->records != NULL)
            ash_ring_view_fini(&views[i]);
        else
            *place = views[i];
    }
    free(views);
}

static int load_requests(struct ash_server_set *set, const char *dir, struct ash_err *err)
{
    struct ash_ring_view *views = NULL;
    size_t count = 0;
    int rc = ash_ring_read_dir(dir, ASH_REQUEST_RING_KIND, sizeof(struct ash_request_record), &views, &count, err);

    if (rc < 0) return rc;
    set->servers = calloc(count + 1, sizeof(*set->servers));
    for (size_t i = 0; i < count; i++) {
        if (set->servers == NULL) {
            ash_ring_view_fini(&views[i]);
            continue;
        }
        struct ash_server_rings *server = &set->servers[set->count++];

        *server = (struct ash_server_rings){.pid = views[i].pid, .is_alive = views[i].is_alive, .requests = views[i]};
        ash_ring_label(&views[i], "server", server->name, sizeof(server->name));
    }
    free(views);
    return set->servers != NULL ? 0 : ash_err_set(err, -ENOMEM, "no memory for the servers of '%s'", dir);
}

int ash_server_set_load(struct ash_server_set *set, const char *dir, bool has_pieces, struct ash_err *err)
{
    struct ash_server_set loaded = {0};
    struct ash_ring_view *views = NULL;
    size_t count = 0;
    int rc = load_requests(&loaded, dir, err);

    if (rc < 0) return rc;
    rc = ash_ring_read_dir(dir, ASH_PASS_RING_KIND, sizeof(struct ash_pass_record), &views, &count, err);
    if (rc < 0) goto fail;
    share_out(&loaded, views, count, offsetof(struct ash_server_rings, passes));
    views = NULL;
    count = 0;
    if (has_pieces)
        rc = ash_ring_read_dir(dir, ASH_PIECE_RING_KIND, sizeof(struct ash_piece_record), &views, &count, err);
    if (rc < 0) goto fail;
    share_out(&loaded, views, count, offsetof(struct ash_server_rings, pieces));
    if (loaded.count > 1) qsort(loaded.servers, loaded.count, sizeof(*loaded.servers), compare);
    *set = loaded;
    return 0;

fail:
    ash_server_set_fini(&loaded);
    return rc;
}

void ash_server_set_fini(struct ash_server_set *set)
{
    for (size_t i = 0; i < set->count; i++) {
        ash_ring_view_fini(&set->servers[i].requests);
        ash_ring_view_fini(&set->servers[i].passes);
        ash_ring_view_fini(&set->servers[i].pieces);
    }
    free(set->servers);
    *set = (struct ash_server_set){0};
}

static const void *record_at(const struct ash_ring_view *view, size_t index)
{
    return view->records + index * view->record_bytes;
}

const struct ash_request_record *ash_server_request(const struct ash_server_rings *server, size_t index)
{
    return record_at(&server->requests, index);
}

const struct ash_pass_record *ash_server_pass(const struct ash_server_rings *server, size_t index)
{
    return record_at(&server->passes, index);
}

const struct ash_piece_record *ash_server_piece(const struct ash_server_rings *server, size_t index)
{
    return record_at(&server->pieces, index);
}

const char *ash_request_id_text(const struct ash_request_record *request, char *buf)
{
    size_t bytes = strnlen(request->id, ASH_REQUEST_ID_BYTES);

    for (size_t i = 0; i < bytes; i++) {
        char c = request->id[i];

        buf[i] = (char)(c >= ' ' && c <= '~' && c != '"' && c != '\\' ? c : '?');
    }
    buf[bytes] = '\0';
    return buf;
}

const char *ash_request_outcome_name(uint64_t outcome)
{
    static const char *const names[ASH_OUTCOMES] = {"running", "answered", "cancelled", "failed"};

    return outcome < ASH_OUTCOMES ? names[outcome] : "unknown";
}
