/* A few processes stay attached, each with a copy of its directory, which is read again when a name is not in it. */
#include "serve/kv/peer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "serve/kv/shelf.h"

#define ATTACHED 8 /* processes; the one used longest ago goes */
#define BUFFERS_MAX 16
#define PATIENCE_NS 3000000000u /* for one read */

struct shelf {
    struct ash_port_description description;
    struct ash_port_remote *remote; /* NULL: nothing is attached here */
    struct ash_port_memory *copy;   /* of its head and directory */
    struct ash_kv_shelf_head head;
    uint64_t used;
};

struct ash_kv_peer {
    struct ash_port *port;
    struct ash_port_memory *buffers[BUFFERS_MAX];
    size_t buffer_count, buffer_bytes;
    struct shelf shelves[ATTACHED];
    uint64_t uses, cookie;
};

/* ---- life -------------------------------------------------------------------------------------------------------- */

static void leave(struct shelf *shelf)
{
    ash_port_detach(shelf->remote);
    ash_port_memory_close(shelf->copy);
    *shelf = (struct shelf){.remote = NULL};
}

void ash_kv_peer_close(struct ash_kv_peer *peer)
{
    if (peer == NULL) return;
    for (size_t i = 0; i < ATTACHED; i++)
        leave(&peer->shelves[i]);
    for (size_t i = 0; i < peer->buffer_count; i++)
        ash_port_memory_close(peer->buffers[i]);
    ash_port_close(peer->port);
    free(peer);
}

int ash_kv_peer_open(void *const *buffers, size_t count, size_t buffer_bytes, struct ash_kv_peer **peer_out,
                     struct ash_err *err)
{
    struct ash_kv_peer *peer = calloc(1, sizeof(*peer));
    int rc;

