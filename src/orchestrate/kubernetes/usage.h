/* usage - what pods of jobs had, from their objects. Pods that are deleted are forgotten. */
#ifndef ASH_ORCHESTRATE_KUBERNETES_USAGE_H
#define ASH_ORCHESTRATE_KUBERNETES_USAGE_H

#include <jansson.h>
#include "ashlar/err.h"
#include "orchestrate/job/usage.h"

/* Annotations of pods: who submitted the job and who pays, its folder and its price. */
#define ASH_KUBE_NOTE_USER "ashlar.dev/user"
#define ASH_KUBE_NOTE_TEAM "ashlar.dev/team"
#define ASH_KUBE_NOTE_OUT "ashlar.dev/out"
#define ASH_KUBE_NOTE_PRICE "ashlar.dev/price"

/* Append what the pods (items of a list) had between from_s and to_s; one that runs ends at to_s. Returns 0 or
 * -ENOMEM. */
int ash_kube_read_usage(const json_t *pods, double from_s, double to_s, struct ash_usage_list *list_out);
/* As the table of jobs has it. */
int ash_kube_usage(double from_s, double to_s, struct ash_usage_list *list_out, struct ash_err *err);

#endif
