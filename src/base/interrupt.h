/* interrupt - Ctrl-C and a polite kill become a flag that long work looks at between steps, so that it can save and
 * end. */
#ifndef ASH_BASE_INTERRUPT_H
#define ASH_BASE_INTERRUPT_H

#include <stdbool.h>
#include <stdint.h>

/* From now on SIGINT, SIGTERM and (unless it is ignored, as under nohup) SIGHUP set the flag (cleared here)
 * and interrupt blocking calls. A second SIGINT ends the process the default way. For a program's main
 * thread, once per run. */
void ash_interrupt_install(void);
/* Has one arrived since the installation? Any thread may ask. */
bool ash_interrupt_requested(void);
/* The number of the first signal since the installation, or 0. 128 plus it is the exit code that shells expect. */
int ash_interrupt_signal(void);
/* When the first signal arrives, write text to standard error at once. text is borrowed for good; NULL: nothing. */
void ash_interrupt_announce(const char *text);
/* The program ends in good order now, because of a request here or in another process of its job: its remaining waits
 * may take their time, until a second request. Any thread. */
void ash_interrupt_take_up(void);
/* Must a wait for another process end? Yes when a request is older than grace_ns and has not been taken up, and at
 * once when a second signal came (more than half a second after the first). Any thread. */
bool ash_interrupt_ends_wait(uint64_t grace_ns);

#endif
