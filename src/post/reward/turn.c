/* turn: reads an environment's line. */
#include "post/reward/turn.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

void ash_turn_fini(struct ash_turn *turn)
{
    free(turn->text);
    free(turn->role);
    *turn = (struct ash_turn){0};
}

/* A copy of a member that is a text without NUL; NULL: it is none. */
static char *copy_text(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    const char *text = json_string_value(value);

    return text != NULL && strlen(text) == json_string_length(value) ? strdup(text) : NULL;
}

int ash_turn_parse(const char *line, size_t size_bytes, struct ash_turn *turn, struct ash_err *err)
{
    json_error_t why;
    json_t *json = json_loadb(line, size_bytes, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &why);
    bool is_over = json_is_null(json) || (json_is_object(json) && json_object_size(json) == 0);
    bool is_message = json_object_get(json, "role") != NULL;

    turn->text = copy_text(json, is_message ? "content" : "text");
    turn->role = copy_text(json, "role");
    json_decref(json);
    if (is_over || (turn->text != NULL && (!is_message || turn->role != NULL))) return 0;
    ash_turn_fini(turn);
    return ash_err_set(err, -EBADMSG,
                       "'%.*s' is no turn: null, an object with \"text\", or one with \"role\" and \"content\"",
                       (int)(size_bytes < 80 ? size_bytes : 80), line);
}
