/* lustre - Lustre's properties of files beyond POSIX, through its `lfs` program: stripes and the state of its archive.
 * A machine without `lfs`, or a folder that it rejects, is no Lustre. */
#ifndef ASH_STORAGE_TIER_LUSTRE_PRIV_H
#define ASH_STORAGE_TIER_LUSTRE_PRIV_H

#include <stdbool.h>
#include <stdint.h>

/* Is path, or the nearest folder above it that is there, on Lustre? */
bool ash_lustre_is(const char *path);
/* Make an empty file for total_bytes whose stripes lie on several targets. What fails is left to the file system's
 * defaults. */
void ash_lustre_make_striped(const char *path, uint64_t total_bytes);
/* Are the bytes of the file in the archive alone? */
bool ash_lustre_is_released(const char *path);

#endif
