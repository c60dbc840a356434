/* event_file - scalars of a run in the form that TensorBoard reads: TFRecord frames of tensorflow.Event messages. A run
 * that resumes begins another file in the folder, whose first event makes readers drop later steps of earlier files. */
#ifndef ASH_RECORD_EVENT_FILE_H
#define ASH_RECORD_EVENT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

struct ash_event_file;

struct ash_event_scalar {
    const char *tag; /* "loss", "time/compute" */
    float value;     /* NaN: left out */
};

/* Does the folder have event files? */
bool ash_event_file_exists(const char *dir);
/* Begin a file in dir, which is made if it is not there. step, wall_s: of the first event. */
int ash_event_file_open(const char *dir, uint64_t step, double wall_s, struct ash_event_file **file_out,
                        struct ash_err *err);
/* NULL is a no-op. */
void ash_event_file_close(struct ash_event_file *file);
/* Append one event. wall_s: seconds since 1970. -ENOSPC and the like: it is written later, and the caller may warn. */
int ash_event_file_add(struct ash_event_file *file, uint64_t step, double wall_s,
                       const struct ash_event_scalar *scalars, size_t count, struct ash_err *err);

#endif
