/* Fuzz target: the file that keeps a node's verdict. An accepted file can be written and read again as the same. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "observe/health/node_state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ash_node_state state, again;
    struct ash_str text = {0};
    json_t *json;

    if (ash_node_state_parse(&state, (const char *)data, size, NULL) < 0) return 0;
    json = ash_node_state_json(&state);
    if (json == NULL || ash_json_add_text(json, &text) < 0) abort();
    if (ash_node_state_parse(&again, text.data, text.size_bytes, NULL) < 0) abort();
    if (again.count != state.count || again.status != state.status || again.kernel_number != state.kernel_number)
        abort();
    ash_node_state_tick(&state, 1e9);
    ash_node_state_boot(&state, "other", 1e9);
    json_decref(json);
    ash_str_fini(&text);
    return 0;
}
