/* process - Prometheus's standard metrics of a process. */
#ifndef ASH_OBSERVE_EXPORTER_PROCESS_H
#define ASH_OBSERVE_EXPORTER_PROCESS_H

#include <stdio.h>

/* Prometheus text of process_cpu_seconds_total, process_resident_memory_bytes and process_start_time_seconds. A figure
 * that the system does not give is left out. Any thread may call. */
void ash_process_write(FILE *out);

#endif
