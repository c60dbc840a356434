/* servers - what the page draws of servers on this machine, from the rings that they keep
 * (observe/trace/server_rings.h). */
#ifndef ASH_OBSERVE_PAGE_SERVERS_H
#define ASH_OBSERVE_PAGE_SERVERS_H

#include "base/json.h"
#include "observe/trace/server_rings.h"

/* Append to servers (an array) what the page draws of each server in dir: how it stands, tokens per second by time, how
 * long requests waited, the last requests. A folder without servers adds nothing. */
void ash_servers_json(const char *dir, json_t *servers);
/* The same of one server; the caller owns it, NULL: no memory. now_s: seconds since 1970. */
json_t *ash_server_json(const struct ash_server_rings *server, double now_s);

#endif
