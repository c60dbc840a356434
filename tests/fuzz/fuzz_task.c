/* Fuzz target: tasks of lm-evaluation-harness, and a document that is asked by them. An accepted one renders or is
 * refused with a sentence. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "post/eval/task.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    char *text = strndup((const char *)data, size_bytes);
    json_t *docs = json_pack("[{s:s, s:[s, s], s:i}, {s:s, s:[s], s:i}]", "question", "2+2?", "choices", "4", "5",
                             "answer", 0, "question", "?", "choices", "'", "answer", 9);
    struct ash_task *task = NULL;
    struct ash_err err = {0};
    int rc = text != NULL ? ash_task_parse(text, "fuzz.yaml", &task, &err) : 0;

    ash_assert(rc == 0 || err.text[0] != '\0');
    for (size_t i = 0; task != NULL && i < json_array_size(docs); i++) {
        struct ash_task_item item = {0};
        struct ash_str context = {0};

        if (ash_task_item_init(task, json_array_get(docs, i), &item, &err) == 0) {
            char *answer = item.text;
            struct ash_task_answer scored = {.item = &item, .texts = &answer};
            json_t *results = NULL;

            task->repeats = 1;
            if (task->output == ASH_TASK_GENERATE && ash_task_score(task, &scored, 1, &results, &err) == 0)
                ash_assert(json_is_object(results));
            json_decref(results);
        }
        if (task->fewshot < 4) (void)ash_task_context(task, docs, docs, i, &context, &err);
        ash_str_fini(&context);
        ash_task_item_fini(&item);
    }
    ash_task_close(task);
    json_decref(docs);
    free(text);
    return 0;
}
