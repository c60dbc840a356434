/* Streams of replicas as the router reads them: any bytes, cut into events, and counts of tokens do not change what is
 * compared. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "serve/route/event.h"
#include "serve/route/prompt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

/* An event with usage in front of the bytes of another has the same digest whatever it counts. */
static uint64_t digest_behind(const char *usage, const char *bytes, size_t size_bytes)
{
    struct ash_route_event event = {0};
    struct ash_str text = {0};

    if (ash_str_addf(&text, "data: {\"usage\":%s,\"x\":", usage) == 0 && ash_str_add(&text, bytes, size_bytes) == 0)
        ash_route_event_read(text.data, text.size_bytes, &event);
    ash_str_fini(&text);
    return event.digest;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    const char *bytes = (const char *)data;
    struct ash_route_prompt prompt;
    size_t used = 0, one;

    while ((one = ash_route_event_bytes(bytes + used, size_bytes - used)) > 0) {
        struct ash_route_event event, again;

        ash_route_event_read(bytes + used, one, &event);
        ash_route_event_read(bytes + used, one, &again);
        if (bytes[used + one - 1] != '\n' || event.digest != again.digest || event.choice != again.choice) abort();
        used += one;
    }
    if (digest_behind("{\"a\":1}", bytes, size_bytes) != digest_behind("{\"b\":[2,\"}\"]}", bytes, size_bytes)) abort();
    if (ash_route_prompt_read(bytes, size_bytes, 1, &prompt) == 0 &&
        prompt.blocks.count > size_bytes / 16 + 1) /* keys and ends of strings add to a text, but not much */
        abort();
    ash_route_prompt_fini(&prompt);
    return 0;
}
