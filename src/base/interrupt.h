/* interrupt - Ctrl-C and a polite kill become a flag that long work looks at between steps, so that it can save and
 * end. */
#ifndef ASH_BASE_INTERRUPT_H
#define ASH_BASE_INTERRUPT_H

#include <stdbool.h>

/* From now on SIGINT and SIGTERM set the flag (cleared here) and interrupt blocking calls. A second SIGINT ends the
 * process the default way. For a program's main thread, once per run. */
void ash_interrupt_install(void);
/* Has one arrived since the installation? Any thread may ask. */
bool ash_interrupt_requested(void);

#endif
