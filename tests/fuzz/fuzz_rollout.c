/* Fuzz target: records of rollouts. A record that is read has no more tokens than there is room for, and finite
 * rewards. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/file.h"
#include "post/rl/rl_priv.h"

#define ANSWERS 2
#define TOKENS 4

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static char dir[] = "/dev/shm/ashlar-fuzz-rollout-XXXXXX", path[sizeof(dir) + 32];

static void clean(void)
{
    snprintf(path, sizeof(path), "%s/rollouts", dir);
    rmdir(path);
    rmdir(dir);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    static bool is_made;
    int32_t ids[ANSWERS][TOKENS];
    float logps[ANSWERS][TOKENS];
    uint64_t numbers[1] = {0};
    size_t ends[ANSWERS][TOKENS];
    struct ash_answer_row rows[ANSWERS] = {{.ids = ids[0], .logps = logps[0], .kept.ends = ends[0]},
                                           {.ids = ids[1], .logps = logps[1], .kept.ends = ends[1]}};
    struct ash_rollout rollout = {.answers = rows, .prompt_numbers = numbers};
    struct ash_policy_run rl = {.dir = dir,
                                .shape = {.prompts = 1,
                                          .answers = ANSWERS,
                                          .max_tokens = TOKENS,
                                          .epochs = 1,
                                          .minibatches = 1,
                                          .has_kept = size_bytes % 2 == 1}};
    struct ash_err err = {0};
    int rc;

    if (!is_made) {
        if (mkdtemp(dir) == NULL) return 0;
        snprintf(path, sizeof(path), "%s/rollouts", dir);
        if (ash_dir_make(path, &err) < 0) return 0;
        snprintf(path, sizeof(path), "%s/rollouts/step-1.jsonl", dir);
        is_made = atexit(clean) == 0;
    }
    if (ash_file_replace(path, data, size_bytes, &err) < 0) return 0;
    rc = ash_rl_reread(&rl, 0, size_bytes % 4 < 2, &rollout, &err);
    ash_assert(rc >= 0 || err.text[0] != '\0');
    for (size_t a = 0; rc > 0 && a < ANSWERS; a++)
        ash_assert(rows[a].count <= TOKENS && isfinite(rows[a].reward));
    for (size_t a = 0; a < ANSWERS; a++)
        free(rows[a].kept.ids);
    unlink(path);
    return 0;
}
