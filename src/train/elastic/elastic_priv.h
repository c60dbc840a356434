/* elastic_priv - between the files of the machine. */
#ifndef ASH_TRAIN_ELASTIC_PRIV_H
#define ASH_TRAIN_ELASTIC_PRIV_H

#include "train/elastic/elastic.h"

/* Decide, from the sum over the mesh: stop, change, leave. The same on all ranks of the mesh but for `leaves`. */
void ash_elastic_decide(struct ash_elastic *machine, const struct ash_elastic_event *met);
/* The follow-up of the step that was decided on; `due` is complete but for saves that are overdue. */
void ash_elastic_plan_due(struct ash_elastic *machine);

#endif
