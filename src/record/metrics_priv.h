/* metrics_priv - where instruments keep their words: in themselves, or in the page of the process. */
#ifndef ASH_RECORD_METRICS_PRIV_H
#define ASH_RECORD_METRICS_PRIV_H

#include "record/metrics.h"

/* Room in this process's page for an instrument that is about to be registered: its words, all 0, or NULL if there is
 * no page or it is full. The lock of the registry is held. */
_Atomic uint64_t *ash_metrics_page_place(const struct ash_metric *metric);
/* From now on place every instrument, and move those that are registered already. place must find room for both. */
void ash_metrics_move(void);

#endif
