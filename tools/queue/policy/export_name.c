/* Names and numbers as other schedulers write them. */
#include <ctype.h>

#include "queue/policy/export_priv.h"

const char *ash_export_name(const char *name, char *buf)
{
    size_t length = 0;

    for (; *name != '\0' && length + 2 < ASH_POLICY_NAME_BYTES; name++) {
        char c = (char)tolower((unsigned char)*name);

        if (isalnum((unsigned char)c))
            buf[length++] = c;
        else if (length > 0 && buf[length - 1] != '-')
            buf[length++] = '-';
    }
    while (length > 0 && buf[length - 1] == '-')
        length--;
    if (length == 0) buf[length++] = 'q';
    buf[length] = '\0';
    return buf;
}

double ash_export_gpus(int64_t milli)
{
    return (double)milli / 1000;
}
