/* Fuzz target: lines of sacctmgr. A state that is read is equal to itself, and can be made from nothing. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "queue/policy/slurm_state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), *accounts;
    json_t *state = NULL, *changes;

    if (text == NULL) return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    accounts = strstr(text, "\n\n"); /* a blank line between the two texts */
    if (accounts != NULL) *accounts++ = '\0';
    if (ash_slurm_state_read(text, accounts != NULL ? accounts : "", &state, NULL) == 0) {
        changes = ash_slurm_state_changes(state, state);
        if (json_array_size(changes) != 0) abort();
        json_decref(changes);
        changes = ash_slurm_state_changes(state, NULL);
        if (changes == NULL) abort();
        json_decref(changes);
        json_decref(state);
    }
    free(text);
    return 0;
}
