/* Thrift's compact protocol, as far as Parquet's metadata need it. Sizes are held against the bytes that are there, so
 * a damaged message costs no memory and no time beyond its length. */
#include "storage/parquet/parquet_priv.h"

#define VARINT_BITS_MAX 63
#define DEPTH_MAX 16 /* metadata are five deep */
#define LONG_LIST 15 /* its length follows */

bool ash_thrift_ok(const struct ash_thrift *thrift)
{
    return !thrift->is_torn && !thrift->is_bad;
}

static uint8_t take_byte(struct ash_thrift *thrift)
{
    if (!ash_thrift_ok(thrift)) return 0;
    if (thrift->at == thrift->end) {
        thrift->is_torn = true;
        return 0;
    }
    return *thrift->at++;
}

uint64_t ash_thrift_varint(struct ash_thrift *thrift)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift <= VARINT_BITS_MAX; shift += 7) {
        uint8_t byte = take_byte(thrift);

        value |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) return ash_thrift_ok(thrift) ? value : 0;
    }
    thrift->is_bad = true;
    return 0;
}

int64_t ash_thrift_zigzag(struct ash_thrift *thrift)
{
    uint64_t value = ash_thrift_varint(thrift);

    return (int64_t)(value >> 1 ^ (0 - (value & 1)));
}

bool ash_thrift_next(struct ash_thrift *thrift, struct ash_thrift_field *field)
{
    uint8_t head = take_byte(thrift);

    field->type = (enum ash_thrift_type)(head & 15);
    if (!ash_thrift_ok(thrift) || field->type == ASH_THRIFT_STOP) return false;
    field->id = head >> 4 != 0 ? field->id + (head >> 4) : ash_thrift_zigzag(thrift);
    if (field->type > ASH_THRIFT_UUID || field->id < INT16_MIN || field->id > INT16_MAX) thrift->is_bad = true;
    return ash_thrift_ok(thrift);
}

int64_t ash_thrift_int(struct ash_thrift *thrift, const struct ash_thrift_field *field)
{
    switch (field->type) {
    case ASH_THRIFT_TRUE:
        return 1;
    case ASH_THRIFT_FALSE:
        return 0;
    case ASH_THRIFT_BYTE:
        return (int8_t)take_byte(thrift);
    case ASH_THRIFT_I16:
    case ASH_THRIFT_I32:
    case ASH_THRIFT_I64:
        return ash_thrift_zigzag(thrift);
    default:
        thrift->is_bad = true;
        return 0;
    }
}

/* Go past count bytes. */
static const uint8_t *take_bytes(struct ash_thrift *thrift, uint64_t count)
{
    const uint8_t *bytes = thrift->at;

    if (!ash_thrift_ok(thrift)) return NULL;
    if (count > (uint64_t)(thrift->end - thrift->at)) {
        thrift->is_torn = true;
        return NULL;
    }
    thrift->at += count;
    return bytes;
}

const char *ash_thrift_binary(struct ash_thrift *thrift, const struct ash_thrift_field *field, size_t *size_out)
{
    uint64_t count;
    const uint8_t *bytes;

    *size_out = 0;
    if (field->type != ASH_THRIFT_BINARY) thrift->is_bad = true;
    count = ash_thrift_varint(thrift);
    bytes = take_bytes(thrift, count);
    if (bytes != NULL) *size_out = (size_t)count;
    return bytes != NULL ? (const char *)bytes : "";
}

/* A list's length and the type of its elements. Each of them takes a byte at least. */
static uint64_t take_list(struct ash_thrift *thrift, enum ash_thrift_type *type_out)
{
    uint8_t head = take_byte(thrift);
    uint64_t count = head >> 4;

    *type_out = (enum ash_thrift_type)(head & 15);
    if (count == LONG_LIST) count = ash_thrift_varint(thrift);
    if (!ash_thrift_ok(thrift)) return 0;
    if (count > (uint64_t)(thrift->end - thrift->at)) thrift->is_torn = true;
    return ash_thrift_ok(thrift) ? count : 0;
}

uint64_t ash_thrift_structs(struct ash_thrift *thrift, const struct ash_thrift_field *field)
{
    enum ash_thrift_type type = ASH_THRIFT_STRUCT;
    uint64_t count;

    if (field->type != ASH_THRIFT_LIST) thrift->is_bad = true;
    count = take_list(thrift, &type);
    if (type != ASH_THRIFT_STRUCT && count > 0) thrift->is_bad = true;
    return ash_thrift_ok(thrift) ? count : 0;
}

bool ash_thrift_enter(struct ash_thrift *thrift, const struct ash_thrift_field *field)
{
    if (field->type != ASH_THRIFT_STRUCT) thrift->is_bad = true;
    return ash_thrift_ok(thrift);
}

/* ---- going past -------------------------------------------------------------------------------------------------- */

static void skip_value(struct ash_thrift *thrift, enum ash_thrift_type type, bool is_element, int depth);

static void skip_list(struct ash_thrift *thrift, int depth)
{
    enum ash_thrift_type type;
    uint64_t count = take_list(thrift, &type);

    for (uint64_t i = 0; i < count && ash_thrift_ok(thrift); i++)
        skip_value(thrift, type, true, depth);
}

static void skip_map(struct ash_thrift *thrift, int depth)
{
    uint64_t count = ash_thrift_varint(thrift);
    uint8_t types = count > 0 ? take_byte(thrift) : 0;

    for (uint64_t i = 0; i < count && ash_thrift_ok(thrift); i++) {
        skip_value(thrift, (enum ash_thrift_type)(types >> 4), true, depth);
        skip_value(thrift, (enum ash_thrift_type)(types & 15), true, depth);
    }
}

static void skip_struct(struct ash_thrift *thrift, int depth)
{
    struct ash_thrift_field field = {0};

    while (ash_thrift_next(thrift, &field))
        skip_value(thrift, field.type, false, depth);
}

/* A boolean takes a byte in a list, and none in a field, whose type has its value. */
static void skip_value(struct ash_thrift *thrift, enum ash_thrift_type type, bool is_element, int depth)
{
    if (depth == DEPTH_MAX) thrift->is_bad = true;
    if (!ash_thrift_ok(thrift)) return;
    switch (type) {
    case ASH_THRIFT_TRUE:
    case ASH_THRIFT_FALSE:
        take_bytes(thrift, is_element);
        break;
    case ASH_THRIFT_BYTE:
        take_bytes(thrift, 1);
        break;
    case ASH_THRIFT_I16:
    case ASH_THRIFT_I32:
    case ASH_THRIFT_I64:
        ash_thrift_varint(thrift);
        break;
    case ASH_THRIFT_DOUBLE:
        take_bytes(thrift, 8);
        break;
    case ASH_THRIFT_BINARY:
        take_bytes(thrift, ash_thrift_varint(thrift));
        break;
    case ASH_THRIFT_LIST:
    case ASH_THRIFT_SET:
        skip_list(thrift, depth + 1);
        break;
    case ASH_THRIFT_MAP:
        skip_map(thrift, depth + 1);
        break;
    case ASH_THRIFT_STRUCT:
        skip_struct(thrift, depth + 1);
        break;
    case ASH_THRIFT_UUID:
        take_bytes(thrift, 16);
        break;
    default:
        thrift->is_bad = true;
    }
}

void ash_thrift_skip(struct ash_thrift *thrift, const struct ash_thrift_field *field)
{
    skip_value(thrift, field->type, false, 0);
}
