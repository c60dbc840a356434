/* publish - a process's metrics, steps and collective calls, published in mapped files
 * that outlive it (record/metrics_page.h, record/ring_file.h). */
#ifndef ASH_CMD_PUBLISH_H
#define ASH_CMD_PUBLISH_H

#include <stdbool.h>
#include "collective/member/launch_env.h"
#include "serve/engine/recorder.h"

/* Labels of a process of env's job: job, rank, run (NULL: none) and its id, into buf, which it returns. */
const char *ash_publish_labels(const struct ash_launch_env *env, const char *run, char *buf, size_t buf_bytes);
/* Publish metrics and collective calls in dir ("": do not). A failure is a warning: the job continues unseen. */
void ash_publish_start(const char *dir, const char *labels);
/* Publish a server's metrics, and rings of its requests and passes. A failure is a warning. The caller owns the result,
 * which may be NULL, and closes it after the engine. */
struct ash_recorder *ash_publish_server(const char *dir, const char *labels);
/* Orderly end; is_failed: the calls stay for diagnosis. */
void ash_publish_stop(bool is_failed);

#endif
