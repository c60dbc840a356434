/* Memory of versions: a header and two halves. A version is written to the half that is not the newest and published by
 * the header. A take reads the header, then that half into the reader's spare half, and shows it there only if its hash
 * is the header's. */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/math.h"
#include "fabric/port_priv.h"

/* Where a half begins: after the header, and room for the header that a take reads. */
static size_t half_offset(size_t size_bytes, uint64_t half)
{
    return 2 * ASH_PORT_HEADER_BYTES + half * ash_round_up(size_bytes, ASH_PORT_HEADER_BYTES);
}

size_t ash_port_versions_bytes(size_t size_bytes)
{
    return size_bytes == 0 || size_bytes > SIZE_MAX / 8 ? 0 : half_offset(size_bytes, 2);
}

static uint8_t *bytes_of(const struct ash_port_memory *memory)
{
    return ash_region_data(memory->region);
}

static uint64_t hash_of(const struct ash_port_header *header)
{
    return ash_hash_bytes(header, offsetof(struct ash_port_header, hash), 1);
}

static bool is_whole(const struct ash_port_header *header)
{
    return header->hash == hash_of(header);
}

/* The header of what this memory shows. Returns false if it shows nothing. */
static bool read_own(const struct ash_port_memory *memory, struct ash_port_header *header_out)
{
    memcpy(header_out, bytes_of(memory), sizeof(*header_out));
    return is_whole(header_out);
}

void *ash_port_memory_data(const struct ash_port_memory *memory)
{
    return bytes_of(memory) + (memory->has_versions ? half_offset(memory->size_bytes, memory->spare) : 0);
}

static void show_spare(struct ash_port_memory *memory, struct ash_port_header header)
{
    header.half = memory->spare;
    header.hash = hash_of(&header);
    atomic_thread_fence(memory_order_release);
    memcpy(bytes_of(memory), &header, sizeof(header));
    atomic_thread_fence(memory_order_release);
    memory->spare ^= 1;
}

int ash_port_publish(struct ash_port_memory *memory, size_t size_bytes, uint64_t version)
{
    struct ash_port_header header;

    if (!memory->has_versions || memory->is_taking || size_bytes > memory->size_bytes) return -EINVAL;
    if (read_own(memory, &header) && version <= header.version) return -EINVAL;
    header = (struct ash_port_header){.size_bytes = size_bytes, .version = version};
    header.data_hash = ash_hash_bytes(ash_port_memory_data(memory), size_bytes, 0);
    show_spare(memory, header);
    return 0;
}

const void *ash_port_version(const struct ash_port_memory *memory, size_t *size_out, uint64_t *version_out)
{
    struct ash_port_header header;

    if (!memory->has_versions || !read_own(memory, &header)) return NULL;
    *size_out = header.size_bytes;
    *version_out = header.version;
    return bytes_of(memory) + half_offset(memory->size_bytes, header.half);
}

/* ---- takes ------------------------------------------------------------------------------------------------------- */

static int post_read(struct ash_port *port, struct ash_port_op *op, size_t local, size_t remote, size_t size_bytes)
{
    struct ash_transfer transfer = {.local = op->local->region,
                                    .local_offset = local,
                                    .remote = op->remote->remote,
                                    .remote_offset = remote,
                                    .size_bytes = size_bytes,
                                    .cookie = (uintptr_t)op};
    int rc = ash_fabric_read(port->fabric, &transfer);

    return rc == -ENOTCONN ? -ECONNRESET : rc;
}

int ash_port_take(struct ash_port *port, struct ash_port_remote *remote, struct ash_port_memory *local, uint64_t cookie)
{
    struct ash_port_op *op;
    int rc;

    if (!local->has_versions || !remote->has_versions) return -EINVAL;
    if (local->is_taking) return -EBUSY;
    op = ash_pool_get(port->posts, NULL);
    if (op == NULL) return -EAGAIN;
    *op = (struct ash_port_op){.stage = ASH_PORT_TAKES_HEADER, .cookie = cookie, .local = local, .remote = remote};
    rc = post_read(port, op, ASH_PORT_HEADER_BYTES, 0, ASH_PORT_HEADER_BYTES);
    if (rc < 0)
        ash_pool_put(port->posts, op);
    else
        local->is_taking = true;
    return rc;
}

/* The header is here. Returns 1 if it has all that there is, 0 if the version is being read, or a negative errno. */
static int take_header(struct ash_port *port, struct ash_port_op *op)
{
    struct ash_port_memory *local = op->local;
    struct ash_port_header own, *header = &op->header;

    memcpy(header, bytes_of(local) + ASH_PORT_HEADER_BYTES, sizeof(*header));
    if (header->hash == 0 && header->version == 0) return -ENODATA;
    if (!is_whole(header)) return -EAGAIN;
    if (header->half > 1 || header->size_bytes > op->remote->size_bytes) return -EPROTO;
    if (header->size_bytes > local->size_bytes) return -EMSGSIZE;
    if (read_own(local, &own) && own.version == header->version && own.data_hash == header->data_hash) return 1;
    op->stage = ASH_PORT_TAKES_DATA;
    return post_read(port, op, half_offset(local->size_bytes, local->spare),
                     half_offset(op->remote->size_bytes, header->half), header->size_bytes);
}

static int take_data(const struct ash_port_op *op)
{
    const void *data = ash_port_memory_data(op->local);

    if (ash_hash_bytes(data, op->header.size_bytes, 0) != op->header.data_hash) return -EAGAIN;
    show_spare(op->local, op->header);
    return 1;
}

bool ash_port_continue_take(struct ash_port *port, struct ash_port_op *op, int status, int *status_out)
{
    int rc = status;

    ash_assert(op->stage != ASH_PORT_PLAIN && op->local->is_taking);
    if (rc == 0) rc = op->stage == ASH_PORT_TAKES_HEADER ? take_header(port, op) : take_data(op);
    if (rc == 0) return false;
    op->local->is_taking = false;
    *status_out = rc > 0 ? 0 : rc;
    return true;
}
