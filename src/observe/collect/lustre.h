/* lustre - statistics files of a Lustre client. Text may be anything. */
#ifndef ASH_OBSERVE_COLLECT_LUSTRE_H
#define ASH_OBSERVE_COLLECT_LUSTRE_H

#include "base/str.h"

/* Samples of families, each without its head. */
struct ash_lustre_out {
    struct ash_str bytes, calls, seconds, evictions;
};

/* Append the figures of a stats file of llite, which is changed. fs names the file system. */
void ash_lustre_stats(char *text, const char *fs, struct ash_lustre_out *out);
/* How many evictions the last states of a connection show. */
size_t ash_lustre_evictions(const char *text);

#endif
