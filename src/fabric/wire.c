/* Addresses and keys as they travel. Both ends run the same byte order; a peer with another fails the magic number. */
#include "fabric/wire.h"

#include <errno.h>
#include <string.h>

#define ADDR_MAGIC 0x41485341u /* "ASHA" */
#define KEY_MAGIC 0x4b485341u  /* "ASHK" */
#define WIRE_VERSION 1

void ash_wire_put_addr(struct ash_wire_addr *wire, struct ash_fabric_addr *addr_out)
{
    wire->magic = ADDR_MAGIC;
    wire->version = WIRE_VERSION;
    memset(addr_out, 0, sizeof(*addr_out));
    addr_out->size_bytes = sizeof(*wire);
    memcpy(addr_out->bytes, wire, sizeof(*wire));
}

void ash_wire_put_key(struct ash_wire_key *wire, struct ash_fabric_key *key_out)
{
    wire->magic = KEY_MAGIC;
    wire->version = WIRE_VERSION;
    memcpy(key_out->words, wire, sizeof(*wire));
}

static bool ends(const char *text, size_t room)
{
    return memchr(text, '\0', room) != NULL;
}

/* Do the lengths of the rails stay inside the array? */
static bool rails_fit(const struct ash_wire_addr *wire)
{
    size_t at = 0;

    if (wire->rail_count > ASH_FABRIC_RAILS_MAX) return false;
    for (size_t rail = 0; rail < wire->rail_count; rail++) {
        if (at >= sizeof(wire->rails) || wire->rails[at] == 0) return false;
        at += 1 + wire->rails[at];
    }
    return at <= sizeof(wire->rails);
}

int ash_wire_get_addr(const struct ash_fabric_addr *addr, struct ash_wire_addr *wire_out, struct ash_err *err)
{
    struct ash_wire_addr wire;

    if (addr->size_bytes < sizeof(uint32_t) + sizeof(uint16_t) || addr->size_bytes > sizeof(addr->bytes))
        return ash_err_set(err, -EPROTO, "the address of a peer has %u bytes: that is none", addr->size_bytes);
    memcpy(&wire, addr->bytes, sizeof(wire));
    if (wire.magic != ADDR_MAGIC) return ash_err_set(err, -EPROTO, "the address of a peer is not one");
    if (wire.version != WIRE_VERSION || addr->size_bytes != sizeof(wire))
        return ash_err_set(err, -EPROTO, "a peer runs another version of this program (address version %u, here %d)",
                           wire.version, WIRE_VERSION);
    if (wire.id == 0 || !ends(wire.node, sizeof(wire.node)) || !ends(wire.provider, sizeof(wire.provider)) ||
        wire.heartbeat_port > 65535 || !rails_fit(&wire))
        return ash_err_set(err, -EPROTO, "the address of a peer is damaged");
    *wire_out = wire;
    return 0;
}

int ash_wire_get_key(const struct ash_fabric_key *key, struct ash_wire_key *wire_out, struct ash_err *err)
{
    struct ash_wire_key wire;

    memcpy(&wire, key->words, sizeof(wire));
    if (wire.magic != KEY_MAGIC) return ash_err_set(err, -EPROTO, "the key of a region is not one");
    if (wire.version != WIRE_VERSION)
        return ash_err_set(err, -EPROTO, "a peer runs another version of this program (key version %u, here %d)",
                           wire.version, WIRE_VERSION);
    if (wire.size_bytes == 0 || wire.size_bytes > SIZE_MAX / 2 || wire.rail_count > ASH_FABRIC_RAILS_MAX)
        return ash_err_set(err, -EPROTO, "the key of a region is damaged");
    *wire_out = wire;
    return 0;
}

static size_t rails_used(const struct ash_wire_addr *wire)
{
    size_t at = 0;

    for (size_t rail = 0; rail < wire->rail_count; rail++)
        at += 1 + wire->rails[at];
    return at;
}

int ash_wire_add_rail(struct ash_wire_addr *wire, const void *bytes, size_t size_bytes)
{
    size_t at = rails_used(wire);

    if (size_bytes == 0 || size_bytes > UINT8_MAX || at + 1 + size_bytes > sizeof(wire->rails) ||
        wire->rail_count == ASH_FABRIC_RAILS_MAX)
        return -ENOSPC;
    wire->rails[at] = (uint8_t)size_bytes;
    memcpy(wire->rails + at + 1, bytes, size_bytes);
    wire->rail_count++;
    return 0;
}

const void *ash_wire_rail(const struct ash_wire_addr *wire, size_t rail, size_t *size_out)
{
    size_t at = 0;

    if (rail >= wire->rail_count) return NULL;
    for (size_t r = 0; r < rail; r++)
        at += 1 + wire->rails[at];
    *size_out = wire->rails[at];
    return wire->rails + at + 1;
}
