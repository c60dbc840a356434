/* servers - data of the page for servers on this machine, from their rings
 * (observe/trace/server_rings.h). */
#ifndef ASH_OBSERVE_PAGE_SERVERS_H
#define ASH_OBSERVE_PAGE_SERVERS_H

#include "base/json.h"
#include "observe/trace/server_rings.h"

/* Append to servers (an array) the page's data of each server in dir: its status, tokens per second by time, waits of
 * requests, the last requests. A folder without servers adds nothing. */
void ash_servers_json(const char *dir, json_t *servers);
/* The same of one server; the caller owns it, NULL: no memory. now_s: seconds since 1970. */
json_t *ash_server_json(const struct ash_server_rings *server, double now_s);

#endif
