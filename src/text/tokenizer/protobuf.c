/* Reading protocol buffers: each field has its number, its wire type and its value. */
#include "text/tokenizer/protobuf.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"

enum wire { WIRE_VARINT = 0, WIRE_8_BYTES = 1, WIRE_BYTES = 2, WIRE_4_BYTES = 5 };

static int take_varint(struct ash_tok_message *message, uint64_t *value_out)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64 && message->size_bytes > 0; shift += 7) {
        uint8_t byte = *message->data;

        message->data++;
        message->size_bytes--;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte & 0x80) continue;
        *value_out = value;
        return 0;
    }
    return -EINVAL;
}

/* Little endian. */
static int take_fixed(struct ash_tok_message *message, size_t size_bytes, uint64_t *value_out)
{
    uint64_t value = 0;

    ash_assert(size_bytes <= 8);
    if (message->size_bytes < size_bytes) return -EINVAL;
    for (size_t i = 0; i < size_bytes; i++)
        value |= (uint64_t)message->data[i] << 8 * i;
    message->data += size_bytes;
    message->size_bytes -= size_bytes;
    *value_out = value;
    return 0;
}

static int take_bytes(struct ash_tok_message *message, struct ash_tok_message *bytes_out)
{
    uint64_t size_bytes = 0;

    if (take_varint(message, &size_bytes) < 0 || size_bytes > message->size_bytes) return -EINVAL;
    *bytes_out = (struct ash_tok_message){message->data, (size_t)size_bytes};
    message->data += size_bytes;
    message->size_bytes -= (size_t)size_bytes;
    return 0;
}

int ash_tok_next_field(struct ash_tok_message *message, struct ash_tok_field *field_out)
{
    struct ash_tok_field field = {0};
    uint64_t tag = 0;
    int rc;

    if (message->size_bytes == 0) return 0;
    if (take_varint(message, &tag) < 0 || tag >> 3 == 0 || tag >> 3 > UINT32_MAX) return -EINVAL;
    field.number = (uint32_t)(tag >> 3);
    field.is_bytes = (tag & 7) == WIRE_BYTES;
    switch (tag & 7) {
    case WIRE_VARINT:
        rc = take_varint(message, &field.whole);
        break;
    case WIRE_8_BYTES:
        rc = take_fixed(message, 8, &field.whole);
        break;
    case WIRE_4_BYTES:
        rc = take_fixed(message, 4, &field.whole);
        break;
    case WIRE_BYTES:
        rc = take_bytes(message, &field.message);
        break;
    default:
        rc = -EINVAL;
    }
    if (rc < 0) return rc;
    *field_out = field;
    return 1;
}

float ash_tok_field_float(const struct ash_tok_field *field)
{
    uint32_t bits = (uint32_t)field->whole;
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}
