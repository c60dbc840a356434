/* Messages between trainer and samplers: any bytes are tasks and answers, or refused; those that are read can be
 * written again, and are the same. */
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "post/rl/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static void read_tasks(const uint8_t *data, size_t size_bytes)
{
    struct ash_wire_reader reader = {data, size_bytes, 0};
    struct ash_str again = {0};
    struct ash_wire_task task;
    int64_t sum = 0;

    while (ash_wire_next_task(&reader, &task) > 0) {
        for (uint32_t i = 0; i < task.count; i++)
            sum += task.ids[i];
        if (ash_wire_add_task(&again, &task) < 0) break;
        ash_assert(sum != INT64_MIN && memcmp(again.data, data, again.size_bytes) == 0);
    }
    ash_str_fini(&again);
}

static void read_answers(const uint8_t *data, size_t size_bytes)
{
    struct ash_wire_reader reader = {data, size_bytes, 0};
    struct ash_str again = {0};
    struct ash_wire_answer answer;
    int64_t sum = 0;

    while (ash_wire_next_answer(&reader, &answer) > 0) {
        for (uint32_t t = 0, first = 0; t < answer.count; t++) {
            sum += answer.ids[t] + (answer.logps[t] < 0);
            for (; answer.kept_count > 0 && first < (uint32_t)answer.kept_ends[t]; first++)
                sum += answer.kept[first];
        }
        if (ash_wire_add_answer(&again, &answer) < 0) break;
        ash_assert(sum != INT64_MIN && memcmp(again.data, data, again.size_bytes) == 0);
    }
    ash_str_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct ash_wire_head head = {0};
    struct ash_str body = {0};

    if (ash_wire_peek(data, size_bytes, &head) > 0) {
        ash_assert(head.size_bytes + sizeof(head) <= size_bytes);
        data += sizeof(head);
        size_bytes = head.size_bytes;
    }
    size_bytes -= size_bytes % sizeof(uint32_t);
    if (size_bytes == 0 || ash_str_add(&body, data, size_bytes) < 0) return 0; /* aligned, as the readers want it */
    read_tasks((const uint8_t *)body.data, size_bytes);
    read_answers((const uint8_t *)body.data, size_bytes);
    for (size_t skip = sizeof(struct ash_wire_work); skip < size_bytes && skip <= 24; skip += 8) {
        read_tasks((const uint8_t *)body.data + skip, size_bytes - skip);
        read_answers((const uint8_t *)body.data + skip, size_bytes - skip);
    }
    ash_str_fini(&body);
    return 0;
}
