/* Shared by the files of the policy's configuration. */
#ifndef ASH_QUEUE_POLICY_CONF_PRIV_H
#define ASH_QUEUE_POLICY_CONF_PRIV_H

#include "queue/policy/conf.h"

/* Copy text into a name of ASH_POLICY_NAME_BYTES. */
void ash_policy_set_name(char *name, const char *text);
/* The index of name in a NULL-terminated list, -1: it is not there. */
int ash_policy_name_index(const char *const *names, const char *name);
/* "a, b, c" of a NULL-terminated list, in buf, which it returns. */
const char *ash_policy_names_text(const char *const *names, char *buf, size_t buf_bytes);

#endif
