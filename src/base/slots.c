/* slots: from one {{ to the next. */
#include "base/slots.h"

#include <string.h>

#include "base/assert.h"

int ash_slots_fill(const char *text, const struct ash_slot *slots, size_t count, struct ash_str *out)
{
    int rc = 0;

    for (const char *open = strstr(text, "{{"); open != NULL && rc == 0; open = strstr(text, "{{")) {
        const char *end = strstr(open, "}}");
        size_t bytes = end != NULL ? (size_t)(end - open) - 2 : 0, i = 0;

        while (i < count && (strlen(slots[i].name) != bytes || strncmp(slots[i].name, open + 2, bytes) != 0))
            i++;
        ash_assert(end != NULL && i < count);
        rc = ash_str_add(out, text, (size_t)(open - text));
        if (rc == 0) rc = ash_str_adds(out, slots[i].text);
        text = end + 2;
    }
    return rc == 0 ? ash_str_adds(out, text) : rc;
}
