/* Membership messages from the network: any bytes are a message or refused; a message can be written again and is the
 * same. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "collective/member/member_wire.h"

#define CARD_BYTES 24

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ash_member_wire wire, again;
    struct ash_str bytes = {0};

    if (ash_member_wire_decode(data, size, CARD_BYTES, &wire) < 0) return 0;
    if (ash_member_wire_encode(&wire.msg, CARD_BYTES, &bytes) == 0 &&
        ash_member_wire_decode(bytes.data, bytes.size_bytes, CARD_BYTES, &again) == 0) {
        assert(again.msg.kind == wire.msg.kind && again.msg.from == wire.msg.from);
        assert((again.msg.view == NULL) == (wire.msg.view == NULL));
        ash_member_wire_fini(&again);
    }
    ash_str_fini(&bytes);
    ash_member_wire_fini(&wire);
    return 0;
}