    ash_assert(count <= BUFFERS_MAX);
    if (peer == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    peer->buffer_bytes = buffer_bytes;
    rc = ash_port_open(NULL, &peer->port, err);
    for (; rc == 0 && peer->buffer_count < count; peer->buffer_count += rc == 0)
        rc = ash_port_register(peer->port, buffers[peer->buffer_count], buffer_bytes,
                               &peer->buffers[peer->buffer_count], err);
    if (rc < 0) {
        ash_kv_peer_close(peer);
        return rc;
    }
    *peer_out = peer;
    return 0;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Wait until the read of this cookie has ended, or PATIENCE_NS. Returns how it ended, or -ETIMEDOUT. */
static int wait_for(struct ash_kv_peer *peer, uint64_t cookie)
{
    uint64_t end_ns = ash_clock_ns() + PATIENCE_NS;

    while (ash_clock_ns() < end_ns) {
        struct ash_port_event event;

        if (ash_port_wait(peer->port, &event, 1, 0.1) == 0 || event.kind != ASH_PORT_DONE) continue;
        if (event.word == cookie) return event.status;
    }
    return -ETIMEDOUT;
}

/* Read bytes of a shelf. After a failure the shelf is left, which ends transfers. */
static int read_bytes(struct ash_kv_peer *peer, struct shelf *shelf, struct ash_port_memory *local, size_t offset,
                      size_t size_bytes)
{
    struct ash_port_transfer transfer = {.size = sizeof(transfer),
                                         .direction = ASH_PORT_READ,
                                         .local = local,
                                         .remote = shelf->remote,
                                         .remote_offset = offset,
                                         .size_bytes = size_bytes,
                                         .cookie = ++peer->cookie};
    int rc = ash_port_post(peer->port, &transfer);

    if (rc == 0) rc = wait_for(peer, transfer.cookie);
    if (rc < 0) leave(shelf);
    return rc;
}

static int read_directory(struct ash_kv_peer *peer, struct shelf *shelf)
{
    return read_bytes(peer, shelf, shelf->copy, 0,
                      sizeof(shelf->head) + shelf->head.slots * sizeof(struct ash_kv_shelf_entry));
}

/* Is it a shelf, and does all of it lie in its memory? */
static bool is_shelf(const struct ash_kv_shelf_head *head, size_t bytes)
{
    size_t directory = sizeof(*head);

    if (head->magic != ASH_KV_SHELF_MAGIC || head->slots == 0 || head->slot_bytes == 0) return false;
    if (head->slots > (bytes - directory) / sizeof(struct ash_kv_shelf_entry)) return false;
    directory += head->slots * sizeof(struct ash_kv_shelf_entry);
    return head->first_slot >= directory && head->first_slot <= bytes &&
           head->slot_bytes <= (bytes - head->first_slot) / head->slots;
}

static int attach(struct ash_kv_peer *peer, struct shelf *shelf, const struct ash_port_description *from)
{
    size_t bytes;
    int rc = ash_port_attach(peer->port, from, &shelf->remote, NULL);

    if (rc < 0) return rc;
    shelf->description = *from;
    bytes = ash_port_remote_bytes(shelf->remote);
    rc = bytes > sizeof(shelf->head) ? ash_port_register(peer->port, NULL, sizeof(shelf->head), &shelf->copy, NULL)
                                     : -EPROTO;
    if (rc == 0) rc = read_bytes(peer, shelf, shelf->copy, 0, sizeof(shelf->head));
    if (rc == 0) {
        memcpy(&shelf->head, ash_port_memory_data(shelf->copy), sizeof(shelf->head));
        ash_port_memory_close(shelf->copy);
        shelf->copy = NULL;
        rc = is_shelf(&shelf->head, bytes) ? 0 : -EPROTO;
    }
    if (rc == 0)
        rc = ash_port_register(peer->port, NULL,
                               sizeof(shelf->head) + shelf->head.slots * sizeof(struct ash_kv_shelf_entry),
                               &shelf->copy, NULL);
    if (rc == 0) rc = read_directory(peer, shelf);
    if (rc < 0) leave(shelf);
    return rc;
}

/* The shelf of this description, attached if it is not. Returns 0 or a negative errno. */
static int find_shelf(struct ash_kv_peer *peer, const struct ash_port_description *from, struct shelf **shelf_out)
{
    struct shelf *oldest = &peer->shelves[0];

    for (size_t i = 0; i < ATTACHED; i++) {
        struct shelf *shelf = &peer->shelves[i];

        if (shelf->remote != NULL && memcmp(&shelf->description, from, sizeof(*from)) == 0) {
            shelf->used = ++peer->uses;
            *shelf_out = shelf;
            return 0;
        }
        if (shelf->used < oldest->used) oldest = shelf;
    }
    leave(oldest);
    oldest->used = ++peer->uses;
    *shelf_out = oldest;
    return attach(peer, oldest, from);
}

/* The slot with this name in the copy of the directory, or the number of slots. */
static size_t find_slot(const struct shelf *shelf, struct ash_kv_name name, size_t bytes)
{
    const char *data = ash_port_memory_data(shelf->copy);
    const struct ash_kv_shelf_entry *entries =
        (const struct ash_kv_shelf_entry *)(const void *)(data + sizeof(shelf->head));
    size_t slot = 0;

    while (slot < shelf->head.slots && !(entries[slot].bytes == bytes && ash_kv_name_is(entries[slot].name, name)))
        slot++;
    return slot;
}

static struct ash_port_memory *memory_of(const struct ash_kv_peer *peer, const void *buffer)
{
    for (size_t i = 0; i < peer->buffer_count; i++)
        if (ash_port_memory_data(peer->buffers[i]) == buffer) return peer->buffers[i];
    return NULL;
}

/* Read the page by the copy of the directory. */
static int read_page(struct ash_kv_peer *peer, struct shelf *shelf, struct ash_kv_name name,
                     const struct ash_kv_prefix *prefix, size_t page_bytes, struct ash_port_memory *local)
{
    size_t bytes = ash_kv_page_file_bytes(prefix->count, page_bytes), slot = find_slot(shelf, name, bytes);
    int rc;

    if (bytes > shelf->head.slot_bytes || slot == shelf->head.slots) return -ENOENT;
    rc = read_bytes(peer, shelf, local, shelf->head.first_slot + slot * shelf->head.slot_bytes, bytes);
    return rc < 0 ? rc : ash_kv_page_file_check(ash_port_memory_data(local), bytes, prefix, page_bytes);
}

int ash_kv_peer_read(struct ash_kv_peer *peer, const struct ash_port_description *from, struct ash_kv_name name,
                     const struct ash_kv_prefix *prefix, size_t page_bytes, void *buffer)
{
    struct ash_port_memory *local = memory_of(peer, buffer);
    struct shelf *shelf = NULL;
    int rc = find_shelf(peer, from, &shelf);

    ash_assert(local != NULL && ash_kv_page_file_bytes(prefix->count, page_bytes) <= peer->buffer_bytes);
    if (rc < 0) return rc;
    rc = read_page(peer, shelf, name, prefix, page_bytes, local);
    if (rc != -ENOENT && rc != -EBADMSG && rc != -ESTALE) return rc;
    rc = read_directory(peer, shelf); /* the copy is old */
    return rc < 0 ? rc : read_page(peer, shelf, name, prefix, page_bytes, local);
}

int ash_kv_peer_look(struct ash_kv_peer *peer, const struct ash_port_description *from, uint64_t job,
                     struct ash_kv_job *job_out)
{
    struct shelf *shelf = NULL;
    const struct ash_kv_shelf_head *head;
    uint64_t word;
    int rc = find_shelf(peer, from, &shelf);

    if (rc == 0) rc = read_bytes(peer, shelf, shelf->copy, 0, sizeof(*head));
    if (rc < 0) return rc;
    head = ash_port_memory_data(shelf->copy);
    word = head->jobs[job % ASH_KV_SHELF_JOBS];
    *job_out = (struct ash_kv_job){.beat = head->beat, .is_over = true};
    if (word >> 32 != job) return 0; /* forgotten */
    job_out->is_over = (word & ASH_KV_SHELF_JOB_IS_OVER) != 0;
    job_out->pages = (size_t)(word & (ASH_KV_SHELF_JOB_IS_OVER - 1));
    return 0;
}
