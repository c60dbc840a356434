/* `lfs`, run as a program: its library is not in Debian, and its output has been the same for a decade. */
#include "storage/tier/lustre_priv.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/command.h"

#define ANSWER_S 3.0 /* a server that is away must not stop us for longer */
#define STRIPE_BYTES ((uint64_t)256 << 20)
#define STRIPES_MAX 16

/* Run lfs with these arguments. Returns whether it succeeded and, unless text is NULL, said that. */
static bool lfs_says(const char *const *words, const char *text)
{
    const struct ash_command command = {.argv = words, .limit_s = ANSWER_S};
    struct ash_command_result result;
    bool says = ash_command_run(&command, &result, NULL) == 0 && result.code == 0 &&
                (text == NULL || strstr(result.out.data, text) != NULL);

    ash_command_free(&result);
    return says;
}

bool ash_lustre_is(const char *path)
{
    char folder[PATH_MAX];
    const char *const words[] = {"lfs", "getstripe", "-d", folder, NULL};

    snprintf(folder, sizeof(folder), "%s", path);
    while (access(folder, F_OK) < 0 && strrchr(folder, '/') != NULL && strrchr(folder, '/') != folder)
        *strrchr(folder, '/') = '\0';
    return lfs_says(words, "stripe_count");
}

void ash_lustre_make_striped(const char *path, uint64_t total_bytes)
{
    uint64_t stripes = total_bytes / STRIPE_BYTES + 1;
    char count[16];
    const char *const words[] = {"lfs", "setstripe", "-S", "4M", "-c", count, path, NULL};

    snprintf(count, sizeof(count), "%d", (int)(stripes < STRIPES_MAX ? stripes : STRIPES_MAX));
    lfs_says(words, NULL);
}

bool ash_lustre_is_released(const char *path)
{
    const char *const words[] = {"lfs", "hsm_state", path, NULL};

    return lfs_says(words, " released");
}
