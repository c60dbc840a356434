/* Constrained output: a stand-in until grammars are here. */
#include "serve/api/grammars.h"
#include <errno.h>
#include <stdlib.h>
struct ash_api_grammars {
    int unused;
};
int ash_api_grammars_open(struct ash_api *api, struct ash_api_grammars **grammars_out, struct ash_err *err)
{
    (void)api;
    *grammars_out = calloc(1, sizeof(**grammars_out));
    return *grammars_out != NULL ? 0 : ash_err_set(err, -ENOMEM, "no memory");
}
void ash_api_grammars_close(struct ash_api_grammars *grammars)
{
    free(grammars);
}
void ash_api_grammars_read(struct ash_call *call, struct ash_api_request *request)
{
    (void)call;
    (void)request;
}
void ash_api_grammars_read_tools(struct ash_call *call, struct ash_api_request *request, struct ash_chat_call *chat)
{
    (void)call;
    (void)request;
    (void)chat;
}
