/* log: two logs, line by line. */
#include "chaos/log.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"

#define TEXT_BYTES_MAX ((size_t)64 << 20)

/* The value of a key in a line, up to the next comma. Returns its length; 0: it is not there. */
static size_t find_value(const char *line, const char *end, const char *key, const char **value_out)
{
    const char *at = memmem(line, (size_t)(end - line), key, strlen(key));

    if (at == NULL) return 0;
    *value_out = at + strlen(key);
    return strcspn(*value_out, ",}");
}

static bool same_line(const char *a, const char *a_end, const char *b, const char *b_end)
{
    static const char *const keys[] = {"\"step\":", "\"loss_bits\":", "\"state_hash\":"};

    for (size_t i = 0; i < ASH_COUNT(keys); i++) {
        const char *one = NULL, *other = NULL;
        size_t length = find_value(a, a_end, keys[i], &one);

        if (length == 0 || length != find_value(b, b_end, keys[i], &other) || memcmp(one, other, length) != 0)
            return false;
    }
    return true;
}

int ash_chaos_compare_logs(const char *one_dir, const char *many_dir, struct ash_err *err)
{
    char path[PATH_MAX];
    char *one = NULL, *many = NULL;
    size_t size = 0, line = 0;
    int rc = ash_path_join(path, sizeof(path), many_dir, "log.jsonl");

    if (rc == 0) rc = ash_file_read(path, TEXT_BYTES_MAX, &many, &size, err);
    if (rc == 0 && ash_path_join(path, sizeof(path), one_dir, "log.jsonl") < 0) rc = -ENAMETOOLONG;
    if (rc == 0) rc = ash_file_read(path, TEXT_BYTES_MAX, &one, &size, err);
    for (const char *a = one, *b = many; rc == 0 && b != NULL && *b != '\0'; line++) {
        const char *a_end = a != NULL ? strchr(a, '\n') : NULL, *b_end = strchr(b, '\n');

        if (a_end == NULL || b_end == NULL || !same_line(a, a_end, b, b_end))
            rc = ash_err_set(err, -EBADMSG, "line %zu of the log is not that of one process", line + 1);
        a = a_end != NULL ? a_end + 1 : NULL;
        b = b_end != NULL ? b_end + 1 : NULL;
    }
    free(one);
    free(many);
    return rc;
}
