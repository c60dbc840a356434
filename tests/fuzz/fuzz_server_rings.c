/* Fuzz target: what servers leave, as a trace and for the page. Whatever the records say, both are well-formed JSON. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "observe/page/servers.h"
#include "observe/trace/serve_trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A share of the bytes as records, numbered as a ring's are. */
static struct ash_ring_view view_of(const uint8_t *data, size_t size, size_t record_bytes)
{
    struct ash_ring_view view = {.record_bytes = record_bytes, .count = size / record_bytes};

    view.records = malloc(size + 1);
    if (view.records == NULL) abort();
    memcpy(view.records, data, size);
    for (uint64_t i = 0; i < view.count; i++) {
        uint64_t number = i + 1;

        memcpy(view.records + i * record_bytes, &number, sizeof(number));
    }
    view.added = view.count;
    return view;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ash_server_rings server = {.pid = 7, .is_alive = true};
    struct ash_server_set set = {&server, 1};
    struct ash_str text = {0};
    json_t *json = NULL;

    if (size < 16) return 0;
    memcpy(server.name, data, 15);
    data += 16, size -= 16;
    server.requests = view_of(data, size / 2, sizeof(struct ash_request_record));
    server.passes = view_of(data + size / 2, size / 4, sizeof(struct ash_pass_record));
    server.pieces = view_of(data + size / 2 + size / 4, size / 4, sizeof(struct ash_piece_record));
    if (ash_serve_trace_write(&set, NULL, &text, NULL) > 0 &&
        ash_json_parse(text.data, text.size_bytes, "trace", &json, NULL) < 0)
        abort();
    json_decref(json);
    json = ash_server_json(&server, 1.7e9);
    if (json == NULL) abort();
    json_decref(json);
    ash_str_fini(&text);
    ash_ring_view_fini(&server.requests);
    ash_ring_view_fini(&server.passes);
    ash_ring_view_fini(&server.pieces);
    return 0;
}
